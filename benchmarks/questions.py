"""Requests whose right answers are known, and where a system puts them."""

import statistics
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from apexbridge.evals.corpus import EvalQuery
from apexbridge.evals.retrieval_eval import query_language
from apexbridge.retrieval.fusion import FusionWeights
from apexbridge.retrieval.index import SkillIndex

DEPTH = 10
ALONE = FusionWeights(view=0, lexical=0, language=0)
"""The whole skill's vector, and nothing else."""
WAYS = ("EN", "ZH", "both")
"""The request in English, in Chinese, and in both at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request in one language or in both, and the skills that would be right for it."""

    way: str
    pair: str
    texts: tuple[str, ...]
    accept: frozenset[str]


Rank = float
"""Where the first right skill came; infinite beyond the depth."""
Find = Callable[[Question], Awaitable[Sequence[str]]]
"""Gives the ids of the best skills, the best first."""


def questions_of(asked: Sequence[EvalQuery]) -> list[Question]:
    """Every request alone, and those that are there in both languages once more together."""
    return [*_single(asked), *_paired(asked)]


def _single(asked: Sequence[EvalQuery]) -> Iterator[Question]:
    for number, query in enumerate(asked):
        yield Question(
            way=query_language(query).upper(),
            pair=query.pair or f"alone {number}",
            texts=(query.query,),
            accept=frozenset(query.accept),
        )


def _paired(asked: Sequence[EvalQuery]) -> Iterator[Question]:
    pairs = dict[str, dict[str, EvalQuery]]()
    for query in asked:
        if query.pair is not None:
            pairs.setdefault(query.pair, {})[query_language(query)] = query
    for pair, found in pairs.items():
        if len(found) == 2:
            both = (found["en"], found["zh"])
            accept = frozenset(id_ for query in both for id_ in query.accept)
            texts = tuple(query.query for query in both)
            yield Question(way="both", pair=pair, texts=texts, accept=accept)


def searching(index: SkillIndex, fusion: FusionWeights | None = None) -> Find:
    """Find as an index does, weighed as it is built or as `fusion` says."""

    async def find(question: Question) -> Sequence[str]:
        first, *others = question.texts
        chinese = others[0] if others else None
        results = await index.search(first, query_zh=chinese, limit=DEPTH, fusion=fusion)
        if results.problem is not None:
            raise results.problem
        return [hit.name for hit in results.hits]

    return find


async def rank(find: Find, question: Question) -> Rank:
    """Where the first right one is."""
    found = await find(question)
    places = (place for place, name in enumerate(found, 1) if name in question.accept)
    return next(places, float("inf"))


def figures(ranks: Sequence[tuple[Question, Rank]]) -> Iterator[float]:
    """Hit@1, R@5 and R@10 of each way, then MRR over the requests in one language."""
    for way in WAYS:
        of_way = [rank for question, rank in ranks if question.way == way]
        yield from (share(of_way, 1), share(of_way, 5), share(of_way, 10))
    yield mrr([rank for question, rank in ranks if question.way != "both"])


def share(ranks: Sequence[Rank], limit: int) -> float:
    """How many are among the first so many."""
    return statistics.fmean(rank <= limit for rank in ranks) if ranks else float("nan")


def mrr(ranks: Sequence[Rank]) -> float:
    """The mean of 1 / rank."""
    return statistics.fmean(1 / rank for rank in ranks) if ranks else float("nan")
