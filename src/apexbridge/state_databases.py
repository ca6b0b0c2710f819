"""State in SQLite files: private to their owner; damage is told from a disk or a lock that refuses.

A damaged database is never taken for an empty one and never replaced here: see `state_files`.
"""

import os
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal

from apexbridge.errors import StateDamagedError, StorageError

SIDE_FILES = ("-wal", "-shm", "-journal")
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""The statements are constant: an SQL error means that the schema is not ours."""
_BUSY_SECONDS = 5.0


def open_database(
    path: Path,
    *,
    timeout: float = _BUSY_SECONDS,
    isolation_level: Literal["DEFERRED"] | None = "DEFERRED",
    check_same_thread: bool = True,
) -> sqlite3.Connection:
    """Open a database, with mode 0600 if it is new: SQLite would create it by the umask.

    Its write-ahead log gets the mode of the database. Raises OSError and sqlite3.Error.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Never opened if it exists: closing any descriptor of it would drop SQLite's POSIX locks.
    with suppress(FileExistsError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(path, flags, 0o600))
    return sqlite3.connect(
        path, timeout=timeout, isolation_level=isolation_level, check_same_thread=check_same_thread
    )


@contextmanager
def database_errors(path: Path) -> Generator[None]:
    """Convert `sqlite3.Error` and `OSError` to `StorageError`, or `StateDamagedError`."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        kind = StateDamagedError if is_damage(error) else StorageError
        raise kind(str(error), path=path) from error
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=path) from error


def is_damage(error: Exception) -> bool:
    """Return whether an error means a damaged or foreign file (module errors have no code)."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return isinstance(error, UnicodeDecodeError) or code & 0xFF in _DAMAGED


def check_database(path: Path, *, is_thorough: bool = True) -> None:
    """Check the pages and the schema of a database, if there is one, without changing it.

    With `is_thorough` every page is read, otherwise the header and the schema alone. A database
    that is locked, or that this user cannot open, is not damaged.

    Raises:
        StateDamagedError: If it is damaged.
    """
    if not path.exists():
        return
    try:
        with closing(_open_read_only(path)) as database:
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            lines = database.execute("PRAGMA quick_check(1)") if is_thorough else ()
            problems = [line for (line,) in lines if line != "ok"]
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if is_damage(error):
            raise StateDamagedError(str(error), path=path) from error
        return
    if problems:
        raise StateDamagedError(problems[0].strip(), path=path)


def copy_database(path: Path, target: Path) -> bool:
    """Copy a database that another process may be writing; False if there is none.

    Beside a live connection SQLite itself copies, in one read transaction: bytes that were copied
    meanwhile would look damaged. Otherwise, and where SQLite cannot read it, the bytes are copied.
    """
    if not path.exists():
        return False
    if _sibling(path, "-shm").exists():
        with suppress(sqlite3.Error), closing(_open_read_only(path)) as database:
            with closing(sqlite3.connect(target)) as copy:
                database.backup(copy)
            return True
        target.unlink(missing_ok=True)
    try:
        shutil.copyfile(path, target)
    except FileNotFoundError:
        return False
    with suppress(FileNotFoundError):
        shutil.copyfile(_sibling(path, "-wal"), _sibling(target, "-wal"))
    return True


def _open_read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=_BUSY_SECONDS, uri=True)


def _sibling(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
