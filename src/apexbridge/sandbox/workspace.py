"""Workspaces: a private folder for one run, gone afterwards whatever was left in it."""

import contextlib
import errno
import fcntl
import os
import stat
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from apexbridge.errors import StorageError
from apexbridge.paths import create_bytes, remove_tree, safe_join
from apexbridge.sandbox.users import give

_LOCK = ".lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvest:
    """Files a run left behind, and those that were not taken, with the reason."""

    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    left: Mapping[str, str] = field(default_factory=dict[str, str])


class Workspaces:
    """Lends workspaces below one folder; each is held by a lock that dies with this process."""

    def __init__(self, home: Path) -> None:
        self._home = home

    @contextmanager
    def lend(self) -> Generator[Path]:
        """Lend an empty folder.

        Raises:
            StorageError: If the disk refuses.
        """
        self._home.mkdir(parents=True, exist_ok=True, mode=0o711)  # each one inside is private
        place = self._home / uuid.uuid4().hex
        held = _hold(place.with_suffix(_LOCK))
        try:
            place.mkdir(mode=0o700)
            yield place
        finally:
            remove_tree(place)
            place.with_suffix(_LOCK).unlink(missing_ok=True)
            os.close(held)

    def sweep(self) -> int:
        """Remove what a killed process left behind; how many workspaces that were."""
        swept = 0
        for lock in self._home.glob(f"*{_LOCK}") if self._home.is_dir() else ():
            try:
                held = _hold(lock)
            except StorageError:
                continue  # someone is at work in it
            remove_tree(lock.with_suffix(""))
            lock.unlink(missing_ok=True)
            os.close(held)
            swept += 1
        return swept


def _hold(lock: Path) -> int:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StorageError("it is in use", path=lock) from error
    return descriptor


def fill(place: Path, inputs: Mapping[str, bytes]) -> None:
    """Put files into a workspace.

    Raises:
        UnsafePathError: If a name leads outside.
        StorageError: If the disk refuses.
    """
    for name, data in inputs.items():
        try:
            target = safe_join(place, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            create_bytes(target, data)
        except (OSError, UnicodeError) as error:
            raise StorageError(str(error), path=ascii(name)) from error
    owner = place.stat().st_uid
    if inputs and owner != os.geteuid():
        give(place, owner)


def harvest(place: Path, max_bytes: int, max_files: int = 100) -> Harvest:
    """Read the files a run left behind: plain files with one name, never through a link."""
    files, left, room = dict[str, bytes](), dict[str, str](), max_bytes
    place.chmod(0o700)  # whatever the run made of its own folder
    top = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for name in _names(top, PurePosixPath(), left):
            if len(files) >= max_files:
                left[str(name)] = "too many files"
                break
            data = _read(top, name, room)
            if isinstance(data, bytes):
                files[str(name)] = data
                room -= len(data)
            else:
                left[str(name)] = data
    finally:
        os.close(top)
    return Harvest(files=files, left=left)


def _names(
    top: int, folder: PurePosixPath, left: dict[str, str], depth: int = 8
) -> Iterator[PurePosixPath]:
    with contextlib.suppress(OSError), os.scandir(top) as items:
        found = sorted((item.name, item.is_dir(follow_symlinks=False)) for item in items)
        for name, is_folder in found:
            if not is_folder:
                yield folder / name
            elif not depth:
                left[str(folder / name)] = "too deep"
            else:
                try:
                    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
                except OSError as error:
                    left[str(folder / name)] = str(error.strerror)
                    continue
                try:
                    yield from _names(inner, folder / name, left, depth - 1)
                finally:
                    os.close(inner)


def _read(top: int, name: PurePosixPath, room: int) -> bytes | str:
    """The bytes, or why they are not taken. The run is over: nobody swaps folders any more."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(str(name), flags, dir_fd=top)
    except OSError as error:
        return "a link" if error.errno == errno.ELOOP else str(error.strerror)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return "not a plain file"
        if status.st_nlink != 1:
            return "a hard link"
        data = file.read(room + 1)
    return data if len(data) <= room else "too large"
