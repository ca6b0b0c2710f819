"""SkillIndex: every skill in memory, found by meaning and by words, each hit with its reasons."""

import time
from collections.abc import Callable, Hashable, Mapping

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np

from apexbridge.errors import IndexMismatchError, RetrievalError
from apexbridge.retrieval.base import Embedder, IndexEntry, Matrix, StoreChanges, VectorStore
from apexbridge.retrieval.embedders.validation import embed_validated
from apexbridge.retrieval.fusion import ConfidenceCalibration, FusionWeights, profile_for
from apexbridge.retrieval.lru_cache import LruCache
from apexbridge.retrieval.memory_index import MemoryIndex, top_rows
from apexbridge.retrieval.ranking import EmbeddedQuery, Ranking, RankingRequest, rank
from apexbridge.retrieval.reference_vectors import ReferenceVectors
from apexbridge.retrieval.results import Hit, SearchResults
from apexbridge.retrieval.stores.memory import MemoryStore

_NO_VECTOR: Matrix = np.zeros(0, np.float32)
_MANY_SKILLS = 20_000
"""Skills so many that walking over them would hold up everything else."""
_KEPT_VECTORS, _KEPT_RESULTS = 1_000, 200
"""Requests are asked again: by other clients, in other turns, with other limits."""
_QUERY_CHARACTERS = 8_000
"""More of a request is not read: no embedder reads it either, and its words take time."""

UsageProvider = Callable[[], Mapping[str, float]]
"""How much each skill is used, in 0..1."""


_NO_USAGE: Mapping[str, float] = {}


def no_usage() -> Mapping[str, float]:
    """No skill is used more than another."""
    return _NO_USAGE


class SkillIndex:
    """Searches what a store keeps; `retrieval.sync` brings the store up to date with the skills."""

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
        self.shelf = MemoryIndex()
        tuning = profile_for(store.embedder_id)  # known even where the embedder is not there
        self._fusion = fusion or tuning.fusion
        self._calibration = calibration or tuning.calibration
        self.views = tuning.views
        """How many views of a skill get a vector of their own."""
        self._usage = usage
        self._company: ReferenceVectors | None = None
        self.is_loaded = False
        """Whether the shelf was ever filled; the first search does it, if nobody has before."""
        self.look_seconds = 0.0
        """How long a search may do without looking for what other processes changed."""
        self._look_again = 0.0
        self._vectors = LruCache[Matrix](_KEPT_VECTORS)
        self._found = LruCache[SearchResults](_KEPT_RESULTS)
        self._found_in: tuple[MemoryIndex, int, Mapping[str, float]] = (self.shelf, 0, _NO_USAGE)
        self.lock = anyio.Lock(fast_acquire=True)
        """Held while the shelf is walked over or changed."""

    def __len__(self) -> int:
        return len(self.shelf)

    async def refresh(self) -> None:
        """Take in what anyone changed in the store since the last time."""
        if self.is_loaded and not self.lock.locked() and not self.store.has_changed():
            return
        async with self.lock:
            has_more = self.store.has_changed()
            while has_more:
                with anyio.CancelScope(shield=True):  # what is told once is not told again
                    changes = await self.store.changes()
                    await anyio.to_thread.run_sync(self._apply, changes)
                    has_more = changes.has_more
            self.is_loaded = True

    def _apply(self, changes: StoreChanges) -> None:
        if changes.is_all:
            self.shelf = MemoryIndex()
        self.shelf.drop(changes.gone)
        self.shelf.put(changes.entries)
        if self.shelf.is_worn:
            self.shelf = self.shelf.swept()

    async def with_entry(self, entry: IndexEntry) -> "SkillIndex":
        """A copy to try things on: one entry is added or replaced there, and nowhere else."""
        await self.refresh()
        store = MemoryStore(self.embedder.id)
        await store.changes()  # the copied shelf is what it told so far
        await store.upsert([entry])
        copy = SkillIndex(
            self.embedder,
            store,
            fusion=self._fusion,
            calibration=self._calibration,
            usage=self._usage,
        )
        copy._company = self._company
        async with self.lock:
            copy.shelf = await anyio.to_thread.run_sync(self.shelf.swept)
        await copy.refresh()
        return copy

    async def search(
        self,
        query: str,
        *,
        query_en: str | None = None,
        query_zh: str | None = None,
        limit: int = 5,
        fusion: FusionWeights | None = None,
    ) -> SearchResults:
        """Find the skills that fit a request best; other wordings of it help.

        Without vectors (the embedder is down) the words alone decide, and `problem` says so.
        """
        await anyio.lowlevel.checkpoint()  # what follows may not wait for anything
        if (now := time.monotonic()) >= self._look_again or not self.is_loaded:
            self._look_again = now + self.look_seconds
            await self.refresh()
        given = (text[:_QUERY_CHARACTERS] for text in (query, query_en, query_zh) if text)
        texts = list(dict.fromkeys(text for text in given if text.strip()))
        if not texts or not len(self.shelf) or limit < 1:
            return SearchResults(searched=len(self.shelf))
        usage, key = self._usage(), (tuple(texts), limit, fusion)
        known = self._found.get(key) if self._is_the_same(usage) else None
        if known is not None:
            return known
        asked, problem = await self._embed(texts)
        async with self.lock:
            if not len(self.shelf):  # emptied meanwhile
                return SearchResults()
            if problem is None and self.shelf.dimensions not in {0, len(asked[0].vector)}:
                asked, problem = self._mismatch(asked)
            order = RankingRequest(self.shelf, asked, self._company, fusion or self._fusion)
            if len(self.shelf) > _MANY_SKILLS:
                ranking = await anyio.to_thread.run_sync(rank, order, usage, limit)
            else:
                ranking = rank(order, usage, limit)
            found = self._explain(ranking, limit, problem)
            if problem is None:
                self._keep(key, found, usage)
            return found

    async def weigh(self, query: str) -> tuple[Matrix, float, Matrix]:
        """How near each row is, how near small talk is, and each row's score; for calibration.

        Nearness is told in the embedder's own spread, as the confidence takes it.

        Raises:
            RetrievalError: If the embedder fails.
        """
        asked, problem = await self._embed([query])
        if problem is not None:
            raise problem
        company = self._company or await ReferenceVectors.of(self.embedder)
        order = RankingRequest(self.shelf, asked, company, self._fusion)
        ranking = rank(order, {}, len(self.shelf))
        scored, ruler = ranking.scored[0], company.ruler
        view = self._fusion.view
        near = (scored.dense + view * scored.view) / (1 + view)
        spread = (near - ruler.mean) / ruler.spread
        return spread.astype(np.float32), ruler.measure(ranking.small_talk), ranking.total

    def _is_the_same(self, usage: Mapping[str, float]) -> bool:
        """Whether what was found before would be found again."""
        shelf, changes, used = self._found_in
        return shelf is self.shelf and changes == shelf.changes and used == usage

    def _keep(self, key: Hashable, found: SearchResults, usage: Mapping[str, float]) -> None:
        if not self._is_the_same(usage):
            self._found.clear()
            self._found_in = (self.shelf, self.shelf.changes, dict(usage))
        self._found.put(key, found)

    def _mismatch(self, asked: list[EmbeddedQuery]) -> tuple[list[EmbeddedQuery], RetrievalError]:
        """The model behind a name was changed: its vectors say nothing about those stored."""
        name = self.store.embedder_id
        problem = IndexMismatchError(
            found=f"{name} with {self.shelf.dimensions} dimensions",
            expected=f"{name} with {len(asked[0].vector)} dimensions",
        )
        return [EmbeddedQuery(one.text, _NO_VECTOR) for one in asked], problem

    async def _embed(self, texts: list[str]) -> tuple[list[EmbeddedQuery], RetrievalError | None]:
        try:
            if self._company is None:
                self._company = await ReferenceVectors.of(self.embedder)
            new = [text for text in texts if self._vectors.get(text) is None]
            if not new:
                kept = (self._vectors.get(text) for text in texts)
                known = [vector for vector in kept if vector is not None]
                return [
                    EmbeddedQuery(t, vector) for t, vector in zip(texts, known, strict=True)
                ], None
            vectors = await embed_validated(self.embedder, texts, kind="query")
        except RetrievalError as error:
            return [EmbeddedQuery(text, _NO_VECTOR) for text in texts], error
        for text, vector in zip(texts, vectors, strict=True):
            self._vectors.put(text, vector)
        return [
            EmbeddedQuery(text, vector) for text, vector in zip(texts, vectors, strict=True)
        ], None

    def _explain(
        self, ranking: Ranking, limit: int, problem: RetrievalError | None
    ) -> SearchResults:
        shelf = ranking.order.shelf
        rows = [int(row) for row in top_rows(ranking.total, min(limit, len(shelf)))]
        hits, score, talk = list[Hit](), 1.0, ranking.small_talk
        for row, parts in zip(rows, ranking.parts(rows), strict=True):
            # One that ranks lower is not the likelier one, however near it is.
            score = min(score, self._confidence(ranking, row, talk))
            hits.append(Hit(name=shelf.names[row], score=score, parts=parts))
        return SearchResults(
            hits=tuple(hits), confidence=hits[0].score, searched=len(shelf), problem=problem
        )

    def _confidence(self, ranking: Ranking, row: int, talk: float) -> float:
        company = ranking.order.company
        if company is None or not len(ranking.scored[0].asked.vector):
            return min(1.0, float(ranking.lexical[row]))
        near = max(one.near(row, ranking.order.fusion.view) for one in ranking.scored)
        measure = company.ruler.measure
        return self._calibration.confidence(measure(near), measure(talk), len(ranking.order.shelf))
