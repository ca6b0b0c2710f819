"""Numbers of very many lines in little room, to be asked whether one is among them.

A number has 28 bits. Its upper 20 say in which box it lies, its lower 8 are kept: about ten bits
a line, and one strange line in some two hundred is taken for a known one.
"""

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

FEWEST_WORDS = 5
"""Words below which a line is nobody's own."""

_BOXES = 1 << 20
_STEP = 64
"""Boxes that share one remembered start."""
_LENGTH = 4
_WORD = re.compile("[a-z0-9]+|[\u4e00-\u9fff]")


def number_of(line: str) -> int | None:
    """The number of a line in small letters; None if it is too short to tell."""
    words = _WORD.findall(line)
    if len(words) < FEWEST_WORDS:
        return None
    return zlib.crc32(" ".join(words).encode("utf-8")) >> 4


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers as they lie in a file."""

    counts: bytes
    """How many lie in each box."""
    starts: tuple[int, ...]
    """Where the first of every few boxes begins."""
    lows: bytes

    def __contains__(self, number: int) -> bool:
        """Say whether a number is among them."""
        box = number >> 8
        first = box - box % _STEP
        start = self.starts[box // _STEP] + sum(self.counts[first:box])
        return number & 255 in self.lows[start : start + self.counts[box]]


def packed(numbers: Iterable[int]) -> bytes:
    """The bytes of some numbers."""
    counts, lows = bytearray(_BOXES), bytearray()
    for number in sorted(set(numbers)):
        counts[number >> 8] += 1
        lows.append(number & 255)
    small = zlib.compress(counts, 9)
    return len(small).to_bytes(_LENGTH, "big") + small + lows


def unpacked(data: bytes) -> Numbers:
    """Read what `packed` wrote."""
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    counts = zlib.decompress(data[_LENGTH:end])
    sums = (sum(counts[at : at + _STEP]) for at in range(0, _BOXES, _STEP))
    return Numbers(counts, tuple(accumulate(sums, initial=0)), data[end:])
