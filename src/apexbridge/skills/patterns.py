"""Path patterns in the manner of .gitignore, with braces, and within bounds. Pure."""

import re
from collections.abc import Iterable, Sequence

from apexbridge.skills.globs import Glob

MAX_EXPANSIONS = 256
MAX_CHARS = 1_024

_INNERMOST = re.compile(r"\{([^{}]*,[^{}]*)\}")


def count_expansions(pattern: str) -> int:
    """How many patterns the braces stand for; counting costs nothing, however many there are."""
    if len(pattern) > MAX_CHARS:
        return MAX_EXPANSIONS + 1
    total, depth, stack = 1, 0, list[tuple[int, int]]()
    # Inside a brace alternatives add up, outside groups multiply.
    added = 0
    for char in pattern:
        if char == "{":
            stack.append((total, added))
            total, added, depth = 1, 0, depth + 1
        elif char == "," and depth:
            added, total = added + total, 1
        elif char == "}" and depth:
            group = added + total
            outer, added = stack.pop()
            total, depth = outer * group, depth - 1
    return total


def expand(pattern: str) -> tuple[str, ...]:
    """Write the braces out. The caller has counted first.

    >>> expand("src/*.{ts,tsx}")
    ('src/*.ts', 'src/*.tsx')
    """
    match = _INNERMOST.search(pattern)
    if match is None:
        return (pattern,)
    before, after = pattern[: match.start()], pattern[match.end() :]
    return tuple(
        expanded
        for choice in match[1].split(",")
        for expanded in expand(f"{before}{choice}{after}")
    )


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


def read_ignore_file(text: str) -> Patterns:
    """Make a matcher of a .gitignore; a line that makes no sense is passed over, as git does."""
    globs = list[Glob]()
    for line in text.splitlines():
        try:
            glob = Glob.parse(line) if len(line) <= MAX_CHARS else None
        except ValueError:
            continue
        globs += [glob] if glob is not None else []
    return Patterns(globs)
