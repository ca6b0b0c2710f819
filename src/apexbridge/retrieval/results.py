"""What a search gives: hits that say why they are there."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from apexbridge.errors import RetrievalError

Language = Literal["en", "zh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreParts:
    """What a hit's score is made of.

    `dense` and `view` are cosines, `lexical` a share of the best attainable, `meaning` the vectors'
    part and `total` everything, in standard deviations from what the request gets elsewhere.
    """

    dense: float = 0.0
    view: float = 0.0
    view_text: str = ""
    lexical: float = 0.0
    words: Mapping[str, float] = field(default_factory=dict[str, float])
    meaning: float = 0.0
    usage: float = 0.0
    language: Language = "en"
    total: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One skill that was found; `score` is the chance, in 0..1, that it is the one wanted."""

    name: str
    score: float
    parts: ScoreParts


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResults:
    """The hits, best first, and how sure one can be that any skill fits at all.

    `problem` is why the search had to do without vectors, where it had to.
    """

    hits: tuple[Hit, ...] = ()
    confidence: float = 0.0
    searched: int = 0
    problem: RetrievalError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncProgress:
    """How far a sync is."""

    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReport:
    """What a sync came to, by names.

    `pending` are found by their words only, because `problem` kept them from being embedded; they
    are tried again by the next sync. `failed` could not be read at all.
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
    """How an index stands to the skills it is for.

    `missing` are not in it, `stale` are there in another state, `orphaned` have no skill any more.
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
    problems: tuple[str, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Say whether index and skills agree and nothing is broken."""
        return not (self.missing or self.stale or self.orphaned or self.problems)


def _ignore_progress(_progress: SyncProgress) -> None:
    """Nobody watches."""


async def _ignore_stored(_names: Sequence[str]) -> None:
    """Nobody marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncCallbacks:
    """Who is told while a sync goes on; `stored` is awaited after each batch is durable."""

    progress: Callable[[SyncProgress], None] = _ignore_progress
    stored: Callable[[Sequence[str]], Awaitable[None]] = _ignore_stored


NO_CALLBACKS = SyncCallbacks()
