"""Hook protocol: events, declarations in settings or frontmatter, matchers and JSON output."""

import functools
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from apexbridge import locales
from apexbridge.errors import ConfigError


class HookEvent(StrEnum):
    """Events that a hook can be registered for."""

    SESSION_START = "SessionStart"
    USER_PROMPT_SUBMIT = "UserPromptSubmit"
    PRE_TOOL_USE = "PreToolUse"
    POST_TOOL_USE = "PostToolUse"
    PRE_SKILL = "PreSkill"
    POST_SKILL = "PostSkill"
    SUBAGENT_STOP = "SubagentStop"
    PRE_COMPACT = "PreCompact"
    STOP = "Stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A command to run or a URL to POST to, when `event` happens to what `matcher` matches.

    An empty matcher or `*` means all, a `|` list means exactly those, anything else is a
    regular expression. `command` is an argument list: no shell is involved.
    """

    event: HookEvent
    matcher: str = ""
    command: tuple[str, ...] = ()
    url: str = ""
    timeout_seconds: float = 60
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HookWarning:
    """A problem with a hook that did not stop anything."""

    code: str
    details: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def message(self) -> str:
        """The warning in English."""
        return self.localized().message

    def localized(self, language: locales.Language = "en") -> locales.LocalizedText:
        """Return the warning and its remedy in the reader's language."""
        return locales.localize(self.code, self.details, language)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookVerdict:
    """Combined verdict of the hooks of one event: the strictest of their answers.

    A hook can narrow and never widen: what it allows is judged all the same.
    """

    outcome: Literal["continue", "block"] = "continue"
    reason: str = ""
    context: str = ""
    """Text to add to the conversation."""
    asks: bool = False
    """True if a person must approve, even where the rules allow."""
    stops: bool = False
    """True if the whole turn ends, not only this step."""
    changed: Mapping[str, Any] | None = None
    """The tool's complete input as rewritten by a hook; it is checked again."""
    warnings: tuple[HookWarning, ...] = ()
    ran: int = 0
    """Number of hooks that ran."""

    @property
    def is_blocked(self) -> bool:
        """True if the step must not happen."""
        return self.outcome == "block"


def _as_arguments(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


ArgumentList = Annotated[tuple[str, ...], BeforeValidator(_as_arguments)]


class _Action(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["command", "http"] = "command"
    command: ArgumentList = ()
    args: ArgumentList = ()
    url: str = ""
    timeout: float = Field(default=60, gt=0, le=600)
    once: bool = False

    @model_validator(mode="after")
    def _has_a_target(self) -> Self:
        needed = "url" if self.type == "http" else "command"
        if not getattr(self, needed):
            raise ValueError(f"a hook of type {self.type!r} needs {needed!r}")
        return self


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    matcher: str | None = None
    hooks: tuple[_Action, ...]


_ENTRIES = TypeAdapter(list[dict[str, Any]])


def parse_hooks(event: str, declared: object) -> tuple[Hook, ...]:
    """Parse the hooks of one event: groups with a matcher, or the short form of bare actions.

    Raises:
        ConfigError: `hook_invalid`, with what is wrong.
    """
    if event not in set(HookEvent):
        raise ConfigError("there is no such event", code="hook_invalid", event=event)
    try:
        groups = [_group(entry) for entry in _ENTRIES.validate_python(declared)]
    except ValidationError as error:
        raise ConfigError(_first_line(error), code="hook_invalid", event=event) from None
    return tuple(
        _hook(HookEvent(event), group, action) for group in groups for action in group.hooks
    )


def _group(entry: dict[str, Any]) -> _Group:
    if "hooks" not in entry:
        action = {key: value for key, value in entry.items() if key != "matcher"}
        entry = {"matcher": entry.get("matcher"), "hooks": [action]}
    return _Group.model_validate(entry)


def _hook(event: HookEvent, group: _Group, action: _Action) -> Hook:
    return Hook(
        event=event,
        matcher=group.matcher or "",
        command=(*action.command, *action.args),
        url=action.url,
        timeout_seconds=action.timeout,
        once=action.once,
    )


def _first_line(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")


_NAME_LIST = re.compile(r"[\w:-]+(?:\s*\|\s*[\w:-]+)*")
_MAX_PATTERN = 200
_MAX_SUBJECT = 200
_MAX_UNBOUNDED = 4
_MAX_OPTIONAL = 8
# Catastrophic backtracking (ReDoS): a repeated group, or a backreference.
_REDOS_PRONE = re.compile(r"\)\s*[*+{]|\\[1-9]|\(\?P=")


def matches_hook(matcher: str, subject: str) -> bool | None:
    """Match a tool or skill name: empty or `*` all, a `|` list exactly those, else a regex search.

    Returns None where the expression is invalid or prone to catastrophic backtracking (ReDoS).
    """
    matcher = matcher.strip()
    if matcher in {"", "*"}:
        return True
    if _NAME_LIST.fullmatch(matcher):
        return subject in map(str.strip, matcher.split("|"))
    pattern = _compile_matcher(matcher)
    if pattern is None or len(subject) > _MAX_SUBJECT:
        return None
    return pattern.search(subject) is not None


@functools.lru_cache(256)
def _compile_matcher(matcher: str) -> re.Pattern[str] | None:
    stars = sum(matcher.count(sign) for sign in "*+{")
    is_slow = (
        stars > _MAX_UNBOUNDED or matcher.count("?") > _MAX_OPTIONAL or _REDOS_PRONE.search(matcher)
    )
    if len(matcher) > _MAX_PATTERN or is_slow:
        return None
    try:
        return re.compile(matcher)
    except (re.error, OverflowError, RecursionError):
        return None


MAX_OUTPUT_CHARS = 10_000
"""Characters of a reason or of context; longer text is truncated and marked."""
_TRUNCATION_MARK = " […]"
_CONTEXT_EVENTS = frozenset(
    {HookEvent.SESSION_START, HookEvent.USER_PROMPT_SUBMIT, HookEvent.PRE_SKILL}
)


class _HookSpecificOutput(BaseModel):
    model_config = ConfigDict(extra="ignore")

    permission_decision: Literal["allow", "deny", "ask"] | None = Field(
        default=None, alias="permissionDecision"
    )
    reason: str | None = Field(default=None, alias="permissionDecisionReason")
    updated: dict[str, Any] | None = Field(default=None, alias="updatedInput")
    context: str | None = Field(default=None, alias="additionalContext")


class _HookOutput(BaseModel):
    model_config = ConfigDict(extra="ignore")

    decision: Literal["approve", "allow", "block", "deny", "ask"] | None = None
    reason: str | None = None
    goes_on: bool = Field(default=True, alias="continue")
    stop_reason: str | None = Field(default=None, alias="stopReason")
    updated: dict[str, Any] | None = Field(default=None, alias="updatedInput")
    context: str | None = Field(default=None, alias="additionalContext")
    specific: _HookSpecificOutput = Field(default=_HookSpecificOutput(), alias="hookSpecificOutput")


class HookOutputError(ValueError):
    """The output of a hook is not valid."""


def parse_hook_output(event: HookEvent, answer: bytes) -> HookVerdict:
    """Parse a hook's output; empty output continues, and so does plain text on a context event."""
    text = answer.decode("utf-8", "replace").strip()
    if not text:
        return HookVerdict()
    if not text.startswith("{"):
        if event is HookEvent.PRE_TOOL_USE:
            raise HookOutputError("its answer is no JSON object")
        return HookVerdict(context=truncate_output(text) if event in _CONTEXT_EVENTS else "")
    try:
        return _to_verdict(_HookOutput.model_validate_json(text))
    except ValidationError as error:
        raise HookOutputError(f"its answer is no verdict ({_first_line(error)})") from None


def truncate_output(text: str) -> str:
    """Truncate text from a hook."""
    return text if len(text) <= MAX_OUTPUT_CHARS else text[:MAX_OUTPUT_CHARS] + _TRUNCATION_MARK


def _to_verdict(answer: _HookOutput) -> HookVerdict:
    specific = answer.specific
    effects = {answer.decision, specific.permission_decision}
    is_blocked = not answer.goes_on or bool(effects & {"block", "deny"})
    stop_reason = None if answer.goes_on else answer.stop_reason
    reasons = (stop_reason, specific.reason, answer.reason, answer.stop_reason)
    updated = specific.updated if specific.updated is not None else answer.updated
    return HookVerdict(
        outcome="block" if is_blocked else "continue",
        reason=truncate_output(next(filter(None, reasons), "")),
        context=truncate_output("\n".join(filter(None, (specific.context, answer.context)))),
        asks="ask" in effects and not is_blocked,
        stops=not answer.goes_on,
        changed=None if is_blocked else updated,
    )
