"""What the routes of records answer, and what they can be asked."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from apexbridge.policy.engine import Answer

MAX_PAGE = 200


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class _Given(BaseModel):
    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True, from_attributes=True)


class PageAsked(_Asked):
    """Which part of a list, the latest first."""

    limit: int = Field(default=20, ge=1, le=MAX_PAGE)
    before: str = Field(default="", max_length=100)
    """The id of the last one of the page before."""


class TurnsAsked(PageAsked):
    """Which turns."""

    session: str = Field(default="", max_length=300)
    """Only those of one conversation."""


class SessionsAsked(_Asked):
    """How many sessions."""

    limit: int = Field(default=20, ge=1, le=MAX_PAGE)


class AuditAsked(_Asked):
    """How many records."""

    limit: int = Field(default=50, ge=1, le=1_000)


class AnswerGiven(_Asked):
    """What a person says to a question."""

    answer: Answer


class TurnLine(_Given):
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


class TurnList(_Given):
    """Turns, the latest first."""

    object: Literal["list"] = "list"
    data: list[TurnLine]
    has_more: bool


class CandidateShape(_Given):
    """A skill that search brought up, and what became of it."""

    name: str
    score: float
    parts: dict[str, Any]
    fate: str


class CallShape(_Given):
    """A tool call; of its arguments only the size is known."""

    tool: str
    seconds: float
    argument_chars: int
    result_chars: int
    code: str
    session_id: str


class SpanShape(_Given):
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


class TurnShape(TurnLine):
    """A turn, and why it went as it did."""

    object: Literal["turn"] = "turn"
    request_chars: int
    candidates: list[CandidateShape]
    listed: list[str]
    shortened: list[str]
    dropped: list[str]
    asleep: int
    woken: list[str]
    calls: list[CallShape]
    refusals: list[str]
    compacted: int
    model_seconds: float
    tool_seconds: float
    search_seconds: float
    spans: list[SpanShape]
    spans_dropped: int = 0
    """How many more there were than are kept."""


class SessionLine(_Given):
    """A conversation that can be taken up again."""

    id: str
    changed: float
    title: str


class SessionList(_Given):
    """Conversations, the one used last first."""

    object: Literal["list"] = "list"
    data: list[SessionLine]


class CallText(_Given):
    """A call that the model made."""

    id: str
    name: str
    arguments: str


class MessageShape(_Given):
    """A message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    kind: Literal["prompt", "reminder", "skill"] | None = None
    """Of a user's message: whether the person said it, or we on the side."""
    skill: str | None = None
    call_id: str | None = None
    is_error: bool = False
    tool_calls: list[CallText] = []


class SessionShape(SessionLine):
    """A conversation, whole."""

    object: Literal["session"] = "session"
    turns: int
    skills: list[str]
    """The skills that stand in it."""
    input_tokens: int
    output_tokens: int
    messages: list[MessageShape]


class Gone(_Given):
    """What is there no more."""

    id: str
    deleted: bool = True


class RunLine(_Given):
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


class RunList(_Given):
    """Runs, the latest first."""

    object: Literal["list"] = "list"
    data: list[RunLine]
    has_more: bool


class RunShape(RunLine):
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


class ApprovalShape(_Given):
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


class ApprovalList(_Given):
    """All questions that wait, the oldest first."""

    object: Literal["list"] = "list"
    data: list[ApprovalShape]


class ApprovalAnswered(_Given):
    """What was said to a question."""

    id: str
    answer: Answer


class CheckShape(_Given):
    """One thing that was tried, and what came of it."""

    name: str
    state: Literal["ok", "warn", "fail"]
    detail: str


class SettingShape(_Given):
    """A setting, and which layer it came from."""

    value: Any
    origin: str


class DoctorShape(_Given):
    """What works here."""

    version: str
    checks: list[CheckShape]
    settings: dict[str, SettingShape]


class SettingsShape(_Given):
    """All settings; what is secret is hidden."""

    object: Literal["settings"] = "settings"
    data: dict[str, SettingShape]


class AuditLine(_Given):
    """A change that was attempted."""

    at: str
    action: str
    facts: dict[str, str]


class AuditShape(_Given):
    """The latest changes, the newest last, and whether the chain of all of them holds."""

    object: Literal["list"] = "list"
    data: list[AuditLine]
    holds: bool
    records: int | None
    """How many there are in all; none where the chain is broken."""
    broken_at: int | None
    """The first line that does not fit."""
