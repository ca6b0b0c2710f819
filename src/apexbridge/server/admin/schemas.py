"""Request and response schemas of the administration API."""

from typing import Any, Generic, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr

from apexbridge.permissions.engine import Answer
from apexbridge.server.routing import former_name

MAX_PAGE = 200
Item = TypeVar("Item")


class _Query(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class _Response(BaseModel):
    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True, from_attributes=True)


class _List(_Response, Generic[Item]):
    object: Literal["list"] = "list"
    data: list[Item]


class PageQuery(_Query):
    """Pagination, latest first."""

    limit: int = Field(default=20, ge=1, le=MAX_PAGE)
    before: str = Field(default="", max_length=100)
    """Cursor: the id of the last item of the previous page."""


class TurnsQuery(PageQuery):
    """Filter and pagination of turns."""

    session: str = Field(default="", max_length=300)
    """Only turns of this session."""


class SessionsQuery(_Query):
    """Page size of sessions."""

    limit: int = Field(default=20, ge=1, le=MAX_PAGE)


class AuditQuery(_Query):
    """Page size of audit records."""

    limit: int = Field(default=50, ge=1, le=1_000)


class ApprovalAnswer(_Query):
    """Answer to a pending approval."""

    answer: Answer


class TurnSummary(_Response):
    """Summary of a turn."""

    id: str
    session: str
    at: float
    """When it ended, in Unix time."""
    finish: str
    seconds: float
    rounds: int
    input_tokens: int
    output_tokens: int
    tools: list[str]
    skills: list[str]
    confidence: float


class TurnList(_List[TurnSummary]):
    """Page of turns, latest first."""

    has_more: bool


class CandidateSchema(_Response):
    """Skill candidate of a turn: its score, and whether it was listed, dropped or used."""

    name: str
    score: float
    parts: dict[str, Any]
    outcome: str = Field(validation_alias=AliasChoices("outcome", "fate"))
    fate = former_name("outcome", str)


class ToolCallSchema(_Response):
    """Tool call of a turn; its arguments are not recorded, only their size."""

    tool: str
    seconds: float
    argument_chars: int
    result_chars: int
    code: str
    session_id: str


class SkillCallSchema(_Response):
    """Invocation of a skill in a turn, also a refused one."""

    skill: str
    trigger: str
    session_id: str
    call_id: str
    """Id of the tool call that invoked it (tool_use id)."""
    mode: str
    agent_id: str
    """Session id of the subagent that a forked skill ran in."""
    agent: str
    """Name of that subagent's profile."""
    code: str
    """Error code of a refusal; empty for an activation."""
    number: int
    """Number of the refusal, as in Claude Code."""


class SpanSchema(_Response):
    """Span of a trace: a timed step of a turn."""

    kind: Literal["model", "tool", "search", "fork", "approval", "hook"]
    name: str
    start: float
    """Offset from the start of the turn, in seconds."""
    seconds: float
    input_tokens: int = 0
    output_tokens: int = 0
    is_error: bool = False
    depth: int = 0
    """Nesting depth of subagents."""


class TurnDetail(TurnSummary):
    """Trace of a turn."""

    object: Literal["turn"] = "turn"
    request_chars: int
    candidates: list[CandidateSchema]
    listed: list[str]
    shortened: list[str]
    dropped: list[str]
    path_inactive: int = Field(validation_alias=AliasChoices("path_inactive", "asleep"))
    """Skills left out because no file of theirs was touched (path-based activation)."""
    path_activated: list[str] = Field(validation_alias=AliasChoices("path_activated", "woken"))
    """Skills activated by a file that the turn touched."""
    calls: list[ToolCallSchema]
    skill_calls: list[SkillCallSchema] = []
    refusals: list[str]
    compacted: int
    model_seconds: float
    tool_seconds: float
    search_seconds: float
    spans: list[SpanSchema]
    spans_dropped: int = 0
    """Spans beyond the stored maximum."""
    asleep = former_name("path_inactive", int)
    woken = former_name("path_activated", list[str])


class SessionSummary(_Response):
    """Summary of a stored session."""

    id: str
    changed: float
    title: str


class SessionList(_List[SessionSummary]):
    """Sessions, latest first."""


class MessageToolCall(_Response):
    """Tool call of an assistant message."""

    id: str
    name: str
    arguments: str


class MessageSchema(_Response):
    """Message of a session."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    kind: Literal["prompt", "reminder", "skill"] | None = None
    """Source of a user message: the user's prompt, a system reminder, or a skill."""
    skill: str | None = None
    call_id: str | None = None
    """Of a tool result, or of a skill's text: the tool call that it came by (tool_use id)."""
    is_error: bool = False
    tool_calls: list[MessageToolCall] = []


class SessionDetail(SessionSummary):
    """Session with its messages."""

    object: Literal["session"] = "session"
    turns: int
    skills: list[str]
    """Skills loaded in the session."""
    input_tokens: int
    output_tokens: int
    messages: list[MessageSchema]


class DeletedSession(_Response):
    """Confirmation that a session was deleted."""

    id: str
    deleted: bool = True


class RunSummary(_Response):
    """Summary of a script run."""

    id: str
    at: float
    """When it started, in Unix time."""
    skill: str
    script: str
    sha256: str
    isolation: str
    outcome: str
    exit_code: int | None
    seconds: float


class RunList(_List[RunSummary]):
    """Page of script runs, latest first."""

    has_more: bool


class RunDetail(RunSummary):
    """Script run; its arguments are not recorded, only their lengths."""

    object: Literal["run"] = "run"
    argument_chars: list[int]
    limits: dict[str, float]
    stdout: str
    stderr: str
    files: list[str]
    truncated: bool
    """Whether the output was longer than what is stored."""
    error: str


class ApprovalSchema(_Response):
    """Pending approval (human in the loop)."""

    id: str
    session: str
    tool: str
    argument: str
    argument_chars: int
    reason: str
    created_at: float
    deadline: float
    choices: list[Answer]
    rule: str
    """The permission rule that `always` would add."""
    prefix_rule: str
    """The rule that `always_prefix` would add: a skill's name, and every name below it."""
    asked = former_name("created_at", float)


class ApprovalList(_List[ApprovalSchema]):
    """Pending approvals, oldest first."""


class ApprovalResult(_Response):
    """Confirmation of an answer."""

    id: str
    answer: Answer


class CheckSchema(_Response):
    """Result of one diagnostic check."""

    name: str
    state: Literal["ok", "warn", "fail"]
    detail: str


class SettingSchema(_Response):
    """Setting, and the layer that it comes from."""

    value: Any
    origin: str


class DiagnosticsSchema(_Response):
    """Diagnostic report."""

    version: str
    checks: list[CheckSchema]
    settings: dict[str, SettingSchema]


class SettingsSchema(_Response):
    """Effective settings, with secrets redacted."""

    object: Literal["settings"] = "settings"
    data: dict[str, SettingSchema]


class AuditRecordSchema(_Response):
    """Audit record of an attempted change."""

    at: str
    action: str
    facts: dict[str, str]


class AuditPage(_List[AuditRecordSchema]):
    """Latest audit records, newest last, and the verification of the hash chain of all."""

    intact: bool
    """Whether the hash chain verifies."""
    records: int | None
    """Total number of records; null if the chain is broken."""
    broken_at: int | None
    """First line at which the hash chain breaks."""
    holds = former_name("intact", bool)


class SecretGrantSchema(_Response):
    """Grant of a secret to one content of a skill, for some hosts."""

    skill: str
    sha256: str
    hosts: list[str]
    places: list[str]
    """Parts of a request in which the value may be sent."""


class SecretSchema(_Response):
    """A secret without its value."""

    name: str
    is_set: bool
    """Whether a value is stored."""
    grants: list[SecretGrantSchema]


class SecretList(_List[SecretSchema]):
    """Secrets, by name."""


class SecretInput(BaseModel):
    """A value to store; it is in no response."""

    model_config = ConfigDict(extra="forbid")

    value: SecretStr


class SecretResult(_Response):
    """Confirmation of a change."""

    name: str
    is_set: bool
