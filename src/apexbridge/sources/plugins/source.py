"""Source of one plugin's skills, with its namespace and its variables substituted."""

import contextlib
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import anyio.to_thread

from apexbridge.errors import SkillNotFoundError, SourceError
from apexbridge.permissions.rules import ToolPattern
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Origin, Problem, Provenance, Skill, SkillContent, SkillResource
from apexbridge.skills.parser import read_skill
from apexbridge.sources.base import (
    NAMESPACE_SEPARATOR,
    BaseSource,
    NamespacedSource,
    Scan,
    SkillSource,
    name_part,
)
from apexbridge.sources.folders import DEFAULT_LIMITS, FolderSource, ScanLimits
from apexbridge.sources.plugins.commands import command_source

log = logging.getLogger(__name__)

_ROOT, _DATA, _CONFIG = "CLAUDE_PLUGIN_ROOT", "CLAUDE_PLUGIN_DATA", "user_config."
_VARIABLE = re.compile(rf"\$\{{({_ROOT}|{_DATA}|{re.escape(_CONFIG)}[^{{}}\s]+)\}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """Name, folders and variables of a plugin."""

    name: str
    root: Path
    skill_folders: tuple[Path, ...]
    """Folders that hold skills, or are one."""
    data: Path
    """The plugin's writable data folder."""
    commands: tuple[Path, ...] = ()
    """Markdown files that are commands, and folders of them."""
    is_builtin: bool = False
    """It comes with this package."""
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: frozenset[str] = frozenset()
    """Keys of `config` whose values never enter a text."""
    is_declared: bool = True
    """False if no manifest and no marketplace names it: it is a plugin by its folders."""

    def fill(self, text: str) -> str:
        """Substitute variables in one pass (no recursion); unknown ones stay as written."""
        return _VARIABLE.sub(self._value, text)

    def fill_folders(self, text: str) -> str:
        """Substitute the two folders only: a setting's value must never widen a permission rule."""
        values = {_ROOT: str(self.root), _DATA: str(self.data)}
        return _VARIABLE.sub(lambda match: values.get(match[1], match[0]), text)

    def _value(self, match: re.Match[str]) -> str:
        key = match[1].removeprefix(_CONFIG)
        if key == match[1]:
            return str(self.root if key == _ROOT else self.data)
        return match[0] if key in self.secrets else self.config.get(key, match[0])

    def missing_variables(self, text: str, where: str) -> list[Problem]:
        """Report variables that a text uses and that have no value."""
        variables = dict.fromkeys(match[1] for match in _VARIABLE.finditer(text))
        keys = [v.removeprefix(_CONFIG) for v in variables if v.startswith(_CONFIG)]
        return [
            Problem.warning(
                "plugin_config_secret" if key in self.secrets else "plugin_config_missing",
                where,
                key=key,
                plugin=self.name,
            )
            for key in keys
            if key in self.secrets or key not in self.config
        ]


def has_skill_md(folder: Path) -> bool:
    """Return whether a folder is itself a skill."""
    try:
        return any(name.lower() == SKILL_MD.lower() for name in os.listdir(folder))  # noqa: PTH208, names are enough
    except OSError:
        return False


class _SingleSkillSource(FolderSource):
    """A folder that is itself a skill; if it is the plugin's root, its name may differ."""

    def __init__(self, root: Path, limits: ScanLimits, name: str) -> None:
        super().__init__(root, Origin.PLUGIN, limits)
        self._own_name = name

    async def scan(self) -> Scan:
        """Parse the one skill."""
        reading = await anyio.to_thread.run_sync(read_skill, self.root, self.provenance)
        problems = list(reading.problems)
        skill = reading.skill
        if skill is not None and self._own_name:
            problems = [problem for problem in problems if problem.code != "name_mismatch"]
            skill = replace(skill, name=skill.name if skill.manifest.name else self._own_name)
        whole = self.root.name
        located = [replace(p, where="" if p.where == whole else p.where) for p in problems]
        return Scan(skills=(skill,) if skill else (), problems=tuple(located))


class PluginSource(BaseSource):
    """Skills and commands of one plugin, trusted by default only if it comes with the package.

    A skill keeps its name before a command of the same name.
    """

    def __init__(self, plugin: Plugin, limits: ScanLimits = DEFAULT_LIMITS) -> None:
        self.plugin = plugin
        self.provenance = Provenance(
            origin=Origin.PLUGIN,
            source_id=f"{Origin.PLUGIN}:{plugin.name}@{plugin.root}",
            needs_trust=not plugin.is_builtin,
            may_run_shell=True,
        )
        self._parts: tuple[tuple[Path, SkillSource], ...] = (
            *((place, self._part(place, limits)) for place in plugin.skill_folders),
            *(command_source(path, plugin.name, limits) for path in plugin.commands),
        )

    def _part(self, place: Path, limits: ScanLimits) -> SkillSource:
        if has_skill_md(place):
            name = self.plugin.name if place == self.plugin.root else ""
            return NamespacedSource(_SingleSkillSource(place, limits, name), self.plugin.name)
        inner = FolderSource(place, Origin.PLUGIN, limits)
        return NamespacedSource(inner, self.plugin.name, lambda skill: _namespace(place, skill))

    @property
    def roots(self) -> tuple[Path, ...]:
        """The folders of its skills."""
        return tuple(dict.fromkeys(root for _, part in self._parts for root in part.roots))

    async def scan(self) -> Scan:
        """Scan every folder; an unreadable one is a problem and does not hide the others."""
        skills, problems, seen = list[Skill](), list[Problem](), set[Path | str]()
        for place, part in self._parts:
            try:
                scan = await part.scan()
            except SourceError as error:
                where = self._where(place)
                problems.append(Problem(code=error.code, where=where, details=error.details))
                continue
            problems += [replace(p, where=self._where(place, p.where)) for p in scan.problems]
            for skill in scan.skills:
                mark = skill.fingerprint.sha256 if skill.fingerprint else ""
                # A manifest may list a command that is also in the folder `commands`.
                real = skill.root.resolve() if skill.root else f"{skill.name} {mark}"
                if real not in seen:
                    seen.add(real)
                    skills.append(self._as_plugin_skill(skill))
                    problems += await self._unset_variables(part, skill)
        return Scan(skills=tuple(skills), problems=tuple(problems))

    async def content(self, skill: Skill, arguments: str = "") -> SkillContent:
        """Load the body and substitute the plugin's variables.

        The plugin's data folder is created if the body refers to it.
        """
        for part, original in self._inner_skills(skill):
            with contextlib.suppress(SkillNotFoundError):
                body = (await part.content(original, arguments)).body
                if f"${{{_DATA}}}" in body:
                    await anyio.to_thread.run_sync(_make_folder, self.plugin.data)
                return SkillContent(skill=skill, body=self.plugin.fill(body))
        raise SkillNotFoundError(skill.name)

    async def resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        """Load a file beside SKILL.md unchanged: variables are substituted in bodies only."""
        for part, original in self._inner_skills(skill):
            with contextlib.suppress(SkillNotFoundError):
                return replace(await part.resource(original, path), skill=skill)
        raise SkillNotFoundError(skill.name)

    async def close(self) -> None:
        """Close the folder sources."""
        for _, part in self._parts:
            await part.close()

    def _as_plugin_skill(self, skill: Skill) -> Skill:
        fill = self.plugin.fill_folders
        tools = [
            tool if tool.argument is None else ToolPattern(tool.tool, fill(tool.argument))
            for tool in skill.tools
        ]
        hooks = [replace(hook, command=tuple(map(fill, hook.command))) for hook in skill.hooks]
        return replace(skill, provenance=self.provenance, tools=tuple(tools), hooks=tuple(hooks))

    def _inner_skills(self, skill: Skill) -> list[tuple[SkillSource, Skill]]:
        """Rebuild the skill as each inner source would have listed it; only one of them did."""
        if skill.provenance.source_id != self.id:
            return []
        return [
            (part, replace(skill, provenance=replace(skill.provenance, source_id=part.id)))
            for _, part in self._parts
        ]

    async def _unset_variables(self, part: SkillSource, skill: Skill) -> list[Problem]:
        try:
            body = (await part.content(skill)).body
        except SourceError:  # deleted or broken since; the next scan reports it
            return []
        where = self._where(skill.root or self.plugin.root, SKILL_MD)
        return self.plugin.missing_variables(body, where)

    def _where(self, place: Path, where: str = "") -> str:
        """Format a location relative to the plugin's folder, which names the plugin."""
        root = self.plugin.root
        # Skills that plugins of a marketplace share are in its folders.
        inside = place.relative_to(root).parts if place.is_relative_to(root) else place.parts[-2:]
        parts = (root.name, *inside, where)
        return where if where.startswith("/") else "/".join(filter(None, parts))


def _namespace(place: Path, skill: Skill) -> str:
    """Join the folders between the skills folder and the skill."""
    if skill.root is None or not skill.root.is_relative_to(place):
        return ""
    between = skill.root.relative_to(place).parts[:-1]
    return NAMESPACE_SEPARATOR.join(filter(None, map(name_part, between)))


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:  # the body is useful without it
        log.warning("cannot create the plugin's data folder %s: %s", path, error)
