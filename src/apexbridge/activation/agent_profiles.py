"""Agent profiles: the subagents that `agent:` of a skill names, from Markdown files and built in.

A file such as `.claude/agents/reviewer.md` has frontmatter (name, description, tools,
disallowedTools, model) and the system prompt as its body. Files are read when a skill is forked, so
that an edit counts at once. A profile only ever narrows what the session may do.
"""

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apexbridge.errors import AgentNotFoundError, ConfigError, SkillNotInvocableError
from apexbridge.permissions.rules import ToolPattern
from apexbridge.regular_files import read_regular
from apexbridge.skills.model import Origin, Problem, Skill, ToolPatterns
from apexbridge.skills.parser import parse_document
from apexbridge.tools.base import GENERAL_PURPOSE, AgentProfile

MAX_BYTES = 256 * 1024
"""A larger file is no agent profile."""
MAX_FILES = 200
"""Profiles read of one folder, in the order of their names."""
_INHERIT = "inherit"
_READ_ONLY = "You only read: change no file, run no command. End with a report of what you found."
BUILTIN_PROFILES = (
    GENERAL_PURPOSE,
    AgentProfile(
        name="Explore",
        description="Find files and facts in the project, without changing anything.",
        prompt=f"You explore files to answer a question. {_READ_ONLY} Name files and lines.",
        is_read_only=True,
    ),
    AgentProfile(
        name="Plan",
        description="Plan a change of the project, without making it.",
        prompt=f"You plan a change. {_READ_ONLY} Give the steps, and the files that each concerns.",
        is_read_only=True,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFolder:
    """A folder of agent profiles."""

    path: Path
    origin: Origin
    namespace: str = ""
    """Name of the plugin, which precedes the names of its agents."""
    inside: Path | None = None
    """A file that a symlink takes out of this folder is not read."""


class _AgentFields(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(default="", max_length=200)
    description: str = ""
    tools: ToolPatterns | None = None
    denied: ToolPatterns = Field(default=(), alias="disallowedTools")
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundProfile:
    """A profile and its place; `problem` says why a file is none."""

    profile: AgentProfile
    origin: Origin | None = None
    path: Path | None = None
    problem: str = ""


class AgentProfiles:
    """Profiles of the user, built in, of the project and of plugins; the first of a name wins.

    A project cannot take over the name of a user's profile, nor of a built-in one.
    """

    def __init__(self, folders: Sequence[AgentFolder] = ()) -> None:
        self._own = [folder for folder in folders if folder.origin is Origin.USER]
        self._others = [folder for folder in folders if folder.origin is not Origin.USER]

    async def for_skill(self, skill: Skill) -> AgentProfile:
        """Return the profile that a forked skill runs as; `general-purpose` if it names none.

        Raises:
            AgentNotFoundError: With the closest names.
            SkillNotInvocableError: `agent_invalid` if the file of that name cannot be used.
        """
        wanted = (skill.manifest.agent or "").strip()
        return await to_thread.run_sync(self._find, wanted, skill) if wanted else GENERAL_PURPOSE

    def list(self) -> list[FoundProfile]:
        """Read every profile, also those that cannot be used or whose name is taken."""
        return list(self._read_all())

    def _find(self, wanted: str, skill: Skill) -> AgentProfile:
        every = self.list()
        found = next((f for name in _spellings(wanted, skill) for f in every if _is(f, name)), None)
        if found is None:
            names = {f.profile.name.casefold(): f.profile.name for f in every if not f.problem}
            near = difflib.get_close_matches(wanted.casefold(), names, n=3, cutoff=0.5)
            raise AgentNotFoundError(wanted, near=[names[name] for name in near])
        if found.problem:
            raise SkillNotInvocableError(
                found.problem, code="agent_invalid", name=wanted, path=found.path
            )
        return found.profile if _may_choose_model(found, skill) else _without_model(found.profile)

    def _read_all(self) -> Iterator[FoundProfile]:
        for folder in self._own:
            yield from _read_folder(folder)
        yield from (FoundProfile(profile=profile) for profile in BUILTIN_PROFILES)
        for folder in self._others:
            yield from _read_folder(folder)


def _spellings(wanted: str, skill: Skill) -> Iterator[str]:
    """Yield the names to look up: a skill of a plugin means an agent of that plugin first."""
    if skill.provenance.origin is Origin.PLUGIN:
        yield f"{skill.name.partition(':')[0]}:{wanted}".casefold()
    yield wanted.casefold()


def _is(found: FoundProfile, name: str) -> bool:
    return found.profile.name.casefold() == name


def _may_choose_model(found: FoundProfile, skill: Skill) -> bool:
    """Return whether the profile's model counts: it is a grant, and needs the same trust."""
    if found.origin in {None, Origin.USER}:
        return True
    return skill.is_trusted and skill.provenance.origin is found.origin


def _without_model(profile: AgentProfile) -> AgentProfile:
    return replace(profile, model=None)


def _read_folder(folder: AgentFolder) -> Iterator[FoundProfile]:
    try:
        names = sorted(name for name in os.listdir(folder.path) if name.endswith(".md"))  # noqa: PTH208, names are enough
    except OSError:
        return
    for name in names[:MAX_FILES]:
        path = folder.path / name
        prefix = f"{folder.namespace}:" if folder.namespace else ""
        try:
            profile = _parse(_read_file(path, folder.inside), default_name=path.stem)
            problem = ""
        except (OSError, ValueError, ConfigError, RuntimeError) as error:
            profile, problem = AgentProfile(name=path.stem), str(error)
        named = replace(profile, name=prefix + profile.name)
        yield FoundProfile(profile=named, origin=folder.origin, path=path, problem=problem)


def _read_file(path: Path, inside: Path | None) -> bytes:
    real = path.resolve(strict=True)
    if inside is not None and not real.is_relative_to(inside.resolve()):
        raise ValueError("it is a symlink out of the project or plugin")
    data = read_regular(real, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    return data


def _parse(data: bytes, default_name: str) -> AgentProfile:
    parsed = parse_document(data)
    if isinstance(parsed, Problem):
        raise ValueError(parsed.message)  # noqa: TRY004, it is no wrong type but a broken file
    document, frontmatter = parsed
    # An empty `tools:` is YAML's null, and means the same as none.
    values = {key: value for key, value in frontmatter.values.items() if value is not None}
    try:
        fields = _AgentFields.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    tools = fields.tools
    model = (fields.model or "").strip()
    return AgentProfile(
        name=fields.name.strip() or default_name,
        description=fields.description,
        prompt=document.body.strip(),
        tools=None if tools is None else tuple(map(ToolPattern.parse, tools)),
        denied=tuple(map(ToolPattern.parse, fields.denied)),
        model=None if model in {"", _INHERIT} else model,
    )
