"""All entries in memory, as search walks over them: one matrix, one lexicon, rows in step."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.base import Entry, Matrix
from apexbridge.retrieval.blas import one_thread
from apexbridge.retrieval.lexical import Lexicon
from apexbridge.retrieval.words import is_chinese

_FEW_DEAD = 64


class Shelf:
    """A row for each skill; a replaced one dies and is swept out when many have."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.texts: list[tuple[str, ...]] = []
        self.pending: set[str] = set()
        """Those without a fingerprint: no store has them, and only their words find them."""
        self.row_of: dict[str, int] = {}
        self.is_chinese = np.zeros(0, np.bool_)
        self.is_alive = np.zeros(0, np.bool_)
        self.lexicon = Lexicon()
        self._vectors: Matrix = np.zeros((0, 0), np.float32)
        self._used = 0
        self._firsts = np.zeros(0, np.intp)

    def __len__(self) -> int:
        return len(self.row_of)

    @property
    def dimensions(self) -> int:
        """The size of the vectors; 0 while there are none."""
        return self._vectors.shape[1]

    def put(self, entries: Sequence[Entry]) -> None:
        """Add or replace; of one name given twice the last is kept."""
        entries = list({entry.name: entry for entry in entries}.values())
        if not entries:
            return
        self.drop([entry.name for entry in entries])
        first = len(self.names)
        sizes = [len(entry.vectors) for entry in entries]
        self._append(entries, sum(sizes))
        self._firsts = np.concatenate(
            (self._firsts, self._used - sum(sizes) + np.cumsum([0, *sizes[:-1]]))
        )
        self.lexicon.add(first, [e.terms for e in entries], [e.counts for e in entries])
        chinese = np.array([is_chinese(entry.texts[0]) for entry in entries], np.bool_)
        self.is_chinese = np.concatenate((self.is_chinese, chinese))
        self.is_alive = np.concatenate((self.is_alive, np.ones(len(entries), np.bool_)))
        for row, entry in enumerate(entries, first):
            self.names.append(entry.name)
            self.texts.append(entry.texts)
            if not entry.fingerprint:
                self.pending.add(entry.name)
            self.row_of[entry.name] = row

    def _append(self, entries: Sequence[Entry], more: int) -> None:
        """Room for one bulk is made exactly; for what trickles in later, an eighth ahead.

        A row without numbers lies in no direction. Numbers of another size come only where all that
        have the size before are dead, so these lie in none from then on.
        """
        size = entries[0].vectors.shape[1] or self.dimensions
        if self._used + more > len(self._vectors) or size != self.dimensions:
            ahead = len(self._vectors) // 8
            room = np.zeros((self._used + max(more, ahead), size), np.float32)
            if size == self.dimensions:
                room[: self._used] = self._vectors[: self._used]
            self._vectors = room
        for entry in entries:
            end = self._used + len(entry.vectors)
            if entry.vectors.shape[1]:
                self._vectors[self._used : end] = entry.vectors
            self._used = end

    def drop(self, names: Sequence[str]) -> None:
        """Forget; a name that is not there is no error."""
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
        sizes = np.array([len(self.texts[row]) for row in living], np.intp)
        fresh._firsts = np.cumsum(sizes) - sizes
        wanted = np.repeat(self._firsts[living] - fresh._firsts, sizes)
        fresh._vectors = self._vectors[wanted + np.arange(len(wanted))]
        fresh._used = len(fresh._vectors)
        fresh.names = [self.names[row] for row in living]
        fresh.texts = [self.texts[row] for row in living]
        fresh.pending = set(self.pending)
        fresh.row_of = {name: row for row, name in enumerate(fresh.names)}
        fresh.is_chinese = self.is_chinese[living]
        fresh.is_alive = np.ones(len(living), np.bool_)
        fresh.lexicon = self.lexicon.swept()
        return fresh

    def scores(self, query: Matrix) -> tuple[Matrix, Matrix]:
        """For each row: how near the whole skill is, and how near its best view (or the whole)."""
        if not len(self.names) or not len(query) or len(query) != self.dimensions:
            nothing = np.zeros(len(self.names), np.float32)
            return nothing, nothing
        with one_thread():
            every = self._vectors[: self._used] @ query
        if self._used == len(self._firsts):
            return every, every
        return every[self._firsts], np.maximum.reduceat(every, self._firsts)

    def best_view(self, row: int, query: Matrix) -> str:
        """The text of the view that is nearest; empty if the whole skill is nearer."""
        if len(query) != self.dimensions:
            return ""
        near = self.vectors_of(row) @ query
        best = int(near.argmax())
        return self.texts[row][best] if best else ""

    def vectors_of(self, row: int) -> Matrix:
        """The whole's vector and the views'."""
        first = int(self._firsts[row])
        return self._vectors[first : first + len(self.texts[row])]

    def near(self, row: int, limit: int) -> list[tuple[str, float]]:
        """The skills whose whole text is nearest to that of a row, itself left out."""
        whole = self._vectors[self._firsts] @ self.vectors_of(row)[0]
        whole[~self.is_alive] = -2
        whole[row] = -2
        order = top(whole, limit)
        return [(self.names[other], float(whole[other])) for other in order if whole[other] > -2]


def top(scores: Matrix, limit: int) -> NDArray[np.intp]:
    """The rows with the highest scores, the highest first; equals in the order of their rows."""
    count = min(limit, len(scores))
    if count <= 0:
        return np.zeros(0, np.intp)
    if count < len(scores):
        # All that reach the limit's score, so that equals are parted by row and not by chance.
        least = np.partition(scores, len(scores) - count)[len(scores) - count]
        candidates = np.flatnonzero(scores >= least)
    else:
        candidates = np.arange(len(scores))
    return candidates[np.argsort(-scores[candidates], kind="stable")][:count]
