"""Word search in memory: BM25, put into 0..1 by the best score the request could attain.

Rows are numbered by the caller. What is added later forms a segment of its own, so that one changed
skill costs one skill's work; segments are merged when there are many.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.words import term

K1 = 0.9
"""How fast a word's repetition stops counting."""
B = 0.4
"""How far long texts are held back."""
_MOST_SEGMENTS = 16

Rows = NDArray[np.int32]
Terms = NDArray[np.uint32]
Counts = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """A word of the request: the rows that have it, rising, and what each of them gets for it."""

    word: str
    rows: Rows
    gains: Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """What the words of a request come to; `scores` has a place for every row."""

    scores: Matrix
    postings: tuple[Posting, ...] = ()

    def words_of(self, rows: Sequence[int]) -> list[dict[str, float]]:
        """For each row the request's words that it has, the weightiest first."""
        wanted = np.array(rows, np.int32)
        found = [dict[str, float]() for _ in rows]
        for posting in self.postings:
            places = np.minimum(np.searchsorted(posting.rows, wanted), len(posting.rows) - 1)
            for number in np.flatnonzero(posting.rows[places] == wanted):
                found[number][posting.word] = float(posting.gains[places[number]])
        return [dict(sorted(words.items(), key=lambda item: -item[1])) for words in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """Postings in the order of their terms; those of `terms[n]` lie in `starts[n]:starts[n+1]`."""

    terms: Terms
    starts: NDArray[np.intp]
    rows: Rows
    counts: Counts

    @classmethod
    def of(cls, terms: Terms, rows: Rows, counts: Counts) -> "_Segment":
        order = np.argsort(terms, kind="stable")
        terms = terms[order]
        firsts = np.flatnonzero(np.concatenate(([True], terms[1:] != terms[:-1])))
        return cls(
            terms=terms[firsts],
            starts=np.append(firsts, len(terms)),
            rows=rows[order],
            counts=counts[order],
        )

    def spread(self) -> tuple[Terms, Rows, Counts]:
        """The term of every posting beside it."""
        return np.repeat(self.terms, np.diff(self.starts)), self.rows, self.counts

    def find(self, wanted: Terms) -> list[slice]:
        """Where each term's postings lie; nowhere is an empty slice."""
        places = np.minimum(np.searchsorted(self.terms, wanted), len(self.terms) - 1)
        return [
            slice(int(self.starts[at]), int(self.starts[at + 1])) if is_there else slice(0, 0)
            for at, is_there in zip(places, self.terms[places] == wanted, strict=True)
        ]


class Lexicon:
    """The words of all rows."""

    def __init__(self) -> None:
        self._segments: list[_Segment] = []
        self._lengths: Matrix = np.zeros(0, np.float32)
        self._is_alive = np.zeros(0, np.bool_)
        self._living = 0
        self._damping: Matrix | None = None

    def add(self, first: int, terms: Sequence[Terms], counts: Sequence[Counts]) -> None:
        """Add rows, numbered from `first`, which is one past the last there is."""
        lengths = np.array([int(count.sum()) for count in counts], np.float32)
        self._lengths = np.concatenate((self._lengths, lengths))
        self._is_alive = np.concatenate((self._is_alive, np.ones(len(terms), np.bool_)))
        self._living += len(terms)
        self._damping = None
        sizes = [len(part) for part in terms]
        if sum(sizes):
            rows = np.repeat(np.arange(first, first + len(terms), dtype=np.int32), sizes)
            segment = _Segment.of(np.concatenate(terms), rows, np.concatenate(counts))
            self._segments.append(segment)
            if len(self._segments) > _MOST_SEGMENTS:
                self._merge()

    def remove(self, row: int) -> None:
        """Forget a row; its number is not used again."""
        self._living -= int(self._is_alive[row])
        self._is_alive[row] = False
        self._damping = None

    def swept(self) -> "Lexicon":
        """The same without its dead rows, the others numbered anew in their order."""
        fresh = Lexicon()
        fresh._lengths = self._lengths[self._is_alive]
        fresh._is_alive = np.ones(len(fresh._lengths), np.bool_)
        fresh._living = len(fresh._lengths)
        number = (np.cumsum(self._is_alive) - 1).astype(np.int32)
        for segment in self._segments:
            terms, rows, counts = segment.spread()
            is_alive = self._is_alive[rows]
            if is_alive.any():
                living = _Segment.of(terms[is_alive], number[rows[is_alive]], counts[is_alive])
                fresh._segments.append(living)
        return fresh

    def _merge(self) -> None:
        """Make one of all segments but the largest, which would cost as much as all together."""
        largest = max(self._segments, key=lambda segment: len(segment.rows))
        parts = [segment.spread() for segment in self._segments if segment is not largest]
        terms = np.concatenate([part[0] for part in parts])
        rows = np.concatenate([part[1] for part in parts])
        counts = np.concatenate([part[2] for part in parts])
        self._segments = [largest, _Segment.of(terms, rows, counts)]

    def match(self, words: Sequence[str]) -> Matches:
        """Score every row for the words of a request; 1 would be the perfect text for it."""
        scores = np.zeros(len(self._lengths), np.float32)
        unique = list(dict.fromkeys(words))
        if not unique or not self._living:
            return Matches(scores=scores)
        wanted = np.array([term(word) for word in unique], np.uint32)
        found = [segment.find(wanted) for segment in self._segments]
        perfect = 0.0
        postings = list[tuple[str, Rows, Matrix]]()
        for number, word in enumerate(unique):
            rows, counts = self._gather([places[number] for places in found])
            if len(rows):
                rarity = math.log(1 + (self._living - len(rows) + 0.5) / (len(rows) + 0.5))
                gains = (counts / (counts + self._damp()[rows])).astype(np.float32)
                gains *= np.float32(rarity * (K1 + 1))
                postings.append((word, rows, gains))
            else:
                rarity = math.log(1 + self._living)  # what an unseen word is worth
            perfect += rarity * (K1 + 1)
        for _, rows, gains in postings:
            gains /= np.float32(perfect)
            scores[rows] += gains
        shares = (Posting(word=word, rows=rows, gains=gains) for word, rows, gains in postings)
        return Matches(scores=scores, postings=tuple(shares))

    def _gather(self, places: list[slice]) -> tuple[Rows, Matrix]:
        """A word's rows in rising order, and how often each has it."""
        pairs = [
            (segment.rows[place], segment.counts[place])
            for segment, place in zip(self._segments, places, strict=True)
            if place.stop > place.start
        ]
        if not pairs:
            return np.zeros(0, np.int32), np.zeros(0, np.float32)
        rows, counts = pairs[0]
        if len(pairs) > 1:
            rows = np.concatenate([pair[0] for pair in pairs])
            order = np.argsort(rows)
            rows, counts = rows[order], np.concatenate([pair[1] for pair in pairs])[order]
        if self._living < len(self._lengths):
            is_alive = self._is_alive[rows]
            rows, counts = rows[is_alive], counts[is_alive]
        return rows, counts.astype(np.float32)

    def _damp(self) -> Matrix:
        if self._damping is None:
            average = float(self._lengths[self._is_alive].mean()) or 1.0
            self._damping = (K1 * (1 - B + B * self._lengths / average)).astype(np.float32)
        return self._damping
