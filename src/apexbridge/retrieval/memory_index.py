"""In-memory index: quantized vectors, BM25 postings and texts, in columns with common rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.base import IndexEntry, Matrix
from apexbridge.retrieval.bm25 import Bm25Index
from apexbridge.retrieval.fusion import RowMask
from apexbridge.retrieval.mmap_arrays import CompressedTexts, MmapColumn
from apexbridge.retrieval.name_index import NameIndex
from apexbridge.retrieval.quantized_vectors import QuantizedVectors, RowIndices
from apexbridge.retrieval.results import Kind
from apexbridge.retrieval.skill_document import title_of
from apexbridge.retrieval.tokenizer import is_chinese

_MIN_DEAD_ROWS = 64
_PAGE_BYTES = 16 * 1024
_ROWS_PER_GROUP = 32


class TextTable:
    """Texts of every row: the main text, then the views."""

    def __init__(self) -> None:
        self._wholes = CompressedTexts(_PAGE_BYTES)
        self._views = CompressedTexts()  # uncompressed: every search reads some
        self._firsts = MmapColumn(np.uint32)
        """Number of each row's first view."""

    def __len__(self) -> int:
        return len(self._wholes)

    def __getitem__(self, row: int) -> tuple[str, ...]:
        views = range(int(self._firsts.values[row]), self._end(row))
        return (self._wholes[row], *(self._views[number] for number in views))

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return (self[row] for row in range(len(self)))

    def count(self, row: int) -> int:
        """Return the number of texts of a row."""
        return 1 + self._end(row) - int(self._firsts.values[row])

    def view(self, row: int, number: int) -> str:
        """Return a view of a row; number 0 is the main text, so that views start at 1."""
        return self._views[int(self._firsts.values[row]) + number - 1]

    def extend(self, texts: Sequence[tuple[str, ...]]) -> None:
        """Append rows."""
        sizes = [len(each) - 1 for each in texts]
        self._firsts.grow(len(sizes))[:] = len(self._views) + np.cumsum([0, *sizes])[:-1]
        self._wholes.extend(each[0] for each in texts)
        self._views.extend(view for each in texts for view in each[1:])

    def _end(self, row: int) -> int:
        is_last = row + 1 == len(self._firsts)
        return len(self._views) if is_last else int(self._firsts.values[row + 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Similarities:
    """Cosines of a query with each row's main text, and with its best text."""

    dense: Matrix
    view: Matrix
    error_bound: float = 0.0
    """Upper bound of their error."""


class MemoryIndex:
    """Column store with a row for each skill; deleted rows are marked, and compacted when many."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.texts = TextTable()
        self.pending: set[str] = set()
        """Skills without vectors: no store has them, and only BM25 finds them."""
        self.row_of: dict[str, int] = {}
        self.bm25 = Bm25Index()
        self.name_index = NameIndex()
        self._is_chinese = MmapColumn(np.bool_)
        self._is_alive = MmapColumn(np.bool_)
        self._is_tool = MmapColumn(np.bool_)
        self._vectors = QuantizedVectors()
        self._firsts = MmapColumn(np.intp)
        self.changes = 0
        """Change counter, which invalidates caches."""
        self._language_masks: tuple[int, tuple[RowMask, RowMask]] | None = None

    def __len__(self) -> int:
        return len(self.row_of)

    @property
    def is_chinese(self) -> NDArray[np.bool_]:
        """Flags of the rows whose main text is Chinese."""
        return self._is_chinese.values

    @property
    def is_alive(self) -> NDArray[np.bool_]:
        """Flags of the rows that are not deleted."""
        return self._is_alive.values

    def kind(self, row: int) -> Kind:
        """Return the kind of a row."""
        return "tool" if self._is_tool.values[row] else "skill"

    def is_of_kind(self, kinds: frozenset[Kind]) -> NDArray[np.bool_]:
        """Flags of the rows of some kinds that are not deleted."""
        if len(kinds) == 2:
            return self.is_alive
        is_tool = self._is_tool.values
        return self.is_alive & (is_tool if "tool" in kinds else ~is_tool) & bool(kinds)

    @property
    def language_masks(self) -> tuple[RowMask, RowMask]:
        """Masks of the rows in English and in Chinese, without deleted ones."""
        if self._language_masks is None or self._language_masks[0] != self.changes:
            english, chinese = self.is_alive & ~self.is_chinese, self.is_alive & self.is_chinese
            self._language_masks = self.changes, (_row_mask(english), _row_mask(chinese))
        return self._language_masks[1]

    @property
    def dimensions(self) -> int:
        """Size of the vectors; 0 while there are none."""
        return self._vectors.dimensions

    def put(self, entries: Sequence[IndexEntry]) -> None:
        """Insert or replace entries; of duplicate names the last one wins."""
        entries = list({entry.name: entry for entry in entries}.values())
        if not entries:
            return
        self.drop([entry.name for entry in entries])
        first = len(self.names)
        sizes = [len(entry.vectors) for entry in entries]
        self._firsts.grow(len(entries))[:] = len(self._vectors) + np.cumsum([0, *sizes])[:-1]
        self._append([entry.vectors for entry in entries])
        self.bm25.add(first, [e.terms for e in entries], [e.counts for e in entries])
        self._is_chinese.grow(len(entries))[:] = [is_chinese(entry.texts[0]) for entry in entries]
        self._is_alive.grow(len(entries))[:] = True
        self._is_tool.grow(len(entries))[:] = [entry.kind == "tool" for entry in entries]
        self.texts.extend([entry.texts for entry in entries])
        for row, entry in enumerate(entries, first):
            self.names.append(entry.name)
            if not entry.fingerprint:
                self.pending.add(entry.name)
            self.row_of[entry.name] = row
            self.name_index.add(row, _names(entry.name, entry.texts[0]))

    def _append(self, parts: Sequence[Matrix]) -> None:
        """Append vectors; an entry without vectors gets a row of zeros.

        The size changes only when all rows of the old size are deleted; those become zeros.
        """
        size = max(part.shape[1] for part in parts) or self.dimensions
        if size != self.dimensions:
            before, self._vectors = self._vectors, QuantizedVectors(size)
            self._vectors.add_zeros(len(before))
        self._vectors.extend(
            [part if part.shape[1] else np.zeros((len(part), size), np.float32) for part in parts]
        )

    def drop(self, names: Sequence[str]) -> None:
        """Delete entries; an unknown name is no error."""
        self.changes += 1
        for name in names:
            self.pending.discard(name)
            row = self.row_of.pop(name, None)
            if row is not None:
                self.is_alive[row] = False
                self.bm25.remove(row)
                self.name_index.remove(row, _names(name, self.texts[row][0]))

    @property
    def needs_compaction(self) -> bool:
        """Say whether so many rows are deleted that compaction pays."""
        dead = len(self.names) - len(self.row_of)
        return dead > max(_MIN_DEAD_ROWS, len(self.names) // 4)

    def compacted(self) -> "MemoryIndex":
        """Copy without the deleted rows."""
        fresh = MemoryIndex()
        alive = np.flatnonzero(self.is_alive)
        firsts, selected = self._select_vectors(alive)
        fresh._firsts.extend([firsts])
        fresh._vectors = self._vectors.take(selected)
        fresh.names = [self.names[row] for row in alive]
        fresh.texts.extend([self.texts[int(row)] for row in alive])
        fresh.pending = set(self.pending)
        fresh.row_of = {name: row for row, name in enumerate(fresh.names)}
        fresh._is_chinese.extend([self.is_chinese[alive]])
        fresh._is_alive.grow(len(alive))[:] = True
        fresh._is_tool.extend([self._is_tool.values[alive]])
        fresh.bm25 = self.bm25.compacted()
        for row, name in enumerate(fresh.names):
            fresh.name_index.add(row, _names(name, fresh.texts[row][0]))
        return fresh

    def scan(self, query: Matrix) -> Similarities:
        """Compute approximate cosines of all rows."""
        if not len(query) or len(query) != self.dimensions:
            zeros = np.zeros(len(self.names), np.float32)
            return Similarities(dense=zeros, view=zeros)
        cosines, error_bound = self._vectors.scan(query)
        if len(cosines) == len(self._firsts):
            return Similarities(dense=cosines, view=cosines, error_bound=error_bound)
        firsts = self._firsts.values
        return Similarities(
            dense=cosines[firsts],
            view=np.maximum.reduceat(cosines, firsts),
            error_bound=error_bound,
        )

    def rescore(self, rows: RowIndices, query: Matrix) -> Similarities:
        """Compute exact cosines of some rows."""
        if not len(rows) or not len(query) or len(query) != self.dimensions:
            zeros = np.zeros(len(rows), np.float32)
            return Similarities(dense=zeros, view=zeros)
        if len(self._vectors) == len(self._firsts):  # no row has a view
            cosines = self._vectors.rescore(rows, query)
            return Similarities(dense=cosines, view=cosines)
        starts, selected = self._select_vectors(rows)
        cosines = self._vectors.rescore(selected, query)
        return Similarities(dense=cosines[starts], view=np.maximum.reduceat(cosines, starts))

    def _select_vectors(self, rows: RowIndices) -> tuple[RowIndices, RowIndices]:
        """Return the start of each row's vectors in a selection, and the selected vectors."""
        sizes = np.array([self.texts.count(int(row)) for row in rows], np.intp)
        starts = np.cumsum(sizes) - sizes
        selected = np.repeat(self._firsts.values[rows] - starts, sizes)
        selected += np.arange(len(selected))
        return starts, selected

    def nearest(self, query: Matrix, limit: int) -> list[tuple[int, float]]:
        """Return the rows whose main text is nearest, in descending order of cosine."""
        found = self.scan(query)
        if len(self.row_of) < len(self.names):
            found.dense[~self.is_alive] = -np.inf
        rows = rows_above_cutoff(found.dense, limit, 2 * found.error_bound)
        rows = rows[self.is_alive[rows]]
        similarity = self.rescore(rows, query).dense if found.error_bound else found.dense[rows]
        return [(int(rows[at]), float(similarity[at])) for at in top_rows(similarity, limit)]

    def best_view(self, row: int, query: Matrix) -> str:
        """Return the view that is nearest; empty if the main text is nearer."""
        if len(query) != self.dimensions or len(self._vectors) == len(self._firsts):
            return ""  # nearly always: no row has views
        if self.texts.count(row) == 1:
            return ""
        similarity = self.vectors_of(row) @ query
        best = int(similarity.argmax())
        return self.texts.view(row, best) if best else ""

    def main_vectors(self, rows: RowIndices) -> Matrix:
        """Return the vectors of the main texts of some rows."""
        return self._vectors[self._firsts.values[rows]]

    def vectors_of(self, row: int) -> Matrix:
        """Return the vectors of main text and views."""
        first = int(self._firsts.values[row])
        return self._vectors[first : first + self.texts.count(row)]

    def nearest_to_row(self, row: int, limit: int) -> list[tuple[str, float]]:
        """Return the skills with main texts nearest to that of a row, without itself."""
        if limit < 1:
            return []
        found = self.nearest(self.vectors_of(row)[0], limit + 1)
        return [(self.names[other], similarity) for other, similarity in found if other != row][
            :limit
        ]


def _names(name: str, main_text: str) -> tuple[str, ...]:
    """Return the names by which a query may mention a row: in full, and without the namespace."""
    title = title_of(main_text)
    _, colon, last = name.rpartition(":")
    return (title, last) if colon else (title,)


def _row_mask(flags: NDArray[np.bool_]) -> RowMask:
    return RowMask(flags.astype(np.float32), int(np.count_nonzero(flags)))


def top_rows(scores: Matrix, limit: int) -> RowIndices:
    """Return the rows with the highest scores, in descending order; ties by row."""
    candidates = rows_above_cutoff(scores, limit, 0)
    return candidates[np.argsort(-scores[candidates], kind="stable")][: max(0, limit)]


def rows_above_cutoff(scores: Matrix, limit: int, margin: float) -> RowIndices:
    """Return candidates for the highest scores, if each may be off by half the margin."""
    count = min(limit, len(scores))
    if count <= 0:
        return np.zeros(0, np.intp)
    # Every row at the cutoff, so that ties are broken by row and not by np.partition.
    return np.flatnonzero(scores >= _cutoff(scores, count) - np.float32(margin))


def _cutoff(scores: Matrix, count: int) -> np.float32:
    """Return a score that at least `count` rows reach, and few more.

    The maxima of strided groups are partitioned in place of all scores, which is much faster.
    """
    groups = len(scores) // _ROWS_PER_GROUP
    if groups >= 2 * count:
        scores = scores[: groups * _ROWS_PER_GROUP].reshape(_ROWS_PER_GROUP, groups).max(axis=0)
    return np.partition(scores, len(scores) - count)[len(scores) - count]
