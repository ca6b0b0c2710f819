"""One SQLite file that is found sound or begun anew, whoever else uses, moves or removes it.

The write-ahead log lets others read while one writes; `synchronous=FULL` syncs it at every commit,
for with NORMAL a power cut could take back a write that had returned. Opening looks at the header
alone, for a full check reads the whole file; damage found later leads to the same setting aside.
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

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

_APPLICATION_ID = 0x41504558
"""Marks the file as ours ("APEX"): another program's database is set aside, never changed."""
_PAGE_BYTES = 8192
"""A usual entry is some 10 KB: larger pages than SQLite's own load a third faster."""
_WAL_BYTES = 16 * 1024 * 1024
_MAX_ATTEMPTS = 3
_SUFFIXES = ("-wal", "-shm", "")
"""The log goes first: left beside a new file, it would be played into it."""


class _ForeignError(sqlite3.DatabaseError):
    """A sound database that is not ours lies in our place."""


class SqliteConnection:
    """Lends one connection to one thread at a time; opened by the first use.

    `schema` is what a new file holds; a file of ours with another `version` is begun anew.
    `on_open` is called with each new connection, also after someone replaced the file.
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
        """Do work in the file that lies at the path; it may be done again from its start.

        Raises:
            StorageError: If the disk refuses, or another process keeps the file locked.
        """
        with self._lock:
            for left in reversed(range(_MAX_ATTEMPTS)):
                try:
                    answer = work(self._connected())
                    # Someone may have set the file aside meanwhile: what went there is lost.
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
        """Look at once, without waiting for a lock or opening; None where that cannot be."""
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
        """Let go of the file for good; may be called twice."""
        with self._lock:
            self._is_closed = True
            self._let_go()

    def _reason(self, error: Exception) -> str:
        if _error_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return f"another process has kept it locked for over {self._busy_seconds:g} seconds"
        return str(error)

    def _connected(self) -> sqlite3.Connection:
        if self._is_closed:
            raise StorageError("the store is closed", path=self._path)
        if self._connection is not None and self._is_in_place():
            return self._connection
        self._let_go()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with folder_lock(self._path.parent):
                return self._open()
        except BaseException:
            self._let_go()  # what is half open must not be taken for open by the next call
            raise

    def _open(self) -> sqlite3.Connection:
        connection = self._connect()
        application, version, _ = _header(connection)
        if application == _APPLICATION_ID and version != self._version:
            self._let_go()
            for suffix in _SUFFIXES:
                _sibling(self._path, suffix).unlink(missing_ok=True)
            connection = self._connect()
        self._prepare(connection)
        self._on_open(connection)
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path,
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )
        # Damaged bytes in a name must reach its checksum and not fail on the way.
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
        connection.execute("PRAGMA cell_size_check = ON")  # damage shows when a page is first read
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
        self._let_go()
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
        _log.warning("%s cannot be read (%s): kept as %s, begun anew", self._path, error, aside)

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _is_in_place(self) -> bool:
        return self._opened is not None and self._identity() == self._opened

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):  # a damaged log cannot be put into the file
                connection.close()


@contextmanager
def transaction(
    connection: sqlite3.Connection, kind: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE"
) -> Generator[None]:
    """All of it or nothing; `DEFERRED` for reading one moment's state."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _header(connection: sqlite3.Connection) -> tuple[int, int, int]:
    """The file's application, schema version and number of tables."""
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return application, version, tables


def _is_corrupt(error: Exception) -> bool:
    # The statements are fixed, so that an error in one means that the schema is not as written,
    # and only damaged bytes of a schema can fail to decode on their way into an error's words.
    codes = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
    return isinstance(error, (_ForeignError, UnicodeDecodeError)) or _error_code(error) in codes


def _error_code(error: Exception) -> int:
    """SQLite's own code; errors of Python's module have none."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF


def _decode_leniently(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _sibling(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
