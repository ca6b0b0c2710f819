"""Linear-time regular expressions for Grep: RE2, with the Unicode classes of Python's `re`.

A language model writes the patterns, so none may cause catastrophic backtracking (ReDoS). Python's
`re` backtracks and holds the GIL meanwhile: neither a thread nor a timeout helps against that. RE2
runs a finite automaton, in time linear in the text, and releases the GIL.
"""

import functools
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import re2 as untyped_re2  # pyright: ignore[reportMissingTypeStubs]

_re2: Any = untyped_re2

MAX_PATTERN_CHARS = 1_000
_CHUNK_BYTES = 1 << 16
"""The deadline is looked at between chunks; a chunk ends at a line break."""

_WORD = r"\p{L}\p{N}_"
_SPACE = r"\t-\r\x1c-\x20\x{85}\p{Z}"
_NOT_SPACE = (
    r"\x00-\x08\x0e-\x1b!-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}"
    r"\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff}"
)
_CLASSES = {
    "w": f"[{_WORD}]", "W": f"[^{_WORD}]", "d": r"\p{Nd}", "D": r"\P{Nd}",
    "s": f"[{_SPACE}]", "S": f"[^{_SPACE}]", "A": "^", "z": "$", "Z": "$",
}  # fmt: skip
"""RE2's own classes know ASCII only. Each line is a text: its ends are those of multi-line mode."""
_MEMBERS = {"w": _WORD, "d": r"\p{Nd}", "D": r"\P{Nd}", "s": _SPACE, "S": _NOT_SPACE}
_WORD_TOKENS = frozenset({_CLASSES["w"], _CLASSES["d"]})
_UNSUPPORTED = frozenset("CQEXRKGk")

_TOKEN = re.compile(
    r"""
      (?P<escape>\\(?:[xu]\{[0-9A-Fa-f]{1,6}\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}
        |[pP](?:\{\^?\w+\}|\w)|[\s\S]))
    | (?P<set>\[\^?\]?)
    | (?P<flags>\(\?(?P<names>[a-zA-Z-]*)[:)])
    | (?P<around>\(\?(?:<?[=!]|P=|P>|>|\#|\())
    | (?P<least>\{,(?=\d+\}))
    | [\s\S]""",
    re.VERBOSE,
)
_MEMBER = re.compile(rf"\[:\^?\w+:\]|{_TOKEN.pattern}", re.VERBOSE)
_HINTS = {
    "missing )": r"a '(' is not closed; write \( for the character",
    "unexpected )": r"a ')' closes nothing; write \) for the character",
    "missing ]": r"a '[' is not closed; write \[ for the character",
    "no argument for repetition operator": "there is nothing before it to repeat",
    "bad repetition operator": "a quantifier is followed by another one; use brackets",
    "invalid repetition size": "it repeats more than 1,000 times, or the bounds are reversed",
    "trailing \\": "it ends in a backslash",
    "pattern too large - compile failed": "it is too large: use smaller numbers in {}",
}


class SearchTimeoutError(Exception):
    """The deadline of a search has passed."""


class LinePattern:
    """A compiled pattern that is searched for in each line of a text."""

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        """Compile.

        Raises:
            ValueError: If the syntax is wrong or not supported; its text says why.
        """
        if len(pattern) > MAX_PATTERN_CHARS:
            raise ValueError(f"it is longer than {MAX_PATTERN_CHARS:,} characters")
        options = _re2.Options()
        options.case_sensitive = not ignore_case
        options.log_errors = False
        options.never_capture = True
        options.never_nl = True  # a class such as \s would run across the line break
        try:
            compiled = _re2.compile(f"(?m){translate(pattern)}", options)
        except _re2.error as error:
            raise ValueError(_explain(error.args[0].decode("utf-8", "replace"))) from None
        _re2.purge()  # the library's cache would keep up to 8 MiB for each of 128 patterns
        self._search = compiled.search

    def matching_lines(self, data: bytes, deadline: float) -> Iterator[int]:
        r"""Yield the indexes of the lines that match; lines end in `\n` or `\r\n`.

        Args:
            data: The whole text in UTF-8.
            deadline: On the clock of `time.monotonic`.

        Raises:
            SearchTimeoutError: If the deadline passes.
        """
        number, counted, start = 0, 0, 0 if data else 1
        data = data.replace(b"\r\n", b"\n")
        data = data[:-1] if data.endswith(b"\n") else data.removesuffix(b"\r")
        while start <= len(data):
            if time.monotonic() > deadline:
                raise SearchTimeoutError
            end = data.find(b"\n", start + _CHUNK_BYTES)
            end = len(data) if end < 0 else end
            self._refuse_slow(data, start, end, deadline)
            for found in self._match_offsets(data, start, end):
                # Counted up to a match only: most files have none.
                number, counted = number + data.count(b"\n", counted, found), found
                yield number
            start = end + 1

    def _match_offsets(self, data: bytes, start: int, end: int) -> Iterator[int]:
        while start <= end and (found := self._search(data, start, end)) is not None:
            yield found.start()
            start = data.find(b"\n", found.start(), end) + 1
            if not start:
                return

    def _refuse_slow(self, data: bytes, start: int, end: int, deadline: float) -> None:
        """Try the beginning of a very long line first: RE2 cannot be interrupted."""
        if end - start < 4 * _CHUNK_BYTES:
            return
        began = time.monotonic()
        self._search(data, start, start + _CHUNK_BYTES)
        now = time.monotonic()
        if (now - began) * (end - start) / _CHUNK_BYTES > deadline - now:
            raise SearchTimeoutError


def translate(pattern: str) -> str:
    r"""Translate the syntax of Python's `re` to RE2's.

    >>> translate(r"\bcaf\u00e9{,2}[\w-]")
    '(?:^|[^\\p{L}\\p{N}_])caf\\x{00e9}{0,2}[\\p{L}\\p{N}_-]'
    """
    sources, at = list[str](), 0
    flags = re.match(r"\(\?[imsu]+\)", pattern)  # RE2 refuses the flag u, which is the default
    if flags:
        sources, at = (["(?i)"] if "i" in flags[0] else []), flags.end()
    while found := _TOKEN.match(pattern, at):
        source, at = found[0], found.end()
        if found["set"]:
            source, at = _translate_set(pattern, found)
        elif found["escape"]:
            source = _CLASSES.get(source[1:]) or _translate_escape(source)
        elif found["around"]:
            raise ValueError("lookaround, backreferences and atomic groups are not supported")
        elif found["flags"] and not re.fullmatch("[ims]*(-[is]+)?", found["names"]):
            raise ValueError(f"the flags {found[0]} are not supported: only i, m and s")
        elif found["least"]:
            source = "{0,"
        sources.append(source)
    return "".join(_with_unicode_boundaries(sources))


def _translate_escape(escape: str) -> str:
    name = escape[1:]
    if name.isdecimal() and name != "0":
        raise ValueError("backreferences are not supported")
    if not name or name in _UNSUPPORTED:
        raise ValueError(f"{escape} is not supported" if name else "it ends in a backslash")
    if len(name) > 1 and name[0] in "xuU":
        return rf"\x{{{name[1:].strip('{}')}}}"
    return escape


def _translate_set(pattern: str, opening: "re.Match[str]") -> tuple[str, int]:
    source, at = opening[0], opening.end()
    while pattern[at : at + 1] != "]" and (found := _MEMBER.match(pattern, at)):
        member, at = found[0], found.end()
        if member == r"\W":
            member = _not_word()
        elif member in {"[:word:]", "[:space:]"}:
            member = _MEMBERS[member[2]]
        elif found["escape"]:
            member = _MEMBERS.get(member[1:]) or _translate_escape(member)
        elif found["set"]:
            member, at = r"\[", found.start() + 1
        source += member
    return source + pattern[at : at + 1], at + 1


@functools.cache
def _not_word() -> str:
    r"""List the ranges that `\W` stands for: RE2 has no complement inside a set."""
    ranges, start = list[str](), -1
    for code in range(sys.maxunicode + 2):
        is_other = code <= sys.maxunicode and not (chr(code).isalnum() or code == ord("_"))
        if is_other and start < 0:
            start = code
        elif not is_other and start >= 0:
            ranges.append(rf"\x{{{start:x}}}-\x{{{code - 1:x}}}")
            start = -1
    return "".join(ranges)


def _with_unicode_boundaries(sources: list[str]) -> Iterator[str]:
    r"""Replace `\b` at the ends of each alternative by what it stands for in Unicode.

    RE2's `\b` counts ASCII letters only. Whether a line matches is all that is asked, so a boundary
    at an end of the pattern may consume the character beside it, which covers `\bcafé\b`.
    """
    depth, is_ascii = 0, all(part.isascii() and not part.startswith(r"\x{") for part in sources)
    for at, source in enumerate(sources):
        depth += (source.startswith("(") and not source.endswith(")")) - (source == ")")
        before = sources[at - 1] if at else "|"
        after, quantifier = [*sources[at + 1 : at + 3], "|", "|"][:2]
        is_outer = source == r"\b" and not depth
        if is_outer and before in {"|", "(?i)"} and _is_word(after, quantifier):
            yield f"(?:^|[^{_WORD}])"
        elif is_outer and after == "|" and _ends_in_word(sources[:at]):
            yield f"(?:[^{_WORD}]|$)"
        elif source in {r"\b", r"\B"} and not is_ascii:
            raise ValueError(f"{source} knows ASCII letters only, except at the pattern's ends")
        else:
            yield source


def _ends_in_word(sources: list[str]) -> bool:
    return _is_word("".join(sources[-2:-1] if sources[-1:] == ["+"] else sources[-1:]))


def _is_word(source: str, quantifier: str = "") -> bool:
    """Say whether a token always matches a word character first."""
    is_one = source in _WORD_TOKENS or (len(source) == 1 and (source.isalnum() or source == "_"))
    return is_one and quantifier[:1] not in {"*", "?", "{"}


def _explain(message: str) -> str:
    kind, _, about = message.partition(": ")
    is_whole = kind.startswith(("missing", "unexpected"))  # RE2 cites all of the pattern then
    return f"{_HINTS.get(kind, kind)}{f' ({about})' if about and not is_whole else ''}"
