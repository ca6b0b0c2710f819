"""What a turn is asked for, what it came to, and the record it leaves."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from apexbridge.events import Event, EventSink, SkillActivated
from apexbridge.messages import Message, ToolCall
from apexbridge.models.base import FinishReason, ModelRequest, Usage
from apexbridge.permissions.engine import Approver
from apexbridge.retrieval.results import ScoreParts
from apexbridge.tools.base import Grants, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """Bounds of one turn; a child session has its own, of the same size."""

    rounds: int = 25
    """Replies of the model, the last of them without tools."""
    tokens: int = 400_000
    """Input and output of all replies together."""
    seconds: float = 900.0
    calls_at_once: int = 8
    repeats: int = 3
    """How often the same call with the same arguments is carried out."""
    depth: int = 3
    """How many sessions deep skills may fork."""
    children: int = 8
    """How many child sessions a turn may start."""
    window: int = 128_000
    """The model's context window, in tokens."""
    compact_at: float = 0.8
    """The part of the window from which on the conversation is shortened."""


CandidateStatus = Literal["offered", "weak", "denied", "asleep", "known"]
"""What became of a skill that search brought up: told to the model, or why not."""

TurnFinish = Literal[
    "stop", "rounds", "tokens", "time", "repeats", "client_tools", "blocked", "skill",
]  # fmt: skip


ToolObserver = Callable[[ToolCall, str | None], None]
"""Sees each call before it is carried out, and again with what it came to."""
EMPTY_REQUEST = ModelRequest(model="", messages=())

SpanKind = Literal["model", "tool", "search", "fork", "approval", "hook"]
MAX_SPANS = 1_000
_MAX_NAME = 200


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
    like: ModelRequest = EMPTY_REQUEST
    """What the model is asked for besides: its temperature, the form of its answer…"""
    parts: str = ""
    """The request in parts, where it is more than text; see `UserMessage`."""
    before: tuple[Message, ...] = ()
    """What comes before the request and is not in the session yet."""
    continues: bool = False
    """Whether there are no new words: a client's tools have answered, and the turn goes on."""
    system: str | None = None
    """What the model is told beforehand from now on; None leaves that as it is."""
    limits: TurnLimits | None = None
    """Other bounds than all turns have."""
    withheld: frozenset[str] = frozenset()
    """Tools of ours that whoever asks may not use, by name; skills are lent none of them."""
    approver: Approver | None = None
    """Who answers for a person in this turn, where it is not who does in all."""
    watch: ToolObserver | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A skill that search brought up, and what its score is made of."""

    name: str
    score: float
    parts: ScoreParts = field(default_factory=ScoreParts)
    fate: CandidateStatus = "offered"


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
class Span:
    """Something that took time: what it was, when in the turn it began, and how long it took."""

    kind: SpanKind
    name: str
    start: float
    """Seconds since the turn began; of a child session, since the turn it works for began."""
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    is_error: bool = False
    depth: int = 0
    """How many child sessions deep."""


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
    skills: list[str] = field(default_factory=list[str])
    """Those that were invoked, each once."""
    spans: list[Span] = field(default_factory=list[Span])
    """In the order in which they ended."""
    spans_dropped: int = 0
    """How many more there were than are kept."""
    _began: float = field(default_factory=time.perf_counter, init=False, repr=False)
    _depth: int = field(default=0, init=False, repr=False)

    @classmethod
    def new(cls, session_id: str) -> Self:
        """An empty record."""
        # Nobody has to guess it, and asking the system for randomness takes its time.
        return cls(id=f"{random.getrandbits(48):012x}", session_id=session_id)

    def begin(self) -> float:
        """Begin the turn now; a child's lies on the line of time of its parent's."""
        now = time.perf_counter()
        if not self._depth:
            self._began = now
        return now

    def below(self, session_id: str) -> "TurnRecord":
        """An empty record for a child session: its spans lie on the same line of time."""
        new = TurnRecord.new(session_id)
        new._began, new._depth = self._began, self._depth + 1
        return new

    def take(self, child: "TurnRecord") -> None:
        """Take in what a child session did."""
        self.calls += child.calls
        self.spans_dropped += child.spans_dropped
        for span in child.spans:
            self.keep(span)

    def spanning(self, kind: SpanKind, name: str) -> "SpanContext":
        """Note what happens in the block, whatever comes of it."""
        start = time.perf_counter()
        span = Span(kind=kind, name=name[:_MAX_NAME], start=start - self._began, depth=self._depth)
        return SpanContext(self, span, start)

    def keep(self, span: Span) -> None:
        """Take in a span that has ended."""
        if len(self.spans) < MAX_SPANS:
            self.spans.append(span)
        else:
            self.spans_dropped += 1

    def hearing(self, emit: EventSink) -> EventSink:
        """Note what of the events belongs here, and pass them all on."""

        def hear(event: Event) -> None:
            if isinstance(event, SkillActivated) and event.skill not in self.skills:
                self.skills.append(event.skill)
            emit(event)

        return hear

    def spend(self, usage: Usage) -> None:
        """Add what a reply cost."""
        self.usage = add_usage(self.usage, usage)


class SpanContext:
    """A block that is noted in a record; a class, for every round of every turn has some."""

    __slots__ = ("_before", "_record", "_span", "_start")

    def __init__(self, record: TurnRecord, span: Span, start: float) -> None:
        self._record, self._span, self._start = record, span, start
        self._before = record.usage

    def __enter__(self) -> Span:
        return self._span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        span, before, usage = self._span, self._before, self._record.usage
        span.is_error = span.is_error or kind is not None
        span.seconds = time.perf_counter() - self._start
        if span.kind in ("model", "fork"):  # nothing else is spent meanwhile
            span.input_tokens = usage.input_tokens - before.input_tokens
            span.output_tokens = usage.output_tokens - before.output_tokens
        self._record.keep(span)


def add_usage(one: Usage, other: Usage) -> Usage:
    """What two cost together."""
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """The reply, and why there is no more of it."""

    text: str
    finish: TurnFinish
    record: TurnRecord
    client_calls: tuple[ToolCall, ...] = ()
    reason: FinishReason = "stop"
    """Why the model's last reply ended."""
