"""Path patterns in the manner of .gitignore, with braces, and within bounds. Pure."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from apexbridge.skills.globs import Glob

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


def expand(pattern: str) -> tuple[str, ...]:
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


class Patterns:
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


def compile_patterns(patterns: tuple[str, ...]) -> Patterns:
    """Make one matcher of all patterns.

    Raises:
        ValueError: If a pattern makes no sense or stands for too many.
    """
    globs = list[Glob]()
    for pattern in patterns:
        if count_expansions(pattern) > MAX_EXPANSIONS:
            raise ValueError(f"{pattern!r} stands for more than {MAX_EXPANSIONS} patterns")
        globs += [glob for text in expand(pattern) if (glob := Glob.parse(text)) is not None]
    return Patterns(globs)


@lru_cache(maxsize=32)
def read_ignore_file(text: str) -> Patterns:
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
    return Patterns(globs)
