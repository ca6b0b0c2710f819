"""Interference between skills: stolen queries, near duplicates, and rank shifts of a new text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from apexbridge.evals.retrieval_eval import first_rank, search_index, with_skill_text
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.results import NO_CALLBACKS, Hit, SyncCallbacks, SyncProgress
from apexbridge.retrieval.skill_document import SkillText, stated_purposes

QUERIES_EACH = 4
MIN_SIMILARITY = 0.95
"""Cosine similarity above which two skills count as near duplicates."""
_NEIGHBOURS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StolenQuery:
    """A query from one skill's own text for which another skill ranks first."""

    owner: str
    thief: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarPair:
    """Two skills with nearly equal embeddings."""

    one: str
    other: str
    cosine: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CoexistenceReport:
    """Stolen queries by owner and thief, and near duplicates, the most similar first."""

    skills: int
    queries: int
    thefts: tuple[StolenQuery, ...] = ()
    alike: tuple[SimilarPair, ...] = ()

    @property
    def matrix(self) -> Mapping[str, Mapping[str, int]]:
        """Confusion matrix: stolen queries by owner and thief, the largest loss first."""
        counts = Counter((theft.owner, theft.thief) for theft in self.thefts)
        rows = dict[str, dict[str, int]]()
        for (owner, thief), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            rows.setdefault(owner, {})[thief] = count
        order = sorted(rows, key=lambda owner: (-sum(rows[owner].values()), owner))
        return {owner: rows[owner] for owner in order}


@dataclass(slots=True)
class _Tally:
    queries: int = 0
    thefts: list[StolenQuery] = field(default_factory=list[StolenQuery])
    alike: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])


async def measure_coexistence(
    index: SkillIndex,
    *,
    queries_each: int = QUERIES_EACH,
    alike: float = MIN_SIMILARITY,
    watch: SyncCallbacks = NO_CALLBACKS,
) -> CoexistenceReport:
    """Query the index with each skill's own stated purposes, and compare nearest neighbours."""
    await index.refresh()
    owned = {name: index.memory.texts[row] for name, row in sorted(index.memory.row_of.items())}
    tally = _Tally()
    for done, (name, texts) in enumerate(owned.items(), 1):
        for query in stated_purposes(texts)[:queries_each]:
            tally.queries += 1
            results = await search_index(index, query, limit=1)
            if results.hits and results.hits[0].name != name:
                theft = StolenQuery(owner=name, thief=results.hits[0].name, query=query)
                tally.thefts.append(theft)
        await _compare_neighbours(index, name, alike, tally)
        watch.progress(SyncProgress(done=done, total=len(owned)))
    pairs = (
        SimilarPair(one=one, other=b, cosine=cosine) for (one, b), cosine in tally.alike.items()
    )
    return CoexistenceReport(
        skills=len(owned),
        queries=tally.queries,
        thefts=tuple(tally.thefts),
        alike=tuple(sorted(pairs, key=lambda pair: (-pair.cosine, pair.one, pair.other))),
    )


async def _compare_neighbours(index: SkillIndex, name: str, alike: float, tally: _Tally) -> None:
    async with index.lock:
        row = index.memory.row_of.get(name)
        near = [] if row is None else index.memory.nearest_to_row(row, _NEIGHBOURS)
    for other, cosine in near:
        if cosine > alike:
            # One key for both directions: each pair is met twice.
            first, second = sorted((name, other))
            tally.alike.setdefault((first, second), min(1.0, cosine))


DEPTH = 10
"""Ranking depth of the comparison."""

QuerySource = Literal["saved", "old", "new"]
"""Origin of a query: `eval_queries.json`, the current text, or the new text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShift:
    """Rank of the skill for a query before and after; None if not in the top ten."""

    query: str
    kind: QuerySource
    before: int | None
    after: int | None
    gains: tuple[str, ...] = ()
    """Other skills that rank higher."""
    loses: tuple[str, ...] = ()
    """Other skills that rank lower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankChange:
    """Sum of ranks that another skill loses and gains over all queries."""

    name: str
    lost: int
    gained: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptionPreview:
    """Rank shifts of a skill by query, and of the other skills, the largest loss first."""

    name: str
    shifts: tuple[RankShift, ...]
    others: tuple[RankChange, ...]


async def compare_descriptions(
    index: SkillIndex, old: SkillText, new: SkillText, saved: Sequence[str] = ()
) -> DescriptionPreview:
    """Compare the ranks of a skill with its old text and with a new one; nothing is stored.

    Both texts are indexed in copies, so that the comparison differs in nothing else. Queries are
    the `saved` ones and the stated purposes of both texts: the old ones show losses, the new ones
    gains.
    """
    name = new.name
    was, would = await with_skill_text(index, old), await with_skill_text(index, new)
    shifts = list[RankShift]()
    lost, gained = Counter[str](), Counter[str]()
    for query, kind in _queries(
        saved, _queries_from_index(was, name), _queries_from_index(would, name)
    ):
        before = (await search_index(was, query, limit=DEPTH)).hits
        after = (await search_index(would, query, limit=DEPTH)).hits
        ranks = first_rank(before, [name]), first_rank(after, [name])
        moves = {other: by for other, by in _rank_changes(before, after) if other != name}
        shifts.append(
            RankShift(
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
        RankChange(name=other, lost=lost[other], gained=gained[other]) for other in {*lost, *gained}
    ]
    others.sort(key=lambda moved: (moved.gained - moved.lost, moved.name))
    return DescriptionPreview(name=name, shifts=tuple(shifts), others=tuple(others))


def _queries(
    saved: Sequence[str], old: Sequence[str], new: Sequence[str]
) -> Iterator[tuple[str, QuerySource]]:
    """Yield each query once, with its first source."""
    kinds: tuple[tuple[QuerySource, Sequence[str]], ...] = (
        ("saved", saved),
        ("old", old),
        ("new", new),
    )
    seen = set[str]()
    for kind, queries in kinds:
        for query in queries:
            if query not in seen:
                seen.add(query)
                yield query, kind


def _queries_from_index(index: SkillIndex, name: str) -> Sequence[str]:
    row = index.memory.row_of.get(name)
    return () if row is None else stated_purposes(index.memory.texts[row])


def _rank_changes(before: Sequence[Hit], after: Sequence[Hit]) -> Iterator[tuple[str, int]]:
    """Yield how many ranks each skill drops."""
    for name in {hit.name: None for hit in (*before, *after)}:
        old, new = first_rank(before, [name]), first_rank(after, [name])
        # A hit below the depth has an unknown rank: count it as the first one below.
        places = (new or DEPTH + 1) - (old or DEPTH + 1)
        if places:
            yield name, places
