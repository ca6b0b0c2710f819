"""Check of the state files in a data folder, for fsck, `doctor` and `/readyz`; it changes none."""

import errno
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import takewhile
from pathlib import Path

from pydantic import BaseModel

from apexbridge.api_keys import KeyFile
from apexbridge.errors import StateDamagedError, StorageError
from apexbridge.lifecycle.expiry_clock import CLOCK_FILE, ClockFile
from apexbridge.lifecycle.source_records import RecordsFile
from apexbridge.lifecycle.states import StatesFile
from apexbridge.paths import rename_free
from apexbridge.permissions.approvals import ApprovalFile
from apexbridge.secrets.sealed_file import SealedFile
from apexbridge.state_databases import SIDE_FILES, check_database, copy_database
from apexbridge.state_files import StateFile

log = logging.getLogger(__name__)

STATES = "states.json"
_JSON_FILES: Mapping[str, type[BaseModel]] = {
    STATES: StatesFile,
    "approvals.json": ApprovalFile,
    CLOCK_FILE: ClockFile,
    "keys.json": KeyFile,
    "sources.json": RecordsFile,
    "secrets.json": SealedFile,
}
_DATABASES = ("sessions.db", "trust.db", "consents.db", "runs.db", "usage.db")
STATE_FILES = (*_JSON_FILES, *_DATABASES)
_ATTEMPTS = 3
"""Copies of a database that looks damaged: another process may be writing it."""
_THOROUGH_BYTES = 64 * 1024 * 1024
"""Of larger databases a running server checks the schema only: fsck reads every page."""


class StateCheck:
    """The state files of a data folder; a file is read again only if its stat signature changed."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._seen: dict[str, tuple[tuple[int, ...], StateDamagedError | None]] = {}

    def damaged(self) -> tuple[StateDamagedError, ...]:
        """Return an error for each damaged file. Blocks."""
        return tuple(error for name in STATE_FILES if (error := self._check(name)))

    def _check(self, name: str) -> StateDamagedError | None:
        signature = _stat_signature(self._data / name)
        known = self._seen.get(name)
        if known is None or known[0] != signature:
            known = self._seen[name] = signature, _find_damage(self._data / name)
            if known[1] is not None:
                log.error("%s", known[1])
        return known[1]


def damaged_files(data: Path) -> tuple[StateDamagedError, ...]:
    """Read every page of every state file, of databases in a copy; return what is damaged.

    Raises:
        StorageError: If there is no disk space for the copies.
    """
    with tempfile.TemporaryDirectory(prefix="apexbridge-state-") as folder:
        return tuple(_damaged_files(data, Path(folder)))


def _damaged_files(data: Path, temporary: Path) -> Iterator[StateDamagedError]:
    for name in _JSON_FILES:
        if error := _find_damage(data / name):
            yield error
    for path in (data / name for name in _DATABASES):
        attempts = (_copy_damage(path, temporary / f"{n}-{path.name}") for n in range(_ATTEMPTS))
        errors = list(takewhile(lambda error: error is not None, attempts))
        if len(errors) == _ATTEMPTS and (error := errors[-1]):
            yield error


def _copy_damage(path: Path, copy: Path) -> StateDamagedError | None:
    """Check a copy of a database: SQLite writes beside a database that it opens."""
    try:
        if copy_database(path, copy):
            check_database(copy)
    except StateDamagedError as error:
        return StateDamagedError(str(error.details["detail"]), path=path)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StorageError(error.strerror or str(error), path=copy) from error
        return StateDamagedError(error.strerror or str(error), path=path)
    return None


def set_aside(data: Path) -> tuple[str, ...]:
    """Rename each damaged file, with the write-ahead log beside it; return the new names.

    Only a person asks for that (`doctor --fix`): what the file had does not hold from then on.

    Raises:
        StorageError: If a file cannot be renamed.
    """
    return tuple(
        rename_free(data / name_of(error), "damaged", SIDE_FILES).name
        for error in damaged_files(data)
    )


def name_of(error: StateDamagedError) -> str:
    """Return the name of a damaged file."""
    return Path(str(error.details["path"])).name


def _find_damage(path: Path) -> StateDamagedError | None:
    model = _JSON_FILES.get(path.name)
    if model is not None:
        return _caught(StateFile(path, model).read_if_exists)
    is_small = _stat_signature(path)[:1] <= (_THOROUGH_BYTES,)
    return _caught(partial(check_database, path, is_thorough=is_small))


def _caught(check: Callable[[], object]) -> StateDamagedError | None:
    try:
        check()
    except StateDamagedError as error:
        return error
    return None


def _stat_signature(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns
