"""Mend frontmatter whose author forgot quotes: `description: Build for AWS: ECS`, `paths: **/*.ts`.

A value is quoted only if it cannot be read by itself, and each repair says where it was made, so
that every place in the mended text can be found again in the author's. Pure; what can be read is
for the caller to say.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

_ENTRY = re.compile(r"(?P<indent> *)(?P<dash>- +)?(?:(?P<key>[\w.-]+):[ \t]+)?(?P<value>\S.*)")
_COMMENT = re.compile(r"[ \t]+#.*$")
_NEVER = ("|", ">", "#")
_UNFINISHED = re.compile(r"[\[{][^\]}:]*$")
"""A list or mapping that is opened and never closed: a slip that quotes would only hide."""


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


def quote_values(text: str, needs_quotes: Callable[[str], bool]) -> tuple[str, tuple[Repair, ...]]:
    """Quote every value that needs it; the mended text comes back with the repairs."""
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
        last = _last_line(lines, number, entry)
        start = starts[number] + entry.start("value")
        end = starts[last] + len(_COMMENT.sub("", lines[last]).rstrip())
        quoted = _quoted(text[start:end], needs_quotes) if end > start else ""
        if quoted:
            pieces += [text[done:start], quoted]
            repairs.append(_repair(entry, number, start, end, quoted))
            done = end
        number = last + 1
    return "".join((*pieces, text[done:])), tuple(repairs)


def _last_line(lines: list[str], first: int, entry: re.Match[str]) -> int:
    """A plain value goes on over the lines below it that are deeper than its key."""
    indent = len(entry["indent"]) + (len(entry["dash"] or "") if entry["key"] else 0)
    last = first
    for number in range(first + 1, len(lines)):
        line = lines[number]
        if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
            break
        last = number if line.strip() else last
    return last


def _quoted(value: str, needs_quotes: Callable[[str], bool]) -> str:
    """The value in quotes, its items in quotes if it is a list; empty if it is sound as it is."""
    if value.startswith(_NEVER) or _UNFINISHED.match(value) or not needs_quotes(value):
        return ""
    if value.startswith("[") and value.endswith("]"):
        items = [item.strip() for item in _split_items(value[1:-1])]
        listed = (
            "[" + ", ".join(_quote(item) if needs_quotes(item) else item for item in items) + "]"
        )
        if not needs_quotes(listed):
            return listed
    return _quote(value)


def _quote(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _split_items(text: str) -> list[str]:
    """Cut at commas outside of brackets of any kind."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([{") - (char in ")]}" and depth > 0)
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


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
