"""Wildcards in permission rules: command texts with `*`, and gitignore path patterns.

No pattern can cause catastrophic backtracking (ReDoS): texts are searched for literals from left to
right, paths are matched by `apexbridge.path_patterns`.
"""

import functools
import posixpath
from dataclasses import dataclass
from pathlib import Path

from apexbridge.path_patterns import covers


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRoots:
    """Base folders of relative and `~` path patterns, symlinks resolved."""

    project: Path
    home: Path

    @classmethod
    def resolved(cls, project: Path, home: Path) -> "PathRoots":
        """Resolve the symlinks."""
        return cls(project=project.resolve(), home=home.resolve())


def text_matches(pattern: str, text: str) -> bool:
    r"""Match a whole text; `*` is anything, `\*` a star, `\\` a backslash.

    >>> text_matches("git * main", "git push origin main"), text_matches(r"ls \*", "ls x")
    (True, False)
    """
    first, *others = _literals(pattern)
    if not others:
        return text == first
    *middle, last = others
    at, end = len(first), len(text) - len(last)
    if end < at or not (text.startswith(first) and text.endswith(last)):
        return False
    # The leftmost occurrence of each literal leaves most text for the next: no backtracking.
    for literal in middle:
        at = text.find(literal, at, end)
        if at < 0:
            return False
        at += len(literal)
    return True


def escape_pattern(text: str) -> str:
    """Escape a text, so that the pattern matches nothing else."""
    return text.replace("\\", "\\\\").replace("*", "\\*")


def path_matches(pattern: str, path: Path, roots: PathRoots | None, *, widely: bool) -> bool:
    """Match a path, or a parent folder of it, against a gitignore pattern.

    `//x` is absolute, `~/x` relative to home, `/x` and `./x` to the project; a bare name matches at
    any depth of the project. Deny rules fail closed and are matched `widely`: their `/x` counts
    from the file system's root too, and they match every path when the roots are not known.
    """
    if not pattern or (roots is None and not pattern.startswith("//")):
        return widely
    anchors = _anchors(pattern, roots, widely=widely)
    return any(_is_below(rest, base, path) for base, rest in anchors)


def resolve_pattern(pattern: str, roots: PathRoots) -> str | None:
    """Resolve the symlinks in the literal front of a pattern; None where that changes nothing."""
    ((base, rest), *_) = _anchors(pattern, roots, widely=False)
    parts = rest.removeprefix("/").split("/")
    fixed = next((n for n, part in enumerate(parts) if set(part) & set("*?[\\")), len(parts))
    if not rest.startswith("/") or not fixed:
        return None
    written = base.joinpath(*parts[:fixed])
    real = written.resolve()
    return None if real == written else "/" + posixpath.join(str(real), *parts[fixed:])


def _anchors(pattern: str, roots: PathRoots | None, *, widely: bool) -> list[tuple[Path, str]]:
    """Split a pattern into base folder and rest; a rest that begins with `/` is anchored there."""
    root = Path("/")
    if pattern.startswith("//") or roots is None:
        return [(root, _normalise(pattern))]
    if pattern == "~" or pattern.startswith("~/"):
        return [(roots.home, _normalise(pattern[1:]))]
    if pattern.startswith("/"):
        anchored = _normalise(pattern)
        return [(roots.project, anchored), *([(root, anchored)] if widely else [])]
    base, rest = roots.project, pattern
    is_anchored = "/" in pattern.rstrip("/") or pattern in {".", ".."}
    rest = posixpath.normpath(rest)
    while rest == ".." or rest.startswith("../"):
        base, rest = base.parent, rest[3:]
    return [(base, _normalise("/" + rest) if is_anchored else rest)]


def _normalise(rest: str) -> str:
    return "/" + posixpath.normpath("/" + rest).lstrip("/")


def _is_below(rest: str, base: Path, path: Path) -> bool:
    # As texts: `Path.relative_to` takes ten times as long as the match itself.
    prefix, text = f"{base}/".replace("//", "/"), str(path)
    if not f"{text}/".startswith(prefix):
        return False
    return covers(rest, text[len(prefix) :].lstrip("/"), is_anchored=rest.startswith("/"))


@functools.lru_cache(1024)
def _literals(pattern: str) -> tuple[str, ...]:
    """Split at the unescaped stars."""
    literals, at = [""], 0
    while at < len(pattern):
        if pattern[at] == "\\" and pattern[at + 1 : at + 2] in {"*", "\\"}:
            at += 1
            literals[-1] += pattern[at]
        elif pattern[at] == "*":
            literals.append("")
        else:
            literals[-1] += pattern[at]
        at += 1
    return tuple(literals)
