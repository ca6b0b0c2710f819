"""Spelling correction by the words of the index: one insertion, omission, wrong or swapped letter.

No vocabulary is stored: all words at one edit from an unknown one are stemmed, hashed and looked up
among the terms of BM25. The word of most documents wins. In Chinese, where an input method gives
another character of the same sound, the bigrams of characters are looked up.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.tokenizer import TermHashes, hash_terms, stems

_WORD = re.compile(r"[A-Za-z]+")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MIN_CHARS, _MAX_CHARS = 5, 20
"""A shorter word has too many neighbours: `cart` would become `card`."""
_MIN_DOCUMENTS = 5
"""A correction that is not in the vocabulary, such as a product, must be in so many documents."""
_MAX_WORDS = 6
"""Words of one query that are corrected: a pasted log has hundreds of unknown ones."""

_HAN_RUN = re.compile(r"[\u4e00-\u9fff]{2,}")
_HOMOPHONES = Path(__file__).parent / "data" / "homophones.txt"
_MAX_SLIPS_IN_RUN, _MAX_SUSPECTS = 2, 24
"""Corrections in one run; characters of one query that are looked up, since in an index without
Chinese all are unknown."""
_MIN_BIGRAM, _MIN_LONE_BIGRAM = 8, 20
"""Documents with a bigram of the correction; more are needed if its other bigram is unknown too."""

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


def correct_text(text: str, frequencies: Frequencies, is_word: Callable[[str], bool]) -> str:
    """Correct the words of a query that neither an encoder nor a document knows.

    An encoder reads a misspelt word as a few meaningless pieces.
    """
    if not text.isascii():
        text = _correct_chinese(text, frequencies)
    every = dict.fromkeys(_WORD.findall(text))
    # An identifier in camelCase is no misspelt word.
    plain = [word for word in every if is_correctable(word) and word[1:].islower()]
    strange = [word for word in plain if not is_word(word.lower())]
    if not strange:
        return text
    counts = frequencies(hash_terms(stems([word.lower() for word in strange])))
    unknown = [word for word, count in zip(strange, counts.tolist(), strict=True) if not count]
    spelt = {word: _likeliest(word.lower(), frequencies, is_word) for word in unknown[:_MAX_WORDS]}
    return _WORD.sub(lambda match: spelt.get(match[0]) or match[0], text)


def _likeliest(word: str, frequencies: Frequencies, is_word: Callable[[str], bool]) -> str | None:
    """Return the best edit of a word: one of the vocabulary, or else of several documents."""
    near = list(dict.fromkeys(single_edits(word)))
    stemmed = stems(near)
    counts = frequencies(hash_terms(stemmed)).tolist()
    known = [
        (is_word(edit), count, len(edit), edit)
        for edit, stem, count in zip(near, stemmed, counts, strict=True)
        # Without a vocabulary a wrong ending would pass for a form of a known word.
        if count and (is_word(edit) or (edit == stem and count >= _MIN_DOCUMENTS))
    ]
    return max(known)[3] if known else None


@lru_cache(maxsize=1)
def _homophones() -> Mapping[str, str]:
    """Read the groups of common characters with the same sound, tones aside."""
    groups = _HOMOPHONES.read_text(encoding="utf-8").split()
    return {one: group.replace(one, "") for group in groups for one in group}


def _correct_chinese(text: str, frequencies: Frequencies) -> str:
    """Replace characters by homophones where no document has a bigram with them, and many then."""
    rest = _MAX_SUSPECTS

    def correct_run(found: re.Match[str]) -> str:
        nonlocal rest
        run = found[0]
        for _ in range(_MAX_SLIPS_IN_RUN):
            suspects = _suspects(run, frequencies)[:rest] if rest else []
            rest -= len(suspects)
            corrected = _best_edit(run, suspects, frequencies)
            if corrected == run:
                break
            run = corrected
        return run

    return _HAN_RUN.sub(correct_run, text)


def _suspects(run: str, frequencies: Frequencies) -> list[int]:
    """Return the characters of a run that no document has beside their neighbours."""
    is_known = frequencies(hash_terms([run[at : at + 2] for at in range(len(run) - 1)])) > 0
    beside = np.concatenate(([False], is_known)) | np.concatenate((is_known, [False]))
    places: list[int] = np.flatnonzero(~beside).tolist()
    return places


def _best_edit(run: str, suspects: Sequence[int], frequencies: Frequencies) -> str:
    edits = [(at, other) for at in suspects for other in _homophones().get(run[at], "")]
    if not edits:
        return run
    bigrams = list[str]()
    for at, other in edits:
        pair = [run[at - 1] + other] if at else []
        pair += [other + run[at + 1]] if at + 1 < len(run) else []
        bigrams += (pair[0], pair[-1])  # at an end of the run the only one counts twice
    counts = frequencies(hash_terms(bigrams)).reshape(-1, 2)
    enough = np.where(counts.min(axis=1) > 0, _MIN_BIGRAM, _MIN_LONE_BIGRAM)
    best = np.where(counts.max(axis=1) >= enough, counts.max(axis=1), 0)
    if not best.any():
        return run
    at, other = edits[int(best.argmax())]
    return run[:at] + other + run[at + 1 :]
