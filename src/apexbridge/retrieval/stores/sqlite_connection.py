"""SQLite connection with recovery: a corrupt or foreign file is moved aside and a new one begun.

WAL mode lets others read during a write; `synchronous=FULL` syncs it at every commit, because with
NORMAL a power failure could undo a completed write. Opening checks the header only, as a full check
reads the whole file; corruption found later is handled alike.
"""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from apexbridge.errors import StorageError
from apexbridge.retrieval.stores.serialization import folder_lock
from apexbridge.state_databases import open_database

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

_APPLICATION_ID = 0x41504558
"""Application id "APEX": another program's database is moved aside, never changed."""
_PAGE_BYTES = 8192
"""An entry is about 10 KB: larger pages than the default load a third faster."""
_WAL_BYTES = 16 * 1024 * 1024
_MAX_ATTEMPTS = 3
_SUFFIXES = ("-wal", "-shm", "")
"""The WAL first: left beside a new file, it would be replayed into it."""


class _ForeignError(sqlite3.DatabaseError):
    """A valid database of another application."""


class SqliteConnection:
    """One connection, used by one thread at a time; opened lazily.

    `schema` creates a new file; a file with another `version` is replaced. `on_open` is called with
    each new connection, also after another process replaced the file.
    """

    def __init__(
        self,
        path: Path,
        *,
        schema: Sequence[str],
        version: int,
        busy_seconds: float,
        on_open: Callable[[sqlite3.Connection], None],
    ) -> None:
        self._path = path
        self._schema = schema
        self._version = version
        self._busy_seconds = busy_seconds
        self._on_open = on_open
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None
        self._is_closed = False
        self.was_broken = False

    def use(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Run work on the current file; it may be repeated from its start.

        Raises:
            StorageError: If an I/O error occurs, or another process holds the lock.
        """
        with self._lock:
            for left in reversed(range(_MAX_ATTEMPTS)):
                try:
                    answer = work(self._connected())
                    # Another process may have moved the file aside, and the write with it.
                    if self._is_in_place():
                        return answer
                except (sqlite3.Error, UnicodeDecodeError) as error:
                    if not left or not _is_corrupt(error):
                        raise StorageError(self._reason(error), path=self._path) from error
                    self._set_aside(error)
                except OSError as error:
                    raise StorageError(error.strerror or str(error), path=self._path) from error
            raise StorageError("it is being replaced again and again", path=self._path)

    def glance(self, look: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """Run a query without waiting for a lock or opening the file; None if it would."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._connection is None or not self._is_in_place():
                return None
            return look(self._connection)
        except (sqlite3.Error, OSError):
            return None
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the connection for good; may be called twice."""
        with self._lock:
            self._is_closed = True
            self._release()

    def _reason(self, error: Exception) -> str:
        if _error_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return f"another process has kept it locked for over {self._busy_seconds:g} seconds"
        return str(error)

    def _connected(self) -> sqlite3.Connection:
        if self._is_closed:
            raise StorageError("the store is closed", path=self._path)
        if self._connection is not None and self._is_in_place():
            return self._connection
        self._release()
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with folder_lock(self._path.parent):
                return self._open()
        except BaseException:
            self._release()  # a half-open connection must not be reused
            raise

    def _open(self) -> sqlite3.Connection:
        connection = self._connect()
        application, version, _ = _header(connection)
        if application == _APPLICATION_ID and version != self._version:
            self._release()
            for suffix in _SUFFIXES:
                _sibling(self._path, suffix).unlink(missing_ok=True)
            connection = self._connect()
        self._prepare(connection)
        self._on_open(connection)
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = open_database(
            self._path, timeout=self._busy_seconds, isolation_level=None, check_same_thread=False
        )
        # Corrupt bytes in a name must reach the checksum and not fail to decode.
        connection.text_factory = _decode_leniently
        self._connection = connection
        self._opened = self._identity()
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        application, version, tables = _header(connection)
        if application != _APPLICATION_ID and tables:
            raise _ForeignError("it is the database of another program")
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA cell_size_check = ON")  # to find corruption early
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        if version == self._version and tables:
            return
        with transaction(connection):
            for statement in self._schema:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {self._version}")

    def _set_aside(self, error: Exception) -> None:
        self._release()
        aside = _sibling(self._path, ".broken")
        try:
            with folder_lock(self._path.parent):
                if self._identity() != self._opened:
                    return  # another process was first, and this is its new file
                for suffix in _SUFFIXES:
                    source, target = _sibling(self._path, suffix), _sibling(aside, suffix)
                    if source.exists():
                        source.replace(target)
                    else:
                        target.unlink(missing_ok=True)
        except OSError as refused:
            raise StorageError(refused.strerror or str(refused), path=aside) from refused
        self.was_broken = True
        _log.warning(
            "%s cannot be read (%s): kept as %s, a new file was created", self._path, error, aside
        )

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _is_in_place(self) -> bool:
        return self._opened is not None and self._identity() == self._opened

    def _release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):  # a corrupt WAL cannot be checkpointed
                connection.close()


@contextmanager
def transaction(
    connection: sqlite3.Connection, kind: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE"
) -> Generator[None]:
    """Run a transaction; `DEFERRED` for a consistent read."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _header(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """Return application id, schema version and number of tables."""
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return application, version, tables


def _is_corrupt(error: Exception) -> bool:
    # The statements are constant: an error in one means that the schema is not ours,
    # and only corrupt schema bytes fail to decode in an error message.
    codes = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
    return isinstance(error, (_ForeignError, UnicodeDecodeError)) or _error_code(error) in codes


def _error_code(error: Exception) -> int:
    """Return SQLite's error code; errors of the Python module have none."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF


def _decode_leniently(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _sibling(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
