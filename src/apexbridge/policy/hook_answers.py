"""What a hook printed or sent back, read as a verdict."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apexbridge.policy.hookspec import HookEvent, HookVerdict

MAX_WORDS = 10_000
"""Characters of a reason or of context; more than this is cut off, and that is told."""
_CUT = " […]"
_SPEAKING = frozenset({HookEvent.SESSION_START, HookEvent.USER_PROMPT_SUBMIT, HookEvent.PRE_SKILL})


class _Specific(BaseModel):
    model_config = ConfigDict(extra="ignore")

    permission_decision: Literal["allow", "deny", "ask"] | None = Field(
        default=None, alias="permissionDecision"
    )
    reason: str | None = Field(default=None, alias="permissionDecisionReason")
    updated: dict[str, Any] | None = Field(default=None, alias="updatedInput")
    context: str | None = Field(default=None, alias="additionalContext")


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore")

    decision: Literal["approve", "allow", "block", "deny", "ask"] | None = None
    reason: str | None = None
    goes_on: bool = Field(default=True, alias="continue")
    stop_reason: str | None = Field(default=None, alias="stopReason")
    updated: dict[str, Any] | None = Field(default=None, alias="updatedInput")
    context: str | None = Field(default=None, alias="additionalContext")
    specific: _Specific = Field(default=_Specific(), alias="hookSpecificOutput")


class HookAnswerError(ValueError):
    """A hook's answer cannot be understood."""


def read_answer(event: HookEvent, answer: bytes) -> HookVerdict:
    """Read a verdict: nothing at all goes on, and so do plain words where no tool is waiting.

    Raises:
        HookAnswerError: If it is no verdict.
    """
    text = answer.decode("utf-8", "replace").strip()
    if not text:
        return HookVerdict()
    if not text.startswith("{"):
        if event is HookEvent.PRE_TOOL_USE:
            raise HookAnswerError("its answer is no JSON object")
        return HookVerdict(context=shortened(text) if event in _SPEAKING else "")
    try:
        return _verdict(_Answer.model_validate_json(text))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        detail = f"{where}: {first['msg']}".removeprefix(": ")
        raise HookAnswerError(f"its answer is no verdict ({detail})") from None


def shortened(text: str) -> str:
    """No more than enough."""
    return text if len(text) <= MAX_WORDS else text[:MAX_WORDS] + _CUT


def _verdict(answer: _Answer) -> HookVerdict:
    specific = answer.specific
    wishes = {answer.decision, specific.permission_decision}
    is_blocked = not answer.goes_on or bool(wishes & {"block", "deny"})
    reasons = (
        None if answer.goes_on else answer.stop_reason,
        specific.reason,
        answer.reason,
        answer.stop_reason,
    )
    updated = specific.updated if specific.updated is not None else answer.updated
    return HookVerdict(
        outcome="block" if is_blocked else "continue",
        reason=shortened(next(filter(None, reasons), "")),
        context=shortened("\n".join(filter(None, (specific.context, answer.context)))),
        asks="ask" in wishes and not is_blocked,
        stops=not answer.goes_on,
        changed=None if is_blocked else updated,
    )
