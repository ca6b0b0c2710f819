"""One pattern in the manner of .gitignore, matched in a time that no pattern can blow up. Pure.

Patterns come from strangers' skills and clones. As one regular expression, five stars against a
long name take minutes; here each star is settled once, and folders are walked like states.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

MAX_DEPTH = 256
"""Paths deeper than this match nothing."""

_CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z",
    "space": r"\s", "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9a-fA-F", "blank": r" \t",
    "word": r"\w",
}  # fmt: skip

Segment = re.Pattern[str] | None
"""A name between slashes; None stands for `**`, any number of them."""


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern in its parts."""

    segments: tuple[Segment, ...]
    is_negated: bool = False
    is_for_folders: bool = False
    """Whether it ended in a slash."""

    @classmethod
    def parse(cls, line: str) -> "Glob | None":
        """Read one line; blank lines and comments are no pattern.

        Raises:
            ValueError: If it makes no sense.
        """
        text = _without_trailing_blanks(line)
        if not text or text.startswith("#"):
            return None
        is_negated = text.startswith("!")
        text = text[1:] if is_negated else text
        is_for_folders = text.endswith("/")
        text = text.rstrip("/") if is_for_folders else text
        is_anchored = "/" in text
        parts = [part for part in text.split("/") if part]
        if not parts:
            raise ValueError("it names nothing")
        segments = list(_segments(parts))
        if not is_anchored and segments[0] is not None:
            segments.insert(0, None)
        return cls(tuple(segments), is_negated, is_for_folders)

    def reached(self, parts: Sequence[str]) -> Iterator[int]:
        """The lengths of all beginnings of a path that the pattern matches, in one pass."""
        if len(parts) > MAX_DEPTH:
            return
        end = len(self.segments)
        states = self._skipped({0})
        for length, part in enumerate(parts, 1):
            following = set[int]()
            for at in states:
                if at == end:
                    continue
                segment = self.segments[at]
                if segment is None:
                    # At the end it stands for what is inside, never for the folder itself.
                    following.update((at, end) if at == end - 1 else (at,))
                elif segment.match(part):
                    following.add(at + 1)
            states = self._skipped(following)
            if end in states:
                yield length

    def _skipped(self, states: set[int]) -> set[int]:
        """Any number of folders may be none at all, except at the end."""
        pending = list(states)
        while pending:
            at = pending.pop()
            is_open = at < len(self.segments) - 1 and self.segments[at] is None
            if is_open and at + 1 not in states:
                states.add(at + 1)
                pending.append(at + 1)
        return states


def _without_trailing_blanks(line: str) -> str:
    text = line.rstrip("\r\n")
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    return text


def _segments(parts: Sequence[str]) -> Iterator[Segment]:
    previous: Segment | str = ""
    for part in parts:
        if part == "**":
            if previous is not None:
                yield None
            previous = None
        else:
            yield _segment(part)
            previous = part


def _segment(text: str) -> re.Pattern[str]:
    r"""One name. What follows a star is searched for once and not again: `(?>…)`.

    >>> bool(_segment("*.t[sx]").match("a.ts")), bool(_segment("a?c").match("abbc"))
    (True, False)
    """
    pieces = [""]
    at = 0
    while at < len(text):
        char = text[at]
        if char == "*":
            if pieces[-1] or len(pieces) == 1:
                pieces.append("")
            at += 1
            continue
        if char == "\\":
            if at + 1 == len(text):
                raise ValueError("it ends in a backslash")
            piece, at = re.escape(text[at + 1]), at + 2
        elif char == "[":
            piece, at = _class(text, at)
        else:
            piece, at = ("." if char == "?" else re.escape(char)), at + 1
        pieces[-1] += piece
    first, *rest = pieces
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    last = f".*{rest[-1]}" if rest else ""
    try:
        return re.compile(f"{first}{middle}{last}\\Z", re.DOTALL)
    except re.error as error:
        raise ValueError(str(error)) from None


def _class(text: str, start: int) -> tuple[str, int]:
    """A set of characters in brackets, and where it ends."""
    at = start + 1
    is_negated = text[at : at + 1] in {"!", "^"}
    at += is_negated
    inside, is_range = "", False
    first = at
    while at < len(text) and (text[at] != "]" or at == first):
        # A hyphen stands for a range only between two characters.
        is_range = text[at] == "-" and not is_range and at > first and text[at + 1 : at + 2] != "]"
        named = re.match(r"\[:(\w+):\]", text[at : at + 16])
        if named:
            if named[1] not in _CLASSES:
                raise ValueError(f"there is no class '{named[1]}'")
            inside += _CLASSES[named[1]]
            at += named.end()
        elif text[at] == "\\" and at + 1 < len(text):
            inside += re.escape(text[at + 1])
            at += 2
        else:
            inside += "-" if is_range else re.escape(text[at])
            at += 1
    if at >= len(text):
        raise ValueError("a bracket does not close")
    return f"[{'^' if is_negated else ''}{inside}]", at + 1


MAX_EXPANSIONS = 256
MAX_CHARS = 1_024
MAX_LINES = 2_000
"""Patterns of one ignore file that are read: a clone may bring any number."""


def count_expansions(pattern: str) -> int:
    """How many patterns the braces stand for; counting costs nothing, however many there are."""
    if len(pattern) > MAX_CHARS:
        return MAX_EXPANSIONS + 1
    braces, stack = _braces(pattern), list[tuple[int, int]]()
    # Inside a brace alternatives add up, outside groups multiply.
    total, added = 1, 0
    for at, char in enumerate(pattern):
        if char == "," and stack:
            total, added = 1, added + total
        elif at not in braces:
            continue
        elif char == "{":
            stack.append((total, added))
            total, added = 1, 0
        else:
            group = added + total
            outer, added = stack.pop()
            total = outer * group
    return total


def _braces(pattern: str) -> frozenset[int]:
    """Where braces stand that have a partner; one without is a character like any other."""
    opened, paired = list[int](), set[int]()
    for at, char in enumerate(pattern):
        if char == "{":
            opened.append(at)
        elif char == "}" and opened:
            paired.update((opened.pop(), at))
    return frozenset(paired)


def expand_braces(pattern: str) -> tuple[str, ...]:
    """Write the braces out, in one pass: as many texts as were counted. The caller counts first.

    >>> expand("src/*.{ts,tsx}")
    ('src/*.ts', 'src/*.tsx')
    """
    braces, stack = _braces(pattern), list[tuple[list[str], list[str]]]()
    texts, ended = [""], list[str]()
    for at, char in enumerate(pattern):
        if char == "," and stack:
            texts, ended = [""], [*ended, *texts]
        elif at not in braces:
            texts = [text + char for text in texts]
        elif char == "{":
            stack.append((texts, ended))
            texts, ended = [""], []
        else:
            # Around a single choice braces stand for themselves.
            inside = [*ended, *texts] if ended else [f"{{{text}}}" for text in texts]
            before, ended = stack.pop()
            texts = [first + then for first in before for then in inside]
    return tuple(texts)


class PathMatcher:
    """Lines of patterns as one matcher; the last line that speaks of a path decides."""

    def __init__(self, globs: Iterable[Glob]) -> None:
        self._globs = tuple(globs)

    def verdict(self, path: str) -> bool | None:
        """Whether a path is taken, taken out again by a `!` line, or not spoken of.

        A folder is written with a slash at its end. Folders on the way are not asked.
        """
        parts = _parts(path)
        return self._said(parts, is_folder=path.endswith("/"))[-1] if parts else None

    def matches(self, path: str) -> bool:
        """Whether a path is taken, or a folder on the way to it with all that it holds."""
        parts = _parts(path)
        return any(self._said(parts, is_folder=path.endswith("/"))) if parts else False

    def _said(self, parts: Sequence[str], *, is_folder: bool) -> list[bool | None]:
        """What is said of each folder on the way, and of the path itself."""
        said: list[bool | None] = [None] * len(parts)
        for glob in self._globs:
            for length in glob.reached(parts):
                if length < len(parts) or is_folder or not glob.is_for_folders:
                    said[length - 1] = not glob.is_negated
        return said


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def compile_patterns(patterns: tuple[str, ...]) -> PathMatcher:
    """Make one matcher of all patterns.

    Raises:
        ValueError: If a pattern makes no sense or stands for too many.
    """
    globs = list[Glob]()
    for pattern in patterns:
        if count_expansions(pattern) > MAX_EXPANSIONS:
            raise ValueError(f"{pattern!r} stands for more than {MAX_EXPANSIONS} patterns")
        globs += [glob for text in expand_braces(pattern) if (glob := Glob.parse(text)) is not None]
    return PathMatcher(globs)


@lru_cache(maxsize=32)
def parse_gitignore(text: str) -> PathMatcher:
    """Make a matcher of a .gitignore; a line that makes no sense is passed over, as git does."""
    globs = list[Glob]()
    for line in text.splitlines():
        try:
            glob = Glob.parse(line) if len(line) <= MAX_CHARS else None
        except ValueError:
            continue
        globs += [glob] if glob is not None else []
        if len(globs) == MAX_LINES:
            break
    return PathMatcher(globs)
