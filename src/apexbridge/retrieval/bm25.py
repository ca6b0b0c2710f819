"""Word search in memory: BM25, put into 0..1 by the best score the request could attain.

Rows are numbered by the caller. What is added later forms a segment of its own, so that one changed
skill costs one skill's work; segments are merged when there are many.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.lru_cache import LruCache
from apexbridge.retrieval.mmap_arrays import MmapColumn, mmap_array
from apexbridge.retrieval.tokenizer import term_hash

K1 = 0.9
"""How fast a word's repetition stops counting."""
B = 0.4
"""How far long texts are held back."""
_MAX_SEGMENTS = 16
_MAX_SEGMENT_ROWS = 1 << 16
"""Rows in one segment at most, so that a row takes two bytes there."""
_TERM, _ROW = np.uint64(24), np.uint64(8)
"""Where term and row begin in a key, above the count: keys in order are postings in order."""
_CHUNK_KEYS = 1 << 17
_KEPT_WORDS, _FEW_ROWS = 512, 1_024
"""Requests share words; those of few rows are not weighed again."""

RowArray = NDArray[np.int32]
TermArray = NDArray[np.uint32]
CountArray = NDArray[np.uint8]
_Keys = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostingList:
    """A word of the request: the rows that have it, rising, and what each of them gets for it."""

    word: str
    rows: RowArray
    gains: Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Bm25Matches:
    """What the words of a request come to; `scores` has a place for every row."""

    scores: Matrix
    postings: tuple[PostingList, ...] = ()

    def words_of(self, rows: Sequence[int]) -> list[dict[str, float]]:
        """For each row the request's words that it has, the weightiest first."""
        wanted = np.array(rows, np.int32)  # of another kind, all rows of a word would be copied
        found = [dict[str, float]() for _ in rows]
        for posting in self.postings:
            places = posting.rows.searchsorted(wanted).tolist()
            for words, row, place in zip(found, rows, places, strict=True):
                if place < len(posting.rows) and posting.rows[place] == row:
                    words[posting.word] = float(posting.gains[place])
        return [dict(sorted(words.items(), key=lambda item: -item[1])) for words in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """Inverted-index segment: the postings of `terms[n]` are at `starts[n]:starts[n+1]`.

    Rows are relative to `first` and below `end`, at most `_MAX_SEGMENT_ROWS`, so that 16 bits hold
    one.
    """

    first: int
    end: int
    terms: TermArray
    starts: NDArray[np.uint32]
    rows: NDArray[np.uint16]
    counts: CountArray

    @classmethod
    def of(cls, first: int, end: int, keys: _Keys) -> "_Segment":
        """Put keys in order, in place, and take them apart."""
        keys.sort()
        every, rows = mmap_array(len(keys), np.uint32), mmap_array(len(keys), np.uint16)
        counts = mmap_array(len(keys), np.uint8)
        for part in _chunks(len(keys)):  # what does not fit into a narrower number falls off
            every[part] = keys[part] >> _TERM
            rows[part] = keys[part] >> _ROW
            counts[part] = keys[part]
        firsts = np.flatnonzero(np.concatenate(([True], every[1:] != every[:-1])))
        starts = np.append(firsts, len(keys)).astype(np.uint32)
        return cls(
            first=first, end=end, terms=every[firsts], starts=starts, rows=rows, counts=counts
        )

    def keys(self, first: int, out: _Keys) -> None:
        """Write the postings as they were before, with rows counted from another on."""
        out[:] = 0
        out[self.starts[:-1]] = np.diff(self.terms.astype(np.int64), prepend=0).astype(np.uint64)
        np.cumsum(out, out=out)
        for part in _chunks(len(out)):
            out[part] <<= _TERM
            out[part] |= (self.rows[part].astype(np.uint64) + np.uint64(self.first - first)) << _ROW
            out[part] |= self.counts[part]

    def find(self, wanted: TermArray) -> list[slice]:
        """Where each term's postings lie; nowhere is an empty slice."""
        places = np.minimum(np.searchsorted(self.terms, wanted), len(self.terms) - 1)
        return [
            slice(int(self.starts[at]), int(self.starts[at + 1])) if is_there else slice(0, 0)
            for at, is_there in zip(places, self.terms[places] == wanted, strict=True)
        ]


def _chunks(count: int) -> Iterator[slice]:
    """So that what is made on the way stays small."""
    for first in range(0, count, _CHUNK_KEYS):
        yield slice(first, min(first + _CHUNK_KEYS, count))


def _merge_segments(segments: Sequence[_Segment]) -> _Segment:
    if len(segments) == 1:
        return segments[0]
    first, at = segments[0].first, 0
    keys = mmap_array(sum(len(segment.rows) for segment in segments), np.uint64)
    for segment in segments:
        end = at + len(segment.rows)
        segment.keys(first, keys[at:end])
        at = end
    return _Segment.of(first, segments[-1].end, keys)


class _WeightedPostings(NamedTuple):
    """What a word is worth to each row that has it, and to a perfect one."""

    rows: RowArray
    gains: Matrix
    perfect: float


class Bm25Index:
    """The words of all rows."""

    def __init__(self) -> None:
        self._segments: list[_Segment] = []
        self._lengths = MmapColumn(np.float32)
        self._is_alive = MmapColumn(np.bool_)
        self._living = 0
        self._damping: Matrix | None = None
        self._worths = LruCache[_WeightedPostings](_KEPT_WORDS)

    def add(self, first: int, terms: Sequence[TermArray], counts: Sequence[CountArray]) -> None:
        """Add rows, numbered from `first`, which is one past the last there is."""
        self._is_alive.more(len(terms))[:] = True
        self._living += len(terms)
        self._damping = None
        self._worths.clear()
        for at in range(0, len(terms), _MAX_SEGMENT_ROWS):
            part = slice(at, min(at + _MAX_SEGMENT_ROWS, len(terms)))
            self._add(first + at, terms[part], counts[part])

    def _add(self, first: int, terms: Sequence[TermArray], counts: Sequence[CountArray]) -> None:
        sizes = [len(part) for part in terms]
        rows = np.repeat(np.arange(len(terms), dtype=np.uint64), sizes)
        every = np.concatenate(counts)
        self._lengths.more(len(terms))[:] = np.bincount(rows.astype(np.intp), every, len(terms))
        if len(rows):
            keys = mmap_array(len(rows), np.uint64)
            keys[:] = np.concatenate(terms)
            keys <<= _TERM
            rows <<= _ROW
            keys |= rows
            keys |= every
            self._segments.append(_Segment.of(first, first + len(terms), keys))
            if len(self._segments) > _MAX_SEGMENTS + len(self._lengths) // _MAX_SEGMENT_ROWS:
                self._merge()

    def remove(self, row: int) -> None:
        """Forget a row; its number is not used again."""
        self._living -= int(self._is_alive.values[row])
        self._is_alive.values[row] = False
        self._damping = None
        self._worths.clear()

    def swept(self) -> "Bm25Index":
        """The same without its dead rows, the others numbered anew in their order."""
        fresh = Bm25Index()
        is_alive = self._is_alive.values
        fresh._lengths.extend([self._lengths.values[is_alive]])
        fresh._living = len(fresh._lengths)
        fresh._is_alive.more(fresh._living)[:] = True
        number = np.concatenate(([0], np.cumsum(is_alive))).astype(np.uint64)
        for segment in self._segments:
            keys = mmap_array(len(segment.rows), np.uint64)
            segment.keys(segment.first, keys)
            rows = segment.rows.astype(np.intp) + segment.first
            first, end = int(number[segment.first]), int(number[segment.end])
            stays = is_alive[rows]
            if stays.any():
                keys &= ~(np.uint64(0xFFFF) << _ROW)
                keys |= (number[rows] - np.uint64(first)) << _ROW
                fresh._segments.append(_Segment.of(first, end, keys[stays]))
        return fresh

    def _merge(self) -> None:
        """Make one of many; the largest joins only those that come to half of it together."""
        largest = max(self._segments, key=lambda segment: len(segment.rows))
        others = [segment for segment in self._segments if segment is not largest]
        if 2 * sum(len(segment.rows) for segment in others) >= len(largest.rows):
            largest, others = None, self._segments
        groups = list[list[_Segment]]()
        for segment in others:  # in the order of their rows
            if groups and segment.end - groups[-1][0].first <= _MAX_SEGMENT_ROWS:
                groups[-1].append(segment)
            else:
                groups.append([segment])
        merged = [_merge_segments(group) for group in groups]
        self._segments = sorted(
            [*merged, *([largest] if largest else [])], key=lambda segment: segment.first
        )

    def match(self, words: Sequence[str]) -> Bm25Matches:
        """Score every row for the words of a request; 1 would be the perfect text for it."""
        scores = np.zeros(len(self._lengths), np.float32)
        unique = list(dict.fromkeys(words))
        if not unique or not self._living:
            return Bm25Matches(scores=scores)
        worths = {word: self._worths.get(word) for word in unique}
        new = [word for word, worth in worths.items() if worth is None]
        if new:
            worths |= zip(new, self._weigh(new), strict=True)
        found = [(word, worth) for word, worth in worths.items() if worth is not None]
        perfect = np.float32(sum(worth.perfect for _, worth in found))
        postings = list[PostingList]()
        for word, worth in found:
            if len(worth.rows):
                gains = worth.gains / perfect
                scores[worth.rows] += gains
                postings.append(PostingList(word=word, rows=worth.rows, gains=gains))
        return Bm25Matches(scores=scores, postings=tuple(postings))

    def _weigh(self, words: Sequence[str]) -> Iterator[_WeightedPostings]:
        """What words are worth, and to whom; those of few rows are remembered."""
        wanted = np.array([term_hash(word) for word in words], np.uint32)
        found = [segment.find(wanted) for segment in self._segments]
        for number, word in enumerate(words):
            rows, counts = self._gather([places[number] for places in found])
            rarity = math.log(1 + self._living)  # what an unseen word is worth
            if len(rows):
                rarity = math.log(1 + (self._living - len(rows) + 0.5) / (len(rows) + 0.5))
            perfect = rarity * (K1 + 1)
            gains = (counts / (counts + self._damp()[rows])).astype(np.float32)
            gains *= np.float32(perfect)
            worth = _WeightedPostings(rows, gains, perfect)
            if len(rows) <= _FEW_ROWS:
                self._worths.put(word, worth)
            yield worth

    def _gather(self, places: list[slice]) -> tuple[RowArray, Matrix]:
        """A word's rows in rising order, and how often each has it."""
        pairs = [
            (segment.rows[place] + np.int32(segment.first), segment.counts[place])
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
            is_alive = self._is_alive.values[rows]
            rows, counts = rows[is_alive], counts[is_alive]
        return rows, counts.astype(np.float32)

    def _damp(self) -> Matrix:
        if self._damping is None:
            lengths = self._lengths.values
            average = float(lengths[self._is_alive.values].mean()) or 1.0
            self._damping = (K1 * (1 - B + B * lengths / average)).astype(np.float32)
        return self._damping
