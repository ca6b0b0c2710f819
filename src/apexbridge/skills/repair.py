"""Mend frontmatter whose author forgot quotes: `description: Build for AWS: ECS`, `paths: **/*.ts`.

Only whole values are quoted, and each repair says where it was made, so that every place in the
mended text can be found again in the author's. Pure.
"""

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"(?P<indent> *)(?P<dash>- +)?(?:(?P<key>[\w.-]+):[ \t]+)?(?P<value>\S.*)")
_NEEDS_QUOTES = re.compile(r"[*%@`,\]}]|.*:(?:[ \t]|$)", re.DOTALL)
_BRACKETS = {"[": "]", "{": "}"}
_OPENS_SOMETHING = ('"', "'", "|", ">", "[", "{", "#")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One value that was read as if it had quotes; places count in the author's text."""

    key: str
    is_top_level: bool
    line: int
    start: int
    end: int
    added: int
    quoted: str


def quote_values(text: str) -> tuple[str, tuple[Repair, ...]]:
    """Quote every plain value that YAML would trip over; the text comes back with the repairs."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    pieces, repairs, done, number = list[str](), list[Repair](), 0, 0
    while number < len(lines):
        entry = _ENTRY.match(lines[number])
        if entry is None or not (entry["key"] or entry["dash"]):
            number += 1
            continue
        last = _last_line(lines, number, len(entry["indent"]))
        start = starts[number] + entry.start("value")
        end = starts[last] + len(lines[last].rstrip())
        if _is_plain_and_bad(text[start:end]):
            quoted = "'" + text[start:end].replace("'", "''") + "'"
            pieces += [text[done:start], quoted]
            repairs.append(_repair(entry, number, start, end, quoted))
            done = end
        number = last + 1
    return "".join((*pieces, text[done:])), tuple(repairs)


def _last_line(lines: list[str], first: int, indent: int) -> int:
    """A plain value goes on over the deeper lines below it."""
    last = first
    for number in range(first + 1, len(lines)):
        line = lines[number]
        if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
            break
        last = number if line.strip() else last
    return last


def _is_plain_and_bad(value: str) -> bool:
    is_closed = _BRACKETS.get(value[0], "") in value
    if value.startswith(_OPENS_SOMETHING) and is_closed:
        return False
    return any(_NEEDS_QUOTES.match(line.strip()) for line in value.split("\n"))


def _repair(entry: re.Match[str], line: int, start: int, end: int, quoted: str) -> Repair:
    return Repair(
        key=entry["key"] or "-",
        is_top_level=entry["key"] is not None and not entry["indent"] and not entry["dash"],
        line=line,
        start=start,
        end=end,
        added=len(quoted) - (end - start),
        quoted=" ".join(quoted.split()),
    )
