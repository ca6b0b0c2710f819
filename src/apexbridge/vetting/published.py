"""Copies of well-known skills in which something was changed.

Whoever wants a skill to be trusted takes one that everybody knows and adds a line. Of well-known
skills a number for each line is kept, not the line; a skill whose lines are nearly all among them,
and some are not, is a changed copy. `scripts/fingerprint_published.py` writes the numbers.
"""

import base64
import json
import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources

from apexbridge.vetting.patterns import Hit
from apexbridge.vetting.rulebook import Level
from apexbridge.vetting.view import View

RULE = "AB075"
DATA = "published.json"
FEWEST_WORDS = 5
"""Words below which a line is nobody's own."""
FEWEST_LINES = 10
"""Lines below which nothing can be said about a copy."""
COPY = 0.7
"""The share of known lines from which a skill is a copy."""
CLOSE_COPY = 0.85
"""The share from which so little is new that it was put in."""
SHOWN = 10
MAX_LINES = 20_000

_WORD = re.compile(r"[a-z0-9]+")


@cache
def published() -> frozenset[int]:
    """The numbers of the lines of well-known skills."""
    text = resources.files("apexbridge.vetting").joinpath(DATA).read_text("utf-8")
    return frozenset(array("I", base64.b64decode(json.loads(text)["lines"])))


def number_of(line: str) -> int | None:
    """The number of a line in small letters; None if it is too short to tell."""
    words = _WORD.findall(line)
    if len(words) < FEWEST_WORDS:
        return None
    return zlib.crc32(" ".join(words).encode("ascii"))


def numbers(view: View) -> Iterator[tuple[int, int]]:
    """The lines of a document that can be told, with their numbers; its front is left out."""
    lines, front = view.lower.split("\n"), view.front_end
    for at, line in enumerate(lines[front:-1], front + 1):  # a last line without an end may be cut
        number = number_of(line[:2_000])
        if number is not None:
            yield at, number


def changed(views: Sequence[View]) -> Iterator[tuple[View, Hit]]:
    """What is new in a copy of a well-known skill."""
    known, strange, count = published(), list[tuple[View, int]](), 0
    for view in views:
        if view.place_of(1) == "data":
            continue
        for line, number in numbers(view):
            count += 1
            if number not in known:
                strange.append((view, line))
            if count >= MAX_LINES:
                return
    share = 1 - len(strange) / max(1, count)
    if count < FEWEST_LINES or share < COPY:
        return
    level: Level = "warn" if share >= CLOSE_COPY else "review"
    for view, line in strange[:SHOWN]:
        shown = view.raw_lines[line - 1].strip()
        yield view, Hit(rule=RULE, level=level, line=line, matched=shown)
