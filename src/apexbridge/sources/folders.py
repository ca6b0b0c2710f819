"""Skills in a folder: every `name/SKILL.md` below a root."""

import os
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import anyio.to_thread

from apexbridge.errors import SkillNotFoundError, SourceError
from apexbridge.paths import safe_join
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import (
    Origin,
    Problem,
    Provenance,
    Skill,
    SkillContent,
    SkillResource,
)
from apexbridge.skills.reader import open_document, read_skill, read_skill_file
from apexbridge.sources.base import Scan

OWN = frozenset({Origin.MANAGED, Origin.USER, Origin.INSTALLED, Origin.BUNDLED})
"""Origins that the user or operator put there: nobody else vouches for the rest."""

_NEVER = frozenset({"node_modules", "__pycache__"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLimits:
    """How far a scan goes; a root of any size ends."""

    max_depth: int = 6
    max_folders: int = 2_000


DEFAULT_LIMITS = ScanLimits()


class FolderSource:
    """All skills below one root, read from disk each time they are asked for."""

    def __init__(self, root: Path, origin: Origin, limits: ScanLimits = DEFAULT_LIMITS) -> None:
        self.root = root
        self._limits = limits
        self.provenance = Provenance(
            origin=origin,
            source_id=f"{origin}:{root}",
            needs_trust=origin not in OWN,
            may_run_shell=True,
            writable=origin is Origin.INSTALLED,
        )

    @property
    def id(self) -> str:
        """The origin and the root."""
        return self.provenance.source_id

    @property
    def roots(self) -> tuple[Path, ...]:
        """The one root."""
        return (self.root,)

    async def scan(self) -> Scan:
        """Read every skill folder; a root that does not exist holds none."""
        return await anyio.to_thread.run_sync(self._scan)

    async def content(self, skill: Skill, arguments: str = "") -> SkillContent:
        """Read the body."""
        return await anyio.to_thread.run_sync(self._content, skill)

    async def resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        """Read a file beside SKILL.md."""
        return await anyio.to_thread.run_sync(self._resource, skill, path)

    async def close(self) -> None:
        """Nothing is held."""

    def _scan(self) -> Scan:
        skills, problems = list[Skill](), list[Problem]()
        folders, cut = self._skill_folders()
        for folder in folders:
            reading = read_skill(folder, self.provenance)
            where = folder.relative_to(self.root).as_posix()
            problems += [replace(p, where=_join(where, p.where)) for p in reading.problems]
            if reading.skill:
                skills.append(reading.skill)
        return Scan(skills=tuple(skills), problems=(*problems, *cut))

    def _skill_folders(self) -> tuple[list[Path], list[Problem]]:
        """Folders with a SKILL.md, in a fixed order; nothing is looked for inside a skill."""
        found, seen, visited = list[Path](), set[str](), 0
        pending = [(self.root, 0)]
        while pending:
            folder, depth = pending.pop()
            real = os.path.realpath(folder)
            if real in seen:
                continue
            seen.add(real)
            visited += 1
            if visited > self._limits.max_folders + 1:
                details = {"limit": self._limits.max_folders}
                cut = Problem(
                    code="folder_limit", where=str(self.root), severity="warning", details=details
                )
                return found, [cut]
            names, is_skill = self._look(folder)
            if is_skill and depth:
                found.append(folder)
            elif depth < self._limits.max_depth:
                pending += [(folder / name, depth + 1) for name in reversed(names)]
        return found, []

    def _look(self, folder: Path) -> tuple[list[str], bool]:
        """The folders below, and whether this one is a skill."""
        try:
            with os.scandir(folder) as items:
                present = list(items)
        except FileNotFoundError:
            return [], False
        except OSError as error:
            if folder == self.root:
                detail = error.strerror or str(error)
                raise SourceError(detail, source=self.id) from None
            return [], True  # reading it as a skill will say what is wrong with it
        is_skill = any(item.name.lower() == SKILL_MD.lower() for item in present)
        names = [i.name for i in present if _is_open_folder(i)]
        return sorted(names), is_skill

    def _folder_of(self, skill: Skill) -> Path:
        if skill.root is None or not skill.root.is_relative_to(self.root):
            raise SkillNotFoundError(skill.name)
        return skill.root

    def _content(self, skill: Skill) -> SkillContent:
        file = read_skill_file(self._folder_of(skill))
        opened = file if isinstance(file, Problem) else open_document(file.data)
        if isinstance(opened, Problem):
            raise SourceError(opened.message, source=self.id)
        return SkillContent(skill=skill, body=opened[0].body)

    def _resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        target = safe_join(self._folder_of(skill), path.as_posix())
        try:
            return SkillResource(skill=skill, path=path, data=target.read_bytes())
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}", source=self.id) from None


def _is_open_folder(item: "os.DirEntry[str]") -> bool:
    return not item.name.startswith(".") and item.name not in _NEVER and item.is_dir()


def _join(folder: str, where: str) -> str:
    """Problems of a whole folder are named by it; those of a file by folder and file."""
    name = folder.rpartition("/")[2]
    return folder if where == name else f"{folder}/{where}"
