"""How often the right skill is found, over a corpus and queries with known answers."""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apexbridge.evals.corpus import CorpusSkill, EvalQuery
from apexbridge.evals.trial import ask, rank_of
from apexbridge.retrieval.base import Embedder
from apexbridge.retrieval.fuse import Fusion
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.report import UNWATCHED, Watch
from apexbridge.retrieval.results import Language
from apexbridge.retrieval.stores.memory import MemoryStore
from apexbridge.retrieval.sync import Item, sync
from apexbridge.retrieval.text import SkillText
from apexbridge.retrieval.words import is_chinese

DEPTH = 10
"""How deep a ranking is looked at, at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Milliseconds of one search, embedding of the query included."""

    min: float
    median: float
    p95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Shares of the queries, in 0..1: found at k means that an accepted skill is among the first k.

    `mrr` is the mean of 1/rank, and 0 for what is not among the first `RetrievalReport.depth`.
    """

    count: int
    hit_at_1: float
    recall_at_5: float
    recall_at_10: float
    mrr: float
    latency_ms: Latency


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A query, and where the first accepted skill came; None: not among the first `depth`."""

    query: EvalQuery
    rank: int | None
    milliseconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalReport:
    """The figures over all queries and those of each language, and every query's rank."""

    skills: int
    depth: int
    figures: Figures
    by_language: Mapping[Language, Figures]
    ranked: tuple[Ranked, ...]


async def index_of(
    corpus: Sequence[CorpusSkill], embedder: Embedder, *, watch: Watch = UNWATCHED
) -> SkillIndex:
    """An index in memory; its entries go by the skills' ids, because names may repeat.

    Raises:
        RetrievalError: If the embedder fails.
    """
    index = SkillIndex(embedder, MemoryStore(embedder.id))
    report = await sync(index, [_item(skill) for skill in corpus], watch=watch)
    if report.problem is not None:
        raise report.problem
    return index


def _item(skill: CorpusSkill) -> Item:
    async def read() -> SkillText:
        return SkillText(name=skill.name, summary=skill.description, body=skill.body)

    return Item(name=skill.id, fingerprint=skill.id, read=read)


async def evaluate(
    index: SkillIndex,
    queries: Sequence[EvalQuery],
    *,
    limit: int = DEPTH,
    fusion: Fusion | None = None,
) -> RetrievalReport:
    """Search for every query, one after another; `limit` looks deeper than the first ten.

    Raises:
        RetrievalError: If the embedder fails.
        ValueError: If there are no queries.
    """
    if not queries:
        raise ValueError("there are no queries")
    depth = max(limit, DEPTH)
    # The first search of a process loads the model, which no later one does.
    await ask(index, queries[0].query, limit=depth, fusion=fusion)
    ranked = tuple([await _rank(index, query, depth, fusion) for query in queries])
    groups = dict[Language, list[Ranked]]()
    for one in ranked:
        groups.setdefault(language_of(one.query), []).append(one)
    return RetrievalReport(
        skills=len(index),
        depth=depth,
        figures=_figures(ranked),
        by_language={language: _figures(groups[language]) for language in sorted(groups)},
        ranked=ranked,
    )


async def _rank(index: SkillIndex, query: EvalQuery, depth: int, fusion: Fusion | None) -> Ranked:
    others = (query.query_en, query.query_zh)
    start = time.perf_counter()
    results = await ask(index, query.query, others=others, limit=depth, fusion=fusion)
    taken = (time.perf_counter() - start) * 1_000
    return Ranked(query=query, rank=rank_of(results.hits, query.accept), milliseconds=taken)


def language_of(query: EvalQuery) -> Language:
    """What the query says of itself, else what it is written in."""
    said = (query.lang or "").lower()[:2]
    is_said = said in {"en", "zh"}
    return "zh" if (said == "zh" if is_said else is_chinese(query.query)) else "en"


def _figures(ranked: Sequence[Ranked]) -> Figures:
    ranks = [one.rank or math.inf for one in ranked]
    times = sorted(one.milliseconds for one in ranked)
    return Figures(
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
