"""What a turn is asked for, what it came to, and the record it leaves."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from apexbridge.messages import ToolCall
from apexbridge.models.base import Usage
from apexbridge.tools.base import Grants, ToolSpec

Fate = Literal["offered", "weak", "denied", "asleep", "known"]
"""What became of a skill that search brought up: told to the model, or why not."""

Finish = Literal[
    "stop", "rounds", "tokens", "time", "repeats", "client_tools", "blocked", "skill",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """What a person, or a parent session, wants."""

    text: str
    model: str = ""
    """Another model than the session's."""
    skills: tuple[str, ...] = ()
    """Skills that the person chose by hand."""
    client_tools: tuple[ToolSpec, ...] = ()
    """Tools of whoever asks: offered to the model, never run by us."""
    uses_tools: bool = True
    grants: Grants = Grants()
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Parameters for the model, passed on as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A skill that search brought up, and what its score is made of."""

    name: str
    score: float
    parts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fate: Fate = "offered"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """A tool call; of its arguments only the size is kept."""

    tool: str
    seconds: float
    argument_chars: int
    result_chars: int
    code: str = ""
    session_id: str = ""


@dataclass(slots=True, kw_only=True)
class TurnRecord:
    """Why a turn went as it did."""

    id: str
    session_id: str
    request_chars: int = 0
    confidence: float = 0.0
    candidates: list[Candidate] = field(default_factory=list[Candidate])
    listed: tuple[str, ...] = ()
    shortened: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    asleep: int = 0
    woken: list[str] = field(default_factory=list[str])
    calls: list[CallRecord] = field(default_factory=list[CallRecord])
    refusals: list[str] = field(default_factory=list[str])
    rounds: int = 0
    compacted: int = 0
    usage: Usage = field(default_factory=Usage)
    model_seconds: float = 0.0
    tool_seconds: float = 0.0
    search_seconds: float = 0.0
    seconds: float = 0.0
    finish: str = ""

    @classmethod
    def new(cls, session_id: str) -> Self:
        """An empty record."""
        return cls(id=uuid.uuid4().hex[:12], session_id=session_id)

    def spend(self, usage: Usage) -> None:
        """Add what a reply cost."""
        self.usage = usage_of_both(self.usage, usage)


def usage_of_both(one: Usage, other: Usage) -> Usage:
    """What two cost together."""
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """The reply, and why there is no more of it."""

    text: str
    finish: Finish
    record: TurnRecord
    client_calls: tuple[ToolCall, ...] = ()
