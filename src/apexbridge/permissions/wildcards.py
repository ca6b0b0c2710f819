"""Stars in rules: texts and paths against patterns, in time that no pattern can blow up."""

import functools
import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_Piece = TypeVar("_Piece")
_Item = TypeVar("_Item")
_Token = frozenset[str] | str | None
"""None is a star, the empty text any one character, a set one of its characters."""
_TREE = "**"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRoots:
    """The folders that path patterns are written against, links followed."""

    project: Path
    home: Path

    @classmethod
    def of(cls, project: Path, home: Path) -> "PathRoots":
        """Follow the links."""
        return cls(project=project.resolve(), home=home.resolve())


def text_matches(pattern: str, text: str) -> bool:
    r"""Whether a text fits; `*` is anything, `\*` a star, `\\` a backslash.

    >>> text_fits("git * main", "git push origin main"), text_fits(r"ls \*", "ls x")
    (True, False)
    """
    first, *others = _literals(pattern)
    if not others:
        return text == first
    *middle, last = others
    at, end = len(first), len(text) - len(last)
    if end < at or not (text.startswith(first) and text.endswith(last)):
        return False
    for piece in middle:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def escape_pattern(text: str) -> str:
    """A pattern that only this text fits."""
    return text.replace("\\", "\\\\").replace("*", "\\*")


def path_matches(pattern: str, path: Path, ground: PathRoots | None, *, widely: bool) -> bool:
    """Whether a path, or a folder that holds it, fits a pattern written as in a `.gitignore`.

    `//x` begins at the root, `~/x` at home, `/x` and `./x` at the project; a bare name fits at any
    depth of the project. To be on the safe side a refusal is read `widely`: its `/x` counts from
    the root too, and where the ground is not known it holds.
    """
    if not pattern or (ground is None and not pattern.startswith("//")):
        return widely
    return any(
        _is_below(rest, base, path) for base, rest in _anchors(pattern, ground, widely=widely)
    )


def resolve_pattern(pattern: str, ground: PathRoots) -> str | None:
    """The pattern with the links in its fixed part followed; None where that changes nothing."""
    ((base, rest), *_) = _anchors(pattern, ground, widely=False)
    parts = rest.removeprefix("/").split("/")
    fixed = next((n for n, part in enumerate(parts) if set(part) & set("*?[\\")), len(parts))
    if not rest.startswith("/") or not fixed:
        return None
    written = base.joinpath(*parts[:fixed])
    real = written.resolve()
    return None if real == written else "/" + posixpath.join(str(real), *parts[fixed:])


def _anchors(pattern: str, ground: PathRoots | None, *, widely: bool) -> list[tuple[Path, str]]:
    """Each folder that a pattern may begin at, and the rest; a rest with `/` begins just there."""
    root = Path("/")
    if pattern.startswith("//") or ground is None:
        return [(root, _normalise(pattern))]
    if pattern == "~" or pattern.startswith("~/"):
        return [(ground.home, _normalise(pattern[1:]))]
    if pattern.startswith("/"):
        return [
            (ground.project, _normalise(pattern)),
            *([(root, _normalise(pattern))] if widely else []),
        ]
    base, rest = ground.project, pattern
    is_anchored = "/" in pattern.rstrip("/") or pattern in {".", ".."}
    rest = posixpath.normpath(rest)
    while rest == ".." or rest.startswith("../"):
        base, rest = base.parent, rest[3:]
    return [(base, _normalise("/" + rest) if is_anchored else rest)]


def _normalise(rest: str) -> str:
    return "/" + posixpath.normpath("/" + rest).lstrip("/")


def _is_below(rest: str, base: Path, path: Path) -> bool:
    if not path.is_relative_to(base):
        return False
    parts = path.relative_to(base).parts
    wanted = [part for part in rest.split("/") if part not in {"", "."}]
    if rest.startswith("/"):
        wanted = [*wanted, _TREE] if not wanted or wanted[-1] != _TREE else wanted
    else:
        wanted = [_TREE, *wanted, _TREE]
    return _match(wanted, parts, lambda part: part == _TREE, _matches_name)


def _matches_name(pattern: str, name: str) -> bool:
    return _match(_name_tokens(pattern), name, _is_star, _is_character)


def _is_star(token: _Token) -> bool:
    return token is None


def _is_character(token: _Token, char: str) -> bool:
    if isinstance(token, frozenset):
        return (char in token) is ("" not in token)
    return token in {"", char}


def _match(
    pattern: Sequence[_Piece],
    items: Sequence[_Item],
    is_star: Callable[[_Piece], bool],
    is_same: Callable[[_Piece, _Item], bool],
) -> bool:
    """Only the last star ever needs to be tried again, so the time is bounded by both lengths."""
    at, item, star, mark = 0, 0, -1, 0
    while item < len(items):
        if at < len(pattern) and is_star(pattern[at]):
            star, mark, at = at, item, at + 1
        elif at < len(pattern) and is_same(pattern[at], items[item]):
            at, item = at + 1, item + 1
        elif star >= 0:
            mark += 1
            at, item = star + 1, mark
        else:
            return False
    return all(is_star(piece) for piece in pattern[at:])


@functools.lru_cache(1024)
def _literals(pattern: str) -> tuple[str, ...]:
    """What stands between the stars."""
    pieces, at = [""], 0
    while at < len(pattern):
        if pattern[at] == "\\" and pattern[at + 1 : at + 2] in {"*", "\\"}:
            at += 1
            pieces[-1] += pattern[at]
        elif pattern[at] == "*":
            pieces.append("")
        else:
            pieces[-1] += pattern[at]
        at += 1
    return tuple(pieces)


@functools.lru_cache(1024)
def _name_tokens(pattern: str) -> tuple[_Token, ...]:
    tokens, at = list[_Token](), 0
    while at < len(pattern):
        char = pattern[at]
        end = pattern.find("]", at + 2) if char == "[" else -1
        if char == "\\" and at + 1 < len(pattern):
            at += 1
            tokens.append(pattern[at])
        elif end > 0:
            tokens.append(_character_set(pattern[at + 1 : end]))
            at = end
        else:
            tokens.append({"*": None, "?": ""}.get(char, char))
        at += 1
    return tuple(tokens)


def _character_set(inside: str) -> frozenset[str]:
    """The characters of a set; the empty text in it says that these are the ones left out."""
    chars, at = set[str](), 0
    if inside[0] in "!^":
        chars.add("")
        at = 1
    while at < len(inside):
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            low, high = ord(inside[at]), ord(inside[at + 2])
            chars |= {chr(code) for code in range(low, min(high, low + 1024) + 1)}
            at += 2
        else:
            chars.add(inside[at])
        at += 1
    return frozenset(chars)
