"""All entries in memory, as search walks over them: one matrix, one lexicon, rows in step."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.base import Entry, Matrix
from apexbridge.retrieval.blas import one_thread
from apexbridge.retrieval.lexical import Lexicon
from apexbridge.retrieval.pages import Pages
from apexbridge.retrieval.rooms import Column
from apexbridge.retrieval.words import is_chinese

_FEW_DEAD = 64
_PAGE_BYTES = 16 * 1024
_RUN = 32


class Texts:
    """The texts of every row: the whole first, then the views."""

    def __init__(self) -> None:
        self._wholes = Pages(_PAGE_BYTES)
        self._views = Pages()  # read by every search
        self._firsts = Column(np.uint32)
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


class Shelf:
    """A row for each skill; a replaced one dies and is swept out when many have."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.texts = Texts()
        self.pending: set[str] = set()
        """Those without a fingerprint: no store has them, and only their words find them."""
        self.row_of: dict[str, int] = {}
        self.lexicon = Lexicon()
        self.dimensions = 0
        """The size of the vectors; 0 while there are none."""
        self._is_chinese = Column(np.bool_)
        self._is_alive = Column(np.bool_)
        self._numbers = Column(np.float32)
        self._firsts = Column(np.intp)
        self._used = 0
        self.changes = 0
        """How often anything was put in or taken out."""

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
    def _vectors(self) -> Matrix:
        return self._numbers.values.reshape(-1 if self.dimensions else self._used, self.dimensions)

    def put(self, entries: Sequence[Entry]) -> None:
        """Add or replace; of one name given twice the last is kept."""
        entries = list({entry.name: entry for entry in entries}.values())
        if not entries:
            return
        self.drop([entry.name for entry in entries])
        first = len(self.names)
        sizes = [len(entry.vectors) for entry in entries]
        self._firsts.more(len(entries))[:] = self._used + np.cumsum([0, *sizes])[:-1]
        self._append(entries, sum(sizes))
        self.lexicon.add(first, [e.terms for e in entries], [e.counts for e in entries])
        self._is_chinese.more(len(entries))[:] = [is_chinese(entry.texts[0]) for entry in entries]
        self._is_alive.more(len(entries))[:] = True
        self.texts.extend([entry.texts for entry in entries])
        for row, entry in enumerate(entries, first):
            self.names.append(entry.name)
            if not entry.fingerprint:
                self.pending.add(entry.name)
            self.row_of[entry.name] = row

    def _append(self, entries: Sequence[Entry], more: int) -> None:
        """A row without numbers lies in no direction.

        Numbers of another size come only where all that have the size before are dead, so these lie
        in none from then on.
        """
        size = max(entry.vectors.shape[1] for entry in entries) or self.dimensions
        if size != self.dimensions:
            self._numbers, self.dimensions = Column(np.float32), size
            self._numbers.more(self._used * size)
        self._used += more
        given = (entry.vectors for entry in entries)
        self._numbers.extend(
            [v if v.shape[1] else np.zeros((len(v), size), np.float32) for v in given]
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
        return dead > max(_FEW_DEAD, len(self.names) // 4)

    def swept(self) -> "Shelf":
        """The same without its dead rows."""
        fresh = Shelf()
        living = np.flatnonzero(self.is_alive)
        sizes = np.array([self.texts.count(int(row)) for row in living], np.intp)
        firsts = np.cumsum(sizes) - sizes
        wanted = np.repeat(self._firsts.values[living] - firsts, sizes)
        wanted += np.arange(len(wanted))
        fresh._firsts.extend([firsts])
        fresh.dimensions, fresh._used = self.dimensions, len(wanted)
        fresh._numbers.more(fresh._used * fresh.dimensions)
        np.take(self._vectors, wanted, axis=0, out=fresh._vectors, mode="clip")
        fresh.names = [self.names[row] for row in living]
        fresh.texts.extend([self.texts[int(row)] for row in living])
        fresh.pending = set(self.pending)
        fresh.row_of = {name: row for row, name in enumerate(fresh.names)}
        fresh._is_chinese.extend([self.is_chinese[living]])
        fresh._is_alive.more(len(living))[:] = True
        fresh.lexicon = self.lexicon.swept()
        return fresh

    def scores(self, query: Matrix) -> tuple[Matrix, Matrix]:
        """For each row: how near the whole skill is, and how near its best view (or the whole)."""
        if not len(self.names) or not len(query) or len(query) != self.dimensions:
            nothing = np.zeros(len(self.names), np.float32)
            return nothing, nothing
        with one_thread():
            every = self._vectors @ query
        if self._used == len(self._firsts):
            return every, every
        firsts = self._firsts.values
        return every[firsts], np.maximum.reduceat(every, firsts)

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
        whole = self._vectors[self._firsts.values] @ self.vectors_of(row)[0]
        whole[~self.is_alive] = -2
        whole[row] = -2
        order = top(whole, limit)
        return [(self.names[other], float(whole[other])) for other in order if whole[other] > -2]


def top(scores: Matrix, limit: int) -> NDArray[np.intp]:
    """The rows with the highest scores, the highest first; equals in the order of their rows."""
    count = min(limit, len(scores))
    if count <= 0:
        return np.zeros(0, np.intp)
    # All that reach what certainly so many reach, so that equals are parted by row, not by chance.
    candidates = np.flatnonzero(scores >= _reached(scores, count))
    return candidates[np.argsort(-scores[candidates], kind="stable")][:count]


def _reached(scores: Matrix, count: int) -> np.float32:
    """A score that at least so many reach, and few more: that many runs of rows have one."""
    runs = len(scores) // _RUN
    if runs >= 2 * count:
        scores = scores[: runs * _RUN].reshape(_RUN, runs).max(axis=0)
    return np.partition(scores, len(scores) - count)[len(scores) - count]
