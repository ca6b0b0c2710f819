"""Labelled queries, and recall and MRR of a search function on them."""

import statistics
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from apexbridge.evals.corpus import EvalQuery
from apexbridge.evals.retrieval_eval import query_language
from apexbridge.retrieval.fusion import FusionWeights
from apexbridge.retrieval.index import SkillIndex

DEPTH = 10
DENSE_ONLY = FusionWeights(view=0, lexical=0, language=0, name=0, clause=99, need=99)
"""Main-text embedding only."""
WORDS_ALONE = FusionWeights(dense=0, lexical=1, name=0, clause=99, need=99)
"""BM25 only."""
LANGUAGE_MODES = ("EN", "ZH", "both")
"""Query in English, in Chinese, and in both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledQuery:
    """Query in one language or both, with its accepted skills."""

    way: str
    pair: str
    texts: tuple[str, ...]
    accept: frozenset[str]


Rank = float
"""Rank of the first accepted skill; infinite beyond the depth."""
SearchFunction = Callable[[LabelledQuery], Awaitable[Sequence[str]]]
"""Search function: ids of the best skills in descending order."""


def labelled_queries(asked: Sequence[EvalQuery]) -> list[LabelledQuery]:
    """Build single-language queries, and the bilingual pairs."""
    return [*_single(asked), *_paired(asked)]


def _single(asked: Sequence[EvalQuery]) -> Iterator[LabelledQuery]:
    for number, query in enumerate(asked):
        yield LabelledQuery(
            way=query_language(query).upper(),
            pair=query.pair or f"alone {number}",
            texts=(query.query,),
            accept=frozenset(query.accept),
        )


def _paired(asked: Sequence[EvalQuery]) -> Iterator[LabelledQuery]:
    pairs = dict[str, dict[str, EvalQuery]]()
    for query in asked:
        if query.pair is not None:
            pairs.setdefault(query.pair, {})[query_language(query)] = query
    for pair, found in pairs.items():
        if len(found) == 2:
            both = (found["en"], found["zh"])
            accept = frozenset(id_ for query in both for id_ in query.accept)
            texts = tuple(query.query for query in both)
            yield LabelledQuery(way="both", pair=pair, texts=texts, accept=accept)


def search_function(index: SkillIndex, fusion: FusionWeights | None = None) -> SearchFunction:
    """Wrap an index as a search function, with its own fusion weights or others."""

    async def find(question: LabelledQuery) -> Sequence[str]:
        first, *others = question.texts
        chinese = others[0] if others else None
        results = await index.search(first, query_zh=chinese, limit=DEPTH, fusion=fusion)
        if results.problem is not None:
            raise results.problem
        return [hit.name for hit in results.hits]

    return find


async def rank(find: SearchFunction, question: LabelledQuery) -> Rank:
    """Return the rank of the first accepted skill."""
    found = await find(question)
    places = (place for place, name in enumerate(found, 1) if name in question.accept)
    return next(places, float("inf"))


def figures(ranks: Sequence[tuple[LabelledQuery, Rank]]) -> Iterator[float]:
    """Yield hit@1, R@5 and R@10 of each language mode, then MRR over single-language queries."""
    for way in LANGUAGE_MODES:
        of_way = [rank for question, rank in ranks if question.way == way]
        yield from (share(of_way, 1), share(of_way, 5), share(of_way, 10))
    yield mrr([rank for question, rank in ranks if question.way != "both"])


def share(ranks: Sequence[Rank], limit: int) -> float:
    """Return the share of ranks within the limit."""
    return statistics.fmean(rank <= limit for rank in ranks) if ranks else float("nan")


def mrr(ranks: Sequence[Rank]) -> float:
    """Return the mean reciprocal rank."""
    return statistics.fmean(1 / rank for rank in ranks) if ranks else float("nan")
