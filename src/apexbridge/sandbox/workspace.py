"""Workspaces: a private directory for each run, its inputs, and the collection of output files."""

import errno
import fcntl
import json
import logging
import os
import stat
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from apexbridge.errors import StorageError
from apexbridge.paths import create_bytes, join_posix, storage_errors
from apexbridge.sandbox.uid_pool import chown_tree
from apexbridge.tree_removal import remove_tree

log = logging.getLogger(__name__)

_LOCK, _WORK = ".lock", "work"
_LOCK_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedOutputs:
    """Output files, and those that were not collected, with the reason."""

    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    left: Mapping[str, str] = field(default_factory=dict[str, str])


class Workspaces:
    """Lease directories below one root; a file lock marks each as used until we die.

    A run owns its directory and may give it any mode, so the directory lies in another one that
    the run cannot change: no other account gets there.

    ```text
    <root>/<id>.lock      held while the workspace is in use
    <root>/<id>/work/     the workspace
    <root>/quarantine/    workspaces that could not be removed; each sweep tries again
    ```
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._quarantine = home / "quarantine"

    @contextmanager
    def lease(self) -> Generator[Path]:
        """Lease an empty directory; StorageError if the disk refuses."""
        place = self._home / uuid.uuid4().hex
        with storage_errors(self._home):
            # Each directory inside is private.
            self._home.mkdir(parents=True, exist_ok=True, mode=0o711)
            held = _create_lock(place.with_suffix(_LOCK))
        try:
            with storage_errors(place):
                place.mkdir(mode=0o700)
                (place / _WORK).mkdir(mode=0o700)
            yield place / _WORK
        finally:
            self._discard(place)
            os.close(held)

    def sweep(self) -> int:
        """Remove workspaces of killed processes and quarantined ones; returns their number.

        Never raises OSError: one entry that cannot be removed must not stop every later run.
        """
        swept = 0
        for lock in _entries(self._home):
            held = _try_lock(lock) if lock.suffix == _LOCK else None
            if held is not None:
                swept += self._discard(lock.with_suffix(""))
                os.close(held)
        swept += sum(_is_removed(path) for path in _entries(self._quarantine))
        with suppress(OSError):  # it is not empty, or not there
            self._quarantine.rmdir()
        return swept

    def leftovers(self) -> list[Path]:
        """Return what cannot be removed, and entries that are none of ours, for `doctor`."""
        found, here = _entries(self._quarantine), _entries(self._home)
        for path in here:
            is_named = path.suffix == _LOCK and path.with_suffix("") in here  # with its workspace
            if path != self._quarantine and not is_named and not _is_in_use(path):
                found.append(path)
        return sorted(found)

    def _discard(self, place: Path) -> bool:
        """Remove a workspace that we have locked, else quarantine it, else leave its lock."""
        is_removed = _is_removed(place)
        if not is_removed:
            try:
                self._quarantine.mkdir(mode=0o700, exist_ok=True)
                place.rename(self._quarantine / place.name)
            except OSError as error:
                log.warning("Cannot move %s to the quarantine: %s", place, error)
                return False
        with suppress(OSError):
            place.with_suffix(_LOCK).unlink(missing_ok=True)
        return is_removed


def _is_removed(place: Path) -> bool:
    """Remove a directory tree; if that fails, log why."""
    try:
        remove_tree(place)
    except OSError as error:
        log.warning("Cannot remove %s: %s", place, error)
        return False
    return True


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_in_use(path: Path) -> bool:
    """Return whether an entry is a workspace, or the lock of one, that a process uses."""
    lock = path.with_suffix(_LOCK)
    if path != lock and not path.is_dir():
        return False
    held = _try_lock(lock)
    if held is not None:
        os.close(held)
    return held is None and lock.is_file() and not lock.is_symlink()


def _create_lock(lock: Path) -> int:
    """Create and hold a lock; a sweep that finds it at this moment may remove it again."""
    while True:
        descriptor = os.open(lock, _LOCK_FLAGS | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.lstat(lock)):
                return descriptor
        os.close(descriptor)


def _try_lock(lock: Path) -> int | None:
    """Hold the lock of a process that is gone; None if it is in use, or no lock of ours."""
    try:
        descriptor = os.open(lock, _LOCK_FLAGS)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def write_inputs(place: Path, inputs: Mapping[str, bytes]) -> None:
    """Write input files; UnsafePathError if a name leads outside, StorageError on a disk error."""
    for name, data in inputs.items():
        try:
            target = join_posix(place, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            create_bytes(target, data)
        except (OSError, UnicodeError) as error:
            raise StorageError(str(error), path=ascii(name)) from error
    owner = place.stat().st_uid
    if inputs and owner != os.geteuid():
        chown_tree(place, owner)


def collect_outputs(
    place: Path,
    max_bytes: int,
    max_files: int = 100,
    inputs: Mapping[str, bytes] = MappingProxyType({}),
) -> CollectedOutputs:
    """Read the output files: regular files with one hard link, never through a symlink.

    Input files that the run did not change are none, and count for no limit. Whatever else is
    there and not collected is named, as far as names have room: they are part of every reply.
    """
    files, names, left, budget = dict[str, bytes](), _NameBudget(), _LeftOut(), max_bytes
    place.chmod(0o700)  # the run may have changed its mode
    top = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for name in map(str, _output_names(top, PurePosixPath(), left)):
            given = inputs.get(name)
            allowed = budget if len(files) < max_files else -1
            data = _read_output(top, name, max(allowed, len(given or b"")))
            if given is not None and data == given:
                continue
            if isinstance(data, bytes) and len(data) <= allowed and names.take(name):
                files[name] = data
                budget -= len(data)
            elif isinstance(data, bytes) or data == _TOO_LARGE:
                left.add(name, _TOO_LARGE if allowed >= 0 else "too many files")
            else:
                left.add(name, data)
    finally:
        os.close(top)
    return CollectedOutputs(files=files, left=left.to_dict())


class _NameBudget:
    """Bytes that names may take in a reply, counted as JSON writes them: an odd byte is six."""

    def __init__(self) -> None:
        self._bytes = _MAX_NAME_BYTES

    def take(self, name: str) -> bool:
        """Return whether there is room for one more."""
        self._bytes -= len(json.dumps(name))
        return self._bytes >= 0


class _LeftOut:
    """The first of what was left out, with the reasons, and the number of the others."""

    def __init__(self) -> None:
        self._named, self._budget, self._more = dict[str, str](), _NameBudget(), 0

    def add(self, name: str, reason: str) -> None:
        if len(self._named) < _MAX_NAMED and self._budget.take(name):
            self._named[name] = reason
        else:
            self._more += 1

    def to_dict(self) -> Mapping[str, str]:
        more = {f"({self._more} more)": "not listed"} if self._more else {}
        return {**self._named, **more}


def _output_names(
    top: int, folder: PurePosixPath, left: _LeftOut, depth: int = 8
) -> Iterator[PurePosixPath]:
    try:
        with os.scandir(top) as items:
            found = sorted((item.name, item.is_dir(follow_symlinks=False)) for item in items)
    except OSError as error:
        left.add(str(folder), str(error.strerror))
        return
    if not found and folder.parts:
        left.add(str(folder), "an empty folder")
    for name, is_folder in found:
        if not is_folder:
            yield folder / name
        elif not depth:
            left.add(str(folder / name), "too deep")
        else:
            try:
                inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
            except OSError as error:
                left.add(str(folder / name), str(error.strerror))
                continue
            try:
                yield from _output_names(inner, folder / name, left, depth - 1)
            finally:
                os.close(inner)


def _read_output(top: int, name: str, budget: int) -> bytes | str:
    """Return the bytes, or why they are not collected. The run is over, so there is no race."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(name, flags, dir_fd=top)
    except OSError as error:
        known = {errno.ELOOP: "a link", errno.ENXIO: _NO_FILE}  # ENXIO: a socket
        return known.get(error.errno or 0) or str(error.strerror)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return _NO_FILE
        if status.st_nlink != 1:
            return "a hard link"
        return file.read(budget) if status.st_size <= budget else _TOO_LARGE


_TOO_LARGE, _NO_FILE = "too large", "not a plain file"
_MAX_NAMED, _MAX_NAME_BYTES = 1_000, 128 * 1024
