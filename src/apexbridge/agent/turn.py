"""Turn: its request, limits, result, and the trace (spans, usage, tool calls) that is recorded."""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from apexbridge.events import Event, EventSink, SkillActivated, SkillRefused
from apexbridge.messages import Message, ToolCall
from apexbridge.models.base import FinishReason, ModelRequest, Usage
from apexbridge.permissions.engine import Approver
from apexbridge.retrieval.results import ScoreParts
from apexbridge.tools.base import Grants, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """Limits of one turn; each subagent has the same limits for itself."""

    rounds: int = 25
    """Model replies; the last one is requested without tools."""
    tokens: int = 400_000
    """Input and output tokens of all replies together."""
    seconds: float = 900.0
    calls_at_once: int = 8
    repeats: int = 3
    """Loop detection: how often a call with equal arguments is executed."""
    depth: int = 3
    """Nesting depth of subagents."""
    children: int = 8
    """Number of subagents a turn may start."""
    window: int = 128_000
    """Context window of the model, in tokens."""
    redacts: bool = True
    """Whether credentials in the results of tools are hidden from the model."""
    compact_at: float = 0.8
    """Fraction of the context window from which on the history is compacted."""


CandidateStatus = Literal["offered", "hinted", "weak", "denied", "asleep", "known"]
"""Outcome for a skill that the search returned: offered to the model, or the reason why not.

A hinted one is a weak match of which the model sees the name only.
"""

TurnFinish = Literal[
    "stop", "rounds", "tokens", "time", "repeats", "client_tools", "blocked", "skill",
]  # fmt: skip


class ToolObserver(Protocol):
    """Callback of a client that streams the tool calls of a turn."""

    def tool_started(self, call: ToolCall) -> None:
        """Handle a call before it is dispatched."""
        ...

    def tool_finished(self, call: ToolCall, text: str) -> None:
        """Handle the text of a call's result."""
        ...


EMPTY_REQUEST = ModelRequest(model="", messages=())

SpanKind = Literal["model", "tool", "search", "fork", "approval", "hook"]
MAX_SPANS = 1_000
_MAX_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """Input of a turn, from a person or from a parent session."""

    text: str
    model: str = ""
    """Model name; empty for the session's."""
    skills: tuple[str, ...] = ()
    """Skills that the person selected explicitly."""
    files: Path | None = None
    """Folder with files that came with the request; readable from then on."""
    skipped_files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Those that were left out, with the reason."""
    client_tools: tuple[ToolSpec, ...] = ()
    """Tools that the client executes: offered to the model, returned as `client_calls`."""
    uses_tools: bool = True
    grants: Grants = Grants()
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Provider-specific parameters, passed through unchanged."""
    template: ModelRequest = EMPTY_REQUEST
    """Sampling parameters and response format of every model request."""
    parts: str = ""
    """Multimodal content as JSON, where there is more than text; see `UserMessage`."""
    history: tuple[Message, ...] = ()
    """Messages before the request that are not in the session yet."""
    is_continuation: bool = False
    """No new user message: client tools have answered, and the turn continues."""
    system: str | None = None
    """New system prompt of the client; None keeps the session's."""
    limits: TurnLimits | None = None
    """Limits in place of the configured ones."""
    denied_tools: frozenset[str] = frozenset()
    """Tools that the caller's API key may not use; skills cannot grant them either."""
    approver: Approver | None = None
    """Approver of this turn, in place of the service's."""
    observer: ToolObserver | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A search hit, its score by component, and what was done with it."""

    name: str
    score: float
    parts: ScoreParts = field(default_factory=ScoreParts)
    fate: CandidateStatus = "offered"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """Trace of a tool call; only the size of its arguments is recorded, never their text."""

    tool: str
    seconds: float
    argument_chars: int
    result_chars: int
    code: str = ""
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillCall:
    """Trace of an invocation of a skill; `code` and `number` say why it was refused."""

    skill: str
    trigger: str
    session_id: str
    call_id: str = ""
    """Id of the tool call (tool_use id)."""
    mode: str = ""
    agent_id: str = ""
    """Session id of the subagent of a forked skill."""
    agent: str = ""
    code: str = ""
    number: int = 0


@dataclass(slots=True, kw_only=True)
class Span:
    """Tracing span: kind, start offset and duration of one step of a turn."""

    kind: SpanKind
    name: str
    start: float
    """Seconds since the start of the outermost turn."""
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    is_error: bool = False
    depth: int = 0
    """Subagent depth."""


@dataclass(slots=True, kw_only=True)
class TurnRecord:
    """Trace of a turn, stored as JSON: its field names are an on-disk format."""

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
    """Invoked skills, each once."""
    skill_calls: list[SkillCall] = field(default_factory=list[SkillCall])
    """Invocations of skills, also the refused ones, those of subagents included."""
    spans: list[Span] = field(default_factory=list[Span])
    """In the order of their end."""
    spans_dropped: int = 0
    """Number of spans over `MAX_SPANS`."""
    _began: float = field(default_factory=time.perf_counter, init=False, repr=False)
    _depth: int = field(default=0, init=False, repr=False)

    @classmethod
    def new(cls, session_id: str) -> Self:
        """Create an empty record."""
        # Not a secret, and once a turn: the PRNG avoids the system call of uuid4.
        return cls(id=f"{random.getrandbits(48):012x}", session_id=session_id)

    def begin(self) -> float:
        """Start the clock; a subagent's record shares that of the outermost turn."""
        now = time.perf_counter()
        if not self._depth:
            self._began = now
        return now

    def child(self, session_id: str) -> "TurnRecord":
        """Create the record of a subagent, with the same time origin."""
        new = TurnRecord.new(session_id)
        new._began, new._depth = self._began, self._depth + 1
        return new

    def merge(self, child: "TurnRecord") -> None:
        """Add the calls and spans of a subagent."""
        self.calls += child.calls
        self.spans_dropped += child.spans_dropped
        for span in child.spans:
            self.add_span(span)

    def span(self, kind: SpanKind, name: str) -> "SpanContext":
        """Open a tracing span for a `with` block; it is recorded also when the block raises."""
        start = time.perf_counter()
        span = Span(kind=kind, name=name[:_MAX_NAME], start=start - self._began, depth=self._depth)
        return SpanContext(self, span, start)

    def add_span(self, span: Span) -> None:
        """Record a finished span, up to `MAX_SPANS`."""
        if len(self.spans) < MAX_SPANS:
            self.spans.append(span)
        else:
            self.spans_dropped += 1

    def wrap_sink(self, emit: EventSink) -> EventSink:
        """Return an event sink that records invocations of skills and forwards every event."""

        def record(event: Event) -> None:
            if isinstance(event, SkillActivated | SkillRefused):
                self._record_skill(event)
            emit(event)

        return record

    def _record_skill(self, event: SkillActivated | SkillRefused) -> None:
        if isinstance(event, SkillActivated) and event.skill not in self.skills:
            self.skills.append(event.skill)
        if len(self.skill_calls) < MAX_SPANS:
            self.skill_calls.append(_skill_call(event))


def _skill_call(event: SkillActivated | SkillRefused) -> SkillCall:
    call = SkillCall(
        skill=event.skill,
        trigger=event.trigger,
        session_id=event.session_id,
        call_id=event.call_id,
    )
    if isinstance(event, SkillRefused):
        return replace(call, code=event.code, number=event.number)
    return replace(call, mode=event.mode, agent_id=event.agent_id, agent=event.agent)


class SpanContext:
    """Context manager of a span.

    A class: every round opens several, and a generator-based one costs three times as much.
    """

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
        if span.kind in ("model", "fork"):  # no other request of this turn runs meanwhile
            span.input_tokens = usage.input_tokens - before.input_tokens
            span.output_tokens = usage.output_tokens - before.output_tokens
        self._record.add_span(span)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResult:
    """Outcome of a turn: the reply, and why it ended."""

    text: str
    finish: TurnFinish
    record: TurnRecord
    client_calls: tuple[ToolCall, ...] = ()
    reason: FinishReason = "stop"
    """Finish reason of the last model reply."""
