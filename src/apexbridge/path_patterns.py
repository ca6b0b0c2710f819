"""Gitignore path patterns, with brace expansion, compiled to RE2 for matching in linear time.

Three dialects share the translation: `paths:` globs in frontmatter and globs of tools (gitignore
lines with `{a,b}` written out first), ignore files, and path rules of permissions (lenient: a
pattern is never refused, because a deny rule must not get lost).

The patterns come from untrusted skills and clones. Translated for a backtracking engine, five stars
against a name of 300 characters take a minute (ReDoS); RE2 runs a finite automaton instead.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import re2  # pyright: ignore[reportMissingTypeStubs]

MAX_DEPTH = 256
"""Paths deeper than this match nothing."""
MAX_EXPANSIONS = 256
MAX_CHARS = 1_024
MAX_LINES = 2_000
"""Patterns of one ignore file that are read: a clone may bring any number."""
_MAX_COMBINED_CHARS = 16_384
"""Length of one combined regular expression: RE2 refuses programs above a memory limit."""

_POSIX_CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z",
    "space": r"\s", "punct": r"!-.:-@\[-`{-~", "xdigit": "0-9a-fA-F", "blank": r" \t",
    "word": r"\w",
}  # fmt: skip
"""As members of a class; `/` is left out of `punct`, for no bracket expression matches it."""
_SURROGATES = {code: code + 0x102000 for code in range(0xD800, 0xE000)}


@dataclass(frozen=True, slots=True)
class _Rule:
    """One gitignore line: the regular expression of a path, without the slash at its end."""

    regex: str
    is_negated: bool = False
    is_for_folders: bool = False
    """It ended in a slash."""


class PathMatcher:
    """Gitignore rules as one matcher; the last rule that matches a path decides."""

    def __init__(self, rules: Iterable[_Rule]) -> None:
        self._rules = tuple(rules)
        self._included = _Automata(rule for rule in self._rules if not rule.is_negated)
        self._negated = _Automata(rule for rule in self._rules if rule.is_negated)

    def verdict(self, path: str) -> bool | None:
        """Decide by the last rule that matches: True if included, False by a `!` rule, else None.

        A folder is written with a slash at its end. Parent folders are not considered.
        """
        parts = [part for part in path.split("/") if part]
        if not parts or len(parts) > MAX_DEPTH:
            return None
        return self._decide("/".join(parts) + "/" * path.endswith("/"))

    def matches(self, path: str) -> bool:
        """Return whether a path is matched, or a parent folder with all that it holds."""
        parts = [part for part in path.split("/") if part]
        if not parts or len(parts) > MAX_DEPTH:
            return False
        plain = "/".join(parts) + "/" * path.endswith("/")
        if not self._included.match_with_parents(plain):
            return False
        if not self._negated.match_with_parents(plain):
            return True
        # Order matters only here. A file cannot be re-included when a parent folder is excluded.
        parents = ("/".join(parts[:length]) + "/" for length in range(1, len(parts)))
        return any(map(self._decide, (*parents, plain)))

    def _decide(self, path: str) -> bool | None:
        if not self._negated.match(path):
            return True if self._included.match(path) else None
        # Order decides between the two.
        last = next(rule for rule in reversed(self._rules) if _automaton(rule).match(path))
        return not last.is_negated


class _Automata:
    """Rules compiled when they are first needed: most patterns are only checked for errors."""

    def __init__(self, rules: Iterable[_Rule]) -> None:
        self._rules = tuple(rules)

    def match(self, path: str) -> bool:
        """Return whether one of the rules names the path."""
        return _any(self._exact, path)

    def match_with_parents(self, path: str) -> bool:
        """Return whether one of the rules names the path or one of its parent folders."""
        return _any(self._prefix, path)

    @cached_property
    def _exact(self) -> tuple[Any, ...]:
        return _combine(f"{r.regex}{'/' if r.is_for_folders else '/?'}$" for r in self._rules)

    @cached_property
    def _prefix(self) -> tuple[Any, ...]:
        return _combine(f"{r.regex}{'/' if r.is_for_folders else '(?:/|$)'}" for r in self._rules)


@lru_cache(4096)
def _automaton(rule: _Rule) -> _Automata:
    return _Automata((rule,))


def covers(pattern: str, path: str, *, is_anchored: bool) -> bool:
    """Match a path or one of its parent folders leniently: no pattern is invalid here.

    Without an anchor a pattern matches at any depth. `a/**` covers `a` too: a permission rule for
    all files of a folder is also one for listing it.
    """
    rule = _lenient_rule(pattern, is_anchored=is_anchored)
    return rule is None or _automaton(rule).match_with_parents(path)


@lru_cache(1024)
def _lenient_rule(pattern: str, *, is_anchored: bool) -> _Rule | None:
    """Translate a pattern; none if it covers everything."""
    segments = [part for part in pattern.split("/") if part not in {"", "."}]
    while segments and segments[-1] == "**":
        segments.pop()
    if not segments:
        return None
    return _Rule(_path_regex(segments, is_anchored=is_anchored, is_lenient=True))


def compile_patterns(patterns: tuple[str, ...]) -> PathMatcher:
    """Compile globs to one matcher; ValueError if one is invalid or expands to too many."""
    rules = list[_Rule]()
    for pattern in patterns:
        if count_expansions(pattern) > MAX_EXPANSIONS:
            raise ValueError(f"{pattern!r} stands for more than {MAX_EXPANSIONS} patterns")
        rules += [rule for text in expand_braces(pattern) if (rule := _parse(text)) is not None]
    return PathMatcher(rules)


@lru_cache(maxsize=32)
def parse_gitignore(text: str) -> PathMatcher:
    """Compile a `.gitignore` file; an invalid line is ignored, as git does."""
    rules = list[_Rule]()
    for line in text.splitlines():
        try:
            rule = _parse(line) if len(line) <= MAX_CHARS else None
        except ValueError:
            continue
        rules += [rule] if rule is not None else []
        if len(rules) == MAX_LINES:
            break
    return PathMatcher(rules)


def count_expansions(pattern: str) -> int:
    """Count what the braces expand to, without expanding: a brace bomb costs nothing."""
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
    """Find the positions of paired braces; one without a partner is an ordinary character."""
    opened, paired = list[int](), set[int]()
    for at, char in enumerate(pattern):
        if char == "{":
            opened.append(at)
        elif char == "}" and opened:
            paired.update((opened.pop(), at))
    return frozenset(paired)


def expand_braces(pattern: str) -> tuple[str, ...]:
    """Expand the braces in one pass, to as many texts as were counted. The caller counts first.

    >>> expand_braces("src/*.{ts,tsx}")
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


@lru_cache(1024)
def _parse(line: str) -> _Rule | None:
    """Parse one line; blank lines and comments are no rule."""
    text = line.rstrip("\r\n")
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    if not text or text.startswith("#"):
        return None
    is_negated = text.startswith("!")
    text = text[1:] if is_negated else text
    is_for_folders = text.endswith("/")
    text = text.rstrip("/")
    segments = [part for part in text.split("/") if part]
    if not segments:
        raise ValueError("it names nothing")
    return _Rule(_path_regex(segments, is_anchored="/" in text), is_negated, is_for_folders)


def _path_regex(segments: Sequence[str], *, is_anchored: bool, is_lenient: bool = False) -> str:
    """Translate segments: `**` is any number of folders, and at the end what is inside."""
    regex = "" if is_anchored else "(?:.+/)?"
    for segment in segments[:-1]:
        regex += "(?:.+/)?" if segment == "**" else _segment_regex(segment, is_lenient) + "/"
    # A run of `**` is one: RE2's time is also linear in the length of the expression.
    regex = re.sub(r"(?:\(\?:\.\+/\)\?)+", "(?:.+/)?", regex)
    return regex + (".+" if segments[-1] == "**" else _segment_regex(segments[-1], is_lenient))


def _segment_regex(text: str, is_lenient: bool) -> str:
    r"""Translate the wildcards of one name.

    >>> _segment_regex("*.t[!x]?", False)
    '[^/]*\\.t[^/x][^/]'
    """
    regex, at, text = "", 0, _without_surrogates(text)
    while at < len(text):
        try:
            piece, at = _token(text, at)
        except ValueError:
            if not is_lenient:
                raise
            # `[!]` has always been any character in permission rules: a deny rule stays as wide.
            is_any = text[at : at + 3] in {"[!]", "[^]"}
            piece, at = ("[^/]", at + 3) if is_any else (re.escape(text[at]), at + 1)
        regex += piece
    # A name is never empty, and a run of stars is one star.
    return re.sub(r"(?:\[\^/\]\*)+", "[^/]*", regex) if set(text) != {"*"} else "[^/]+"


def _token(text: str, at: int) -> tuple[str, int]:
    """Translate one character, escape or bracket expression, and say where the next begins."""
    match text[at]:
        case "*":
            return "[^/]*", at + 1
        case "?":
            return "[^/]", at + 1
        case "[":
            return _bracket(text, at)
        case "\\" if at + 1 == len(text):
            raise ValueError("it ends in a backslash")
        case "\\":
            return re.escape(text[at + 1]), at + 2
        case char:
            return re.escape(char), at + 1


def _bracket(text: str, start: int) -> tuple[str, int]:
    """Translate a bracket expression, and say where it ends."""
    at = start + 1
    is_negated = text[at : at + 1] in {"!", "^"}
    at += is_negated
    first, members = at, list[str]()
    while at < len(text) and (text[at] != "]" or at == first):
        if named := re.match(r"\[:(\w+):\]", text[at : at + 16]):
            if named[1] not in _POSIX_CLASSES:
                raise ValueError(f"there is no class '{named[1]}'")
            members.append(_POSIX_CLASSES[named[1]])
            at += named.end()
            continue
        low, at = _member(text, at)
        high = low
        # A hyphen makes a range only between two characters.
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in {"", "]"}:
            high, at = _member(text, at + 1)
        members += _range(low, high)
    if at >= len(text):
        raise ValueError("a bracket does not close")
    inside = "".join(members)
    if is_negated:
        return f"[^/{inside}]", at + 1
    return f"[{inside}]" if inside else r"[^\x00-\x{10ffff}]", at + 1


def _member(text: str, at: int) -> tuple[str, int]:
    if text[at] == "\\" and at + 1 < len(text):
        at += 1
    return text[at], at + 1


def _range(low: str, high: str) -> Iterator[str]:
    """Write a range without the slash, which no bracket expression matches."""
    if low > high:
        raise ValueError(f"bad character range {low}-{high}")
    # Neither end is the slash: a pattern is split at slashes before its brackets are read.
    pairs = [(low, "."), ("0", high)] if low < "/" < high else [(low, high)]
    for start, end in pairs:
        yield f"\\x{{{ord(start):x}}}-\\x{{{ord(end):x}}}"


def _combine(regexes: Iterable[str]) -> tuple[Any, ...]:
    """Compile as few automata as possible: one search costs the same for one rule and for fifty."""
    groups, size = list[list[str]](), 0
    for regex in regexes:
        size += len(regex)
        if not groups or size > _MAX_COMBINED_CHARS:
            groups.append([])
            size = len(regex)
        groups[-1].append(f"(?:{regex})")
    options: Any = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.dot_nl = True
    engine: Any = re2  # it has no type stubs
    return tuple(engine.compile("|".join(group).encode(), options) for group in groups)


def _any(regexes: Iterable[Any], path: str) -> bool:
    # As bytes, because RE2's wrapper computes offsets for texts, which are not needed here.
    data = _without_surrogates(path).encode()
    return any(regex.match(data) is not None for regex in regexes)


def _without_surrogates(text: str) -> str:
    """Replace surrogates, which stand for bytes that are not UTF-8, each by a private character."""
    return text if text.isascii() else text.translate(_SURROGATES)
