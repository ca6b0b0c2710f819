"""All entries in memory, as search walks over them: one matrix, one lexicon, rows in step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.base import IndexEntry, Matrix
from apexbridge.retrieval.bm25 import Bm25Index
from apexbridge.retrieval.fusion import RowMask
from apexbridge.retrieval.mmap_arrays import CompressedTexts, MmapColumn
from apexbridge.retrieval.quantized_vectors import QuantizedVectors, RowIndices
from apexbridge.retrieval.tokenizer import is_chinese

_MIN_DEAD_ROWS = 64
_PAGE_BYTES = 16 * 1024
_TEXTS_A_RUN = 32


class TextTable:
    """The texts of every row: the whole first, then the views."""

    def __init__(self) -> None:
        self._wholes = CompressedTexts(_PAGE_BYTES)
        self._views = CompressedTexts()  # read by every search
        self._firsts = MmapColumn(np.uint32)
        """The number of each row's first view."""

    def __len__(self) -> int:
        return len(self._wholes)

    def __getitem__(self, row: int) -> tuple[str, ...]:
        views = range(int(self._firsts.values[row]), self._end(row))
        return (self._wholes[row], *(self._views[number] for number in views))

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return (self[row] for row in range(len(self)))

    def count(self, row: int) -> int:
        """How many a row has."""
        return 1 + self._end(row) - int(self._firsts.values[row])

    def view(self, row: int, number: int) -> str:
        """A row's view; the first is number one, as in the whole."""
        return self._views[int(self._firsts.values[row]) + number - 1]

    def extend(self, texts: Sequence[tuple[str, ...]]) -> None:
        """Add rows."""
        sizes = [len(each) - 1 for each in texts]
        self._firsts.more(len(sizes))[:] = len(self._views) + np.cumsum([0, *sizes])[:-1]
        self._wholes.extend(each[0] for each in texts)
        self._views.extend(view for each in texts for view in each[1:])

    def _end(self, row: int) -> int:
        is_last = row + 1 == len(self._firsts)
        return len(self._views) if is_last else int(self._firsts.values[row + 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Similarities:
    """How near each row's whole is to a query, and its best view (or the whole)."""

    dense: Matrix
    view: Matrix
    off: float = 0.0
    """How far from the truth any of it can be."""


class MemoryIndex:
    """A row for each skill; a replaced one dies and is swept out when many have."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.texts = TextTable()
        self.pending: set[str] = set()
        """Those without a fingerprint: no store has them, and only their words find them."""
        self.row_of: dict[str, int] = {}
        self.lexicon = Bm25Index()
        self._is_chinese = MmapColumn(np.bool_)
        self._is_alive = MmapColumn(np.bool_)
        self._vectors = QuantizedVectors()
        self._firsts = MmapColumn(np.intp)
        self.changes = 0
        """How often anything was put in or taken out."""
        self._members: tuple[int, tuple[RowMask, RowMask]] | None = None

    def __len__(self) -> int:
        return len(self.row_of)

    @property
    def is_chinese(self) -> NDArray[np.bool_]:
        """Of each row: the language its whole is written in."""
        return self._is_chinese.values

    @property
    def is_alive(self) -> NDArray[np.bool_]:
        """Of each row."""
        return self._is_alive.values

    @property
    def members(self) -> tuple[RowMask, RowMask]:
        """The living rows, those in English and those in Chinese."""
        if self._members is None or self._members[0] != self.changes:
            english, chinese = self.is_alive & ~self.is_chinese, self.is_alive & self.is_chinese
            self._members = self.changes, (_row_mask(english), _row_mask(chinese))
        return self._members[1]

    @property
    def dimensions(self) -> int:
        """The size of the vectors; 0 while there are none."""
        return self._vectors.dimensions

    def put(self, entries: Sequence[IndexEntry]) -> None:
        """Add or replace; of one name given twice the last is kept."""
        entries = list({entry.name: entry for entry in entries}.values())
        if not entries:
            return
        self.drop([entry.name for entry in entries])
        first = len(self.names)
        sizes = [len(entry.vectors) for entry in entries]
        self._firsts.more(len(entries))[:] = len(self._vectors) + np.cumsum([0, *sizes])[:-1]
        self._append([entry.vectors for entry in entries])
        self.lexicon.add(first, [e.terms for e in entries], [e.counts for e in entries])
        self._is_chinese.more(len(entries))[:] = [is_chinese(entry.texts[0]) for entry in entries]
        self._is_alive.more(len(entries))[:] = True
        self.texts.extend([entry.texts for entry in entries])
        for row, entry in enumerate(entries, first):
            self.names.append(entry.name)
            if not entry.fingerprint:
                self.pending.add(entry.name)
            self.row_of[entry.name] = row

    def _append(self, parts: Sequence[Matrix]) -> None:
        """A row without numbers lies in no direction.

        Numbers of another size come only where all that have the size before are dead, so these lie
        in none from then on.
        """
        size = max(part.shape[1] for part in parts) or self.dimensions
        if size != self.dimensions:
            before, self._vectors = self._vectors, QuantizedVectors(size)
            self._vectors.add_zeros(len(before))
        self._vectors.extend(
            [part if part.shape[1] else np.zeros((len(part), size), np.float32) for part in parts]
        )

    def drop(self, names: Sequence[str]) -> None:
        """Forget; a name that is not there is no error."""
        self.changes += 1
        for name in names:
            self.pending.discard(name)
            row = self.row_of.pop(name, None)
            if row is not None:
                self.is_alive[row] = False
                self.lexicon.remove(row)

    @property
    def is_worn(self) -> bool:
        """Say whether so many rows are dead that sweeping them out pays."""
        dead = len(self.names) - len(self.row_of)
        return dead > max(_MIN_DEAD_ROWS, len(self.names) // 4)

    def swept(self) -> "MemoryIndex":
        """The same without its dead rows."""
        fresh = MemoryIndex()
        living = np.flatnonzero(self.is_alive)
        firsts, wanted = self._numbers_of(living)
        fresh._firsts.extend([firsts])
        fresh._vectors = self._vectors.taken(wanted)
        fresh.names = [self.names[row] for row in living]
        fresh.texts.extend([self.texts[int(row)] for row in living])
        fresh.pending = set(self.pending)
        fresh.row_of = {name: row for row, name in enumerate(fresh.names)}
        fresh._is_chinese.extend([self.is_chinese[living]])
        fresh._is_alive.more(len(living))[:] = True
        fresh.lexicon = self.lexicon.swept()
        return fresh

    def scan(self, query: Matrix) -> Similarities:
        """How near every row is, roughly."""
        if not len(query) or len(query) != self.dimensions:
            nothing = np.zeros(len(self.names), np.float32)
            return Similarities(dense=nothing, view=nothing)
        every, off = self._vectors.scan(query)
        if len(every) == len(self._firsts):
            return Similarities(dense=every, view=every, off=off)
        firsts = self._firsts.values
        return Similarities(dense=every[firsts], view=np.maximum.reduceat(every, firsts), off=off)

    def look(self, rows: RowIndices, query: Matrix) -> Similarities:
        """How near some rows are, as well as is known."""
        if not len(rows) or not len(query) or len(query) != self.dimensions:
            nothing = np.zeros(len(rows), np.float32)
            return Similarities(dense=nothing, view=nothing)
        if len(self._vectors) == len(self._firsts):  # nobody has a view
            every = self._vectors.near(rows, query)
            return Similarities(dense=every, view=every)
        starts, wanted = self._numbers_of(rows)
        every = self._vectors.near(wanted, query)
        return Similarities(dense=every[starts], view=np.maximum.reduceat(every, starts))

    def _numbers_of(self, rows: RowIndices) -> tuple[RowIndices, RowIndices]:
        """The vectors of some rows, and where among them each row's begin."""
        sizes = np.array([self.texts.count(int(row)) for row in rows], np.intp)
        starts = np.cumsum(sizes) - sizes
        wanted = np.repeat(self._firsts.values[rows] - starts, sizes)
        wanted += np.arange(len(wanted))
        return starts, wanted

    def nearest(self, query: Matrix, limit: int) -> list[tuple[int, float]]:
        """The living rows whose whole is nearest, the nearest first."""
        found = self.scan(query)
        if len(self.row_of) < len(self.names):
            found.dense[~self.is_alive] = -np.inf
        rows = rows_above_cutoff(found.dense, limit, 2 * found.off)
        rows = rows[self.is_alive[rows]]
        near = self.look(rows, query).dense if found.off else found.dense[rows]
        return [(int(rows[at]), float(near[at])) for at in top_rows(near, limit)]

    def best_view(self, row: int, query: Matrix) -> str:
        """The text of the view that is nearest; empty if the whole skill is nearer."""
        if len(query) != self.dimensions or self.texts.count(row) == 1:
            return ""
        near = self.vectors_of(row) @ query
        best = int(near.argmax())
        return self.texts.view(row, best) if best else ""

    def vectors_of(self, row: int) -> Matrix:
        """The whole's vector and the views'."""
        first = int(self._firsts.values[row])
        return self._vectors[first : first + self.texts.count(row)]

    def near(self, row: int, limit: int) -> list[tuple[str, float]]:
        """The skills whose whole text is nearest to that of a row, itself left out."""
        if limit < 1:
            return []
        found = self.nearest(self.vectors_of(row)[0], limit + 1)
        return [(self.names[other], near) for other, near in found if other != row][:limit]


def _row_mask(flags: NDArray[np.bool_]) -> RowMask:
    return RowMask(flags.astype(np.float32), int(np.count_nonzero(flags)))


def top_rows(scores: Matrix, limit: int) -> RowIndices:
    """The rows with the highest scores, the highest first; equals in the order of their rows."""
    candidates = rows_above_cutoff(scores, limit, 0)
    return candidates[np.argsort(-scores[candidates], kind="stable")][: max(0, limit)]


def rows_above_cutoff(scores: Matrix, limit: int, margin: float) -> RowIndices:
    """The rows among which the highest are, if each score may be off by half the margin."""
    count = min(limit, len(scores))
    if count <= 0:
        return np.zeros(0, np.intp)
    # All that reach what certainly so many reach, so that equals are parted by row, not by chance.
    return np.flatnonzero(scores >= _cutoff(scores, count) - np.float32(margin))


def _cutoff(scores: Matrix, count: int) -> np.float32:
    """A score that at least so many reach, and few more: that many runs of rows have one."""
    runs = len(scores) // _TEXTS_A_RUN
    if runs >= 2 * count:
        scores = scores[: runs * _TEXTS_A_RUN].reshape(_TEXTS_A_RUN, runs).max(axis=0)
    return np.partition(scores, len(scores) - count)[len(scores) - count]
