"""What bringing an index up to date comes to, and how it stands; light enough for every door."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from apexbridge.errors import RetrievalError


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a sync is."""

    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
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


def _quiet(_progress: Progress) -> None:
    """Nobody watches."""


async def _nothing(_names: Sequence[str]) -> None:
    """Nobody marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Who is told while a sync goes on; `stored` is awaited after each batch is durable."""

    progress: Callable[[Progress], None] = _quiet
    stored: Callable[[Sequence[str]], Awaitable[None]] = _nothing


UNWATCHED = Watch()
