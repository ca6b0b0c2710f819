"""Search results with explained scores, sync reports and index status; imports no numpy."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from apexbridge.errors import RetrievalError

Language = Literal["en", "zh"]
Kind = Literal["skill", "tool"]
"""An index entry is a skill, or a tool described by its name, one line and its parameters."""
Match = Literal["good", "weak"]
"""A hit at or over the confidence threshold, or below it: possible, but not clear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreParts:
    """Score explanation of a hit.

    `dense` and `view` are cosines, `lexical` a share of the best attainable BM25 score, `meaning`
    (dense part) and `total` are z-scores over all skills for the same query. `name` rates in 0..1
    how clearly the query mentions the skill by its name. `clause` is the part of the query that is
    nearest, if it asks for several things.
    """

    dense: float = 0.0
    view: float = 0.0
    view_text: str = ""
    lexical: float = 0.0
    words: Mapping[str, float] = field(default_factory=dict[str, float])
    meaning: float = 0.0
    usage: float = 0.0
    name: float = 0.0
    clause: str = ""
    language: Language = "en"
    total: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One skill; `score` is the probability, in 0..1, that it is the one that is wanted."""

    name: str
    score: float
    parts: ScoreParts
    alike: tuple[str, ...] = ()
    """Names of near duplicates that this hit stands for, best first."""
    kind: Kind = "skill"

    def match(self, threshold: float) -> Match:
        """Classify the hit; a weak one is shown as such and not hidden, for it may be needed."""
        return "good" if self.score >= threshold else "weak"

    def visible(self, is_visible: Callable[[str], bool]) -> "Hit | None":
        """Drop the names that a caller may not see; the first one left stands for the others."""
        if not self.alike and is_visible(self.name):  # nearly always: no copy
            return self
        names = [name for name in (self.name, *self.alike) if is_visible(name)]
        return replace(self, name=names[0], alike=tuple(names[1:])) if names else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchScope:
    """Entries that a search returns: of all kinds or some, near duplicates as one hit or each."""

    kinds: frozenset[Kind] | None = None
    folds_alike: bool = False


EVERYTHING = SearchScope()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResults:
    """Hits in descending order, and the confidence that any skill fits at all.

    `problem` is the reason why a search fell back to BM25 alone.
    """

    hits: tuple[Hit, ...] = ()
    confidence: float = 0.0
    searched: int = 0
    problem: RetrievalError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncProgress:
    """Progress of a sync."""

    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """Result of a sync, by skill names.

    `pending` are found by BM25 only, because `problem` kept them from being embedded; the next sync
    retries them. `failed` could not be read.
    """

    kept: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    redone: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    problem: RetrievalError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    """Consistency of an index with its skills.

    `missing` are not indexed, `stale` are indexed in another version, `orphaned` no longer exist.
    """

    embedder: str
    dimensions: int
    store: str
    path: Path
    bytes: int
    rows: int
    skills: int
    missing: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    orphaned: tuple[str, ...] = ()
    unmarked: tuple[str, ...] = ()
    """Indexed, but without a current `.vectorized` marker in their folder."""
    problems: tuple[str, ...] = ()

    @property
    def plan(self) -> Mapping[str, int]:
        """Return what the next sync does: entries kept, added, redone and removed."""
        redone = {*self.stale, *self.unmarked}
        return {
            "kept": self.skills - len(self.missing) - len(redone),
            "added": len(self.missing),
            "redone": len(redone),
            "removed": len(self.orphaned),
        }

    @property
    def is_sound(self) -> bool:
        """Say whether index and skills agree and nothing is corrupt."""
        return not (self.missing or self.stale or self.orphaned or self.problems)


def _ignore_progress(_progress: SyncProgress) -> None:
    """Default: do nothing."""


async def _ignore_stored(_names: Sequence[str]) -> None:
    """Default: do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncCallbacks:
    """Callbacks of a sync; `stored` is awaited after each durable batch."""

    progress: Callable[[SyncProgress], None] = _ignore_progress
    stored: Callable[[Sequence[str]], Awaitable[None]] = _ignore_stored


NO_CALLBACKS = SyncCallbacks()
