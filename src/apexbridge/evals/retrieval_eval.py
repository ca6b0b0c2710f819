"""Retrieval evaluation: hit rate, recall, MRR and latency over a labelled corpus."""

import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from apexbridge.evals.corpus import CorpusSkill, EvalQuery
from apexbridge.retrieval.base import Embedder, IndexEntry
from apexbridge.retrieval.embedders.validation import embed_validated
from apexbridge.retrieval.fusion import FusionWeights
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.results import NO_CALLBACKS, Hit, Language, SearchResults, SyncCallbacks
from apexbridge.retrieval.skill_document import SkillText, build_document
from apexbridge.retrieval.stores.memory import MemoryStore
from apexbridge.retrieval.sync import IndexItem, sync
from apexbridge.retrieval.tokenizer import is_chinese


async def search_index(
    index: SkillIndex,
    query: str,
    *,
    limit: int,
    others: Sequence[str | None] = (None, None),
    fusion: FusionWeights | None = None,
) -> SearchResults:
    """Search with embeddings; `others` are the query in English and in Chinese.

    Near duplicates have each a rank of their own, after the hit that stands for them.

    Raises:
        RetrievalError: If the embedder fails: a BM25 fallback would measure another search.
    """
    english, chinese = others
    results = await index.search(
        query, query_en=english, query_zh=chinese, limit=limit, fusion=fusion
    )
    if results.problem is not None:
        raise results.problem
    if not any(hit.alike for hit in results.hits):
        return results
    names = ((hit, name) for hit in results.hits for name in (hit.name, *hit.alike))
    return replace(results, hits=tuple(replace(hit, name=name, alike=()) for hit, name in names))


async def with_skill_text(index: SkillIndex, text: SkillText) -> SkillIndex:
    """Copy the index with another text of one skill; the stored index is unchanged."""
    cut = build_document(text, views=index.views)
    texts = (cut.whole, *cut.views)
    entry = IndexEntry(
        name=text.name,
        fingerprint="",
        texts=texts,
        vectors=await embed_validated(index.embedder, texts, kind="document"),
        terms=cut.terms,
        counts=cut.counts,
        kind=cut.kind,
    )
    return await index.with_entry(entry)


def first_rank(hits: Iterable[Hit], names: Iterable[str]) -> int | None:
    """Return the rank, from 1, of the first hit among the names; None without one."""
    wanted = frozenset(names)
    return next((rank for rank, hit in enumerate(hits, 1) if hit.name in wanted), None)


DEPTH = 10
"""Minimum ranking depth."""
_WARM_UP = "warm up 预热"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Latency of one search in milliseconds, query embedding included."""

    min: float
    median: float
    p95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Hit rate, recall at k and mean reciprocal rank, each in 0..1, over `count` queries.

    A query without a relevant hit within `RetrievalReport.depth` has reciprocal rank 0.
    """

    count: int
    hit_at_1: float
    recall_at_5: float
    recall_at_10: float
    mrr: float
    latency_ms: Latency


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedQuery:
    """A query with the rank of its first relevant hit; None if below `depth`."""

    query: EvalQuery
    rank: int | None
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalReport:
    """Metrics over all queries and by language, with the rank of every query."""

    skills: int
    depth: int
    figures: Metrics
    by_language: Mapping[Language, Metrics]
    ranked: tuple[RankedQuery, ...]


async def build_index(
    corpus: Sequence[CorpusSkill], embedder: Embedder, *, watch: SyncCallbacks = NO_CALLBACKS
) -> SkillIndex:
    """Build an in-memory index, keyed by id because names may repeat."""
    index = SkillIndex(embedder, MemoryStore(embedder.id))
    report = await sync(index, [_item(skill) for skill in corpus], watch=watch)
    if report.problem is not None:
        raise report.problem
    return index


def _item(skill: CorpusSkill) -> IndexItem:
    async def read() -> SkillText:
        return SkillText(name=skill.name, summary=skill.description, body=skill.body)

    return IndexItem(name=skill.id, fingerprint=skill.id, read=read)


async def evaluate(
    index: SkillIndex,
    queries: Sequence[EvalQuery],
    *,
    limit: int = DEPTH,
    fusion: FusionWeights | None = None,
) -> RetrievalReport:
    """Measure retrieval, one query after another; `limit` extends the ranking depth.

    Raises:
        RetrievalError: If the embedder fails.
        ValueError: If there are no queries.
    """
    if not queries:
        raise ValueError("there are no queries")
    depth = max(limit, DEPTH)
    timer = _SearchTimer(index, depth, fusion)
    await timer.warm_up(queries)
    ranked = tuple([await timer.rank(query) for query in queries])
    groups = dict[Language, list[RankedQuery]]()
    for one in ranked:
        groups.setdefault(query_language(one.query), []).append(one)
    return RetrievalReport(
        skills=len(index),
        depth=depth,
        figures=_metrics(ranked),
        by_language={language: _metrics(groups[language]) for language in sorted(groups)},
        ranked=ranked,
    )


_Wordings = tuple[str, str | None, str | None]
"""A query as it is, in English and in Chinese."""


class _SearchTimer:
    """Time searches without the caches of the index, which hold results and query vectors."""

    def __init__(self, index: SkillIndex, depth: int, fusion: FusionWeights | None) -> None:
        self._index, self._depth, self._fusion = index, depth, fusion
        self._timed = dict[_Wordings, tuple[SearchResults, float]]()
        self._embedded = set[str]()

    async def warm_up(self, queries: Sequence[EvalQuery]) -> None:
        """Search for a text that no query has: the first search of a process loads the embedder."""
        texts = {text for query in queries for text in _wordings(query)}
        text = _WARM_UP
        while text in texts:
            text += "."
        await search_index(self._index, text, limit=self._depth, fusion=self._fusion)

    async def rank(self, query: EvalQuery) -> RankedQuery:
        """Rank a query; the same words again have the result and the time of the first search."""
        wordings = _wordings(query)
        if wordings not in self._timed:
            self._timed[wordings] = await self._search(wordings)
        results, elapsed = self._timed[wordings]
        return RankedQuery(
            query=query, rank=first_rank(results.hits, query.accept), milliseconds=elapsed
        )

    async def _search(self, wordings: _Wordings) -> tuple[SearchResults, float]:
        query, *others = wordings
        texts = list(dict.fromkeys(text for text in wordings if text))
        start = time.perf_counter()
        if self._embedded.issuperset(texts):  # else the index embeds all of them anew
            await embed_validated(self._index.embedder, texts, kind="query")
        results = await search_index(
            self._index, query, others=others, limit=self._depth, fusion=self._fusion
        )
        elapsed = (time.perf_counter() - start) * 1_000
        self._embedded.update(texts)
        return results, elapsed


def _wordings(query: EvalQuery) -> _Wordings:
    return query.query, query.query_en, query.query_zh


def query_language(query: EvalQuery) -> Language:
    """Return the declared language of a query, or else the detected one."""
    declared = (query.lang or "").lower()[:2]
    if declared in {"en", "zh"}:
        return "zh" if declared == "zh" else "en"
    return "zh" if is_chinese(query.query) else "en"


def _metrics(ranked: Sequence[RankedQuery]) -> Metrics:
    # An infinite rank is in no top k, and its reciprocal is 0.
    ranks = [one.rank or math.inf for one in ranked]
    times = sorted(one.milliseconds for one in ranked)
    return Metrics(
        count=len(ranks),
        hit_at_1=statistics.fmean(rank <= 1 for rank in ranks),
        recall_at_5=statistics.fmean(rank <= 5 for rank in ranks),
        recall_at_10=statistics.fmean(rank <= 10 for rank in ranks),
        mrr=statistics.fmean(1 / rank for rank in ranks),
        latency_ms=Latency(
            min=times[0],
            median=statistics.median(times),
            p95=times[math.ceil(0.95 * len(times)) - 1],
        ),
    )
