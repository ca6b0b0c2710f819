"""Index synchronization: embed new and changed skills, delete removed ones, keep the rest."""

import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import anyio
import anyio.to_thread
import numpy as np
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from apexbridge.errors import EmbedderOutputError, IndexMismatchError, RetrievalError
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
    documents: list[SkillDocument]
    failed: list[str]

    def split(self) -> "Iterator[_Batch]":
        """Split into batches of one item."""
        for item, document in zip(self.items, self.documents, strict=True):
            yield _Batch([item], [document], [])


@dataclass(frozen=True, slots=True)
class _EmbeddedBatch:
    """Result of one batch."""

    entries: list[IndexEntry]
    lexical_entries: list[IndexEntry]
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

    With `only`, other names are not touched: those without an item are deleted.

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
    forced = {*again, *await _pending_names(index, wanted, only)}
    changed = [
        item
        for item in wanted.values()
        if stored.get(item.name) != item.fingerprint or item.name in forced
    ]
    changed_names = {item.name for item in changed}
    is_full_rebuild = only is None and all(
        name in changed_names for name in wanted if name in stored
    )
    state = _SyncState(outdated=list(stored) if is_full_rebuild else [])
    if changed:
        await index.refresh()
        await _run_pipeline(index, changed, stored.keys(), state, watch)
    await index.store.forget_others()
    return SyncReport(
        kept=tuple(name for name in wanted if name not in changed_names),
        added=tuple(state.added),
        redone=tuple(state.redone),
        dropped=tuple(dropped),
        pending=tuple(state.pending),
        failed=tuple(state.failed),
        problem=state.problem or state.last_refusal,
    )


async def make_entry(
    index: SkillIndex, item: IndexItem, read: Callable[[], SkillText]
) -> IndexEntry:
    """Embed one skill without storing it; `read` returns its text on a worker thread.

    Raises:
        RetrievalError: If the embedder fails or its output is invalid.
    """
    document = await anyio.to_thread.run_sync(lambda: build_document(read()))
    (entry,) = await _embed(index, _Batch([item], [document], []))
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
    changed: list[IndexItem],
    known: Collection[str],
    state: _SyncState,
    watch: SyncCallbacks,
) -> None:
    """Run a pipeline: one batch is embedded while another is prepared or stored.

    Preparing and storing alternate by a lock: both hold the GIL and would slow each other down.
    """
    problem: Exception | None = None
    gil_lock = anyio.Lock()
    send_documents, receive_documents = anyio.create_memory_object_stream[_Batch](0)
    send_embedded, receive_embedded = anyio.create_memory_object_stream[_EmbeddedBatch](0)
    async with receive_embedded, anyio.create_task_group() as group:
        group.start_soon(_prepare_all, changed, index.views, gil_lock, send_documents)
        group.start_soon(_embed_all, index, receive_documents, state, send_embedded)
        try:
            with shortened_gil_switch_interval():
                async for embedded in receive_embedded:
                    async with gil_lock:
                        await _store_batch(index, embedded, known, state, watch)
                    state.done += embedded.size
                    watch.progress(SyncProgress(done=state.done, total=len(changed)))
        except Exception as error:  # noqa: BLE001  # raised below, as it is and not in a group
            problem = error
            group.cancel_scope.cancel()
    if problem is not None:
        raise problem


async def _prepare_all(
    changed: list[IndexItem],
    views: int,
    gil_lock: anyio.Lock,
    send_stream: MemoryObjectSendStream[_Batch],
) -> None:
    async with send_stream:
        for first in range(0, len(changed), BATCH_SIZE):
            async with gil_lock:
                batch = await _prepare(changed[first : first + BATCH_SIZE], views)
            await send_stream.send(batch)


async def _embed_all(
    index: SkillIndex,
    receive_stream: MemoryObjectReceiveStream[_Batch],
    state: _SyncState,
    send_stream: MemoryObjectSendStream[_EmbeddedBatch],
) -> None:
    async with receive_stream, send_stream:
        async for batch in receive_stream:
            state.failed += batch.failed
            await send_stream.send(await _embed_batch(index, batch, state))


async def _embed_batch(index: SkillIndex, batch: _Batch, state: _SyncState) -> _EmbeddedBatch:
    """Embed a batch, or the part of it that can be embedded."""
    size = len(batch.items) + len(batch.failed)
    if batch.items and state.problem is None:  # no retry within a sync
        try:
            return _EmbeddedBatch(await _embed(index, batch), [], size)
        except EmbedderOutputError as error:
            if len(batch.items) > 1:  # perhaps a single text that the model cannot take
                singles = [await _embed_batch(index, single, state) for single in batch.split()]
                entries = [entry for single in singles for entry in single.entries]
                lexical = [entry for single in singles for entry in single.lexical_entries]
                return _EmbeddedBatch(entries, lexical, size)
            state.refuse(error)
        except RetrievalError as error:
            state.problem = error
    pairs = zip(batch.items, batch.documents, strict=True)
    return _EmbeddedBatch([], [_lexical_entry(item, document) for item, document in pairs], size)


async def _prepare(items: list[IndexItem], views: int) -> _Batch:
    documents = await anyio.to_thread.run_sync(_prepare_synchronously, items, views)
    for item in items:
        if item.name not in documents:
            with _log_failure(item, documents):
                documents[item.name] = await anyio.to_thread.run_sync(
                    build_document, await item.read(), views
                )
    whole = [(item, document) for item in items if (document := documents[item.name]) is not None]
    failed = [name for name, document in documents.items() if document is None]
    return _Batch([item for item, _ in whole], [document for _, document in whole], failed)


_Documents = dict[str, SkillDocument | None]
"""Document by skill name; None if its texts cannot be read."""


def _prepare_synchronously(items: list[IndexItem], views: int) -> _Documents:
    """Prepare what needs no await on one thread: a thread hop for each would double the work."""
    documents: _Documents = {}
    for item in items:
        with _log_failure(item, documents):
            if (text := item.read_at_once()) is not None:
                documents[item.name] = build_document(text, views)
    return documents


@contextmanager
def _log_failure(item: IndexItem, documents: _Documents) -> Generator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001  # a stranger's source may raise anything
        log.warning("%s cannot be indexed: %s", item.name, error)
        documents[item.name] = None


async def _store_batch(
    index: SkillIndex,
    embedded: _EmbeddedBatch,
    known: Collection[str],
    state: _SyncState,
    watch: SyncCallbacks,
) -> None:
    names, pending_entries = [entry.name for entry in embedded.entries], embedded.lexical_entries
    if names:
        try:
            await _upsert(index, embedded.entries, state)
        except RetrievalError as error:
            state.problem = error
            pending_entries = [*pending_entries, *map(_without_vectors, embedded.entries)]
        else:
            await index.refresh()
            await watch.stored(names)
            state.redone += [name for name in names if name in known]
            state.added += [name for name in names if name not in known]
    if pending_entries:
        state.pending += [entry.name for entry in pending_entries]
        async with index.lock:
            index.memory.put(pending_entries)
            if index.memory.needs_compaction:
                index.memory = index.memory.compacted()


async def _upsert(index: SkillIndex, entries: list[IndexEntry], state: _SyncState) -> None:
    """Upsert; if all skills are re-embedded, vectors of another size replace the stored ones."""
    try:
        await index.store.upsert(entries)
    except IndexMismatchError:
        if not state.outdated:
            raise
        await index.store.delete(state.outdated)
        await index.store.upsert(entries)
    state.outdated = []


async def _embed(index: SkillIndex, batch: _Batch) -> list[IndexEntry]:
    texts = [text for document in batch.documents for text in (document.whole, *document.views)]
    vectors = await embed_validated(index.embedder, texts, kind="document")
    entries, first = list[IndexEntry](), 0
    for item, document in zip(batch.items, batch.documents, strict=True):
        end = first + 1 + len(document.views)
        entries.append(
            IndexEntry(
                name=item.name,
                fingerprint=item.fingerprint,
                texts=(document.whole, *document.views),
                vectors=vectors[first:end],
                terms=document.terms,
                counts=document.counts,
                kind=document.kind,
            )
        )
        first = end
    return entries


def _lexical_entry(item: IndexItem, document: SkillDocument) -> IndexEntry:
    """Build an entry without a vector, which only BM25 finds."""
    return IndexEntry(
        name=item.name,
        fingerprint="",
        texts=(document.whole,),
        vectors=np.zeros((1, 0), np.float32),
        terms=document.terms,
        counts=document.counts,
        kind=document.kind,
    )


def _without_vectors(entry: IndexEntry) -> IndexEntry:
    vectors = np.zeros((1, 0), np.float32)
    return replace(entry, fingerprint="", texts=entry.texts[:1], vectors=vectors)
