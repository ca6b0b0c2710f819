"""Two-stage ranking: approximate scores of all rows, then exact scores of the candidates."""

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
"""Up to this number of rows BLAS would not start a second thread anyway."""


@dataclass(frozen=True, slots=True)
class EmbeddedQuery:
    """One wording of a query, with its vector if it could be embedded."""

    text: str
    vector: Matrix


@dataclass(frozen=True, slots=True)
class QueryScores:
    """Scores of one wording for every row."""

    query: EmbeddedQuery
    dense: Matrix
    view: Matrix
    meaning: Matrix
    matches: Bm25Matches
    scale: ZScoreScale | None = None
    """None if there is no vector."""
    error_bound: float = 0.0
    """Error bound of `meaning`."""

    def similarity(self, row: int, view: float) -> float:
        """Combine the cosines of main text and best view."""
        return (float(self.dense[row]) + view * float(self.view[row])) / (1 + view)

    def rescore(self, rows: RowIndices, memory: MemoryIndex, view: float) -> None:
        """Replace the approximate scores of some rows by exact ones."""
        if self.scale is not None:
            found = memory.rescore(rows, self.query.vector)
            self.dense[rows], self.view[rows] = found.dense, found.view
            combined = _add_view_scores(found.dense, found.view, view)
            self.meaning[rows] = self.scale.standardize(combined, memory.is_chinese[rows])


def _add_view_scores(dense: Matrix, views: Matrix, weight: float) -> Matrix:
    return (dense + weight * views).astype(np.float32) if weight else dense


@dataclass(frozen=True, slots=True)
class RankingRequest:
    """Query and index, with everything a worker thread needs to rank."""

    memory: MemoryIndex
    queries: Sequence[EmbeddedQuery]
    reference: ReferenceVectors | None
    fusion: FusionWeights

    @property
    def language(self) -> float:
        """Language weight; 0 for a query that is given in both languages."""
        languages = {is_chinese(query.text) for query in self.queries}
        return self.fusion.language if len(languages) == 1 else 0.0

    def score(self, query: EmbeddedQuery) -> QueryScores:
        """Score all rows approximately for one wording."""
        memory, weight = self.memory, self.fusion.view
        found = memory.scan(query.vector)
        matches = memory.bm25.match(tokenize(query.text, kind="query"))
        if self.reference is None or not len(query.vector):
            return QueryScores(query, found.dense, found.view, np.zeros_like(found.dense), matches)
        combined = _add_view_scores(found.dense, found.view, weight)
        english, chinese = self.reference.skill_similarities(query.vector)
        if weight:
            english, chinese = (1 + weight) * english, (1 + weight) * chinese
        reference = ReferenceScores(groups=memory.language_masks, scores=(english, chinese))
        scale = ZScoreScale.fit(combined, reference, self.language)
        meaning = scale.standardize(combined, memory.is_chinese)
        error_bound = found.error_bound * (1 + weight) / float(scale.spreads.min())
        return QueryScores(query, found.dense, found.view, meaning, matches, scale, error_bound)


class Ranking:
    """Total scores of all rows, with their parts."""

    def __init__(self, request: RankingRequest, scored: list[QueryScores], usage: Matrix) -> None:
        self.request = request
        self.scored = scored
        self.usage = usage
        self.meaning = scored[0].meaning
        self.lexical = scored[0].matches.scores
        if len(scored) > 1:
            self.lexical = np.max([one.matches.scores for one in scored], axis=0)
            self.meaning = np.zeros_like(self.lexical)
        self.total = np.full(len(usage), -np.inf, np.float32)
        self.error_bound = request.fusion.dense * max(one.error_bound for one in scored)
        """Error bound of a total."""
        self.fuse(slice(None))
        self.total[~request.memory.is_alive] = -np.inf

    def fuse(self, rows: RowIndices | slice) -> None:
        """Fuse the partial scores of some rows."""
        if len(self.scored) > 1:
            self.meaning[rows] = np.mean([one.meaning[rows] for one in self.scored], axis=0)
        fusion = self.request.fusion
        self.total[rows] = (
            fusion.dense * self.meaning[rows]
            + fusion.lexical * self.lexical[rows]
            + fusion.usage * self.usage[rows]
        )

    @property
    def small_talk(self) -> float:
        """Small-talk similarity of the wording that is least like small talk."""
        reference = self.request.reference
        vectors = [one.query.vector for one in self.scored if len(one.query.vector)]
        if reference is None or not vectors:
            return 0.0
        return min(reference.small_talk_similarity(vector) for vector in vectors)

    def parts(self, rows: Sequence[int]) -> list[ScoreParts]:
        """Explain the scores of some rows."""
        words = [one.matches.matched_words(rows) for one in self.scored]
        return [
            self._parts(row, [found[number] for found in words]) for number, row in enumerate(rows)
        ]

    def _parts(self, row: int, words: Sequence[Mapping[str, float]]) -> ScoreParts:
        """Explain by the most similar wording and by the one with most words in common."""
        memory, nearest, most = self.request.memory, self.scored[0], words[0]
        if len(self.scored) > 1:
            nearest = max(self.scored, key=lambda one: float(one.meaning[row]))
            most = max(words, key=lambda found: sum(found.values()))
        has_vector = bool(len(nearest.query.vector))
        return ScoreParts(
            dense=float(nearest.dense[row]),
            view=float(nearest.view[row]),
            view_text=memory.best_view(row, nearest.query.vector) if has_vector else "",
            lexical=float(self.lexical[row]),
            words=most,
            meaning=float(self.meaning[row]),
            usage=float(self.usage[row]),
            language="zh" if memory.is_chinese[row] else "en",
            total=float(self.total[row]),
        )


def rank(request: RankingRequest, used: Mapping[str, float], limit: int) -> Ranking:
    """Rank approximately, then re-score all rows that may be among the first `limit`."""
    is_large = len(request.memory.names) > _SINGLE_THREAD_ROWS
    with single_threaded_blas() if is_large else nullcontext():
        scored = [request.score(query) for query in request.queries]
    usage = np.zeros(len(request.memory.names), np.float32)
    for name, share in used.items():
        row = request.memory.row_of.get(name)
        if row is not None:
            usage[row] = min(1.0, max(0.0, share))
    ranking = Ranking(request, scored, usage)
    if ranking.error_bound:
        rows = rows_above_cutoff(ranking.total, limit, 2 * ranking.error_bound)
        rows = rows[request.memory.is_alive[rows]]
        for one in scored:
            one.rescore(rows, request.memory, request.fusion.view)
        ranking.fuse(rows)
    return ranking
