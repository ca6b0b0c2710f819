"""What a search gives: hits that say why they are there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from apexbridge.errors import RetrievalError

Language = Literal["en", "zh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
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
    parts: Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The hits, best first, and how sure one can be that any skill fits at all.

    `problem` is why the search had to do without vectors, where it had to.
    """

    hits: tuple[Hit, ...] = ()
    confidence: float = 0.0
    searched: int = 0
    problem: RetrievalError | None = None
