"""SkillIndex: hybrid search over all skills in memory; each hit explains its score."""

import time
from collections.abc import Callable, Hashable, Mapping

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np

from apexbridge.errors import IndexMismatchError, RetrievalError
from apexbridge.retrieval.base import (
    Embedder,
    IndexEntry,
    Matrix,
    StoreChanges,
    VectorStore,
    Vocabulary,
)
from apexbridge.retrieval.clauses import split_query
from apexbridge.retrieval.confidence import ConfidenceCalibration, Evidence, profile_for
from apexbridge.retrieval.embedders.validation import embed_validated
from apexbridge.retrieval.fusion import FusionWeights
from apexbridge.retrieval.lru_cache import LruCache
from apexbridge.retrieval.memory_index import MemoryIndex
from apexbridge.retrieval.ranking import (
    EmbeddedQuery,
    Ranking,
    RankingRequest,
    RowDetails,
    no_word,
    rank,
)
from apexbridge.retrieval.reference_vectors import ReferenceVectors
from apexbridge.retrieval.results import (
    EVERYTHING,
    Hit,
    Kind,
    ScoreParts,
    SearchResults,
    SearchScope,
)
from apexbridge.retrieval.spelling import correct_text
from apexbridge.retrieval.stores.memory import MemoryStore

_NO_VECTOR: Matrix = np.zeros(0, np.float32)
_MANY_SKILLS = 20_000
"""From this number on a scan runs on a worker thread, to keep the event loop responsive."""
_CACHED_VECTORS, _CACHED_RESULTS = 1_000, 200
"""LRU cache sizes: queries recur in other turns, by other clients, with other limits."""
_MAX_FOLDED = 12
"""Further rows that are looked at for near duplicates of the hits."""
_IS_CALLED, _CALLED = 0.55, 0.9
"""A query that clearly mentions a skill by its name means it: least confidence, by clearness."""
_MAX_QUERY_CHARS = 8_000
"""Longer queries are truncated: no embedder reads more, and tokenizing takes time."""

UsageProvider = Callable[[], Mapping[str, float]]
"""Relative usage of each skill, in 0..1."""

_NO_USAGE: Mapping[str, float] = {}


def no_usage() -> Mapping[str, float]:
    """Provide no usage statistics."""
    return _NO_USAGE


class SkillIndex:
    """Search index over a vector store; `retrieval.sync` updates the store."""

    def __init__(
        self,
        embedder: Embedder,
        store: VectorStore,
        *,
        fusion: FusionWeights | None = None,
        calibration: ConfidenceCalibration | None = None,
        usage: UsageProvider = no_usage,
    ) -> None:
        self.embedder = embedder
        self.store = store
        self.memory = MemoryIndex()
        # By the store's id, which is known even if the embedder cannot be loaded.
        profile = profile_for(store.embedder_id)
        self._fusion = fusion or profile.fusion
        self._calibration = calibration or profile.calibration
        self.views = profile.views
        """Number of views of a skill that are embedded."""
        self._usage = usage
        self._reference: ReferenceVectors | None = None
        self._is_word = embedder.has_word if isinstance(embedder, Vocabulary) else no_word
        self.is_loaded = False
        """Whether the index was loaded; the first search does it at the latest."""
        self.check_interval_seconds = 0.0
        """Interval in which a search may skip the check for changes by other processes."""
        self._next_check = 0.0
        self._vectors = LruCache[Matrix](_CACHED_VECTORS)
        self._results = LruCache[SearchResults](_CACHED_RESULTS)
        self._cache_state: tuple[MemoryIndex, int, Mapping[str, float]]
        self._cache_state = (self.memory, 0, _NO_USAGE)
        self.lock = anyio.Lock(fast_acquire=True)
        """Held while the in-memory index is scanned or changed."""

    def __len__(self) -> int:
        return len(self.memory)

    async def refresh(self) -> None:
        """Apply what any process changed in the store since the last call."""
        if self.is_loaded and not self.lock.locked() and not self.store.has_changed():
            return
        async with self.lock:
            has_more = self.store.has_changed()
            while has_more:
                # A store reports each change once, so that a cancellation would lose it.
                with anyio.CancelScope(shield=True):
                    changes = await self.store.changes()
                    await anyio.to_thread.run_sync(self._apply, changes)
                    has_more = changes.has_more
            self.is_loaded = True

    def _apply(self, changes: StoreChanges) -> None:
        if changes.is_all:
            self.memory = MemoryIndex()
        self.memory.drop(changes.gone)
        self.memory.put(changes.entries)
        if self.memory.needs_compaction:
            self.memory = self.memory.compacted()

    async def with_entry(self, entry: IndexEntry) -> "SkillIndex":
        """Copy with one entry added or replaced, for a preview."""
        await self.refresh()
        store = MemoryStore(self.embedder.id)
        await store.changes()  # the copied index has all changes so far
        await store.upsert([entry])
        copy = SkillIndex(
            self.embedder,
            store,
            fusion=self._fusion,
            calibration=self._calibration,
            usage=self._usage,
        )
        copy._reference = self._reference
        async with self.lock:
            copy.memory = await anyio.to_thread.run_sync(self.memory.compacted)
        await copy.refresh()
        return copy

    async def search(
        self,
        query: str,
        *,
        query_en: str | None = None,
        query_zh: str | None = None,
        limit: int = 5,
        scope: SearchScope = EVERYTHING,
        fusion: FusionWeights | None = None,
    ) -> SearchResults:
        """Search for the skills that fit a query best; alternative wordings help.

        Without vectors (the embedder is down) BM25 alone decides, and `problem` is set.
        """
        await anyio.lowlevel.checkpoint()  # a cached result needs no other await
        if (now := time.monotonic()) >= self._next_check or not self.is_loaded:
            self._next_check = now + self.check_interval_seconds
            await self.refresh()
        given = (text[:_MAX_QUERY_CHARS] for text in (query, query_en, query_zh) if text)
        texts = list(dict.fromkeys(text for text in given if text.strip()))
        if not texts or not len(self.memory) or limit < 1:
            return SearchResults(searched=len(self.memory))
        usage, key = self._usage(), (tuple(texts), limit, scope, fusion)
        known = self._results.get(key) if self._is_cache_valid(usage) else None
        if known is not None:
            return known
        queries, problem = await self._embed(texts)
        async with self.lock:
            if not len(self.memory):  # emptied meanwhile
                return SearchResults()
            if problem is None and self.memory.dimensions not in {0, len(queries[0].vector)}:
                queries, problem = self._mismatch(queries)
            request = self._request(queries, fusion or self._fusion, scope.kinds)
            folded = _MAX_FOLDED if scope.folds_alike else 0
            if len(self.memory) > _MANY_SKILLS:
                ranking = await anyio.to_thread.run_sync(rank, request, usage, limit + folded)
            else:
                ranking = rank(request, usage, limit + folded)
            groups = ranking.top_groups(limit, folded)
            found = self._explain(ranking, groups, problem)
            if problem is None:
                self._cache(key, found, usage)
            return found

    def _request(
        self,
        queries: list[EmbeddedQuery],
        fusion: FusionWeights,
        kinds: frozenset[Kind] | None = None,
    ) -> RankingRequest:
        return RankingRequest(self.memory, queries, self._reference, fusion, kinds, self._is_word)

    async def best_evidence(self, query: str) -> tuple[str, Evidence]:
        """Return the best hit's name and the evidence for it, for calibration.

        RetrievalError if the embedder fails.
        """
        queries, problem = await self._embed([query])
        if problem is not None:
            raise problem
        request = self._request(queries, self._fusion)
        ranking = rank(request, self._usage(), 1)
        row = ranking.top_groups(1, 0)[0][0]
        evidence = _evidence(ranking, ranking.name(row), ranking.details([row])[0])
        assert evidence is not None  # noqa: S101  # the query was embedded
        return self.memory.names[row], evidence

    def _is_cache_valid(self, usage: Mapping[str, float]) -> bool:
        """Say whether cached results are still valid."""
        memory, changes, used = self._cache_state
        return memory is self.memory and changes == memory.changes and used == usage

    def _cache(self, key: Hashable, found: SearchResults, usage: Mapping[str, float]) -> None:
        if not self._is_cache_valid(usage):
            self._results.clear()
            self._cache_state = (self.memory, self.memory.changes, dict(usage))
        self._results.put(key, found)

    def _mismatch(self, queries: list[EmbeddedQuery]) -> tuple[list[EmbeddedQuery], RetrievalError]:
        """Report a model that was replaced under its name: its vectors are not comparable."""
        name = self.store.embedder_id
        problem = IndexMismatchError(
            found=f"{name} with {self.memory.dimensions} dimensions",
            expected=f"{name} with {len(queries[0].vector)} dimensions",
        )
        wordings = [one for one in queries if not one.is_clause]
        return [EmbeddedQuery(one.text, _NO_VECTOR) for one in wordings], problem

    async def _embed(
        self, wordings: list[str]
    ) -> tuple[list[EmbeddedQuery], RetrievalError | None]:
        """Correct and embed the wordings of a query and their clauses, new ones in one call."""
        async with self.lock:
            frequencies = self.memory.bm25.frequencies
            spelt = (correct_text(text, frequencies, self._is_word) for text in wordings)
            texts = list(dict.fromkeys(spelt))
        every = [*texts, *(clause for text in texts for clause in split_query(text))]
        try:
            if self._reference is None:
                self._reference = await ReferenceVectors.load(self.embedder)
            vectors = {text: self._vectors.get(text) for text in every}
            new = [text for text, vector in vectors.items() if vector is None]
            if new:
                rows = await embed_validated(self.embedder, new, kind="query")
                vectors |= zip(new, rows, strict=True)
        except RetrievalError as error:
            return [EmbeddedQuery(text, _NO_VECTOR) for text in texts], error
        found = list[EmbeddedQuery]()
        for number, text in enumerate(every):
            vector = vectors[text]
            assert vector is not None  # noqa: S101  # known or new
            self._vectors.put(text, vector)
            found.append(EmbeddedQuery(text, vector, is_clause=number >= len(texts)))
        return found, None

    def _explain(
        self, ranking: Ranking, groups: list[list[int]], problem: RetrievalError | None
    ) -> SearchResults:
        memory = ranking.request.memory
        rows = [group[0] for group in groups]
        details = ranking.details(rows)
        hits, score = list[Hit](), 1.0
        for group, parts, detail in zip(groups, ranking.parts(rows, details), details, strict=True):
            # A lower rank never gets a higher confidence, however similar it is.
            score = min(score, self._confidence(ranking, parts, detail))
            name, *alike = (memory.names[row] for row in group)
            kind = memory.kind(group[0])
            hits.append(Hit(name=name, score=score, parts=parts, alike=tuple(alike), kind=kind))
        confidence = hits[0].score if hits else 0.0
        return SearchResults(
            hits=tuple(hits), confidence=confidence, searched=len(memory), problem=problem
        )

    def _confidence(self, ranking: Ranking, parts: ScoreParts, detail: RowDetails) -> float:
        evidence = _evidence(ranking, parts.name, detail)
        if evidence is None:
            return min(1.0, max(parts.lexical, parts.name))
        confidence = self._calibration.confidence(evidence)
        return max(confidence, _CALLED * parts.name) if parts.name >= _IS_CALLED else confidence


def _evidence(ranking: Ranking, name: float, detail: RowDetails) -> Evidence | None:
    """Collect the evidence for a row; None if the query could not be embedded."""
    reference, view = ranking.request.reference, ranking.request.fusion.view
    if reference is None or not ranking.has_vectors:
        return None
    return Evidence(
        near=reference.scale.standardize((detail.dense + view * detail.view) / (1 + view)),
        meaning=detail.meaning,
        task=ranking.task,
        lexical=detail.lexical,
        name=name,
        length=ranking.length,
        count=len(ranking.request.memory),
    )
