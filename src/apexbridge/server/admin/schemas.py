"""What the routes of records answer, and what they can be asked."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from apexbridge.permissions.engine import Answer

MAX_PAGE = 200


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class _Response(BaseModel):
    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True, from_attributes=True)


class PageQuery(_Query):
    """Which part of a list, the latest first."""

    limit: int = Field(default=20, ge=1, le=MAX_PAGE)
    before: str = Field(default="", max_length=100)
    """The id of the last one of the page before."""


class TurnsQuery(PageQuery):
    """Which turns."""

    session: str = Field(default="", max_length=300)
    """Only those of one conversation."""


class SessionsQuery(_Query):
    """How many sessions."""

    limit: int = Field(default=20, ge=1, le=MAX_PAGE)


class AuditQuery(_Query):
    """How many records."""

    limit: int = Field(default=50, ge=1, le=1_000)


class ApprovalAnswer(_Query):
    """What a person says to a question."""

    answer: Answer


class TurnSummary(_Response):
    """A turn in short."""

    id: str
    session: str
    at: float
    """When it ended, in seconds since 1970."""
    finish: str
    seconds: float
    rounds: int
    input_tokens: int
    output_tokens: int
    tools: list[str]
    skills: list[str]
    confidence: float


class TurnList(_Response):
    """Turns, the latest first."""

    object: Literal["list"] = "list"
    data: list[TurnSummary]
    has_more: bool


class CandidateSchema(_Response):
    """A skill that search brought up, and what became of it."""

    name: str
    score: float
    parts: dict[str, Any]
    fate: str


class ToolCallSchema(_Response):
    """A tool call; of its arguments only the size is known."""

    tool: str
    seconds: float
    argument_chars: int
    result_chars: int
    code: str
    session_id: str


class SpanSchema(_Response):
    """Something that took time in a turn."""

    kind: Literal["model", "tool", "search", "fork", "approval", "hook"]
    name: str
    start: float
    """Seconds since the turn began."""
    seconds: float
    input_tokens: int = 0
    output_tokens: int = 0
    is_error: bool = False
    depth: int = 0
    """How many child sessions deep."""


class TurnDetail(TurnSummary):
    """A turn, and why it went as it did."""

    object: Literal["turn"] = "turn"
    request_chars: int
    candidates: list[CandidateSchema]
    listed: list[str]
    shortened: list[str]
    dropped: list[str]
    asleep: int
    woken: list[str]
    calls: list[ToolCallSchema]
    refusals: list[str]
    compacted: int
    model_seconds: float
    tool_seconds: float
    search_seconds: float
    spans: list[SpanSchema]
    spans_dropped: int = 0
    """How many more there were than are kept."""


class SessionSummary(_Response):
    """A conversation that can be taken up again."""

    id: str
    changed: float
    title: str


class SessionList(_Response):
    """Conversations, the one used last first."""

    object: Literal["list"] = "list"
    data: list[SessionSummary]


class MessageToolCall(_Response):
    """A call that the model made."""

    id: str
    name: str
    arguments: str


class MessageSchema(_Response):
    """A message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    kind: Literal["prompt", "reminder", "skill"] | None = None
    """Of a user's message: whether the person said it, or we on the side."""
    skill: str | None = None
    call_id: str | None = None
    is_error: bool = False
    tool_calls: list[MessageToolCall] = []


class SessionDetail(SessionSummary):
    """A conversation, whole."""

    object: Literal["session"] = "session"
    turns: int
    skills: list[str]
    """The skills that stand in it."""
    input_tokens: int
    output_tokens: int
    messages: list[MessageSchema]


class DeletedSession(_Response):
    """What is there no more."""

    id: str
    deleted: bool = True


class RunSummary(_Response):
    """A script's run in short."""

    id: str
    at: float
    """When it began, in seconds since 1970."""
    skill: str
    script: str
    sha256: str
    isolation: str
    outcome: str
    exit_code: int | None
    seconds: float


class RunList(_Response):
    """Runs, the latest first."""

    object: Literal["list"] = "list"
    data: list[RunSummary]
    has_more: bool


class RunDetail(RunSummary):
    """A script's run, whole; of its arguments only their lengths are known."""

    object: Literal["run"] = "run"
    argument_chars: list[int]
    limits: dict[str, float]
    stdout: str
    stderr: str
    files: list[str]
    truncated: bool
    """Whether more was written than is kept here."""
    error: str


class ApprovalSchema(_Response):
    """A question that waits."""

    id: str
    session: str
    tool: str
    argument: str
    argument_chars: int
    reason: str
    asked: float
    deadline: float
    choices: list[Answer]
    rule: str
    """What `always` would allow from then on."""


class ApprovalList(_Response):
    """All questions that wait, the oldest first."""

    object: Literal["list"] = "list"
    data: list[ApprovalSchema]


class ApprovalResult(_Response):
    """What was said to a question."""

    id: str
    answer: Answer


class CheckSchema(_Response):
    """One thing that was tried, and what came of it."""

    name: str
    state: Literal["ok", "warn", "fail"]
    detail: str


class SettingSchema(_Response):
    """A setting, and which layer it came from."""

    value: Any
    origin: str


class DiagnosticsSchema(_Response):
    """What works here."""

    version: str
    checks: list[CheckSchema]
    settings: dict[str, SettingSchema]


class SettingsSchema(_Response):
    """All settings; what is secret is hidden."""

    object: Literal["settings"] = "settings"
    data: dict[str, SettingSchema]


class AuditRecordSchema(_Response):
    """A change that was attempted."""

    at: str
    action: str
    facts: dict[str, str]


class AuditPage(_Response):
    """The latest changes, the newest last, and whether the chain of all of them holds."""

    object: Literal["list"] = "list"
    data: list[AuditRecordSchema]
    holds: bool
    records: int | None
    """How many there are in all; none where the chain is broken."""
    broken_at: int | None
    """The first line that does not fit."""
