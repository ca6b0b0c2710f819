"""Path patterns in the manner of .gitignore, with braces, and within bounds. Pure."""

import re

import pathspec

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


def compile_patterns(patterns: tuple[str, ...]) -> pathspec.GitIgnoreSpec:
    """Make one matcher of all patterns.

    Raises:
        ValueError: If a pattern makes no sense or stands for too many.
    """
    written = list[str]()
    for pattern in patterns:
        if count_expansions(pattern) > MAX_EXPANSIONS:
            raise ValueError(f"{pattern!r} stands for more than {MAX_EXPANSIONS} patterns")
        written += expand(pattern)
    return pathspec.GitIgnoreSpec.from_lines(written)
