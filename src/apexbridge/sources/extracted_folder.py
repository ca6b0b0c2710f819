"""Extract the files of a skill that has no folder, once, to a private one that is verified."""

import contextlib
import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from apexbridge.errors import StorageError
from apexbridge.paths import commit_dir, staging_dir, storage_errors
from apexbridge.skills import tree
from apexbridge.skills.model import Fingerprint

_ATTEMPTS = 5
_SCRIPTS = "scripts"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    """A file of a skill, by its path in the skill."""

    path: PurePosixPath
    data: bytes

    @property
    def executable(self) -> bool:
        """True if the file is a script: zip imports (`Traversable`) have no file mode."""
        return self.path.parts[0] == _SCRIPTS or self.data.startswith(b"#!")


def hash_files(files: Sequence[SkillFile]) -> Fingerprint:
    """Hash the files to the same fingerprint as a folder with them."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(b"file\0" + os.fsencode(file.path) + b"\0")
        digest.update(hashlib.sha256(file.data).digest())
    size = sum(len(file.data) for file in files)
    return Fingerprint(size=size, files=len(files), sha256=digest.hexdigest())


def extract_files(files: Sequence[SkillFile], target: Path) -> Path:
    """Return the target, with exactly these files: as it is if it is intact, else made anew.

    Raises:
        StorageError: If the folder cannot be written.
    """
    with storage_errors(target):
        return target if _is_intact(target, files) else _extract(target, files)


def _is_intact(target: Path, files: Sequence[SkillFile]) -> bool:
    """Return whether a folder is private to this user and holds exactly these files."""
    try:
        status = target.lstat()
        is_private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == stat.S_IRWXU
        if not is_private or status.st_uid != os.geteuid():
            return False
        present = {e.path: e.executable for e in tree.entries(target) if e.kind != "folder"}
    except OSError:
        return False
    expected = {file.path: file.executable for file in files}
    return present == expected and tree.fingerprint(target) == hash_files(files)


def _extract(target: Path, files: Sequence[SkillFile]) -> Path:
    """Extract to a staging folder and rename it atomically; of concurrent processes one wins."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with staging_dir(target.parent) as staging:
        fresh = staging / "fresh"
        fresh.mkdir(mode=0o700)
        for file in files:
            _write_new(fresh / file.path, file)
        for attempt in range(_ATTEMPTS):
            try:
                commit_dir(fresh, target)
            except StorageError as error:
                if error.code != "path_exists":
                    raise
            else:
                return target
            if _is_intact(target, files):  # another process won the race
                return target
            with contextlib.suppress(FileNotFoundError):  # or it has moved it away already
                target.rename(staging / f"spoilt-{attempt}")
    raise StorageError("another process keeps changing it", path=target)


def _write_new(path: Path, file: SkillFile) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = 0o700 if file.executable else 0o600
    with os.fdopen(os.open(path, _NEW, mode), "wb") as out:
        out.write(file.data)
        os.fchmod(out.fileno(), mode)
