"""The terms of Chinese texts, all at once: every character, and every two that stand together.

A term is the checksum of its letters (`words.term`). A checksum of two parts comes from those of
the parts by two steps on numbers, so that tables of single characters give the terms of all pairs.
"""

import zlib
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.hanzi import SIMPLIFIED

RANGES = ((0x3400, 0x9FFF), (0xF900, 0xFAFF))
"""Where the characters lie that take three bytes; there are rare ones beyond, of four."""
_TABLE = 0x10000
_ZEROS = bytes(3)
"""As long as the second character of a pair."""

Terms = NDArray[np.uint32]


class _Tables(NamedTuple):
    is_sign: NDArray[np.bool_]
    simple: NDArray[np.uint16]
    alone: Terms
    """The term of each character."""
    first: Terms
    """What each adds to the term of the one behind it."""


@cache
def _tables() -> _Tables:
    is_sign = np.zeros(_TABLE, np.bool_)
    alone, first = np.zeros(_TABLE, np.uint32), np.zeros(_TABLE, np.uint32)
    nothing = zlib.crc32(_ZEROS)
    for low, high in RANGES:
        is_sign[low : high + 1] = True
        for sign in range(low, high + 1):
            alone[sign] = term = zlib.crc32(chr(sign).encode())
            first[sign] = zlib.crc32(_ZEROS, term) ^ nothing
    simple = np.arange(_TABLE, dtype=np.uint16)
    for before, after in SIMPLIFIED.items():
        simple[before] = after
    return _Tables(is_sign, simple, alone, first)


def sign_terms(text: str) -> Terms:
    """The terms of all Chinese characters in a text without rare ones, and of all pairs."""
    tables = _tables()
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    codes = np.where(codes < _TABLE, codes, 0)
    places = np.flatnonzero(tables.is_sign[codes])
    signs = tables.simple[codes[places]]
    pairs = np.flatnonzero(places[1:] - places[:-1] == 1)
    alone = tables.alone[signs]
    return np.concatenate((alone, tables.first[signs[pairs]] ^ alone[pairs + 1]))
