"""Usage counts of skills with exponential decay, in an SQLite file shared by processes (WAL mode).

A count never fails a request: on a disk error it is lost with a warning, and a corrupt file is
moved aside and created anew.
"""

import contextlib
import fcntl
import logging
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TypeVar

from apexbridge.state_databases import open_database

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

DEBOUNCE_SECONDS = 60.0
HALF_LIFE_DAYS = 7.0
MIN_WEIGHT = 0.1

_DAY_SECONDS = 86_400.0
_BUSY_SECONDS = 5.0
_CACHE_SECONDS = 10
_RETRY_SECONDS = 0.01
_MAX_ATTEMPTS = 3
_SUFFIXES = ("-wal", "-shm", "")
"""The write-ahead log first: left beside a new file, SQLite would replay it there."""
_BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})
"""The statements are fixed: an SQL error means a foreign schema."""
_VERSION = 0x55534531
"""`user_version` of our schema ("USE1"): a foreign database is moved aside, never changed."""

_SCHEMA = """
CREATE TABLE usage (
    name BLOB PRIMARY KEY CHECK (typeof(name) = 'blob'),
    count INTEGER NOT NULL CHECK (typeof(count) = 'integer'),
    last REAL NOT NULL CHECK (typeof(last) = 'real')
) WITHOUT ROWID
"""
_ALL = """
SELECT name, count, last FROM usage
WHERE typeof(name) = 'blob' AND typeof(count) = 'integer' AND typeof(last) = 'real'
"""
# A timestamp further in the future than the debounce was written before the clock was set back;
# it must not block counting until then.
_RECORD = f"""
INSERT INTO usage VALUES (?1, 1, ?2)
ON CONFLICT (name) DO UPDATE SET count = count + 1, last = excluded.last
WHERE excluded.last - last >= {DEBOUNCE_SECONDS} OR last - excluded.last > {DEBOUNCE_SECONDS}
"""  # noqa: S608


class _ForeignError(sqlite3.DatabaseError):
    """A valid SQLite database of another program."""


def score(count: int, last: float, now: float) -> float:
    """Decay a count by its age with a half-life; times are seconds since the epoch.

    >>> score(4, last=0, now=7 * 86_400)
    2.0
    """
    days = max(0.0, (now - last) / _DAY_SECONDS)
    return count * max(0.5 ** (days / HALF_LIFE_DAYS), MIN_WEIGHT)


class UsageStore:
    """Thread-safe and process-safe usage counter. Methods block on the disk and never raise."""

    def __init__(self, path: Path, busy_seconds: float = _BUSY_SECONDS) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None

    def record(self, name: str, now: float) -> bool:
        """Count a use; False if debounced within the last minute, or on a disk error."""

        def write(connection: sqlite3.Connection) -> bool:
            return connection.execute(_RECORD, (_encode_name(name), now)).rowcount > 0

        return self._use(write, default=False)

    def scores(self, now: float) -> Mapping[str, float]:
        """Return the decayed score of every used skill."""

        def read(connection: sqlite3.Connection) -> dict[str, float]:
            rows = connection.execute(_ALL).fetchall()
            return {_decode_name(key): score(count, last, now) for key, count, last in rows}

        return self._use(read, default={})

    def count(self, name: str) -> int:
        """Return the number of uses of a skill."""

        def read(connection: sqlite3.Connection) -> int:
            found = connection.execute(
                "SELECT count FROM usage WHERE name = ?", (_encode_name(name),)
            )
            (number,) = found.fetchone() or (0,)
            return number

        return self._use(read, default=0)

    def get(self, name: str) -> tuple[int, float]:
        """Return the number of uses of a skill and the time of the last one, or zeros."""

        def read(connection: sqlite3.Connection) -> tuple[int, float]:
            statement = "SELECT count, last FROM usage WHERE name = ?"
            return connection.execute(statement, (_encode_name(name),)).fetchone() or (0, 0.0)

        return self._use(read, default=(0, 0.0))

    def restore(self, name: str, count: int, last: float) -> None:
        """Set the counts of a skill that was uninstalled and is back."""

        def write(connection: sqlite3.Connection) -> None:
            row = (_encode_name(name), count, last)
            connection.execute("INSERT OR REPLACE INTO usage VALUES (?, ?, ?)", row)

        self._use(write, default=None)

    def forget(self, name: str) -> None:
        """Delete the counts of an uninstalled skill."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM usage WHERE name = ?", (_encode_name(name),))

        self._use(write, default=None)

    def close(self) -> None:
        """Close the connection; a later call opens it again."""
        with self._lock:
            self._disconnect()

    def _use(self, work: Callable[[sqlite3.Connection], Result], *, default: Result) -> Result:
        with self._lock:
            try:
                return self._with_recovery(work)
            except (sqlite3.Error, OSError, ValueError) as error:
                self._disconnect()
                _log.warning("Usage counts in %s are unavailable: %s", self._path, error)
                return default

    def _with_recovery(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        left = _MAX_ATTEMPTS
        while True:
            left -= 1
            try:
                return work(self._connected())
            except (sqlite3.Error, UnicodeDecodeError) as error:
                if not left or not _is_broken(error):
                    raise
                self._move_aside(error)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and self._identity() == self._opened:
            return self._connection
        self._disconnect()
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._exclusive():
            connection = open_database(
                self._path,
                timeout=self._busy_seconds,
                isolation_level=None,
                check_same_thread=False,
            )
            self._connection, self._opened = connection, self._identity()
            _prepare(connection)
        return connection

    def _move_aside(self, error: Exception) -> None:
        self._disconnect()
        aside = _sibling_path(self._path, ".broken")
        with self._exclusive():
            if self._identity() != self._opened:
                return  # another process has replaced it already
            for suffix in _SUFFIXES:
                with contextlib.suppress(FileNotFoundError):
                    _sibling_path(self._path, suffix).replace(_sibling_path(aside, suffix))
        _log.warning("%s is corrupt (%s): moved to %s, created anew", self._path, error, aside)

    @contextlib.contextmanager
    def _exclusive(self) -> Generator[None]:
        """Hold the lock file, so that no other process opens or moves the database."""
        lock = os.open(
            _sibling_path(self._path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            _acquire(lock, time.monotonic() + self._busy_seconds)
            yield
        finally:
            os.close(lock)

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):  # a corrupt log cannot be checkpointed
                connection.close()


class UsageScores:
    """Usage of each skill between 0 and 1, cached for some seconds."""

    def __init__(self, store: UsageStore) -> None:
        self._store = store
        self._scores: Mapping[str, float] = {}
        self._read_at = -math.inf

    def scores(self) -> Mapping[str, float]:
        """Return saturating scores: the first uses count most, each further one less."""
        now = time.monotonic()
        if now - self._read_at > _CACHE_SECONDS:
            scores = self._store.scores(time.time())
            self._scores = {name: score / (score + 3) for name, score in scores.items()}
            self._read_at = now
        return self._scores


def _prepare(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and version != _VERSION:
        raise _ForeignError("it is a database of another program")
    connection.execute("PRAGMA journal_mode = WAL")
    # A power failure may lose the last counts; an fsync for each would cost more.
    connection.execute("PRAGMA synchronous = NORMAL")
    if not tables:
        connection.executescript(
            f"BEGIN IMMEDIATE; {_SCHEMA}; PRAGMA user_version = {_VERSION}; COMMIT"
        )


def _acquire(lock: int, deadline: float) -> None:
    """Acquire a file lock before a deadline: its holder may be a stopped process."""
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)
        else:
            return


def _encode_name(name: str) -> bytes:
    """Encode any string, including lone surrogates."""
    return name.encode("utf-8", "surrogatepass")


def _decode_name(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")


def _is_broken(error: Exception) -> bool:
    """Say whether the file is corrupt; errors of the `sqlite3` module itself have no code."""
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return isinstance(error, (_ForeignError, UnicodeDecodeError)) or code & 0xFF in _BROKEN


def _sibling_path(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


class UsageCache:
    """Usage scores in memory, read from SQLite every few seconds at most."""

    def __init__(self, store: UsageStore, ttl: float = 5.0) -> None:
        self._store, self._ttl = store, ttl
        self._scores: Mapping[str, float] = {}
        self._expires = -math.inf

    def scores(self) -> Mapping[str, float]:
        """Return the score of each skill; the same mapping object until it expires."""
        now = time.monotonic()
        if now > self._expires:
            self._scores, self._expires = self._store.scores(time.time()), now + self._ttl
        return self._scores

    def record(self, name: str, now: float) -> bool:
        """Count a use, and expire the cache, so that the next listing sees it."""
        self._expires = -math.inf
        return self._store.record(name, now)
