"""Spelling correction by the words of the index: one insertion, omission, wrong or swapped letter.

No vocabulary is stored: all words at one edit from an unknown one are stemmed, hashed and looked up
among the terms of BM25. The word of most documents wins.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.tokenizer import TermHashes, hash_terms, stems

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MIN_CHARS, _MAX_CHARS = 5, 20
"""A shorter word has too many neighbours: `cart` would become `card`."""
_MAX_WORDS = 6
"""Words of one query that are corrected: a pasted log has hundreds of unknown ones."""

Frequencies = Callable[[TermHashes], NDArray[np.int64]]
"""Returns the document frequency of each term."""


def single_edits(word: str) -> Iterator[str]:
    """Yield all words at Damerau-Levenshtein distance one."""
    for at in range(len(word)):
        head, tail = word[:at], word[at:]
        if len(tail) > 1:
            yield head + tail[1] + tail[0] + tail[2:]
        yield head + tail[1:]
        for letter in _LETTERS:
            yield head + letter + tail
            if letter != tail[0]:
                yield head + letter + tail[1:]
    for letter in _LETTERS:
        yield word + letter


def is_correctable(word: str) -> bool:
    """Say whether a word that no document has may be a slip."""
    return _MIN_CHARS <= len(word) <= _MAX_CHARS and word.isascii() and word.isalpha()


def correct(unknown: Sequence[str], frequencies: Frequencies) -> dict[str, str]:
    """Return the likeliest correction, as a stem, of those unknown words that have one."""
    found = dict[str, str]()
    for word in [word for word in unknown if is_correctable(word)][:_MAX_WORDS]:
        near = list(dict.fromkeys(stems(list(dict.fromkeys(single_edits(word))))))
        counts = frequencies(hash_terms(near))
        best = int(counts.argmax())
        if counts[best]:
            found[word] = near[best]
    return found
