"""Hooks as they are declared, in settings or in a skill's frontmatter."""

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

from apexbridge import wording
from apexbridge.errors import ConfigError


class HookEvent(StrEnum):
    """The moments a hook can be attached to."""

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
    """A command to run, or an address to post to, when `event` happens to what `matcher` names.

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
    """Something about a hook that did not stop anything and should be known."""

    code: str
    details: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def message(self) -> str:
        """What is wrong, in English."""
        return self.said().message

    def said(self, language: wording.Language = "en") -> wording.Phrase:
        """What is wrong and how to mend it, in the reader's language."""
        return wording.say(self.code, self.details, language)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookVerdict:
    """What the hooks of one moment answered together: the strictest of their answers.

    A hook can narrow and never widen: what it allows is judged all the same.
    """

    outcome: Literal["continue", "block"] = "continue"
    reason: str = ""
    context: str = ""
    """Words to add to the conversation."""
    asks: bool = False
    """Whether a person is to be asked, even where the rules allow."""
    stops: bool = False
    """Whether the whole turn is to end, not only this step."""
    changed: Mapping[str, Any] | None = None
    """The tool's input as a hook wants it, in full; it has to be judged again."""
    warnings: tuple[HookWarning, ...] = ()
    ran: int = 0
    """How many hooks were run."""

    @property
    def is_blocked(self) -> bool:
        """Whether the step must not happen."""
        return self.outcome == "block"


def _as_words(value: object) -> object:
    return shlex.split(value) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_as_words)]


class _Action(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Literal["command", "http"] = "command"
    command: Words = ()
    args: Words = ()
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
    """Read what stands under one event: groups with a matcher, or the short form of bare actions.

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
