"""Workspace quota: size and number of files, counted while a run lasts.

It needs no support by the file system. That misses files that were unlinked while open, so the free
space of the disk is checked too.
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
_MIN_FREE_BYTES = 1024 * MIB
_MIN_FREE_DIVISOR = 20
"""The smaller of the two must stay free: an absolute size, or this fraction of the disk."""

_READ_SEARCH_MODE = stat.S_IRUSR | stat.S_IXUSR
_RESOURCE_ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

_count_lock = threading.Lock()
"""One walk at a time: each holds a file descriptor for every level."""


class WorkspaceQuota:
    """Check whether a workspace exceeds its quota."""

    def __init__(self, place: Path, limits: SandboxLimits) -> None:
        self._place = place
        self._limits = limits
        self._free_before = _disk_space(place)[0]

    def is_exceeded(self) -> bool:
        """Count once; a workspace that cannot be counted exceeds its quota."""
        count = _UsageCounter(self._limits)
        with _count_lock:
            try:
                if self._is_disk_filling():
                    return True
                _in_directory(None, str(self._place), lambda top: count.folder(top, 0))
            except OSError as error:
                return error.errno not in _RESOURCE_ERRNOS
        return count.is_over

    def _is_disk_filling(self) -> bool:
        """Return True if the disk is nearly full and this run can be the cause."""
        free, size = _disk_space(self._place)
        is_low = free < min(_MIN_FREE_BYTES, size // _MIN_FREE_DIVISOR)
        return is_low and self._free_before - free > self._limits.workspace_bytes


class _UsageCounter:
    """One walk, which ends as soon as the quota is exceeded."""

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
        self._bytes -= status.st_blocks * _BLOCK  # allocated blocks, not st_size (sparse files)
        self.is_over = self._files < 0 or self._bytes < 0
        if stat.S_ISDIR(status.st_mode) and not self.is_over:
            _in_directory(parent, name, lambda inner: self.folder(inner, depth + 1))


def _in_directory(parent: int | None, name: str, count: Callable[[int], None]) -> None:
    """Open a subdirectory, also one with mode 000, but never through a symlink."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        held = os.open(name, os.O_PATH | flags, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError):  # removed or replaced meanwhile
        if parent is None:
            raise
        return
    try:
        here = f"/proc/self/fd/{held}"  # the path may be a symlink by now (TOCTOU)
        mode = os.fstat(held).st_mode
        if mode & _READ_SEARCH_MODE != _READ_SEARCH_MODE and os.geteuid() != 0:
            os.chmod(here, stat.S_IMODE(mode) | _READ_SEARCH_MODE)
        inner = os.open(here, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            count(inner)
        finally:
            os.close(inner)
    finally:
        os.close(held)


def _disk_space(place: Path) -> tuple[int, int]:
    """Return the free and total bytes of the file system."""
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
