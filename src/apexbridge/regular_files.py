"""Open files whose path a skill or a clone chose: regular files only, without ever blocking.

Opening is where such a path does harm. A FIFO blocks until a writer comes, a device acts when it is
opened (`/dev/ptmx` allocates a terminal, and reading it blocks), a symlink leads out of the folder,
and a file lease that a script holds (`fcntl(F_SETLEASE)`) blocks for 45 seconds.
"""

import os
import stat
from io import BufferedReader
from pathlib import Path

FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
"""O_NONBLOCK fails with EWOULDBLOCK where a lease would block; reads of files do not change."""

_FILE_TYPES = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symlink",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegularFileError(OSError):
    """A path does not lead to a regular file; `kind` says what is there."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"it is {kind}, not a regular file")
        self.kind = kind
        self.strerror = str(self)


def open_regular(path: str | Path, *, dir_fd: int | None = None) -> BufferedReader:
    """Open a regular file for reading; `dir_fd` is the directory of a relative path.

    Only the last part of the path is guarded against symlinks: resolve the rest before, or open it
    folder by folder. What is no regular file is not opened at all, unless it is swapped meanwhile.

    Raises:
        NotRegularFileError: If it is a directory, a symlink, a FIFO, a device or a socket.
        OSError: If it cannot be opened; `BlockingIOError` if a lease is held.
    """
    _reject_special_file(os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_mode)
    file = os.fdopen(os.open(path, FLAGS, dir_fd=dir_fd), "rb")
    try:
        _reject_special_file(os.fstat(file.fileno()).st_mode)
    except NotRegularFileError:
        file.close()
        raise
    return file


def read_regular(path: str | Path, limit: int = -1) -> bytes:
    """Read a regular file, at most `limit` bytes of it if given. Raises as `open_regular` does."""
    with open_regular(path) as file:
        return file.read(limit)


def _reject_special_file(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise NotRegularFileError(_FILE_TYPES.get(stat.S_IFMT(mode), "a special file"))
