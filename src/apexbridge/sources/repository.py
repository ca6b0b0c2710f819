"""Skills of a folder of any layout: one skill, a repository, a plugin or a marketplace."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from apexbridge.errors import UnsafePathError
from apexbridge.paths import safe_join
from apexbridge.skills.model import Origin, Problem, Provenance, Skill
from apexbridge.skills.parser import read_skill
from apexbridge.sources.directory_scanner import (
    DirectoryScanner,
    ScanLimits,
    is_folder,
    resolve_leniently,
)
from apexbridge.sources.git_excludes import read_small_file
from apexbridge.sources.plugins.finder import find_plugins
from apexbridge.sources.plugins.source import PluginSource, has_skill_md

REPOSITORY_LIMITS = ScanLimits(max_depth=8, max_folders=20_000)
"""Limits of one search through a repository, which holds more than a folder of one's own skills."""

_MAX_SUBMODULES = 100
_ASIDE = frozenset(
    {"test", "tests", "__tests__", "fixtures", "testdata"}
    | {"template", "templates", "backup", "backups", "node_modules"}
)
"""Folders whose skills are samples or copies: used only where a repository has no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSkill:
    """A skill of a repository, as it would be installed."""

    name: str
    description: str
    path: Path
    where: str
    """Path below the repository, `skills/pdf`; empty if the repository itself is the skill."""
    plugin: str = ""
    """The plugin that lists it, if any."""
    sha256: str = ""
    """Content hash of its files; empty if they cannot be hashed."""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """All skills of a folder, and what was left out and why."""

    skills: tuple[FoundSkill, ...] = ()
    problems: tuple[Problem, ...] = ()


def discover_skills(folder: Path, limits: ScanLimits = REPOSITORY_LIMITS) -> Repository:
    """List every skill at and below a folder, in a fixed order; no symlink leads out of it.

    A folder with a SKILL.md is one skill. Otherwise skills are found at any depth up to the limit,
    also in the hidden folders of published repositories (`.curated`, `.github/skills`). Equal
    copies count once. Skills of tests and templates count only where there are no others. Blocking:
    every file of every skill is hashed.
    """
    root = resolve_leniently(folder)
    if not is_folder(root):
        missing = Problem.error("path_missing", str(folder), path=folder)
        return Repository(problems=(missing,))
    if has_skill_md(root):
        found = _read(root, root)
        return Repository(
            skills=(found,) if isinstance(found, FoundSkill) else (),
            problems=() if isinstance(found, FoundSkill) else found,
        )
    return _search(root, limits)


def missing_submodules(root: Path) -> Iterator[Problem]:
    """Report the submodules of a repository whose folders are empty."""
    lines = read_small_file(root / ".gitmodules").splitlines()
    pairs = (map(str.strip, line.partition("=")[::2]) for line in lines)
    paths = [value for key, value in pairs if key == "path"]
    for path in paths[:_MAX_SUBMODULES]:
        if _is_empty(root, path):
            yield Problem.warning("submodule_left_out", path, path=path)


def _is_empty(root: Path, path: str) -> bool:
    try:
        return not any(safe_join(root, path).iterdir())
    except OSError:
        return True
    except UnsafePathError:
        return False


def _search(root: Path, limits: ScanLimits) -> Repository:
    scanner = DirectoryScanner(
        str(root), replace(limits, follow_external_symlinks=False, hidden_catalogs=True)
    )
    try:
        places = [root / skill.path for skill in scanner.skills()]
    except OSError as error:
        detail = error.strerror or str(error)
        unreadable = Problem.error("folder_unreadable", str(root), detail=detail)
        return Repository(problems=(unreadable,))
    plugins, problems = _plugins(root, limits)
    plain = [place for place in places if not _is_aside(place.relative_to(root))]
    left_out = [place for place in places if place not in plain] if plain else []
    problems += [
        Problem.warning("skill_left_out", _where(place, root), path=_where(place, root))
        for place in left_out
    ]
    skills = list[FoundSkill]()
    for place in plain or places:
        read = _read(place, root)
        if isinstance(read, FoundSkill):
            skills.append(replace(read, plugin=_plugin_of(place, plugins)))
        else:
            problems += read
    problems += _limit_problems(scanner, root)
    return Repository(skills=tuple(_without_copies(skills)), problems=tuple(problems))


def _plugins(root: Path, limits: ScanLimits) -> tuple[list[PluginSource], list[Problem]]:
    """Find the plugins that the folder declares; that it declares none is no problem."""
    found, problems = find_plugins([root], data=root, config={}, disabled=(), limits=limits)
    declared = [source for source in found if source.plugin.is_declared]
    return declared, [problem for problem in problems if problem.code != "plugin_missing"]


def _plugin_of(place: Path, plugins: list[PluginSource]) -> str:
    for source in plugins:
        if any(place.is_relative_to(folder) for folder in source.plugin.skill_folders):
            return source.plugin.name
    return ""


def _read(place: Path, root: Path) -> FoundSkill | tuple[Problem, ...]:
    where = _where(place, root)
    provenance = Provenance(origin=Origin.ADDITIONAL, source_id=f"repository:{root}")
    reading = read_skill(place, provenance)
    problems = tuple(replace(p, where=_locate(where, place.name, p)) for p in reading.problems)
    if reading.skill is None:
        return problems
    return _found(reading.skill, place, where, problems)


def _found(skill: Skill, place: Path, where: str, problems: tuple[Problem, ...]) -> FoundSkill:
    return FoundSkill(
        name=skill.name,
        description=skill.description,
        path=place,
        where=where,
        sha256=skill.fingerprint.sha256 if skill.fingerprint else "",
        problems=problems,
    )


def _locate(where: str, name: str, problem: Problem) -> str:
    """Prefix a problem's location with the folder, unless it is the folder itself."""
    return "/".join(filter(None, (where, "" if problem.where == name else problem.where)))


def _where(place: Path, root: Path) -> str:
    return "" if place == root else place.relative_to(root).as_posix()


def _is_aside(path: Path) -> bool:
    return not _ASIDE.isdisjoint(part.lower() for part in path.parts)


def _without_copies(skills: list[FoundSkill]) -> Iterator[FoundSkill]:
    seen = set[tuple[str, str]]()
    for skill in skills:
        key = (skill.name, skill.sha256 or skill.where)
        if key not in seen:
            seen.add(key)
            yield skill


def _limit_problems(scanner: DirectoryScanner, root: Path) -> Iterator[Problem]:
    for link in scanner.external_symlinks:
        path = root / link
        yield Problem.warning("link_leads_out", link, path=path, target=resolve_leniently(path))
    for path in scanner.unsearched:
        yield Problem.warning("folder_not_searched", path, path=path)
    if scanner.is_truncated:
        limit = scanner.limits.max_folders
        yield Problem.warning("folder_limit", str(root), limit=limit)
