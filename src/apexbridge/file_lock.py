"""Locks on files, for threads and processes; when a holder dies the system lets go of them."""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from apexbridge.errors import StorageError

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def file_lock(path: Path, *, is_shared: bool = False) -> Generator[int]:
    """Wait for a lock and hold it; the open lock file is lent.

    Raises:
        StorageError: If the file cannot be made or opened.
    """
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def try_file_lock(path: Path) -> Generator[int | None]:
    """Hold a lock if nobody else does; None is lent if somebody does.

    Raises:
        StorageError: If the file cannot be made or opened.
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
