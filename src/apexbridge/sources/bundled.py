"""The skills that ship with ApexBridge, read from the package wherever it lies."""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

import anyio
import anyio.to_thread

from apexbridge import bundled
from apexbridge.errors import SkillNotFoundError, SourceError, StorageError
from apexbridge.paths import commit_dir, staging_dir
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import (
    Fingerprint,
    Origin,
    Problem,
    Provenance,
    Skill,
    SkillContent,
    SkillResource,
)
from apexbridge.skills.parser import ParseResult, parse_document, parse_skill
from apexbridge.sources.base import Scan

_ATTEMPTS = 5
_SCRIPTS = "scripts"
_ROOT = PurePosixPath()
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    path: PurePosixPath
    data: bytes

    @property
    def executable(self) -> bool:
        """Say whether it can be run: an archive that is imported from does not tell modes."""
        return self.path.parts[0] == _SCRIPTS or self.data.startswith(b"#!")


def bundled_source(place: Path | None = None) -> "BundledSource":
    """All skills of the package; `place` is where they are written out if they must be."""
    return BundledSource(place)


class BundledSource:
    """Skills inside a package, which may be a folder or an archive that is imported from.

    Listing and reading need no folder. Where the package lies unpacked, its own folders are the
    skills' folders: a second copy would only be one more thing that can be tampered with or grow
    stale. From an archive, a skill is written out when someone asks for its folder.
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
    def id(self) -> str:
        """The origin and where the package is."""
        return self.provenance.source_id

    @property
    def roots(self) -> tuple[Path, ...]:
        """The package's folder, where it is one."""
        return (self._package,) if isinstance(self._package, Path) else ()

    async def scan(self) -> Scan:
        """Read every skill of the package."""
        return await anyio.to_thread.run_sync(self._scan)

    async def content(self, skill: Skill, arguments: str = "") -> SkillContent:
        """Read the body."""
        return await anyio.to_thread.run_sync(self._content, skill)

    async def resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        """Read a file beside SKILL.md."""
        return await anyio.to_thread.run_sync(self._resource, skill, path)

    async def folder(self, skill: Skill) -> Path:
        """A folder with all files of the skill; written out once, however many ask for it.

        What was written out before is compared with the package and replaced where it differs.

        Raises:
            SkillNotFoundError: If the package has no such skill.
            SourceError: If it would have to be written out and there is no place for it.
            StorageError: If the disk refuses.
        """
        async with self._lock:
            return await anyio.to_thread.run_sync(self._folder, skill)

    async def close(self) -> None:
        """Nothing is held."""

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
            fingerprint=_fingerprint(files),
        )
        return ParseResult(skill=skill, problems=tuple(problems))

    def _home(self, skill: Skill) -> Traversable:
        """The skill's folder in the package, which is named like it."""
        if skill.provenance.source_id == self.id:
            for folder in self._skill_folders():
                if folder.name == skill.name:
                    return folder
        raise SkillNotFoundError(skill.name)

    def _content(self, skill: Skill) -> SkillContent:
        opened = parse_document((self._home(skill) / SKILL_MD).read_bytes())
        if isinstance(opened, Problem):
            raise SourceError(opened.message, source=self.id)
        return SkillContent(skill=skill, body=opened[0].body)

    def _resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        for file in _files(self._home(skill)):
            if file.path == path:
                return SkillResource(skill=skill, path=path, data=file.data)
        raise SourceError(f"there is no {path}", source=self.id)

    def _folder(self, skill: Skill) -> Path:
        home = self._home(skill)
        if isinstance(home, Path):
            return home
        if self._place is None:
            raise SourceError("there is no place to write its skills to", source=self.id)
        files = list(_files(home))
        target = self._place / f"{home.name}-{_fingerprint(files).sha256[:16]}"
        try:
            return target if _is_intact(target, files) else _extract(target, files)
        except OSError as error:
            raise StorageError(error.strerror or str(error), path=target) from error


def _files(folder: Traversable, below: PurePosixPath = _ROOT) -> Iterator[_File]:
    """Every file of a skill, in the order fingerprints are made in; caches are no part of it."""
    entries = [(below / item.name, item) for item in folder.iterdir()]
    entries = sorted(
        (e for e in entries if not tree.is_junk(e[0])), key=lambda e: os.fsencode(e[0])
    )
    for path, item in entries:
        if item.is_file():
            yield _File(path=path, data=item.read_bytes())
    for path, item in entries:
        if item.is_dir():
            yield from _files(item, path)


def _fingerprint(files: list[_File]) -> Fingerprint:
    """The same as that of a folder with these files."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(b"file\0" + os.fsencode(file.path) + b"\0")
        digest.update(hashlib.sha256(file.data).digest())
    size = sum(len(file.data) for file in files)
    return Fingerprint(size=size, files=len(files), sha256=digest.hexdigest())


def _is_intact(target: Path, files: list[_File]) -> bool:
    """Say whether a folder is ours alone and holds these files, as they are, and no other."""
    try:
        status = target.lstat()
        is_private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == stat.S_IRWXU
        if not is_private or status.st_uid != os.geteuid():
            return False
        present = {e.path: e.executable for e in tree.entries(target) if e.kind != "folder"}
    except OSError:
        return False
    expected = {file.path: file.executable for file in files}
    return present == expected and tree.fingerprint(target) == _fingerprint(files)


def _extract(target: Path, files: list[_File]) -> Path:
    """Build the folder out of sight and move it into place; whoever is first has made it."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with staging_dir(target.parent) as room:
        fresh = room / "fresh"
        fresh.mkdir(mode=0o700)
        for file in files:
            _write_new(fresh / file.path, file)
        for attempt in range(_ATTEMPTS):
            with contextlib.suppress(FileExistsError):
                _commit(fresh, target)
                return target
            if _is_intact(target, files):  # another process was faster
                return target
            with contextlib.suppress(FileNotFoundError):  # or it has moved it away already
                target.rename(room / f"spoilt-{attempt}")
    raise StorageError("someone else keeps changing it", path=target)


def _commit(fresh: Path, target: Path) -> None:
    try:
        commit_dir(fresh, target)
    except StorageError as error:
        if error.code != "path_exists":
            raise
        raise FileExistsError from error


def _write_new(path: Path, file: _File) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = 0o700 if file.executable else 0o600
    with os.fdopen(os.open(path, _NEW, mode), "wb") as out:
        out.write(file.data)
        os.fchmod(out.fileno(), mode)
