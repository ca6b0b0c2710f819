"""A request held against every row: roughly all of them, and well those that may be shown."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.bm25 import Bm25Matches
from apexbridge.retrieval.fusion import FusionWeights, ReferenceScores, ZScoreScale
from apexbridge.retrieval.memory_index import MemoryIndex, rows_above_cutoff
from apexbridge.retrieval.quantized_vectors import RowIndices
from apexbridge.retrieval.reference_vectors import ReferenceVectors
from apexbridge.retrieval.results import ScoreParts
from apexbridge.retrieval.thread_control import single_threaded_blas
from apexbridge.retrieval.tokenizer import is_chinese, tokenize

_SINGLE_THREAD_ROWS = 5_000
"""Rows up to which no product is worth a second thread, and none is taken."""


@dataclass(frozen=True, slots=True)
class EmbeddedQuery:
    """One wording of a request, with its vector where there is one."""

    text: str
    vector: Matrix


@dataclass(frozen=True, slots=True)
class QueryScores:
    """One wording against every row."""

    asked: EmbeddedQuery
    dense: Matrix
    view: Matrix
    meaning: Matrix
    matches: Bm25Matches
    scale: ZScoreScale | None = None
    """How its nearness is told; None where there is no vector."""
    off: float = 0.0
    """How far from the truth what it means can be."""

    def near(self, row: int, view: float) -> float:
        """How near a row is, its whole and its best view taken together."""
        return (float(self.dense[row]) + view * float(self.view[row])) / (1 + view)

    def look(self, rows: RowIndices, shelf: MemoryIndex, view: float) -> None:
        """Tell some rows as well as is known."""
        if self.scale is not None:
            near = shelf.look(rows, self.asked.vector)
            self.dense[rows], self.view[rows] = near.dense, near.view
            both = _add_view_scores(near.dense, near.view, view)
            self.meaning[rows] = self.scale.tell(both, shelf.is_chinese[rows])


def _add_view_scores(dense: Matrix, views: Matrix, weight: float) -> Matrix:
    return (dense + weight * views).astype(np.float32) if weight else dense


@dataclass(frozen=True, slots=True)
class RankingRequest:
    """A request, and all that is needed to answer it on any thread."""

    shelf: MemoryIndex
    asked: Sequence[EmbeddedQuery]
    company: ReferenceVectors | None
    fusion: FusionWeights

    @property
    def language(self) -> float:
        """A request that is there in both languages favours neither."""
        languages = {is_chinese(asked.text) for asked in self.asked}
        return self.fusion.language if len(languages) == 1 else 0.0

    def score(self, asked: EmbeddedQuery) -> QueryScores:
        """Hold one wording against every row, roughly."""
        shelf, weight = self.shelf, self.fusion.view
        near = shelf.scan(asked.vector)
        matches = shelf.lexicon.match(tokenize(asked.text, kind="query"))
        if self.company is None or not len(asked.vector):
            return QueryScores(asked, near.dense, near.view, np.zeros_like(near.dense), matches)
        both = _add_view_scores(near.dense, near.view, weight)
        english, chinese = self.company.skills_near(asked.vector)
        if weight:
            english, chinese = (1 + weight) * english, (1 + weight) * chinese
        company = ReferenceScores(members=shelf.members, background=(english, chinese))
        scale = ZScoreScale.of(both, company, self.language)
        meaning = scale.tell(both, shelf.is_chinese)
        off = near.off * (1 + weight) / float(scale.spreads.min())
        return QueryScores(asked, near.dense, near.view, meaning, matches, scale, off)


class Ranking:
    """What every row comes to, and why."""

    def __init__(self, order: RankingRequest, scored: list[QueryScores], usage: Matrix) -> None:
        self.order = order
        self.scored = scored
        self.usage = usage
        self.meaning = scored[0].meaning
        self.lexical = scored[0].matches.scores
        if len(scored) > 1:
            self.lexical = np.max([one.matches.scores for one in scored], axis=0)
            self.meaning = np.zeros_like(self.lexical)
        self.total = np.full(len(usage), -np.inf, np.float32)
        self.off = order.fusion.dense * max(one.off for one in scored)
        """How far from the truth a total can be."""
        self.add_up(slice(None))
        self.total[~order.shelf.is_alive] = -np.inf

    def add_up(self, rows: RowIndices | slice) -> None:
        """Take the parts of some rows together."""
        if len(self.scored) > 1:
            self.meaning[rows] = np.mean([one.meaning[rows] for one in self.scored], axis=0)
        fusion = self.order.fusion
        self.total[rows] = (
            fusion.dense * self.meaning[rows]
            + fusion.lexical * self.lexical[rows]
            + fusion.usage * self.usage[rows]
        )

    @property
    def small_talk(self) -> float:
        """How near the wording that is least like small talk is to it."""
        company = self.order.company
        vectors = [one.asked.vector for one in self.scored if len(one.asked.vector)]
        if company is None or not vectors:
            return 0.0
        return min(company.small_talk_near(vector) for vector in vectors)

    def parts(self, rows: Sequence[int]) -> list[ScoreParts]:
        """What each row's score is made of."""
        words = [one.matches.words_of(rows) for one in self.scored]
        return [
            self._parts(row, [found[number] for found in words]) for number, row in enumerate(rows)
        ]

    def _parts(self, row: int, words: Sequence[Mapping[str, float]]) -> ScoreParts:
        """Told by the wording that is nearest, and by the one that shares most words."""
        shelf, nearest, most = self.order.shelf, self.scored[0], words[0]
        if len(self.scored) > 1:
            nearest = max(self.scored, key=lambda one: float(one.meaning[row]))
            most = max(words, key=lambda found: sum(found.values()))
        has_vector = bool(len(nearest.asked.vector))
        return ScoreParts(
            dense=float(nearest.dense[row]),
            view=float(nearest.view[row]),
            view_text=shelf.best_view(row, nearest.asked.vector) if has_vector else "",
            lexical=float(self.lexical[row]),
            words=most,
            meaning=float(self.meaning[row]),
            usage=float(self.usage[row]),
            language="zh" if shelf.is_chinese[row] else "en",
            total=float(self.total[row]),
        )


def rank(order: RankingRequest, used: Mapping[str, float], limit: int) -> Ranking:
    """Look at all rows roughly, and at those that may be among the first so many well."""
    with single_threaded_blas() if len(order.shelf.names) > _SINGLE_THREAD_ROWS else nullcontext():
        scored = [order.score(asked) for asked in order.asked]
    usage = np.zeros(len(order.shelf.names), np.float32)
    for name, share in used.items():
        row = order.shelf.row_of.get(name)
        if row is not None:
            usage[row] = min(1.0, max(0.0, share))
    ranking = Ranking(order, scored, usage)
    if ranking.off:
        rows = rows_above_cutoff(ranking.total, limit, 2 * ranking.off)
        rows = rows[order.shelf.is_alive[rows]]
        for one in scored:
            one.look(rows, order.shelf, order.fusion.view)
        ranking.add_up(rows)
    return ranking
