"""Index synchronization: embed new and changed skills, delete removed ones, keep the rest."""

import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import anyio
import anyio.to_thread
import numpy as np
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from apexbridge.errors import (
    EmbedderOutputError,
    IndexMismatchError,
    RetrievalError,
)
from apexbridge.retrieval.base import IndexEntry
from apexbridge.retrieval.embedders.validation import embed_validated
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.results import NO_CALLBACKS, SyncCallbacks, SyncProgress, SyncReport
from apexbridge.retrieval.skill_document import SkillDocument, SkillText, build_document
from apexbridge.retrieval.thread_control import shortened_gil_switch_interval

log = logging.getLogger(__name__)

BATCH_SIZE = 192
"""Skills embedded and stored together: a crash loses two batches at most."""
_MAX_REFUSALS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexItem:
    """A skill to index: `fingerprint` identifies its version, `read` returns its texts.

    `read_at_once` returns them synchronously on a worker thread, or None if it would have to wait.
    """

    name: str
    fingerprint: str
    read: Callable[[], Awaitable[SkillText]]
    read_at_once: Callable[[], SkillText | None] = lambda: None


@dataclass(slots=True)
class _SyncState:
    added: list[str] = field(default_factory=list[str])
    redone: list[str] = field(default_factory=list[str])
    pending: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    outdated: list[str] = field(default_factory=list[str])
    """Entries that may be deleted first, because all skills are re-embedded."""
    problem: RetrievalError | None = None
    refused: int = 0
    last_refusal: RetrievalError | None = None
    done: int = 0

    def refuse(self, error: RetrievalError) -> None:
        """Count a skill with an invalid embedding; after a few, give the embedder up."""
        self.refused += 1
        self.last_refusal = error
        if self.refused >= _MAX_REFUSALS:
            self.problem = error


@dataclass(frozen=True, slots=True)
class _Batch:
    items: list[IndexItem]
    digests: list[SkillDocument]
    failed: list[str]

    def apart(self) -> "Iterator[_Batch]":
        """Split into batches of one item."""
        for item, cut in zip(self.items, self.digests, strict=True):
            yield _Batch([item], [cut], [])


@dataclass(frozen=True, slots=True)
class _EmbeddedBatch:
    """Result of one batch."""

    entries: list[IndexEntry]
    left: list[IndexEntry]
    """Entries without vectors, which only BM25 finds."""
    size: int


async def sync(
    index: SkillIndex,
    items: Sequence[IndexItem],
    *,
    again: Collection[str] = (),
    only: Collection[str] | None = None,
    watch: SyncCallbacks = NO_CALLBACKS,
) -> SyncReport:
    """Make the index hold exactly these skills; `again` names unchanged ones to re-embed.

    With `only`, other names are left alone: those without an item are deleted.

    Raises:
        StorageError: If the store cannot be written.
    """
    stored = await index.store.fingerprints()
    if only is not None:
        stored = {name: stored[name] for name in only if name in stored}
    wanted = {item.name: item for item in items if only is None or item.name in only}
    dropped = [name for name in stored if name not in wanted]
    await index.store.delete(dropped)
    if index.is_loaded:  # to compare fingerprints, an index need not be loaded
        await index.refresh()
    redo = {*again, *await _pending_names(index, wanted, only)}
    todo = [
        item
        for item in wanted.values()
        if stored.get(item.name) != item.fingerprint or item.name in redo
    ]
    busy = {item.name for item in todo}
    is_all_anew = only is None and all(name in busy for name in wanted if name in stored)
    tally = _SyncState(outdated=list(stored) if is_all_anew else [])
    if todo:
        await index.refresh()
        await _run_pipeline(index, todo, stored.keys(), tally, watch)
    await index.store.forget_others()
    return SyncReport(
        kept=tuple(name for name in wanted if name not in busy),
        added=tuple(tally.added),
        redone=tuple(tally.redone),
        dropped=tuple(dropped),
        pending=tuple(tally.pending),
        failed=tuple(tally.failed),
        problem=tally.problem or tally.last_refusal,
    )


async def make_entry(index: SkillIndex, item: IndexItem) -> IndexEntry:
    """Embed one skill without storing it.

    Raises:
        RetrievalError: If the embedder fails or its output is invalid.
    """
    cut = await anyio.to_thread.run_sync(build_document, await item.read())
    (entry,) = await _embed(index, _Batch([item], [cut], []))
    return entry


async def _pending_names(
    index: SkillIndex, wanted: Collection[str], only: Collection[str] | None
) -> set[str]:
    """Return the skills that the last sync could not embed, and drop those no longer wanted."""
    async with index.lock:
        memory = index.memory
        pending = set(memory.pending)
        if only is not None:
            pending.intersection_update(only)
        memory.drop([name for name in pending if name not in wanted])
    return pending


async def _run_pipeline(
    index: SkillIndex,
    todo: list[IndexItem],
    known: Collection[str],
    tally: _SyncState,
    watch: SyncCallbacks,
) -> None:
    """Run a pipeline: one batch is embedded while another is prepared or stored.

    Preparing and storing alternate by a lock: both hold the GIL and would slow each other down.
    """
    problem: Exception | None = None
    turn = anyio.Lock()
    give_cut, take_cut = anyio.create_memory_object_stream[_Batch](0)
    give_made, take_made = anyio.create_memory_object_stream[_EmbeddedBatch](0)
    async with take_made, anyio.create_task_group() as group:
        group.start_soon(_prepare_all, todo, index.views, turn, give_cut)
        group.start_soon(_embed_all, index, take_cut, tally, give_made)
        try:
            with shortened_gil_switch_interval():
                async for made in take_made:
                    async with turn:
                        await _store_batch(index, made, known, tally, watch)
                    tally.done += made.size
                    watch.progress(SyncProgress(done=tally.done, total=len(todo)))
        except Exception as error:  # noqa: BLE001  # raised below, as it is and not in a group
            problem = error
            group.cancel_scope.cancel()
    if problem is not None:
        raise problem


async def _prepare_all(
    todo: list[IndexItem], views: int, turn: anyio.Lock, give: MemoryObjectSendStream[_Batch]
) -> None:
    async with give:
        for items in _batches(todo):
            async with turn:
                batch = await _prepare(items, views)
            await give.send(batch)


async def _embed_all(
    index: SkillIndex,
    take: MemoryObjectReceiveStream[_Batch],
    tally: _SyncState,
    give: MemoryObjectSendStream[_EmbeddedBatch],
) -> None:
    async with take, give:
        async for batch in take:
            tally.failed += batch.failed
            await give.send(await _embed_batch(index, batch, tally))


async def _embed_batch(index: SkillIndex, batch: _Batch, tally: _SyncState) -> _EmbeddedBatch:
    """Embed a batch, or the part of it that can be embedded."""
    size = len(batch.items) + len(batch.failed)
    if batch.items and tally.problem is None:  # no retry within a sync
        try:
            return _EmbeddedBatch(await _embed(index, batch), [], size)
        except EmbedderOutputError as error:
            if len(batch.items) > 1:  # perhaps a single text that the model cannot take
                singles = [await _embed_batch(index, single, tally) for single in batch.apart()]
                entries = [entry for single in singles for entry in single.entries]
                return _EmbeddedBatch(
                    entries, [entry for one in singles for entry in one.left], size
                )
            tally.refuse(error)
        except RetrievalError as error:
            tally.problem = error
    pairs = zip(batch.items, batch.digests, strict=True)
    return _EmbeddedBatch([], [_lexical_entry(item, cut) for item, cut in pairs], size)


async def _prepare(items: list[IndexItem], views: int) -> _Batch:
    cuts = await anyio.to_thread.run_sync(_prepare_synchronously, items, views)
    for item in items:
        if item.name not in cuts:
            with _log_failure(item, cuts):
                cuts[item.name] = await anyio.to_thread.run_sync(
                    _build_document, await item.read(), views
                )
    whole = [(item, cut) for item in items if (cut := cuts[item.name]) is not None]
    failed = [name for name, cut in cuts.items() if cut is None]
    return _Batch([item for item, _ in whole], [cut for _, cut in whole], failed)


_Documents = dict[str, SkillDocument | None]
"""Document by skill name; None if its texts cannot be read."""


def _prepare_synchronously(items: list[IndexItem], views: int) -> _Documents:
    """Prepare what needs no await on one thread: a thread hop for each would double the work."""
    cuts: _Documents = {}
    for item in items:
        with _log_failure(item, cuts):
            if (text := item.read_at_once()) is not None:
                cuts[item.name] = _build_document(text, views)
    return cuts


@contextmanager
def _log_failure(item: IndexItem, cuts: _Documents) -> Generator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001  # a stranger's source may raise anything
        log.warning("%s cannot be indexed: %s", item.name, error)
        cuts[item.name] = None


def _batches(todo: list[IndexItem]) -> Iterator[list[IndexItem]]:
    for first in range(0, len(todo), BATCH_SIZE):
        yield todo[first : first + BATCH_SIZE]


def _build_document(text: SkillText, views: int) -> SkillDocument:
    return build_document(text, views=views)


async def _store_batch(
    index: SkillIndex,
    made: _EmbeddedBatch,
    known: Collection[str],
    tally: _SyncState,
    watch: SyncCallbacks,
) -> None:
    names, left = [entry.name for entry in made.entries], made.left
    if names:
        try:
            await _upsert(index, made.entries, tally)
        except RetrievalError as error:
            tally.problem, left = error, [*left, *map(_without_vectors, made.entries)]
        else:
            await index.refresh()
            await watch.stored(names)
            tally.redone += [name for name in names if name in known]
            tally.added += [name for name in names if name not in known]
    if left:
        tally.pending += [entry.name for entry in left]
        async with index.lock:
            index.memory.put(left)
            if index.memory.needs_compaction:
                index.memory = index.memory.compacted()


async def _upsert(index: SkillIndex, entries: list[IndexEntry], tally: _SyncState) -> None:
    """Upsert; if all skills are re-embedded, vectors of another size replace the stored ones."""
    try:
        await index.store.upsert(entries)
    except IndexMismatchError:
        if not tally.outdated:
            raise
        await index.store.delete(tally.outdated)
        await index.store.upsert(entries)
    tally.outdated = []


async def _embed(index: SkillIndex, batch: _Batch) -> list[IndexEntry]:
    texts = [text for cut in batch.digests for text in (cut.whole, *cut.views)]
    vectors = await embed_validated(index.embedder, texts, kind="document")
    entries, first = list[IndexEntry](), 0
    for item, cut in zip(batch.items, batch.digests, strict=True):
        end = first + 1 + len(cut.views)
        entries.append(
            IndexEntry(
                name=item.name,
                fingerprint=item.fingerprint,
                texts=(cut.whole, *cut.views),
                vectors=vectors[first:end],
                terms=cut.terms,
                counts=cut.counts,
            )
        )
        first = end
    return entries


def _lexical_entry(item: IndexItem, cut: SkillDocument) -> IndexEntry:
    """Build an entry without a vector, which only BM25 finds."""
    return IndexEntry(
        name=item.name,
        fingerprint="",
        texts=(cut.whole,),
        vectors=np.zeros((1, 0), np.float32),
        terms=cut.terms,
        counts=cut.counts,
    )


def _without_vectors(entry: IndexEntry) -> IndexEntry:
    vectors = np.zeros((1, 0), np.float32)
    return replace(entry, fingerprint="", texts=entry.texts[:1], vectors=vectors)
