"""Initialization of new word embeddings from English words with the same meaning.

Two signals are combined: similarity in a multilingual encoder under a permissive licence (USE), and
co-occurrence in the clean translations.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.embedders.validation import segment_chinese

Matrix = NDArray[np.float32]

_NEIGHBOURS = 6
_HEAT = 0.06
_LEAST_SEEN = 12
_MOST_WORDS = 16_000
_TOGETHER = 2.0
"""Weight of co-occurrence, relative to similarity."""
_WORD = re.compile(r"[a-z][a-z0-9+#.]{1,}[a-z0-9+#]")


@dataclass(frozen=True, slots=True)
class Start:
    """For each new word, the English words it is initialized from, with weights."""

    english: list[str]
    places: NDArray[np.int32]
    shares: Matrix


def english_words(texts: Sequence[str]) -> list[str]:
    """Select the frequent English words of the translations."""
    seen = Counter(word for text in texts for word in set(_WORD.findall(text.lower())))
    return [word for word, count in seen.most_common(_MOST_WORDS) if count >= _LEAST_SEEN]


def standing_together(
    parallel: Sequence[tuple[str, str]], english: Sequence[str], chinese: Sequence[str]
) -> Matrix:
    """Compute Dice's coefficient of words on both sides of the translations."""
    english_at = {word: place for place, word in enumerate(english)}
    chinese_at = {word: place for place, word in enumerate(chinese)}
    together = np.zeros((len(chinese), len(english)), np.float32)
    of_english = np.zeros(len(english), np.float32)
    of_chinese = np.zeros(len(chinese), np.float32)
    for left, right in parallel:
        words = {english_at[w] for w in _WORD.findall(left.lower()) if w in english_at}
        theirs = {
            chinese_at[w] for w in segment_chinese(right, chinese_at).split() if w in chinese_at
        }
        if not words or not theirs:
            continue
        columns, rows = np.fromiter(words, np.intp), np.fromiter(theirs, np.intp)
        together[np.ix_(rows, columns)] += 1
        of_english[columns] += 1
        of_chinese[rows] += 1
    together *= 2
    together /= of_chinese[:, None] + of_english[None, :] + 5
    return together


def start_values(near: Matrix, together: Matrix, english: list[str]) -> Start:
    """Select the English words that both signals support, with softmax weights."""
    said = near + _TOGETHER * together
    few = min(_NEIGHBOURS, len(english))
    places = np.argpartition(-said, few - 1, axis=1)[:, :few].astype(np.int32)
    best = np.take_along_axis(said, places, axis=1)
    powers = np.exp((best - best.max(axis=1, keepdims=True)) / _HEAT)
    return Start(english, places, (powers / powers.sum(axis=1, keepdims=True)).astype(np.float32))
