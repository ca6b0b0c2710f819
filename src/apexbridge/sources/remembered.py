"""What earlier scans read, kept on disk: folders that nobody touched are not read again."""

import contextlib
import logging
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from apexbridge.skills.stored import reader_id

log = logging.getLogger(__name__)

SETTLED_NS = 2_000_000_000
"""Clocks of file systems are coarse: what changed this short before it was read may have changed
again without a trace, and is read again."""

REST_SECONDS = 30.0
"""How long a file that is locked, full or read-only is left alone: no scan waits for it again."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS readings (
    source TEXT NOT NULL, folder TEXT NOT NULL, reader TEXT NOT NULL,
    stamp BLOB NOT NULL, read_ns INTEGER NOT NULL, reading BLOB NOT NULL, document BLOB NOT NULL,
    PRIMARY KEY (source, folder)
)
"""


class Remembered(NamedTuple):
    """One folder's stamp when it was read, when that was, and what was read."""

    stamp: bytes
    read_ns: int
    reading: bytes
    document: bytes = b""
    """The whole SKILL.md; read back only when it is asked for."""


class ScanMemory:
    """A file with readings. It only saves work: whatever is wrong with it, scans go on without."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Scans of this process take turns, so that only another process can hold one up.
        self._turn = threading.Lock()
        self._rests_until = 0.0

    def recall(self, source: str) -> dict[str, Remembered]:
        """All that is remembered of a source, by folder."""
        with self._turn:
            try:
                if self._is_left_alone(source) or not self._path.exists():
                    return {}
                with contextlib.closing(self._open()) as database:
                    rows = database.execute(
                        "SELECT folder, stamp, read_ns, reading FROM readings"
                        " WHERE source = ? AND reader = ?",
                        (source, reader_id()),
                    )
                    return {folder: Remembered(*rest) for folder, *rest in rows}
            except sqlite3.DatabaseError as error:
                self._begin_anew(error)
            except OSError as error:
                log.debug("Nothing is remembered of earlier scans: %s", error)
            return {}

    def keep(self, source: str, new: Mapping[str, Remembered], gone: Iterable[str]) -> None:
        """Remember these folders, and forget those."""
        rows = [
            (source, folder, reader_id(), *k[:-1], zlib.compress(k.document, 1))
            for folder, k in new.items()
            if _is_text(folder)
        ]
        lost = [(source, folder) for folder in gone if _is_text(folder)]
        with self._turn:
            if self._is_left_alone(source):
                return
            try:
                with contextlib.closing(self._open()) as database, database:
                    database.executemany(
                        "DELETE FROM readings WHERE source = ? AND folder = ?", lost
                    )
                    database.executemany(
                        "INSERT OR REPLACE INTO readings VALUES (?, ?, ?, ?, ?, ?, ?)", rows
                    )
            except sqlite3.DatabaseError as error:
                self._begin_anew(error)
            except OSError as error:
                log.debug("This scan is not remembered: %s", error)

    def document(self, source: str, folder: str, stamp: bytes) -> bytes | None:
        """The SKILL.md that was remembered of a folder in just this state."""
        try:
            with contextlib.closing(self._open()) as database:
                row = database.execute(
                    "SELECT document FROM readings WHERE source = ? AND folder = ? AND stamp = ?",
                    (source, folder, stamp),
                ).fetchone()
            return zlib.decompress(row[0]) if row else None
        except (sqlite3.DatabaseError, OSError, zlib.error, UnicodeError) as error:
            log.debug("An earlier SKILL.md cannot be read: %s", error)
            return None

    def _is_left_alone(self, source: str) -> bool:
        return time.monotonic() < self._rests_until or not _is_text(source)

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        database = sqlite3.connect(self._path, timeout=0.5)
        # Losing the last scans to a power cut costs one reading: no sync is waited for.
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")
        database.execute(_SCHEMA)
        return database

    def _begin_anew(self, error: sqlite3.DatabaseError) -> None:
        if isinstance(error, sqlite3.OperationalError):  # locked, full, read-only: not broken
            self._rests_until = time.monotonic() + REST_SECONDS
            log.debug("Earlier scans cannot be used: %s", error)
            return
        log.warning("What is remembered of earlier scans is broken, and begun anew: %s", error)
        with contextlib.suppress(OSError):
            for path in self._path.parent.glob(f"{self._path.name}*"):
                path.unlink(missing_ok=True)


def _is_text(path: str) -> bool:
    """Say whether a path can be written down: names on disk may be bytes that are no text."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
