"""How much a run may leave in its workspace: counted again and again while it runs.

No quota of the file system is needed, so it holds everywhere. Counting sees only what has a name:
a file that was removed while open is missed, so the disk's free space is looked at too.
"""

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from apexbridge.sandbox.base import MIB, SandboxLimits

_MAX_DEPTH = 100
_BLOCK = 512
_LEAST_FREE_BYTES = 1024 * MIB
_LEAST_FREE_SHARE = 20
"""The smaller of the two must stay free: so many bytes, or one part in so many of the disk."""

_LOOKING = stat.S_IRUSR | stat.S_IXUSR
_OUR_OWN_TROUBLE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

_one_at_a_time = threading.Lock()
"""A walk holds a descriptor for each level: several at once could use them up."""


class Quota:
    """Says whether a workspace holds more than it may."""

    def __init__(self, place: Path, limits: SandboxLimits) -> None:
        self._place = place
        self._limits = limits
        self._free_before = _free(place)[0]

    def is_exceeded(self) -> bool:
        """Count once; a workspace that cannot be counted is too much."""
        count = _Count(self._limits)
        with _one_at_a_time:
            try:
                if self._is_disk_filling():
                    return True
                _inside(None, str(self._place), lambda top: count.folder(top, 0))
            except OSError as error:
                return error.errno not in _OUR_OWN_TROUBLE
        return count.is_over

    def _is_disk_filling(self) -> bool:
        """Whether the disk runs full and this run can be the cause."""
        free, size = _free(self._place)
        is_low = free < min(_LEAST_FREE_BYTES, size // _LEAST_FREE_SHARE)
        return is_low and self._free_before - free > self._limits.workspace_bytes


class _Count:
    """One walk, which ends as soon as there is too much."""

    def __init__(self, limits: SandboxLimits) -> None:
        self._bytes = limits.workspace_bytes
        self._files = limits.workspace_files
        self.is_over = False

    def folder(self, descriptor: int, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self.is_over = True
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if self.is_over:
                    return
                self._entry(descriptor, entry.name, depth)

    def _entry(self, parent: int, name: str, depth: int) -> None:
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:  # gone since it was listed
            return
        self._files -= 1
        self._bytes -= status.st_blocks * _BLOCK  # what it takes, not what it says
        self.is_over = self._files < 0 or self._bytes < 0
        if stat.S_ISDIR(status.st_mode) and not self.is_over:
            _inside(parent, name, lambda inner: self.folder(inner, depth + 1))


def _inside(parent: int | None, name: str, count: Callable[[int], None]) -> None:
    """Open a folder below another, also one that was made unreadable, but never through a link."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        held = os.open(name, os.O_PATH | flags, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError):  # gone, or swapped for something else
        if parent is None:
            raise
        return
    try:
        here = f"/proc/self/fd/{held}"  # this very folder, whatever its name leads to by now
        mode = os.fstat(held).st_mode
        if mode & _LOOKING != _LOOKING and os.geteuid() != 0:
            os.chmod(here, stat.S_IMODE(mode) | _LOOKING)
        inner = os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            count(inner)
        finally:
            os.close(inner)
    finally:
        os.close(held)


def _free(place: Path) -> tuple[int, int]:
    """Bytes that are free for us, and all there are."""
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
