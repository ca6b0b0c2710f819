"""Lock of the data directory, one server at a time, and file modes in it."""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from apexbridge.errors import StorageError
from apexbridge.file_lock import try_file_lock
from apexbridge.paths import storage_errors

LOCK_FILE = "instance.lock"
_PRIVATE_FOLDERS = frozenset({"index.lance", "signatures", "tags", "verdicts"})


@contextmanager
def data_dir_lock(data: Path) -> Generator[None]:
    """Hold the advisory lock (flock) of a data directory: one server process at a time.

    One-shot commands take no lock: each of their changes is atomic. Two servers would each answer
    from a catalog that misses the changes of the other.

    Raises:
        StorageError: `data_in_use` with the process id of the holder.
    """
    path = data / LOCK_FILE
    with try_file_lock(path) as descriptor:
        if descriptor is None:
            raise StorageError(code="data_in_use", path=data, process=_lock_holder(path))
        with storage_errors(path):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield


def _lock_holder(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii") or "?"
    except (OSError, UnicodeDecodeError):
        return "?"


def make_private(data: Path) -> None:
    """Take the files of a data directory from other users: earlier versions created some by umask.

    Skills and files of runs are left alone: a sandbox may read them as another user.
    """
    with suppress(OSError):
        for path in data.iterdir():
            with suppress(OSError):  # the file of another user
                mode = path.lstat().st_mode
                is_private = stat.S_ISREG(mode) or path.name in _PRIVATE_FOLDERS
                if is_private and not stat.S_ISLNK(mode) and mode & 0o077:
                    path.chmod(stat.S_IMODE(mode) & 0o700)


def ensure_skills_dir(skills: Path) -> None:
    """Create the directory of installed skills, if the disk allows.

    The file watcher watches the parent of a missing one, and a server writes there all the time.
    """
    with suppress(OSError):
        skills.mkdir(exist_ok=True, mode=0o700)
