"""Source of the skills in the package itself, also when it is imported from a zip file."""

import os
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

import anyio
import anyio.to_thread

from apexbridge import bundled
from apexbridge.errors import SkillNotFoundError, SourceError
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import (
    Origin,
    Problem,
    Provenance,
    Skill,
    SkillContent,
    SkillResource,
)
from apexbridge.skills.parser import ParseResult, parse_document, parse_skill
from apexbridge.sources.base import BaseSource, Scan
from apexbridge.sources.extracted_folder import SkillFile, extract_files, hash_files

_ROOT = PurePosixPath()


class BundledSource(BaseSource):
    """Skills inside a package, which is a folder or a zip file on the import path.

    Listing and reading need no folder. Skills of an unpacked package are used where they are: a
    second copy could only be tampered with or get stale. From a zip file a skill is extracted to
    `place` when a caller needs its folder.
    """

    def __init__(self, place: Path | None = None, package: Traversable | None = None) -> None:
        self._place = place
        self._package = resources.files(bundled) if package is None else package
        self._lock = anyio.Lock()
        self.provenance = Provenance(
            origin=Origin.BUNDLED,
            source_id=f"{Origin.BUNDLED}:{self._package}",
            needs_trust=False,
            may_run_shell=True,
        )

    @property
    def roots(self) -> tuple[Path, ...]:
        """The package's folder, if it is one."""
        return (self._package,) if isinstance(self._package, Path) else ()

    async def scan(self) -> Scan:
        """Parse every skill of the package."""
        return await anyio.to_thread.run_sync(self._scan)

    async def content(self, skill: Skill, arguments: str = "") -> SkillContent:
        """Load the body."""
        return await anyio.to_thread.run_sync(self.content_at_once, skill)

    async def resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        """Load a file beside SKILL.md."""
        return await anyio.to_thread.run_sync(self._resource, skill, path)

    async def folder(self, skill: Skill) -> Path:
        """Return a folder with all files of the skill; extracted once for any number of callers.

        An earlier extraction is compared with the package and replaced if it differs.

        Raises:
            SkillNotFoundError: If the package has no such skill.
            SourceError: If it must be extracted and no folder for that was given.
            StorageError: If the folder cannot be written.
        """
        async with self._lock:
            return await anyio.to_thread.run_sync(self._folder, skill)

    def _scan(self) -> Scan:
        readings = [self._read(folder) for folder in self._skill_folders()]
        return Scan(
            skills=tuple(reading.skill for reading in readings if reading.skill),
            problems=tuple(problem for reading in readings for problem in reading.problems),
        )

    def _skill_folders(self) -> list[Traversable]:
        try:
            folders = [item for item in self._package.iterdir() if (item / SKILL_MD).is_file()]
        except OSError as error:
            raise SourceError(error.strerror or str(error), source=self.id) from None
        return sorted(folders, key=lambda folder: folder.name)

    def _read(self, folder: Traversable) -> ParseResult:
        files = list(_files(folder))
        data = (folder / SKILL_MD).read_bytes()
        reading = parse_skill(data, folder=folder.name, provenance=self.provenance)
        problems = [replace(p, where=f"{folder.name}/{p.where}") for p in reading.problems]
        skill = reading.skill and replace(
            reading.skill,
            name=folder.name,
            root=folder if isinstance(folder, Path) else None,
            fingerprint=hash_files(files),
        )
        return ParseResult(skill=skill, problems=tuple(problems))

    def _package_folder(self, skill: Skill) -> Traversable:
        """Find the skill's folder in the package, which has the same name."""
        if skill.provenance.source_id == self.id:
            for folder in self._skill_folders():
                if folder.name == skill.name:
                    return folder
        raise SkillNotFoundError(skill.name)

    def content_at_once(self, skill: Skill) -> SkillContent:
        """Load the body, blocking the calling thread."""
        opened = parse_document((self._package_folder(skill) / SKILL_MD).read_bytes())
        if isinstance(opened, Problem):
            raise SourceError(opened.message, source=self.id)
        return SkillContent(skill=skill, body=opened[0].body)

    def _resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        for file in _files(self._package_folder(skill)):
            if file.path == path:
                return SkillResource(skill=skill, path=path, data=file.data)
        raise SourceError(f"there is no {path}", source=self.id)

    def _folder(self, skill: Skill) -> Path:
        home = self._package_folder(skill)
        if isinstance(home, Path):
            return home
        if self._place is None:
            raise SourceError("there is no folder to extract its skills to", source=self.id)
        files = list(_files(home))
        target = self._place / f"{home.name}-{hash_files(files).sha256[:16]}"
        return extract_files(files, target)


def _files(folder: Traversable, below: PurePosixPath = _ROOT) -> Iterator[SkillFile]:
    """List the files of a skill in the order of the content hash, without caches."""
    found = [(below / item.name, item) for item in folder.iterdir()]
    kept = [entry for entry in found if not tree.is_junk(entry[0])]
    entries = sorted(kept, key=lambda entry: os.fsencode(entry[0]))
    for path, item in entries:
        if item.is_file():
            yield SkillFile(path=path, data=item.read_bytes())
    for path, item in entries:
        if item.is_dir():
            yield from _files(item, path)
