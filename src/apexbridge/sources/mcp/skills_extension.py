"""Convert entries of the MCP skills extension (`io.modelcontextprotocol/skills`) to skills.

`skills/list` returns entries: the `uri` of a SKILL.md, its `frontmatter` as JSON, and `resources`,
every file of the skill with `uri`, `digest` (`sha256:` and 64 hexadecimal digits) and `size`. Files
are loaded with `resources/read` on demand, and each is verified against its entry before it is
used; SKILL.md must also declare the same frontmatter. `"dynamic"` in place of the files means that
nothing can be verified: such a skill is left out and reported.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import unquote

from pydantic import BaseModel, Field, ValidationError

from apexbridge.errors import SkillNotFoundError, SourceError
from apexbridge.permissions.rules import split_patterns
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import (
    Fingerprint,
    Problem,
    Provenance,
    Skill,
    SkillManifest,
    YamlValue,
)
from apexbridge.skills.parser import (
    MAX_DESCRIPTION,
    MAX_SKILL_MD_BYTES,
    parse_document,
    parse_skill,
)
from apexbridge.sources.mcp.connection import qualified_name, sanitize_line
from apexbridge.sources.mcp.prompts import Prompt, PromptSkill, skills_from_prompts

EXTENSION = "io.modelcontextprotocol/skills"
MAX_FILES = 512
MAX_BYTES = 16 * 1024 * 1024

_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ]00:00(:00(\.0+)?)?(Z|\+00:00)?")
_BOOLEANS = {"true": "true", "yes": "true", "on": "true"} | dict.fromkeys(
    ("false", "no", "off"), "false"
)


class SkillsPage(BaseModel):
    """Result of `skills/list`; each entry is validated on its own."""

    skills: list[Any]
    next_cursor: str | None = Field(default=None, alias="nextCursor")


class _File(BaseModel):
    uri: Annotated[str, Field(min_length=1, max_length=4096)]
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0)]


class _Entry(BaseModel):
    uri: Annotated[str, Field(min_length=1, max_length=4096)]
    frontmatter: dict[str, Any] | None = None
    resources: Annotated[list[_File], Field(max_length=MAX_FILES)] | Literal["dynamic"]


class _EntryUri(BaseModel):
    """The URI of an invalid entry, for its problem."""

    uri: Any = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionFile:
    """Announced URI, digest and size of one file."""

    uri: str
    sha256: str
    size: int

    def difference(self, data: bytes) -> str:
        """Describe how the bytes differ from the announcement; empty if they do not."""
        if len(data) != self.size:
            return f"it has {len(data)} bytes, not {self.size}"
        if hashlib.sha256(data).hexdigest() != self.sha256:
            return "its SHA-256 differs"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionSkill:
    """An entry and the skill made from it, with the files that may be read."""

    uri: str
    skill: Skill
    files: Mapping[str, ExtensionFile]
    declared: Mapping[str, YamlValue]

    def body(self, data: bytes) -> str | None:
        """Return the body of a SKILL.md; None if its frontmatter differs from the entry's."""
        opened = parse_document(data)
        if isinstance(opened, Problem):
            return None
        is_same = _canonical_frontmatter(opened[1].values) == _canonical_frontmatter(self.declared)
        return opened[0].body if is_same else None


def skills_from_entries(
    entries: Iterable[Any], *, server: str, provenance: Provenance
) -> tuple[dict[str, ExtensionSkill], list[Problem]]:
    """Convert valid entries to skills; equal names get a hash of the URI as suffix."""
    found, problems = list[ExtensionSkill](), list[Problem]()
    for raw in entries:
        served, wrong = _read(raw, server, provenance)
        found += [served] if served else []
        problems += wrong
    names = Counter(served.skill.name for served in found)
    skills = dict[str, ExtensionSkill]()
    for served in found:
        name = served.skill.name
        if names[name] > 1:
            name = f"{name}_{hashlib.sha256(served.uri.encode()).hexdigest()[:8]}"
        if name in skills:
            problems.append(_invalid(name, "it is listed twice"))
        else:
            skills[name] = replace(served, skill=replace(served.skill, name=name))
    return skills, problems


def _read(
    raw: Any, server: str, provenance: Provenance
) -> tuple[ExtensionSkill | None, list[Problem]]:
    entry = _entry(raw)
    if isinstance(entry, Problem):
        return None, [entry]
    folder = unquote(entry.uri.split("/")[-2])
    where = sanitize_line(folder, 128)
    if entry.resources == "dynamic":
        return None, [Problem.error("digests_missing", where, name=where)]
    files = _files(entry.uri, entry.resources)
    if isinstance(files, str):
        return None, [_invalid(entry.uri, files)]
    if not entry.frontmatter:
        return None, [Problem(code="frontmatter_missing", where=where)]
    text = b"---\n" + json.dumps(entry.frontmatter, ensure_ascii=False).encode() + b"\n---\n"
    opened, reading = parse_document(text), parse_skill(text, folder=folder, provenance=provenance)
    problems = [replace(problem, where=f"{where}/{SKILL_MD}") for problem in reading.problems]
    if isinstance(opened, Problem) or reading.skill is None:
        return None, problems
    skill = replace(
        reading.skill,
        name=qualified_name(server, reading.skill.name),
        description=sanitize_line(reading.skill.description, MAX_DESCRIPTION),
        fingerprint=_fingerprint(files),
    )
    served = ExtensionSkill(uri=entry.uri, skill=skill, files=files, declared=opened[1].values)
    return served, problems


def _entry(raw: Any) -> _Entry | Problem:
    try:
        entry = _Entry.model_validate(raw)
    except ValidationError as error:
        named = _EntryUri.model_validate(raw if isinstance(raw, dict) else {})
        return _invalid(str(named.uri), _first_error(error))
    if not re.search(f"[^/]/{SKILL_MD}$", entry.uri):
        return _invalid(entry.uri, f"its URI does not end with a folder and {SKILL_MD}")
    return entry


def _files(uri: str, listed: list[_File]) -> dict[str, ExtensionFile] | str:
    """Map paths in the skill to files; a text instead says why the list is invalid."""
    root = uri.removesuffix(SKILL_MD)
    files = dict[str, ExtensionFile]()
    for file in listed:
        path = unquote(file.uri.removeprefix(root))
        if not file.uri.startswith(root) or not _is_inside(path):
            return f"'{sanitize_line(file.uri, 200)}' is not inside of the skill"
        if path in files:
            return f"'{sanitize_line(path, 200)}' is listed twice"
        files[path] = ExtensionFile(
            uri=file.uri, sha256=file.digest.removeprefix("sha256:"), size=file.size
        )
    if SKILL_MD not in files:
        return f"{SKILL_MD} is not among its files"
    if files[SKILL_MD].size > MAX_SKILL_MD_BYTES:
        return f"{SKILL_MD} has more than {MAX_SKILL_MD_BYTES} bytes"
    if sum(file.size for file in files.values()) > MAX_BYTES:
        return f"its files have more than {MAX_BYTES} bytes"
    return files


def _is_inside(path: str) -> bool:
    parts = path.split("/")
    has_control = any(char < " " or char in "\\\x7f" for char in path)
    return not has_control and not {"", ".", ".."} & set(parts) and str(PurePosixPath(path)) == path


def _fingerprint(files: Mapping[str, ExtensionFile]) -> Fingerprint:
    digest = hashlib.sha256()
    for path, file in sorted(files.items()):
        digest.update(f"{path}\0{file.sha256}\n".encode())
    size = sum(file.size for file in files.values())
    return Fingerprint(size=size, files=len(files), sha256=digest.hexdigest())


def _canonical_frontmatter(values: Mapping[str, YamlValue]) -> object:
    """Normalise frontmatter, however a server writes lists, nested and empty fields."""
    given: dict[str, YamlValue] = {key: value for key, value in values.items() if value is not None}
    tools = given.get("allowed-tools")
    if isinstance(tools, str | list):
        given["allowed-tools"] = [*(split_patterns(tools) if isinstance(tools, str) else tools)]
    if isinstance(given.get("metadata"), dict):
        read = SkillManifest.model_validate({"metadata": given["metadata"]})
        given["metadata"] = {**read.metadata}
    return _canonical_value(given)


def _canonical_value(value: YamlValue) -> object:
    """Normalise a value that YAML and JSON write differently."""
    if isinstance(value, dict):
        return {key: _canonical_value(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_canonical_value(entry) for entry in value]
    text = (value or "").strip()
    midnight = _MIDNIGHT.fullmatch(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return midnight[1] if midnight else _BOOLEANS.get(text.lower(), text)


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"


def _invalid(name: str, detail: str) -> Problem:
    where = sanitize_line(name, 200)
    return Problem.error("skill_entry_invalid", where, name=where, detail=detail)


MAX_LISTED = 1_000
MAX_PAGES = 100

E = TypeVar("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpListing:
    """Skills and prompts of a server by qualified name, and problems with others."""

    skills: dict[str, ExtensionSkill] = field(default_factory=dict[str, ExtensionSkill])
    prompts: dict[str, PromptSkill] = field(default_factory=dict[str, PromptSkill])
    problems: tuple[Problem, ...] = ()

    def entry(self, skill: Skill) -> PromptSkill | ExtensionSkill:
        """Look up the entry of a skill; SkillNotFoundError, or SourceError if it has changed."""
        entry = self.skills.get(skill.name) or self.prompts.get(skill.name)
        source = skill.provenance.source_id
        if entry is None or entry.skill.provenance.source_id != source:
            raise SkillNotFoundError(skill.name)
        if entry.skill.fingerprint != skill.fingerprint:
            raise mismatch_error(source, SKILL_MD, "it has changed since it was listed")
        return entry


def mismatch_error(source: str, path: str, detail: str) -> SourceError:
    """Build the error for bytes that differ from the announcement."""
    return SourceError(detail, code="digest_mismatch", source=source, path=path)


def build_listing(
    entries: Iterable[Any], prompts: Iterable[Prompt], *, server: str, provenance: Provenance
) -> McpListing:
    """Convert entries and prompts; if a name is offered both ways, the skill wins."""
    skills, entry_problems = skills_from_entries(entries, server=server, provenance=provenance)
    offered, prompt_problems = skills_from_prompts(
        prompts, server=server, provenance=provenance, taken=skills
    )
    return McpListing(skills=skills, prompts=offered, problems=(*entry_problems, *prompt_problems))


async def all_pages(
    page: Callable[[str | None], Awaitable[tuple[Sequence[E], str | None]]], where: str
) -> tuple[list[E], list[Problem]]:
    """Fetch the pages of a list, up to a limit."""
    found, cursor = list[E](), None
    for _ in range(MAX_PAGES):
        more, cursor = await page(cursor)
        found += more
        if cursor is None or len(found) > MAX_LISTED:
            break
    if cursor is None and len(found) <= MAX_LISTED:
        return found, []
    cut = Problem.warning("listing_limit", where, limit=min(MAX_LISTED, len(found)))
    return found[:MAX_LISTED], [cut]
