"""Advisory file locks (flock) between threads and processes; released when the holder dies."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from apexbridge.errors import StorageError

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def file_lock(path: Path, *, is_shared: bool = False) -> Generator[int]:
    """Wait for an exclusive or shared lock; yields the file descriptor.

    Raises:
        StorageError: If the file cannot be created or opened.
    """
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def try_file_lock(path: Path) -> Generator[int | None]:
    """Take an exclusive lock without waiting; yields None if another holder has it.

    Raises:
        StorageError: If the file cannot be created or opened.
    """
    descriptor = _open(path)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(path, _FLAGS, 0o600)
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=path) from error
