"""Two-stage ranking: approximate scores of all rows, then exact scores of the candidates.

A query has one or more wordings, whose scores are fused, and each wording has parts (clauses), if
it asks for several things. A row's score is that of the whole query or of its best clause.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.bm25 import Bm25Matches
from apexbridge.retrieval.fusion import (
    FusionWeights,
    ReferenceScores,
    ZScoreScale,
    deduct_background,
    fuse_lexical,
    fuse_wordings,
)
from apexbridge.retrieval.memory_index import MemoryIndex, rows_above_cutoff, top_rows
from apexbridge.retrieval.quantized_vectors import RowIndices
from apexbridge.retrieval.reference_vectors import ReferenceVectors
from apexbridge.retrieval.results import Kind, ScoreParts
from apexbridge.retrieval.spelling import correct
from apexbridge.retrieval.thread_control import single_threaded_blas
from apexbridge.retrieval.tokenizer import is_chinese, query_words, stems

_SINGLE_THREAD_ROWS = 5_000
"""Up to this number of rows BLAS would not start a second thread anyway."""
_ALIKE = 0.95
"""Cosine of two main texts from which on they are near duplicates."""

_OTHERWISE_WRITTEN = 0.7
"""Factor for a name that is the query's in other characters, beside one that is literally."""

IsWord = Callable[[str], bool]


def no_word(_word: str) -> bool:
    """Take any word for a possible slip: the embedder has no vocabulary."""
    return False


@dataclass(frozen=True, slots=True)
class EmbeddedQuery:
    """One wording of a query or a clause of one, with its vector if it could be embedded."""

    text: str
    vector: Matrix
    is_clause: bool = False


@dataclass(frozen=True, slots=True)
class QueryScores:
    """Scores of one wording or clause for every row."""

    query: EmbeddedQuery
    dense: Matrix
    view: Matrix
    meaning: Matrix
    matches: Bm25Matches
    lexical: Matrix
    task: float = 0.0
    """Log-odds that the query is a task."""
    scale: ZScoreScale | None = None
    """None if there is no vector."""
    error_bound: float = 0.0
    """Error bound of `meaning`."""

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
    kinds: frozenset[Kind] | None = None
    is_word: IsWord = no_word
    """Says whether a word is spelt correctly, by the embedder's vocabulary."""

    @property
    def is_candidate(self) -> NDArray[np.bool_]:
        """Flags of the rows that may be hits."""
        return self.memory.is_alive if self.kinds is None else self.memory.is_of_kind(self.kinds)

    @property
    def language(self) -> float:
        """Language weight; 0 for a query that is given in both languages."""
        languages = {is_chinese(query.text) for query in self.queries if not query.is_clause}
        return self.fusion.language if len(languages) == 1 else 0.0

    def score(self, query: EmbeddedQuery) -> QueryScores:
        """Score all rows approximately for one wording or clause."""
        memory, weight = self.memory, self.fusion.view
        found = memory.scan(query.vector)
        matches = match_words(memory, query.text, self.is_word)
        lexical = deduct_background(
            matches.scores * np.float32(matches.weight), self.fusion.background
        )
        if self.reference is None or not len(query.vector):
            meaning = np.zeros_like(found.dense)
            return QueryScores(query, found.dense, found.view, meaning, matches, lexical)
        combined = _add_view_scores(found.dense, found.view, weight)
        english, chinese = self.reference.skill_similarities(query.vector)
        if weight:
            english, chinese = (1 + weight) * english, (1 + weight) * chinese
        reference = ReferenceScores(groups=memory.language_masks, scores=(english, chinese))
        scale = ZScoreScale.fit(combined, reference, self.language)
        return QueryScores(
            query,
            found.dense,
            found.view,
            scale.standardize(combined, memory.is_chinese),
            matches,
            lexical,
            0.0 if query.is_clause else self.reference.task(query.vector),
            scale,
            found.error_bound * (1 + weight) / float(scale.spreads.min()),
        )


def match_words(memory: MemoryIndex, text: str, is_word: IsWord) -> Bm25Matches:
    """Match the words of a query by BM25; one that no document has may be a slip of a known one."""
    words = query_words(text)
    stemmed = dict(zip(stems(words), words, strict=True))
    matches = memory.bm25.match(list(stemmed))
    unknown = [stemmed[stem] for stem in matches.unknown]
    slips = correct([word for word in unknown if not is_word(word)], memory.bm25.frequencies)
    if not slips:
        return matches
    return memory.bm25.match([slips.get(word, stem) for stem, word in stemmed.items()])


class Ranking:
    """Total scores of all rows, with their parts."""

    def __init__(self, request: RankingRequest, scored: list[QueryScores], usage: Matrix) -> None:
        self.request = request
        self.wordings = [one for one in scored if not one.query.is_clause]
        self.clauses = [one for one in scored if one.query.is_clause]
        self.usage = usage
        self.names = _name_scores(request)
        self.lexical = fuse_lexical([one.lexical for one in self.wordings])
        self.meaning = np.empty_like(self.lexical)
        self.total = np.full(len(usage), -np.inf, np.float32)
        self.error_bound = request.fusion.dense * max(one.error_bound for one in scored)
        """Error bound of a total."""
        self.fuse(slice(None))
        self.total[~request.is_candidate] = -np.inf

    def fuse(self, rows: RowIndices | slice) -> None:
        """Fuse the partial scores of some rows."""
        fusion = self.request.fusion
        self.meaning[rows] = fuse_wordings([one.meaning[rows] for one in self.wordings])
        total = fusion.dense * self.meaning[rows] + fusion.lexical * self.lexical[rows]
        for clause in self.clauses:
            np.maximum(total, self._clause_total(clause, rows) - fusion.clause, out=total)
        total += fusion.usage * self.usage[rows]
        if self.names is not None:
            total += fusion.name * self.names[rows]
        self.total[rows] = total

    def _clause_total(self, clause: QueryScores, rows: RowIndices | slice) -> Matrix:
        fusion = self.request.fusion
        total = fusion.dense * clause.meaning[rows] + fusion.lexical * clause.lexical[rows]
        return total.astype(np.float32)

    @cached_property
    def task(self) -> float:
        """Log-odds of the wording that is most clearly a task."""
        return max(one.task for one in self.wordings)

    @cached_property
    def length(self) -> int:
        """Bytes of the query's first wording."""
        return len(self.wordings[0].query.text.encode("utf-8", "replace"))

    @property
    def has_vectors(self) -> bool:
        """Say whether the query was embedded."""
        return any(one.scale is not None for one in self.wordings)

    def candidates(self, limit: int) -> RowIndices:
        """Return the rows that may be among the best, of the query or of one of its clauses."""
        margin = 2 * self.error_bound
        rows = rows_above_cutoff(self.total, limit, margin)
        for clause in self.clauses:
            best = rows_above_cutoff(self._need_scores(clause), 1, margin)
            rows = np.union1d(rows, best)
        return rows[self.request.is_candidate[rows]]

    def top_groups(self, limit: int, folded: int) -> list[list[int]]:
        """Return the best rows, each with its near duplicates among `folded` further ones.

        A row that clearly meets one need of a query with several is among them.
        """
        rows = top_rows(self.total, limit + folded)
        rows = rows[self.total[rows] > -np.inf]
        needs = self._needs() if limit > 1 else set[int]()
        if needs:
            rows = np.union1d(rows, list(needs))
            rows = rows[np.argsort(-self.total[rows], kind="stable")]
        groups = self._fold(rows) if folded else [[row] for row in rows.tolist()]
        chosen = {0} if groups else set[int]()
        met = [at for at, group in enumerate(groups) if not needs.isdisjoint(group)]
        for at in (*met, *range(len(groups))):
            if len(chosen) < limit:
                chosen.add(at)
        return [groups[at] for at in sorted(chosen)]

    def _fold(self, rows: RowIndices) -> list[list[int]]:
        """Group near duplicates, the best one first."""
        if not self.has_vectors or len(rows) < 2:
            return [[row] for row in rows.tolist()]
        vectors = self.request.memory.main_vectors(rows)
        is_alike = vectors @ vectors.T >= _ALIKE
        groups, leaders = list[list[int]](), list[int]()
        for place, row in enumerate(rows.tolist()):
            leader = next((at for at, first in enumerate(leaders) if is_alike[first, place]), None)
            if leader is not None:
                groups[leader].append(row)
            else:
                groups.append([row])
                leaders.append(place)
        return groups

    def _needs(self) -> set[int]:
        """Return the best row of each clause that one clearly answers, if there are several."""
        best = set[int]()
        for clause in self.clauses:
            total = self._need_scores(clause)
            row = int(total.argmax())
            if total[row] >= self.request.fusion.need:
                best.add(row)
        return best if len(best) > 1 else set()

    def _need_scores(self, clause: QueryScores) -> Matrix:
        total = self._clause_total(clause, slice(None))
        total[np.isneginf(self.total)] = -np.inf
        return total

    def name(self, row: int) -> float:
        """Rate how clearly the query mentions a row by its name."""
        return 0.0 if self.names is None else float(self.names[row])

    def details(self, rows: Sequence[int]) -> "list[RowDetails]":
        """Return, for each row, the scores of the wording or clause that speaks most for it."""
        at = np.array(rows, np.intp)
        every = [*self.wordings, *self.clauses]
        meanings = np.array([one.meaning[at] for one in every])
        lexicals = np.array([one.lexical[at] for one in every])
        nearest: list[int] = meanings.argmax(axis=0).tolist()
        most: list[int] = lexicals.argmax(axis=0).tolist()
        dense = np.array([one.dense[at] for one in every])
        views = dense if not self.request.fusion.view else np.array([o.view[at] for o in every])
        columns = range(len(rows))
        return [
            RowDetails(
                nearest=every[near],
                most=every[lex],
                meaning=float(meanings[near, column]),
                dense=float(dense[near, column]),
                view=float(views[near, column]),
                lexical=float(lexicals[lex, column]),
            )
            for near, lex, column in zip(nearest, most, columns, strict=True)
        ]

    def parts(self, rows: Sequence[int], details: "Sequence[RowDetails]") -> list[ScoreParts]:
        """Explain the scores of some rows."""
        memory, at = self.request.memory, np.array(rows, np.intp)
        columns = (self.meaning, self.usage, self.total, memory.is_chinese)
        values = zip(*(column[at].tolist() for column in columns), strict=True)
        words = {
            id(one): one.matches.matched_words(rows)
            for one in {id(detail.most): detail.most for detail in details}.values()
        }
        return [
            ScoreParts(
                dense=detail.dense,
                view=detail.view,
                view_text=memory.best_view(row, detail.nearest.query.vector),
                lexical=float(detail.most.matches.scores[row]),
                words=words[id(detail.most)][number],
                meaning=meaning,
                usage=usage,
                name=self.name(row),
                clause=detail.nearest.query.text if detail.nearest.query.is_clause else "",
                language="zh" if is_chinese_row else "en",
                total=total,
            )
            for number, (row, detail, (meaning, usage, total, is_chinese_row)) in enumerate(
                zip(rows, details, values, strict=True)
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDetails:
    """Scores of a row by the most similar wording or clause, and by that with most words in common.

    `lexical` is the weighted BM25 share of the second.
    """

    nearest: QueryScores
    most: QueryScores
    meaning: float
    dense: float
    view: float
    lexical: float


def _name_scores(request: RankingRequest) -> Matrix | None:
    """Rate the names that any wording mentions; None if there are none."""
    memory, found = request.memory, dict[int, float]()
    for query in request.queries:
        if not query.is_clause:  # a clause mentions nothing that its wording does not
            mentioned = memory.name_index.strengths(query.text, memory.bm25, request.is_word)
            literal = query.text.strip().casefold()
            as_written = {row for row in mentioned if memory.names[row].casefold() == literal}
            for row, strength in mentioned.items():
                # Of `data_report` and `data-report`, which are one phrase, the one as written.
                factor = _OTHERWISE_WRITTEN if as_written and row not in as_written else 1.0
                found[row] = max(found.get(row, 0.0), factor * strength)
    if not found:
        return None
    scores = np.zeros(len(memory.names), np.float32)
    scores[list(found)] = list(found.values())
    return scores


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
        rows = ranking.candidates(limit)
        for one in scored:
            one.rescore(rows, request.memory, request.fusion.view)
        ranking.fuse(rows)
    return ranking
