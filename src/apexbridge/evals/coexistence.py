"""Who steals whose queries, over all skills of an index, and which skills are nearly the same."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from apexbridge.evals.trial import ask
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.report import UNWATCHED, Progress, Watch
from apexbridge.retrieval.text import claims

QUERIES_EACH = 4
ALIKE = 0.95
"""The cosine from which two skills are nearly the same."""
_NEIGHBOURS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Theft:
    """A query of one skill for which another comes first."""

    owner: str
    thief: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Two skills whose texts say nearly the same."""

    one: str
    other: str
    cosine: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Coexistence:
    """What was stolen, by owner and thief, and what is alike, the worst first."""

    skills: int
    queries: int
    thefts: tuple[Theft, ...] = ()
    alike: tuple[Alike, ...] = ()

    @property
    def matrix(self) -> Mapping[str, Mapping[str, int]]:
        """How many queries of each owner each thief takes; the most robbed owner first."""
        counts = Counter((theft.owner, theft.thief) for theft in self.thefts)
        rows = dict[str, dict[str, int]]()
        for (owner, thief), count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            rows.setdefault(owner, {})[thief] = count
        order = sorted(rows, key=lambda owner: (-sum(rows[owner].values()), owner))
        return {owner: rows[owner] for owner in order}


@dataclass(slots=True)
class _Tally:
    queries: int = 0
    thefts: list[Theft] = field(default_factory=list[Theft])
    alike: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])


async def coexist(
    index: SkillIndex,
    *,
    queries_each: int = QUERIES_EACH,
    alike: float = ALIKE,
    watch: Watch = UNWATCHED,
) -> Coexistence:
    """Search for what each skill itself says it is for: its views, then its sentences.

    Raises:
        RetrievalError: If the embedder fails.
    """
    await index.refresh()
    owned = {name: index.shelf.texts[row] for name, row in sorted(index.shelf.row_of.items())}
    tally = _Tally()
    for done, (name, texts) in enumerate(owned.items(), 1):
        for query in claims(texts)[:queries_each]:
            tally.queries += 1
            results = await ask(index, query, limit=1)
            if results.hits and results.hits[0].name != name:
                theft = Theft(owner=name, thief=results.hits[0].name, query=query)
                tally.thefts.append(theft)
        await _compare(index, name, alike, tally)
        watch.progress(Progress(done=done, total=len(owned)))
    pairs = (Alike(one=one, other=b, cosine=cosine) for (one, b), cosine in tally.alike.items())
    return Coexistence(
        skills=len(owned),
        queries=tally.queries,
        thefts=tuple(tally.thefts),
        alike=tuple(sorted(pairs, key=lambda pair: (-pair.cosine, pair.one, pair.other))),
    )


async def _compare(index: SkillIndex, name: str, alike: float, tally: _Tally) -> None:
    async with index.lock:
        row = index.shelf.row_of.get(name)
        near = [] if row is None else index.shelf.near(row, _NEIGHBOURS)
    for other, cosine in near:
        if cosine > alike:
            first, second = sorted((name, other))
            tally.alike.setdefault((first, second), min(1.0, cosine))
