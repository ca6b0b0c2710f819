"""What another description would do to the ranks, before it is saved."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from apexbridge.evals.trial import ask, rank_of, with_text
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.results import Hit
from apexbridge.retrieval.text import SkillText, claims

DEPTH = 10
"""How deep a ranking is compared."""

Kind = Literal["saved", "old", "new"]
"""From `eval_queries.json`, from the text as it is, or from the text as it would be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A query, and the skill's rank before and after; None: not among the first ten."""

    query: str
    kind: Kind
    before: int | None
    after: int | None
    gains: tuple[str, ...] = ()
    """Other skills that go up, by name."""
    loses: tuple[str, ...] = ()
    """Other skills that go down, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """How many places another skill loses and gains over all queries."""

    name: str
    lost: int
    gained: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """Every query of the skill, and the other skills that move, those that lose most first."""

    name: str
    shifts: tuple[Shift, ...]
    others: tuple[Moved, ...]


async def preview(
    index: SkillIndex, old: SkillText, new: SkillText, saved: Sequence[str] = ()
) -> Preview:
    """Compare the ranks of a skill with its old text and with a new one.

    Nothing is stored: both are tried on copies, so that they differ in nothing else. Beside the
    `saved` queries, what the texts say of themselves is asked: the old one shows what would be
    lost, the new one what would be won.

    Raises:
        RetrievalError: If the embedder fails.
    """
    name = new.name
    was, would = await with_text(index, old), await with_text(index, new)
    shifts = list[Shift]()
    lost, gained = Counter[str](), Counter[str]()
    for query, kind in _queries(saved, _mined(was, name), _mined(would, name)):
        before = (await ask(was, query, limit=DEPTH)).hits
        after = (await ask(would, query, limit=DEPTH)).hits
        ranks = rank_of(before, [name]), rank_of(after, [name])
        moves = {other: by for other, by in _moves(before, after) if other != name}
        shifts.append(
            Shift(
                query=query,
                kind=kind,
                before=ranks[0],
                after=ranks[1],
                gains=tuple(sorted(other for other, by in moves.items() if by < 0)),
                loses=tuple(sorted(other for other, by in moves.items() if by > 0)),
            )
        )
        for other, places in moves.items():
            (lost if places > 0 else gained)[other] += abs(places)
    others = [
        Moved(name=other, lost=lost[other], gained=gained[other]) for other in {*lost, *gained}
    ]
    others.sort(key=lambda moved: (moved.gained - moved.lost, moved.name))
    return Preview(name=name, shifts=tuple(shifts), others=tuple(others))


def _queries(
    saved: Sequence[str], old: Sequence[str], new: Sequence[str]
) -> Iterator[tuple[str, Kind]]:
    """Each query once, as the first kind it is of."""
    kinds: tuple[tuple[Kind, Sequence[str]], ...] = (("saved", saved), ("old", old), ("new", new))
    seen = set[str]()
    for kind, queries in kinds:
        for query in queries:
            if query not in seen:
                seen.add(query)
                yield query, kind


def _mined(index: SkillIndex, name: str) -> Sequence[str]:
    row = index.shelf.row_of.get(name)
    return () if row is None else claims(index.shelf.texts[row])


def _moves(before: Sequence[Hit], after: Sequence[Hit]) -> Iterator[tuple[str, int]]:
    """How many places each skill goes down; beyond the depth is one place further."""
    for name in {hit.name: None for hit in (*before, *after)}:
        old, new = rank_of(before, [name]), rank_of(after, [name])
        places = (new or DEPTH + 1) - (old or DEPTH + 1)
        if places:
            yield name, places
