"""Does a line match? Answered in a time that grows with the line alone, whatever the pattern.

`re` keeps all of this process waiting while it tries a pattern again and again: neither a thread
nor a clock helps against that. So it is used only for patterns that leave it little to try. The
others run here, as the set of all places in the pattern that a line can have come to; sets that
were met before are remembered, so that a usual line costs one look-up a character.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

from apexbridge.tools.builtin.regex_parser import (
    At,
    Choice,
    Edge,
    Expression,
    Node,
    One,
    Row,
    Times,
    source_of,
)

MAX_STEPS = 3_000
_SHORT_LINE = 2_000
_MOST_TRIES = 2 * _SHORT_LINE
"""How often `re` may try at each character: so much is over in a few hundredths of a second."""
_MOST_REMEMBERED = 500_000

_START, _WORD, _OTHER, _END = range(4)
"""What stands on either side of a place."""


class TooSlowError(Exception):
    """The time is up."""


def compile_lines(expression: Expression) -> "Callable[[str, float], bool]":
    """A function of a line and a deadline (of `time.monotonic`) that says whether it matches.

    Raises:
        ValueError: If the pattern stands for too much.
    """
    automaton = Automaton(expression)
    if tries_of(expression.node) > _MOST_TRIES:
        return automaton.matches
    flags = re.IGNORECASE if expression.ignores_case else re.NOFLAG
    search = re.compile(source_of(expression.node), flags).search

    def matches(line: str, deadline: float) -> bool:
        if len(line) > _SHORT_LINE:
            return automaton.matches(line, deadline)
        return search(line) is not None

    return matches


def tries_of(node: Node) -> float:
    """In how many ways `re` may try to fit a pattern to a short line from one place on."""
    match node:
        case One() | At():
            return 1
        case Row():
            tries = 1.0
            for part in node.parts:
                tries *= tries_of(part)
            return tries
        case Choice():
            return sum(map(tries_of, node.options))
        case Times():
            if isinstance(node.inner, One):
                return _SHORT_LINE if node.most is None else node.most - node.least + 1
            return 1 + tries_of(node.inner) if node.most == 1 else float("inf")


def needle_of(expression: Expression) -> str:
    """A text that every matching line holds; empty if none can be told."""
    if expression.ignores_case:
        return ""
    node = expression.node
    runs = [""]
    for part in node.parts if isinstance(node, Row) else (node,):
        if isinstance(part, One) and part.literal:
            runs[-1] += part.literal
        elif not isinstance(part, At):
            runs.append("")
    return max(runs, key=len)


@dataclass(frozen=True, slots=True)
class _Step:
    """One place in the pattern: a character to take, an edge to be at, or only ways on."""

    ways: tuple[int, ...]
    character: int = -1
    edge: Edge | None = None


class _State(dict[str, "_State"]):
    """A set of places, and where each character leads from it."""

    __slots__ = ("before", "places")

    def __init__(self, places: frozenset[int], before: int) -> None:
        super().__init__()
        self.places = places
        self.before = before


_MATCHED = _State(frozenset(), _START)


class Automaton:
    """A pattern as steps, and the states that lines have led to so far."""

    def __init__(self, expression: Expression) -> None:
        self._flags = re.IGNORECASE if expression.ignores_case else re.NOFLAG
        self._characters = list[re.Pattern[str]]()
        self._known = dict[str, int]()
        self._steps = list[_Step]()
        self._final = self._add(_Step(()))
        self._first = self._build(expression.node, self._final)
        self._states = dict[tuple[frozenset[int], int], _State]()
        self._remembered = 0

    def _add(self, step: _Step) -> int:
        if len(self._steps) >= MAX_STEPS:
            raise ValueError("it stands for too much: use smaller numbers in {}")
        self._steps.append(step)
        return len(self._steps) - 1

    def _build(self, node: Node, then: int) -> int:
        """Add the steps of a node that lead on to `then`; where they begin."""
        match node:
            case One():
                return self._add(_Step((then,), character=self._character(node.source)))
            case At():
                return self._add(_Step((then,), edge=node.edge))
            case Row():
                for part in reversed(node.parts):
                    then = self._build(part, then)
                return then
            case Choice():
                ways = tuple(self._build(option, then) for option in node.options)
                return self._add(_Step(ways))
            case Times():
                return self._build_times(node, then)
            case _:
                assert_never(node)

    def _build_times(self, node: Times, then: int) -> int:
        if node.most is None:
            loop = self._add(_Step(()))
            self._steps[loop] = _Step((self._build(node.inner, loop), then))
            then = loop
        for _ in range((node.most or node.least) - node.least):
            then = self._add(_Step((self._build(node.inner, then), then)))
        for _ in range(node.least):
            before = then
            then = self._build(node.inner, then)
            if then == before:  # nothing stays nothing, however often
                break
        return then

    def _character(self, source: str) -> int:
        if source not in self._known:
            self._known[source] = len(self._characters)
            self._characters.append(re.compile(source, self._flags))
        return self._known[source]

    def matches(self, line: str, deadline: float) -> bool:
        """Say whether the pattern fits anywhere in a line.

        Raises:
            TooSlowError: If the deadline passes.
        """
        state = self._state(frozenset({self._first}), _START)
        for char in line:
            following = state.get(char)
            if following is None:
                if time.monotonic() > deadline:
                    raise TooSlowError
                following = self._follow(state, char)
            if following is _MATCHED:
                return True
            state = following
        return self._final in self._reach(state, _END)

    def _follow(self, state: _State, char: str) -> _State:
        kind = _WORD if char.isalnum() or char == "_" else _OTHER
        reached = self._reach(state, kind)
        following = _MATCHED
        if self._final not in reached:
            fits = {
                number for number in self._asked(reached) if self._characters[number].match(char)
            }
            steps = (self._steps[place] for place in reached)
            places = {way for step in steps if step.character in fits for way in step.ways}
            following = self._state(frozenset({*places, self._first}), kind)
        if self._remembered > _MOST_REMEMBERED:
            self._states.clear()
            self._remembered = 0
        state[char] = following
        self._remembered += 1 + len(following.places)
        return following

    def _asked(self, places: Iterable[int]) -> Iterator[int]:
        numbers = {self._steps[place].character for place in places}
        return (number for number in numbers if number >= 0)

    def _state(self, places: frozenset[int], before: int) -> _State:
        key = (places, before)
        if key not in self._states:
            self._states[key] = _State(places, before)
        return self._states[key]

    def _reach(self, state: _State, after: int) -> set[int]:
        """All places that can be come to before the next character is taken."""
        reached, pending = set(state.places), list(state.places)
        while pending:
            step = self._steps[pending.pop()]
            if step.character >= 0 or (step.edge and not _is_at(step.edge, state.before, after)):
                continue
            fresh = [way for way in step.ways if way not in reached]
            reached.update(fresh)
            pending += fresh
        return reached


def _is_at(edge: Edge, before: int, after: int) -> bool:
    match edge:
        case "start":
            return before == _START
        case "end":
            return after == _END
        case "boundary":
            return (before == _WORD) != (after == _WORD)
        case "inside":
            return (before == _WORD) == (after == _WORD)
