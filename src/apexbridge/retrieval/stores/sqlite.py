"""SQLite vector store: one file for threads, processes and embedders.

Each write increments its embedder's sequence number in the same transaction, and a delete leaves a
tombstone, so that `changes` reads only new rows. An `epoch` identifies one run of the sequence: if
it differs from the last one seen, everything is read again.
"""

import logging
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import anyio.to_thread

from apexbridge.retrieval.base import IndexEntry, Matrix, Neighbour, StoreChanges
from apexbridge.retrieval.stores.serialization import (
    FULL,
    HALF,
    PackedEntry,
    check_dimensions,
    nearest_entries,
    pack_entry,
    unpack_entry,
    validate_entries,
)
from apexbridge.retrieval.stores.sqlite_connection import SqliteConnection, transaction

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

_VERSION = 1
_MAX_TOMBSTONES = 10_000
_CHUNK_ENTRIES = 250
"""Entries per chunk of `changes`: about 1 MB, to keep peak memory low."""
_COLUMNS = ", ".join(PackedEntry._fields)
_PLACEHOLDERS = ", ".join("?" * (len(PackedEntry._fields) + 2))
_SCHEMA = Path(__file__).with_name("sqlite_schema.sql").read_text(encoding="ascii").split(";\n")


_RowPosition = tuple[int, int]
"""Sequence number of a row's write, and its rowid."""
_LAST_ROW = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cursor:
    """Position up to which `changes` has returned rows."""

    epoch: str
    entry: _RowPosition = (0, 0)
    gone: int = 0


class SqliteStore:
    """Vector store in an SQLite file, which the first call opens."""

    def __init__(
        self,
        path: Path,
        embedder_id: str,
        *,
        precision: Literal["float32", "float16"] = "float32",
        busy_seconds: float = 5.0,
    ) -> None:
        self._path = path
        self._embedder = embedder_id
        self._width = HALF if precision == "float16" else FULL
        self._file = SqliteConnection(
            path,
            schema=_SCHEMA,
            version=_VERSION,
            busy_seconds=busy_seconds,
            on_open=self._register,
        )
        self._seen: _Cursor | None = None
        self._seen_version: int = 0
        self._has_more = True

    @property
    def was_broken(self) -> bool:
        """True if a corrupt file was found and moved aside."""
        return self._file.was_broken

    @property
    def embedder_id(self) -> str:
        """Id of the embedder whose entries these are."""
        return self._embedder

    async def others(self) -> Sequence[str]:
        """Ids of other embedders with entries here, the most recently used first."""
        return await self._run(self._others)

    async def fingerprints(self) -> Mapping[str, str]:
        """Return the fingerprint of each stored skill, without obviously corrupt entries."""
        return await self._run(self._fingerprints)

    async def upsert(self, entries: Sequence[IndexEntry]) -> None:
        """Insert or replace entries, in one transaction."""
        if entries:
            await self._run(lambda connection: self._upsert(connection, entries))

    async def delete(self, names: Sequence[str]) -> None:
        """Delete entries, in one transaction."""
        if names:
            await self._run(lambda connection: self._delete(connection, names))

    async def changes(self) -> StoreChanges:
        """Return what any process changed since the last call; its arrays are read-only."""
        return await self._run(self._changes)

    def has_changed(self) -> bool:
        """Say whether `changes` may return something; never blocks, on any thread."""
        version = self._file.glance(_data_version)
        return self._has_more or version != self._seen_version

    async def nearest(self, vector: Matrix, *, text: str, limit: int) -> Sequence[Neighbour]:
        """Search exhaustively; there is no full-text index."""

        def work(connection: sqlite3.Connection) -> Sequence[Neighbour]:
            entries, _ = _unpack_rows(self._rows(connection))
            return nearest_entries(entries, vector, limit=limit, embedder_id=self._embedder)

        return await self._run(work)

    async def check(self) -> Sequence[str]:
        """Run the integrity check, and verify every entry of this embedder."""
        return await self._run(self._check)

    async def forget_others(self) -> int:
        """Delete the entries of other embedders but the last used one; return their number."""
        return await self._run(self._forget_others)

    async def close(self) -> None:
        """Close the file."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._file.close)

    async def _run(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        return await anyio.to_thread.run_sync(self._file.use, work)

    def _register(self, connection: sqlite3.Connection) -> None:
        """Record this embedder as the last used one; no write if it is already."""
        self._seen, self._has_more = None, True
        _add_kind_column(connection)
        last = connection.execute("SELECT embedder FROM embedders ORDER BY used DESC").fetchone()
        if last and last[0] == self._embedder:
            return
        with transaction(connection):
            self._next(connection)
            connection.execute(
                "UPDATE embedders SET used = 1 + (SELECT max(used) FROM embedders)"
                " WHERE embedder = ?",
                (self._embedder,),
            )

    def _fingerprints(self, connection: sqlite3.Connection) -> Mapping[str, str]:
        rows: list[tuple[str, str]] = connection.execute(
            "SELECT name, fingerprint FROM entries WHERE embedder = ?"
            " AND length(vectors) = rows * dimensions * width"
            " AND length(terms) = 4 * length(counts)",
            (self._embedder,),
        ).fetchall()
        return dict(rows)

    def _upsert(self, connection: sqlite3.Connection, entries: Sequence[IndexEntry]) -> None:
        batch = [
            pack_entry(entry, width=self._width)
            for entry in validate_entries(entries, self._embedder)
        ]
        with transaction(connection):
            stored = connection.execute(
                "SELECT dimensions FROM entries WHERE embedder = ? LIMIT 1", (self._embedder,)
            ).fetchone()
            if stored:
                check_dimensions(batch[0].dimensions, stored[0], self._embedder)
            sequence = self._next(connection)
            connection.executemany(
                f"INSERT OR REPLACE INTO entries (embedder, sequence, {_COLUMNS})"  # noqa: S608
                f" VALUES ({_PLACEHOLDERS})",
                ((self._embedder, sequence, *packed) for packed in batch),
            )
            connection.executemany(
                "DELETE FROM gone WHERE embedder = ? AND name = ?",
                ((self._embedder, packed.name) for packed in batch),
            )
        self._has_more = True

    def _delete(self, connection: sqlite3.Connection, names: Iterable[str]) -> None:
        with transaction(connection):
            sequence = self._next(connection)
            for name in names:
                connection.execute(
                    "INSERT OR REPLACE INTO gone SELECT embedder, name, ? FROM entries"
                    " WHERE embedder = ? AND name = ?",
                    (sequence, self._embedder, name),
                )
                connection.execute(
                    "DELETE FROM entries WHERE embedder = ? AND name = ?", (self._embedder, name)
                )
            count = "SELECT count(*) FROM gone WHERE embedder = ?"
            if connection.execute(count, (self._embedder,)).fetchone()[0] > _MAX_TOMBSTONES:
                connection.execute("DELETE FROM gone WHERE embedder = ?", (self._embedder,))
                connection.execute(
                    "UPDATE embedders SET epoch = ? WHERE embedder = ?",
                    (uuid.uuid4().hex, self._embedder),
                )
        self._has_more = True

    def _next(self, connection: sqlite3.Connection) -> int:
        """Increment the sequence; a new embedder begins an epoch."""
        connection.execute(
            "INSERT INTO embedders (embedder, epoch, sequence, used) VALUES (?, ?, 1, 0)"
            " ON CONFLICT (embedder) DO UPDATE SET sequence = sequence + 1",
            (self._embedder, uuid.uuid4().hex),
        )
        return self._position(connection)[1]

    def _position(self, connection: sqlite3.Connection) -> tuple[str, int]:
        row: tuple[str, int] | None = connection.execute(
            "SELECT epoch, sequence FROM embedders WHERE embedder = ?", (self._embedder,)
        ).fetchone()
        return row or ("", 0)

    def _changes(self, connection: sqlite3.Connection) -> StoreChanges:
        version = _data_version(connection)
        if not self._has_more and version == self._seen_version:
            return StoreChanges()
        with transaction(connection, "DEFERRED"):
            epoch, sequence = self._position(connection)
            is_all = self._seen is None or self._seen.epoch != epoch
            seen = _Cursor(epoch=epoch) if self._seen is None or is_all else self._seen
            rows = self._rows(connection, after=seen.entry, limit=_CHUNK_ENTRIES)
            gone: list[tuple[str]] = connection.execute(
                "SELECT name FROM gone WHERE embedder = ? AND sequence > ?",
                (self._embedder, seen.gone),
            ).fetchall()
        entries, damaged = _unpack_rows(rows)
        self._drop(connection, damaged)
        # A concurrent write gets a higher sequence number, so that a later chunk has it.
        self._has_more = len(rows) == _CHUNK_ENTRIES
        last = (rows[-1][0], rows[-1][1]) if self._has_more else (sequence, _LAST_ROW)
        self._seen = _Cursor(epoch=epoch, entry=last, gone=sequence)
        self._seen_version = version
        names = () if is_all else tuple(name for (name,) in gone)
        return StoreChanges(entries=entries, gone=names, is_all=is_all, has_more=self._has_more)

    def _rows(
        self, connection: sqlite3.Connection, *, after: _RowPosition = (0, 0), limit: int = -1
    ) -> list[tuple[Any, ...]]:
        """Read rows in the order of writes, with their positions."""
        return connection.execute(
            f"SELECT sequence, rowid, {_COLUMNS} FROM entries"  # noqa: S608
            " WHERE embedder = ? AND (sequence, rowid) > (?, ?) ORDER BY sequence, rowid LIMIT ?",
            (self._embedder, *after, limit),
        ).fetchall()

    def _drop(self, connection: sqlite3.Connection, damaged: Sequence[_RowPosition]) -> None:
        """Delete corrupt entries, so that the next sync re-creates them."""
        if not damaged:
            return
        _log.warning("%s: %d damaged entries are dropped", self._path, len(damaged))
        with transaction(connection):
            connection.executemany("DELETE FROM entries WHERE sequence = ? AND rowid = ?", damaged)

    def _check(self, connection: sqlite3.Connection) -> Sequence[str]:
        problems = ["an older file could not be read and was set aside"] * self._file.was_broken
        try:
            lines: list[tuple[str]] = connection.execute("PRAGMA integrity_check(20)").fetchall()
            problems += [line for (line,) in lines if line != "ok"]
            _, damaged = _unpack_rows(self._rows(connection))
            problems += [f"the entry in row {row} is damaged" for _, row in damaged]
        except sqlite3.DatabaseError as error:
            problems.append(str(error))
        return problems

    def _others(self, connection: sqlite3.Connection) -> list[str]:
        rows: list[tuple[str]] = connection.execute(
            "SELECT embedder FROM embedders WHERE embedder != ? ORDER BY used DESC",
            (self._embedder,),
        ).fetchall()
        return [embedder for (embedder,) in rows]

    def _forget_others(self, connection: sqlite3.Connection) -> int:
        with transaction(connection):
            forgotten = [(embedder,) for embedder in self._others(connection)[1:]]
            for table in ("entries", "gone", "embedders"):
                statement = f"DELETE FROM {table} WHERE embedder = ?"  # noqa: S608
                connection.executemany(statement, forgotten)
        if forgotten:
            # executescript, because `execute` runs one step, and each step frees one page.
            connection.executescript("PRAGMA incremental_vacuum")
        return len(forgotten)


def _unpack_rows(rows: Sequence[tuple[Any, ...]]) -> tuple[list[IndexEntry], list[_RowPosition]]:
    """Deserialize rows; return the entries, and the positions of corrupt ones."""
    read = [((row[0], row[1]), unpack_entry(PackedEntry(*row[2:]))) for row in rows]
    entries = [entry for _, entry in read if entry is not None]
    return entries, [place for place, entry in read if entry is None]


def _add_kind_column(connection: sqlite3.Connection) -> None:
    """Add the column that files of earlier versions lack: all their entries are skills.

    The schema's version stays, or else the file would be replaced and every skill embedded anew.
    """
    columns: list[tuple[str]] = connection.execute(
        "SELECT name FROM pragma_table_info('entries')"
    ).fetchall()
    if columns and ("kind",) not in columns:
        with transaction(connection):
            connection.execute("ALTER TABLE entries ADD COLUMN kind TEXT NOT NULL DEFAULT 'skill'")


def _data_version(connection: sqlite3.Connection) -> int:
    """Return `PRAGMA data_version`, which changes with commits of other connections."""
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version
