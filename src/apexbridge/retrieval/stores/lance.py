"""LanceDB vector store: one table for each embedder.

Lance writes each change as a new table version with optimistic concurrency. A `revision` column
identifies the write of an entry, so that `changes` compares names and revisions and reads only new
entries. The package is imported by the first call, because the import takes seconds.
"""

import contextlib
import hashlib
import importlib
import importlib.util
import logging
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from apexbridge.errors import ApexBridgeError, ConfigError, StorageError
from apexbridge.paths import fsync_file
from apexbridge.retrieval.base import IndexEntry, Matrix, Neighbour, StoreChanges
from apexbridge.retrieval.stores.serialization import (
    LANCE_COLUMNS,
    PackedEntry,
    add_kind_column,
    arrow_schema,
    check_dimensions,
    folder_lock,
    is_disk_error,
    pack_entry,
    read_used_embedders,
    sql_list,
    to_arrow,
    unpack_entry,
    validate_entries,
    write_used_embedders,
)
from apexbridge.tree_removal import remove_tree

_log = logging.getLogger(__name__)

Result = TypeVar("Result")

_PREFIX = "entries-1-"
"""With the schema version: tables of another version are dropped."""
_OPTIMIZE_EVERY = 32
_KEEP_VERSIONS = timedelta(seconds=1)
"""Age up to which versions are kept for readers; a reader that loses its version starts again."""
_CHUNK_ENTRIES = 1_000
"""Entries per chunk of `changes`: about 10 MB."""
_MAX_ATTEMPTS = 4
_TIE_CANDIDATES = 16
"""Additional candidates, so that full-text scores can break ties."""


class LanceStore:
    """Vector store in a LanceDB folder."""

    def __init__(self, folder: Path, embedder_id: str) -> None:
        """Set the folder without opening it.

        Raises:
            ConfigError: If lancedb is not installed.
        """
        if importlib.util.find_spec("lancedb") is None:
            raise ConfigError(code="extra_missing", name="lancedb", extra="lance")
        self._folder, self._embedder = folder, embedder_id
        self._name = _table_name(embedder_id)
        self._path = folder / f"{self._name}.lance"
        self._lock = threading.Lock()
        self._table: Any = None
        self._opened: tuple[int, int] | None = None
        self._known: dict[str, str] | None = None
        self._pending: list[str] = []
        self._seen: frozenset[str] | None = None
        self._was_broken = self._is_registered = self._is_closed = False

    @property
    def was_broken(self) -> bool:
        """True if a corrupt table was found and moved aside."""
        return self._was_broken

    @property
    def embedder_id(self) -> str:
        """Id of the embedder whose entries these are."""
        return self._embedder

    async def others(self) -> Sequence[str]:
        """Ids of other embedders with tables here, the most recently used first."""
        used = await self._run(lambda: read_used_embedders(self._folder))
        return [one for one in reversed(used) if one != self._embedder]

    async def fingerprints(self) -> Mapping[str, str]:
        """Return the fingerprint of each stored skill."""
        return await self._run(self._fingerprints)

    async def upsert(self, entries: Sequence[IndexEntry]) -> None:
        """Insert or replace entries, in one version."""
        if entries:
            await self._run(lambda: self._upsert(entries))

    async def delete(self, names: Sequence[str]) -> None:
        """Delete entries, in one version."""
        if names:
            await self._run(lambda: self._delete(f"name IN ({sql_list(names)})"))

    def has_changed(self) -> bool:
        """Say whether `changes` may return something, by the names of the version files."""
        return self._known is None or bool(self._pending) or self._versions() != self._seen

    async def changes(self) -> StoreChanges:
        """Return what any process changed since the last call."""
        return await self._run(self._changes)

    async def nearest(self, vector: Matrix, *, text: str, limit: int) -> Sequence[Neighbour]:
        """Search with Lance; ties are broken by full-text score for `text`."""
        return await self._run(lambda: self._nearest(vector.reshape(-1), text, limit))

    async def check(self) -> Sequence[str]:
        """Read and verify every entry."""
        return await self._run(self._check)

    async def forget_others(self) -> int:
        """Drop the tables of other embedders but the last used one; return their number."""
        return await self._run(self._forget_others)

    async def close(self) -> None:
        """Close the table."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._close)

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._release()

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await anyio.to_thread.run_sync(self._attempt, work)

    def _attempt(self, work: Callable[[], Result]) -> Result:
        """Run work; retry after a write conflict, and begin a new table if it is corrupt."""
        with self._lock:
            if self._is_closed:
                raise StorageError("the store is closed", path=self._folder)
            for left in reversed(range(_MAX_ATTEMPTS)):
                try:
                    self._open()
                    return work()
                except ApexBridgeError:
                    raise
                except Exception as error:  # Lance raises any exception type, Rust panics included
                    self._release()
                    if not left or is_disk_error(error):
                        raise StorageError(str(error), path=self._path) from error
                    if left == 1:
                        self._set_aside(error)
            raise AssertionError  # the last attempt returns or raises

    # Opening and recovery.

    def _open(self) -> None:
        """Open the current table; None if it does not exist yet."""
        if not self._is_registered:
            self._register()
            self._is_registered = True
        here = self._identity()
        if here == self._opened and (here is None or self._table is not None):
            return
        self._release()
        if here is not None:
            # No reuse of the connection: its cache would mistake a recreated table for the old one.
            self._table, self._opened = self._connect().open_table(self._name), here
            add_kind_column(self._table)

    def _connect(self) -> Any:
        lancedb: Any = importlib.import_module("lancedb")
        return lancedb.connect(self._folder, read_consistency_interval=timedelta(0))

    def _make(self, dimensions: int) -> Any:
        self._folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(self._folder):
            if self._identity() is None:
                columns = arrow_schema(dimensions)
                self._connect().create_table(self._name, schema=columns, exist_ok=True)
            self._open()
        self._index_words()
        return self._table

    def _index_words(self) -> None:
        index: Any = importlib.import_module("lancedb.index")
        try:
            words = index.FTS(base_tokenizer="icu", stem=False, remove_stop_words=False)
            self._table.create_index("text", config=words)
        except (TypeError, ValueError, RuntimeError) as error:
            # Before 0.34 no tokenizer segments Chinese.
            _log.info("%s has no word index: %s", self._path, error)

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = (self._path / "_versions").stat()
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _release(self) -> None:
        self._table = self._opened = self._known = self._seen = None
        self._pending = []

    def _set_aside(self, error: Exception) -> None:
        """Move the table aside, unless it is readable after all or another process was first."""
        aside = self._folder / f"{self._name}.broken"
        try:
            with folder_lock(self._folder):
                if self._identity() is None or self._is_readable():
                    return
                remove_tree(aside)
                self._path.rename(aside)
        except OSError as refused:
            raise StorageError(refused.strerror or str(refused), path=aside) from refused
        self._was_broken = True
        _log.warning("%s cannot be read (%s): kept as %s", self._path, error, aside)

    def _is_readable(self) -> bool:
        try:
            self._open()
            self._table.to_arrow()
        except Exception as error:  # noqa: BLE001  # Lance raises any exception type
            self._release()
            return is_disk_error(error)  # a permission or I/O error is no corruption
        return True

    def _register(self) -> None:
        """Record this embedder as the last used one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(self._folder):
            used = read_used_embedders(self._folder)
            if used[-1:] != [self._embedder]:
                others = [one for one in used if one != self._embedder]
                write_used_embedders(self._folder, [*others, self._embedder])

    def _discard(self, place: Path) -> None:
        """Remove a table by an atomic rename, so that no reader sees half of it."""
        gone = self._folder / f".{uuid.uuid4().hex}.gone"
        place.rename(gone)
        remove_tree(gone)

    # Operations.

    def _fingerprints(self) -> Mapping[str, str]:
        return dict(self._rows(("name", "fingerprint")))

    def _rows(self, columns: Sequence[str], where: str | None = None) -> list[tuple[Any, ...]]:
        """Read columns from the newest version."""
        if self._table is None:
            return []
        query = self._table.search().select(list(columns))
        found = (query.where(where) if where else query).to_arrow()
        return list(zip(*(found.column(name).to_pylist() for name in columns), strict=True))

    def _upsert(self, entries: Sequence[IndexEntry]) -> None:
        batch = [pack_entry(entry) for entry in validate_entries(entries, self._embedder)]
        started = time.time()
        self._check_dimensions(batch[0].dimensions)
        table = self._make(batch[0].dimensions) if self._table is None else self._table
        before = table.version
        merge = table.merge_insert("name").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(to_arrow(batch))
        self._make_durable(before, started)

    def _check_dimensions(self, dimensions: int) -> None:
        """Check the vector size; an empty table of another size is dropped."""
        if self._table is None:
            return
        stored: int = self._table.schema.field("vector").type.list_size
        if stored != dimensions and not self._table.count_rows():
            with folder_lock(self._folder):
                self._discard(self._path)
            self._release()
            return
        check_dimensions(dimensions, stored, self._embedder)

    def _delete(self, where: str) -> None:
        if self._table is None:
            return
        started, before = time.time(), self._table.version
        self._table.delete(where)
        self._make_durable(before, started)

    def _make_durable(self, before: int, started: float) -> None:
        """Make a write durable, and compact the table now and then."""
        # Lance never calls fsync. File system timestamps may lag a tick behind the clock.
        for path in (self._folder, self._path, *self._path.rglob("*")):
            with contextlib.suppress(FileNotFoundError):  # compacted meanwhile
                if path.stat().st_mtime >= started - 0.02:
                    fsync_file(path)
        # By the number of versions, because short-lived processes may write one each.
        if before // _OPTIMIZE_EVERY != self._table.version // _OPTIMIZE_EVERY:
            try:
                if not self._table.list_indices():
                    self._index_words()
                self._table.optimize(cleanup_older_than=_KEEP_VERSIONS)
            except Exception as error:  # noqa: BLE001  # the write is done; the next will tidy up
                _log.info("%s could not be optimized now: %s", self._path, error)

    def _versions(self) -> frozenset[str] | None:
        """Return the names of the version files: every write adds one."""
        try:
            return frozenset(os.listdir(self._path / "_versions"))  # noqa: PTH208  # strings will do
        except OSError:
            return None

    def _changes(self) -> StoreChanges:
        known, gone = self._known, list[str]()
        if not self._pending:
            versions = self._versions()
            if known is not None and versions == self._seen:
                return StoreChanges()
            names = dict(self._rows(("name", "revision")))
            self._known = {n: r for n, r in (known or {}).items() if n in names}
            self._pending = [n for n, r in names.items() if self._known.get(n) != r]
            self._seen = versions
            gone = sorted((known or {}).keys() - names.keys())
        entries = self._part()
        return StoreChanges(
            entries=entries, gone=gone, is_all=known is None, has_more=bool(self._pending)
        )

    def _part(self) -> Sequence[IndexEntry]:
        """Return the next chunk; entries replaced meanwhile are returned in their new version."""
        names, self._pending = self._pending[:_CHUNK_ENTRIES], self._pending[_CHUNK_ENTRIES:]
        rows = self._rows(LANCE_COLUMNS, f"name IN ({sql_list(names)})") if names else []
        read = [(revision, row[0], unpack_entry(PackedEntry(*row))) for revision, *row in rows]
        if self._known is not None:
            self._known.update({name: revision for revision, name, _ in read})
        self._drop([(name, revision) for revision, name, entry in read if entry is None])
        return tuple(entry for _, _, entry in read if entry is not None)

    def _drop(self, damaged: Sequence[tuple[str, str]]) -> None:
        """Delete corrupt entries, so that the next sync re-creates them."""
        for name, revision in damaged:
            _log.warning("%s: the damaged entry %s is dropped", self._path, name)
            self._delete(f"name = {sql_list([name])} AND revision = {sql_list([revision])}")

    def _nearest(self, vector: Matrix, text: str, limit: int) -> Sequence[Neighbour]:
        if self._table is None or limit < 1:
            return ()
        check_dimensions(
            vector.size, self._table.schema.field("vector").type.list_size, self._embedder
        )
        search = self._table.search(vector, vector_column_name="vector").metric("cosine")
        near = search.select(["name", "_distance"]).limit(limit + _TIE_CANDIDATES).to_arrow()
        words = self._words(text, limit + _TIE_CANDIDATES)
        found = [
            Neighbour(name=row["name"], score=min(max(1 - row["_distance"] / 2, 0.0), 1.0))
            for row in near.to_pylist()
        ]
        found.sort(key=lambda near: (-round(near.score, 6), -words.get(near.name, 0), near.name))
        return found[:limit]

    def _words(self, text: str, limit: int) -> Mapping[str, float]:
        if not text.strip() or not self._table.list_indices():
            return {}
        search = self._table.search(text, query_type="fts", fts_columns="text")
        rows = search.select(["name", "_score"]).limit(limit).to_arrow().to_pylist()
        return {row["name"]: row["_score"] for row in rows}

    def _check(self) -> Sequence[str]:
        problems = ["an older table could not be read and was set aside"] * self._was_broken
        packed = [PackedEntry(*row) for _, *row in self._rows(LANCE_COLUMNS)]
        problems += [
            f"the entry {one.name} is damaged" for one in packed if unpack_entry(one) is None
        ]
        often = Counter(one.name for one in packed)
        problems += [f"the entry {name} is there {n} times" for name, n in often.items() if n > 1]
        return problems

    def _forget_others(self) -> int:
        with folder_lock(self._folder):
            others = [one for one in read_used_embedders(self._folder) if one != self._embedder]
            kept = [*others[-1:], self._embedder]
            names = {_table_name(one) for one in kept}
            places = [p for p in self._folder.glob("entries-*.lance") if p.stem not in names]
            for place in places:
                self._discard(place)
            write_used_embedders(self._folder, kept)
        return len(places)


def _table_name(embedder_id: str) -> str:
    return _PREFIX + hashlib.sha256(embedder_id.encode("utf-8", "replace")).hexdigest()[:24]
