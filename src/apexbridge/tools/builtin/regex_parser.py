"""Regular expressions taken apart, in the manner of ripgrep: no backreferences, no looking around.

Models write the patterns, so none may take forever. What a single character may be is left to
`re`; all that could make it try again and again is taken apart here, and run by `automaton`.
"""

import re
from dataclasses import dataclass
from typing import Literal

MAX_CHARS = 1_000
_MAX_DEPTH = 50
_MAX_TIMES = 1_000

_QUANTIFIER = re.compile(r"[*+?]|\{(\d{0,6})(?:(,)(\d{0,6}))?\}")
_GROUP = re.compile(r"\(\?(?::|P?<[A-Za-z_]\w*>)|\((?!\?)")
_FLAGS = re.compile(r"\(\?([a-z]+)\)")
_ESCAPE = re.compile(
    r"\\(?:x\{([0-9A-Fa-f]{1,6})\}|u\{([0-9A-Fa-f]{1,6})\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}"
    r"|U[0-9A-Fa-f]{8}|[\s\S])"
)
_NAMED_CLASS = re.compile(r"\[:([a-z]+):\]")
_CLASS_NAMES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z",
    "space": r"\s", "xdigit": "0-9a-fA-F", "word": r"\w", "blank": r" \t",
    "punct": r"!-/:-@\[-`{-~",
}  # fmt: skip

Edge = Literal["start", "end", "boundary", "inside"]
_EDGES: dict[str, Edge] = {"A": "start", "z": "end", "Z": "end", "b": "boundary", "B": "inside"}
_EDGE_SOURCES: dict[Edge, str] = {
    "start": r"\A",
    "end": r"\Z",
    "boundary": r"\b",
    "inside": r"(?!\b)",  # `\B` says no of an empty line in older Pythons
}


@dataclass(frozen=True, slots=True)
class One:
    """One character: what `re` is to compare it with, and which it is if only one will do."""

    source: str
    literal: str = ""


@dataclass(frozen=True, slots=True)
class At:
    """A place between characters."""

    edge: Edge


@dataclass(frozen=True, slots=True)
class Row:
    """One after another."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several."""

    options: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Times:
    """Again and again; `most` is None for any number."""

    inner: "Node"
    least: int
    most: int | None


Node = One | At | Row | Choice | Times


@dataclass(frozen=True, slots=True)
class Expression:
    """A pattern in its parts."""

    node: Node
    ignores_case: bool = False


def parse(pattern: str, *, ignores_case: bool = False) -> Expression:
    """Take a pattern apart.

    Raises:
        ValueError: If it makes no sense, or needs what cannot be bounded; in words.
    """
    if len(pattern) > MAX_CHARS:
        raise ValueError(f"it is longer than {MAX_CHARS:,} characters")
    flags = _FLAGS.match(pattern)
    if flags:
        if set(flags[1]) - set("imsu"):
            raise ValueError(f"the flags {flags[0]} are not known: only (?i)")
        pattern = pattern[flags.end() :]
        ignores_case = ignores_case or "i" in flags[1]
    parser = _Parser(pattern)
    node = parser.choice(0)
    if parser.at < len(pattern):
        raise ValueError("a ')' closes nothing; write \\) for the character")
    return Expression(node, ignores_case)


def source_of(node: Node) -> str:
    """The pattern as `re` reads it."""
    match node:
        case One():
            return node.source
        case At():
            return _EDGE_SOURCES[node.edge]
        case Row():
            return "".join(map(source_of, node.parts))
        case Choice():
            return f"(?:{'|'.join(map(source_of, node.options))})"
        case Times():
            most = "" if node.most is None else node.most
            return f"(?:{source_of(node.inner)}){{{node.least},{most}}}"


class _Parser:
    """One way through a pattern, from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.at = 0

    def choice(self, depth: int) -> Node:
        if depth > _MAX_DEPTH:
            raise ValueError("its groups are nested too deep")
        options = [self._row(depth)]
        while self._takes("|"):
            options.append(self._row(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _row(self, depth: int) -> Node:
        parts = list[Node]()
        while self.at < len(self._pattern) and self._pattern[self.at] not in "|)":
            parts.append(self._repeated(self._atom(depth)))
        return parts[0] if len(parts) == 1 else Row(tuple(parts))

    def _repeated(self, node: Node) -> Node:
        found = _QUANTIFIER.match(self._pattern, self.at)
        if found is None or found[0] in {"{}", "{,}"}:
            return node
        self.at = found.end()
        if not self._takes("?") and self._pattern[self.at : self.at + 1] in {"*", "+"}:
            raise ValueError(f"'{found[0]}' is followed by another one; use brackets")
        least, most = _times(found)
        if least > _MAX_TIMES or (most or 0) > _MAX_TIMES:
            raise ValueError(f"{found[0]} is more than {_MAX_TIMES:,} times")
        if most is not None and most < least:
            raise ValueError(f"{found[0]} is upside down")
        return Times(node, least, most)

    def _atom(self, depth: int) -> Node:
        char = self._pattern[self.at]
        if char == "(":
            return self._group(depth)
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        if char in "*+?":
            raise ValueError(f"there is nothing before '{char}' to repeat; write \\{char} for it")
        self.at += 1
        if char in "^$":
            return At("start" if char == "^" else "end")
        return One(r"[\s\S]") if char == "." else One(re.escape(char), char)

    def _group(self, depth: int) -> Node:
        opened = _GROUP.match(self._pattern, self.at)
        if opened is None:
            raise ValueError("looking around, backreferences and flags within are not supported")
        self.at = opened.end()
        inner = self.choice(depth + 1)
        if not self._takes(")"):
            raise ValueError("a '(' is not closed; write \\( for the character")
        return inner

    def _escape(self) -> Node:
        found = _ESCAPE.match(self._pattern, self.at)
        if found is None:
            raise ValueError("it ends in a backslash")
        self.at = found.end()
        name = found[0][1:]
        if name in _EDGES:
            return At(_EDGES[name])
        if name.isdecimal() and name != "0":
            raise ValueError("backreferences are not supported")
        if name in {"p", "P", "X", "R", "K", "G", "k"}:
            raise ValueError(f"\\{name} is not supported; write a class such as [\\u4e00-\\u9fff]")
        return _checked(_escaped(found))

    def _class(self) -> Node:
        source, at = "[", self.at + 1
        if self._pattern.startswith("^", at):
            source, at = "[^", at + 1
        first = at
        while at < len(self._pattern) and (self._pattern[at] != "]" or at == first):
            piece, at = self._member(at)
            source += piece
        if at >= len(self._pattern):
            raise ValueError("a '[' is not closed; write \\[ for the character")
        self.at = at + 1
        return _checked(f"{source}]")

    def _member(self, at: int) -> tuple[str, int]:
        """A piece of a class, so that `re` sees nothing in it but characters and ranges."""
        char = self._pattern[at]
        named = _NAMED_CLASS.match(self._pattern, at)
        if named:
            if named[1] not in _CLASS_NAMES:
                raise ValueError(f"there is no class {named[0]}")
            return _CLASS_NAMES[named[1]], named.end()
        if char == "\\":
            found = _ESCAPE.match(self._pattern, at)
            if found is None:
                raise ValueError("it ends in a backslash")
            return _escaped(found), found.end()
        if self._pattern.startswith("--", at):
            raise ValueError("'--' within [] is unclear: write \\- for the character")
        return (f"\\{char}" if char in "[]&~|" else char), at + 1

    def _takes(self, char: str) -> bool:
        is_there = self._pattern.startswith(char, self.at)
        self.at += is_there
        return is_there


def _times(found: "re.Match[str]") -> tuple[int, int | None]:
    simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}
    if found[0] in simple:
        return simple[found[0]]
    least = int(found[1] or 0)
    if not found[2]:
        return least, least
    return least, int(found[3]) if found[3] else None


def _escaped(found: "re.Match[str]") -> str:
    code = found[1] or found[2]
    if not code:
        return found[0]
    if int(code, 16) > 0x10FFFF:
        raise ValueError(f"{found[0]} is no character")
    return f"\\U{int(code, 16):08x}"


def _checked(source: str) -> One:
    try:
        re.compile(source)
    except re.error as error:
        raise ValueError(f"'{source}' makes no sense: {error.msg}") from None
    is_plain = len(source) == 2 and source[0] == "\\" and not source[1].isalnum()
    return One(source, source[1] if is_plain else "")
