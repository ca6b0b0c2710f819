"""One server a data folder: the lock that says whose it is."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from apexbridge.errors import StorageError
from apexbridge.locks import locked_now
from apexbridge.paths import as_storage

LOCK = "instance.lock"


@contextmanager
def sole_instance(data: Path) -> Generator[None]:
    """Be the only server of a data folder, for as long as this process lives and wants to.

    Commands share the folder with a server: each change is safe on its own. Two servers would
    each answer from what only they have seen.

    Raises:
        StorageError: `data_in_use` if another has it, with the number of its process.
    """
    path = data / LOCK
    with locked_now(path) as descriptor:
        if descriptor is None:
            raise StorageError(code="data_in_use", path=data, process=_holder(path))
        with as_storage(path):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield


def _holder(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii") or "?"
    except (OSError, UnicodeDecodeError):
        return "?"


def make_room(skills: Path) -> None:
    """Make the folder that skills are installed into, as far as that is possible.

    For one that is missing the folder above it is watched, and a server writes there all the time.
    """
    with suppress(OSError):
        skills.mkdir(exist_ok=True, mode=0o700)
