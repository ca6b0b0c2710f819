"""Retrieval evaluation: hit rate, recall, MRR and latency over a labelled corpus."""

import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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

    Raises:
        RetrievalError: If the embedder fails: a BM25 fallback would measure another search.
    """
    english, chinese = others
    results = await index.search(
        query, query_en=english, query_zh=chinese, limit=limit, fusion=fusion
    )
    if results.problem is not None:
        raise results.problem
    return results


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
    # Warm up: the first search of a process loads the embedder.
    await search_index(index, queries[0].query, limit=depth, fusion=fusion)
    ranked = tuple([await _rank_query(index, query, depth, fusion) for query in queries])
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


async def _rank_query(
    index: SkillIndex, query: EvalQuery, depth: int, fusion: FusionWeights | None
) -> RankedQuery:
    others = (query.query_en, query.query_zh)
    start = time.perf_counter()
    results = await search_index(index, query.query, others=others, limit=depth, fusion=fusion)
    elapsed = (time.perf_counter() - start) * 1_000
    return RankedQuery(
        query=query, rank=first_rank(results.hits, query.accept), milliseconds=elapsed
    )


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
