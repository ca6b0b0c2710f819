"""BM25 inverted index in memory, normalized to 0..1 by the best score a query can attain.

Rows are numbered by the caller. New rows form a segment, so that one changed skill costs the work
of one; segments are merged when there are many, as in a log-structured merge tree.
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
from apexbridge.retrieval.tokenizer import hash_terms, term_hash

K1 = 0.9
"""Term-frequency saturation."""
B = 0.4
"""Document-length normalization."""
_MAX_SEGMENTS = 16
_MAX_SEGMENT_ROWS = 1 << 16
"""So that 16 bits hold a row within its segment."""
_TERM, _ROW = np.uint64(24), np.uint64(8)
"""Bit offsets of term and row in a sort key, above the count: sorted keys are sorted postings."""
_CHUNK_KEYS = 1 << 17
_CACHED_WORDS, _MAX_CACHED_ROWS = 512, 1_024
"""Cache of postings: queries share words. Those of many rows are left out, for their size."""

RowArray = NDArray[np.int32]
TermArray = NDArray[np.uint32]
CountArray = NDArray[np.uint8]
_Keys = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostingList:
    """Postings of one query word: rows in ascending order, and the score that each gains."""

    word: str
    rows: RowArray
    gains: Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Bm25Matches:
    """BM25 result for a query; `scores` has an element for every row."""

    scores: Matrix
    postings: tuple[PostingList, ...] = ()
    weight: float = 0.0
    """Evidence in a perfect match: the root of the number of rare words that the query is worth."""
    unknown: tuple[str, ...] = ()
    """Query words that no document has."""

    def matched_words(self, rows: Sequence[int]) -> list[dict[str, float]]:
        """Return the matched query words of each row, by descending gain."""
        wanted = np.array(rows, np.int32)  # as in the postings, which need no copy then
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
    def from_keys(cls, first: int, end: int, keys: _Keys) -> "_Segment":
        """Build a segment from sort keys, which are sorted in place."""
        keys.sort()
        every, rows = mmap_array(len(keys), np.uint32), mmap_array(len(keys), np.uint16)
        counts = mmap_array(len(keys), np.uint8)
        for part in _chunks(len(keys)):  # the narrower type drops the bits of term and row
            every[part] = keys[part] >> _TERM
            rows[part] = keys[part] >> _ROW
            counts[part] = keys[part]
        firsts = np.flatnonzero(np.concatenate(([True], every[1:] != every[:-1])))
        starts = np.append(firsts, len(keys)).astype(np.uint32)
        return cls(
            first=first, end=end, terms=every[firsts], starts=starts, rows=rows, counts=counts
        )

    def keys(self, first: int, out: _Keys) -> None:
        """Write the postings as sort keys again, with rows relative to another first row."""
        out[:] = 0
        out[self.starts[:-1]] = np.diff(self.terms.astype(np.int64), prepend=0).astype(np.uint64)
        np.cumsum(out, out=out)
        for part in _chunks(len(out)):
            out[part] <<= _TERM
            out[part] |= (self.rows[part].astype(np.uint64) + np.uint64(self.first - first)) << _ROW
            out[part] |= self.counts[part]

    def find(self, wanted: TermArray) -> list[slice]:
        """Binary search of each term's postings; an empty slice if there are none."""
        places = np.minimum(np.searchsorted(self.terms, wanted), len(self.terms) - 1)
        return [
            slice(int(self.starts[at]), int(self.starts[at + 1])) if is_there else slice(0, 0)
            for at, is_there in zip(places, self.terms[places] == wanted, strict=True)
        ]


def _chunks(count: int) -> Iterator[slice]:
    """Yield slices of bounded size, so that temporary arrays stay small."""
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
    return _Segment.from_keys(first, segments[-1].end, keys)


class _WeightedPostings(NamedTuple):
    """Postings of a word with BM25 gains, and the gain of a perfect document."""

    rows: RowArray
    gains: Matrix
    best_gain: float


class Bm25Index:
    """Inverted index over all rows."""

    def __init__(self) -> None:
        self._segments: list[_Segment] = []
        self._lengths = MmapColumn(np.float32)
        self._is_alive = MmapColumn(np.bool_)
        self._alive_count = 0
        self._norms: Matrix | None = None
        self._cache = LruCache[_WeightedPostings](_CACHED_WORDS)

    def add(self, first: int, terms: Sequence[TermArray], counts: Sequence[CountArray]) -> None:
        """Add rows numbered from `first`, which must follow the last row."""
        self._is_alive.grow(len(terms))[:] = True
        self._alive_count += len(terms)
        self._norms = None
        self._cache.clear()
        for at in range(0, len(terms), _MAX_SEGMENT_ROWS):
            part = slice(at, min(at + _MAX_SEGMENT_ROWS, len(terms)))
            self._add(first + at, terms[part], counts[part])

    def _add(self, first: int, terms: Sequence[TermArray], counts: Sequence[CountArray]) -> None:
        sizes = [len(part) for part in terms]
        rows = np.repeat(np.arange(len(terms), dtype=np.uint64), sizes)
        every = np.concatenate(counts)
        self._lengths.grow(len(terms))[:] = np.bincount(rows.astype(np.intp), every, len(terms))
        if len(rows):
            keys = mmap_array(len(rows), np.uint64)
            keys[:] = np.concatenate(terms)
            keys <<= _TERM
            rows <<= _ROW
            keys |= rows
            keys |= every
            self._segments.append(_Segment.from_keys(first, first + len(terms), keys))
            if len(self._segments) > _MAX_SEGMENTS + len(self._lengths) // _MAX_SEGMENT_ROWS:
                self._merge()

    def remove(self, row: int) -> None:
        """Mark a row as deleted; its number is not reused."""
        self._alive_count -= int(self._is_alive.values[row])
        self._is_alive.values[row] = False
        self._norms = None
        self._cache.clear()

    def compacted(self) -> "Bm25Index":
        """Compact: copy without the deleted rows, which renumbers the others in order."""
        fresh = Bm25Index()
        is_alive = self._is_alive.values
        fresh._lengths.extend([self._lengths.values[is_alive]])
        fresh._alive_count = len(fresh._lengths)
        fresh._is_alive.grow(fresh._alive_count)[:] = True
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
                fresh._segments.append(_Segment.from_keys(first, end, keys[stays]))
        return fresh

    def _merge(self) -> None:
        """Merge segments; the largest takes part only if the others have half its size in total."""
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
        """Score all rows for the words of a query; 1.0 is a perfect document."""
        scores = np.zeros(len(self._lengths), np.float32)
        unique = list(dict.fromkeys(words))
        if not unique or not self._alive_count:
            return Bm25Matches(scores=scores)
        weighted = {word: self._cache.get(word) for word in unique}
        new = [word for word, postings_of_word in weighted.items() if postings_of_word is None]
        if new:
            weighted |= zip(new, self._weighted_postings(new), strict=True)
        found = [
            (word, postings_of_word)
            for word, postings_of_word in weighted.items()
            if postings_of_word is not None
        ]
        best_gain = np.float32(sum(postings_of_word.best_gain for _, postings_of_word in found))
        postings = list[PostingList]()
        for word, postings_of_word in found:
            if len(postings_of_word.rows):
                gains = postings_of_word.gains / best_gain
                scores[postings_of_word.rows] += gains
                postings.append(PostingList(word=word, rows=postings_of_word.rows, gains=gains))
        # Not in proportion to the length: the words of a long query are not independent.
        weight = math.sqrt(float(best_gain) / ((K1 + 1) * math.log(1 + self._alive_count)))
        unknown = tuple(word for word, postings_of_word in found if not len(postings_of_word.rows))
        return Bm25Matches(scores=scores, postings=tuple(postings), weight=weight, unknown=unknown)

    def frequencies(self, terms: TermArray) -> NDArray[np.int64]:
        """Return the document frequencies of terms; rows deleted since the last merge count."""
        found = np.zeros(len(terms), np.int64)
        for segment in self._segments:
            places = np.minimum(np.searchsorted(segment.terms, terms), len(segment.terms) - 1)
            sizes = segment.starts[places + 1] - segment.starts[places]
            found += np.where(segment.terms[places] == terms, sizes, 0)
        return found

    def rarity(self, words: Sequence[str]) -> float:
        """Sum the inverse document frequencies of tokens, where an unseen one counts 1."""
        counts = self.frequencies(hash_terms(words)).clip(0, self._alive_count)
        idf = np.log(1 + (self._alive_count - counts + 0.5) / (counts + 0.5))
        idf[counts == 0] = math.log(1 + self._alive_count)
        return float(idf.sum()) / math.log(1 + self._alive_count) if self._alive_count else 0.0

    def _weighted_postings(self, words: Sequence[str]) -> Iterator[_WeightedPostings]:
        """Compute the gains of query words; short posting lists are cached."""
        wanted = np.array([term_hash(word) for word in words], np.uint32)
        found = [segment.find(wanted) for segment in self._segments]
        for number, word in enumerate(words):
            rows, counts = self._gather([places[number] for places in found])
            idf = math.log(1 + self._alive_count)  # inverse document frequency of an unseen word
            if len(rows):
                idf = math.log(1 + (self._alive_count - len(rows) + 0.5) / (len(rows) + 0.5))
            best_gain = idf * (K1 + 1)
            gains = (counts / (counts + self._length_norms()[rows])).astype(np.float32)
            gains *= np.float32(best_gain)
            postings_of_word = _WeightedPostings(rows, gains, best_gain)
            if len(rows) <= _MAX_CACHED_ROWS:
                self._cache.put(word, postings_of_word)
            yield postings_of_word

    def _gather(self, places: list[slice]) -> tuple[RowArray, Matrix]:
        """Collect a word's rows in ascending order, and their term frequencies."""
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
        if self._alive_count < len(self._lengths):
            is_alive = self._is_alive.values[rows]
            rows, counts = rows[is_alive], counts[is_alive]
        return rows, counts.astype(np.float32)

    def _length_norms(self) -> Matrix:
        if self._norms is None:
            lengths = self._lengths.values
            average = float(lengths[self._is_alive.values].mean()) or 1.0
            self._norms = (K1 * (1 - B + B * lengths / average)).astype(np.float32)
        return self._norms
