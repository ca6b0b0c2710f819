"""Explain why Edit's old string was not found, with the closest match. Pure."""

import difflib
import re

_NUMBERED = re.compile(r"^\s*\d+\t", re.MULTILINE)
_WHITESPACE = re.compile(r"\s+")
_MAX_LINES = 5_000
_MAX_DISPLAY_LINES = 5
_MIN_SIMILARITY = 0.7
_COMPARED_CHARS = 200
_LOOKALIKES = str.maketrans("‘’“”–—\u00a0，：；（）！？", "''\"\"-- ,:;()!?")


def matching_lines(text: str, wanted: str) -> str:
    """List the numbers of the first lines where a string begins."""
    numbers, at = list[str](), text.find(wanted)
    while at >= 0 and len(numbers) < _MAX_DISPLAY_LINES:
        numbers.append(str(text.count("\n", 0, at) + 1))
        at = text.find(wanted, at + len(wanted))
    return ", ".join(numbers) + (", …" if at >= 0 else "")


def explain_mismatch(text: str, wanted: str) -> str:
    """Describe the closest match: by case, look-alike characters, whitespace or similarity."""
    plain = _NUMBERED.sub("", wanted)
    if plain != wanted and plain in text.replace("\r\n", "\n"):
        return "leave out the line numbers that Read shows"
    if wanted.casefold() in text.casefold():
        line = matching_lines(text.casefold(), wanted.casefold())
        return f"it stands there with other capital letters (line {line})"
    if wanted.translate(_LOOKALIKES) in text.translate(_LOOKALIKES):
        line = matching_lines(text.translate(_LOOKALIKES), wanted.translate(_LOOKALIKES))
        return f"it stands there with other quotes, dashes or punctuation (line {line})"
    line = _match_ignoring_whitespace(text, wanted)
    if line:
        return f"it stands there with other blanks or line breaks (line {line}); read it again"
    return _closest_lines(text, wanted)


def _match_ignoring_whitespace(text: str, wanted: str) -> int:
    """Return the line of a match that ignores whitespace; 0 if there is none."""
    bare = _WHITESPACE.sub("", wanted)
    if not bare:
        return 0
    at = _WHITESPACE.sub("", text).find(bare)
    if at < 0:
        return 0
    line, seen = 1, 0
    for char in text:  # the character that the find was of, counted again with the blanks
        if char == "\n":
            line += 1
        if not char.isspace():
            if seen == at:
                break
            seen += 1
    return line


def _closest_lines(text: str, wanted: str) -> str:
    lines = text.split("\n")[:_MAX_LINES]
    first = next((line.strip() for line in wanted.split("\n") if line.strip()), "")[
        :_COMPARED_CHARS
    ]
    if not first:
        return "nothing comes near; read the file again"
    exact = next((number for number, line in enumerate(lines, 1) if first in line), 0)
    if exact:
        return f"only its first line does (line {exact}); read the file again"
    best, number = _MIN_SIMILARITY, 0
    matcher = difflib.SequenceMatcher(b=first, autojunk=False)
    for at, line in enumerate(lines, 1):
        matcher.set_seq1(line.strip()[:_COMPARED_CHARS])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            ratio = matcher.ratio()
            best, number = (ratio, at) if ratio > best else (best, number)
    if not number:
        return "nothing comes near; read the file again"
    return f"the nearest is line {number}: {lines[number - 1].strip()[:200]!r}"
