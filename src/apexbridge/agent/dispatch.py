"""One tool call: found, its arguments read, hooks and rules asked, carried out, told."""

import difflib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from apexbridge.errors import (
    ApexBridgeError,
    PermissionDeniedError,
    ToolInputError,
    ToolNotFoundError,
)
from apexbridge.events import ToolFinished, ToolStarted
from apexbridge.messages import ToolCall
from apexbridge.policy.hookspec import HookEvent
from apexbridge.policy.rules import PermissionRequest
from apexbridge.tools.base import Tool, ToolContext, ToolRegistry, ToolResult

log = logging.getLogger(__name__)

_MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """What became of a call."""

    call: ToolCall
    result: ToolResult
    seconds: float = 0.0
    code: str = ""
    """Why it was refused or failed; empty where it did neither."""


async def dispatch(call: ToolCall, registry: ToolRegistry, context: ToolContext) -> Handled:
    """Carry out a call. Never raises for what the call did: the model reads what went wrong."""
    start = time.perf_counter()
    try:
        tool = find_tool(call.name, registry)
        asked = await _ask_hooks(tool, read_arguments(call), context)
        arguments = asked.arguments
        requests = _requests(tool, arguments, context, must_ask=asked.must_ask)
        await context.allow(requests, must_ask=asked.must_ask)
        context.emit(
            ToolStarted(session_id=context.session_id, call_id=context.call_id, tool=tool.spec.name)
        )
        result = await tool.call(arguments, context)
        said = await _tell_hooks(tool, arguments, result, context)
        handled = Handled(call=call, result=_with(result, (*asked.said, *said)))
    except ApexBridgeError as error:
        handled = Handled(call=call, result=_as_result(error), code=error.code)
    except PermissionError as error:  # a script that is not executable, as the seeds name it
        text = f"[permission_denied] {error.strerror or error}"
        handled = Handled(
            call=call, result=ToolResult(text=text, is_error=True), code="permission_denied"
        )
    except (Exception, SystemExit) as error:  # whoever writes a tool does not end this program
        log.exception("The tool %s failed", call.name)
        text = f"[tool_failed] The tool failed: {type(error).__name__}"
        handled = Handled(
            call=call, result=ToolResult(text=text, is_error=True), code="tool_failed"
        )
    seconds = time.perf_counter() - start
    context.emit(
        ToolFinished(
            session_id=context.session_id,
            call_id=context.call_id,
            tool=call.name,
            seconds=seconds,
            is_error=handled.result.is_error,
        )
    )
    return replace(handled, seconds=seconds)


def find_tool(name: str, registry: ToolRegistry) -> Tool:
    """The tool of that name.

    Raises:
        ToolNotFoundError: With the names that come near.
    """
    tool = registry.get(name)
    if tool is None:
        near = difflib.get_close_matches(name, registry.names(), n=3)
        raise ToolNotFoundError(name, near=near)
    return tool


def read_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments that a model wrote, as an object.

    Raises:
        ToolInputError: If they are none.
    """
    text = call.arguments.strip() or "{}"
    if len(text) > _MAX_BYTES:
        raise ToolInputError("the arguments are too long", name=call.name)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ToolInputError(f"the arguments are not JSON: {error}", name=call.name) from None
    if not isinstance(found, dict):
        raise ToolInputError("the arguments are no JSON object", name=call.name)
    return found  # pyright: ignore[reportUnknownVariableType]


def _requests(
    tool: Tool, arguments: Mapping[str, Any], context: ToolContext, *, must_ask: bool
) -> Sequence[PermissionRequest]:
    """What the call is about to do; one that asks for nothing can still be forbidden by name."""
    requests, name = tool.permissions(arguments, context), tool.spec.name
    if requests or (name == "Skill" and not must_ask):  # every way in leads to where it is judged
        return requests
    argument = str(arguments.get("skill", "")) if name == "Skill" else ""
    return (PermissionRequest(tool=name, argument=argument, harmless=True),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What hooks made of the arguments, which is judged like any other, and what they add."""

    arguments: Mapping[str, Any]
    said: Sequence[str]
    must_ask: bool


async def _ask_hooks(tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> _Asked:
    name = tool.spec.name
    facts = {"tool_name": name, "tool_input": arguments}
    verdict = await context.fire(HookEvent.PRE_TOOL_USE, name, facts)
    if verdict.outcome == "block":
        raise PermissionDeniedError(
            verdict.reason or "a hook said no", code="hook_blocked", name=name
        )
    changed = arguments if verdict.changed is None else dict(verdict.changed)
    return _Asked(
        arguments=changed,
        said=[verdict.context] if verdict.context else [],
        must_ask=verdict.asks,
    )


async def _tell_hooks(
    tool: Tool, arguments: Mapping[str, Any], result: ToolResult, context: ToolContext
) -> Sequence[str]:
    facts = {
        "tool_name": tool.spec.name,
        "tool_input": arguments,
        "tool_response": {"text": result.text, "is_error": result.is_error},
    }
    verdict = await context.fire(HookEvent.POST_TOOL_USE, tool.spec.name, facts)
    return [text for text in (verdict.reason, verdict.context) if text]


def _with(result: ToolResult, said: Sequence[str]) -> ToolResult:
    if not said:
        return result
    return replace(result, text="\n\n".join((result.text, *said)))


def _as_result(error: ApexBridgeError) -> ToolResult:
    hint = f"\n{error.hint}" if error.hint else ""
    return ToolResult(text=f"[{error.code}] {error.message}{hint}", is_error=True)
