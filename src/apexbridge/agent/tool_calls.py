"""One tool call: found, its arguments read, hooks and rules asked, carried out, told."""

import difflib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio

from apexbridge.agent import prompt
from apexbridge.agent.session import Session
from apexbridge.agent.turn import CallRecord, ToolObserver, TurnLimits, TurnRecord
from apexbridge.catalog.path_activation import paths_in_command
from apexbridge.errors import (
    ApexBridgeError,
    PermissionDeniedError,
    ToolInputError,
    ToolNotFoundError,
)
from apexbridge.events import ToolFinished, ToolStarted
from apexbridge.messages import ToolCall, ToolMessage, UserMessage
from apexbridge.permissions.hook_protocol import HookEvent
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.tools.base import Tool, ToolContext, ToolRegistry, ToolResult

log = logging.getLogger(__name__)

_MAX_ARGUMENT_CHARS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallOutcome:
    """What became of a call."""

    call: ToolCall
    result: ToolResult
    seconds: float = 0.0
    code: str = ""
    """Why it was refused or failed; empty where it did neither."""


async def dispatch(call: ToolCall, registry: ToolRegistry, context: ToolContext) -> ToolCallOutcome:
    """Carry out a call. Never raises for what the call did: the model reads what went wrong."""
    start = time.perf_counter()
    try:
        tool = find_tool(call.name, registry)
        asked = await _run_pre_tool_hooks(tool, parse_arguments(call), context)
        arguments = asked.arguments
        requests = _permission_requests(tool, arguments, context, must_ask=asked.must_ask)
        await context.allow(requests, must_ask=asked.must_ask)
        context.emit(
            ToolStarted(session_id=context.session_id, call_id=context.call_id, tool=tool.spec.name)
        )
        result = await tool.call(arguments, context)
        said = await _run_post_tool_hooks(tool, arguments, result, context)
        handled = ToolCallOutcome(call=call, result=_append_context(result, (*asked.said, *said)))
    except ApexBridgeError as error:
        handled = ToolCallOutcome(call=call, result=_error_result(error), code=error.code)
    except PermissionError as error:  # a script that is not executable, as the seeds name it
        text = f"[permission_denied] {error.strerror or error}"
        handled = ToolCallOutcome(
            call=call, result=ToolResult(text=text, is_error=True), code="permission_denied"
        )
    except (Exception, SystemExit) as error:  # whoever writes a tool does not end this program
        log.exception("The tool %s failed", call.name)
        text = f"[tool_failed] The tool failed: {type(error).__name__}"
        handled = ToolCallOutcome(
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


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments that a model wrote, as an object.

    Raises:
        ToolInputError: If they are none.
    """
    text = call.arguments.strip() or "{}"
    if len(text) > _MAX_ARGUMENT_CHARS:
        raise ToolInputError("the arguments are too long", name=call.name)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ToolInputError(f"the arguments are not JSON: {error}", name=call.name) from None
    if not isinstance(found, dict):
        raise ToolInputError("the arguments are no JSON object", name=call.name)
    return found  # pyright: ignore[reportUnknownVariableType]


def _permission_requests(
    tool: Tool, arguments: Mapping[str, Any], context: ToolContext, *, must_ask: bool
) -> Sequence[PermissionRequest]:
    """What the call is about to do; one that asks for nothing can still be forbidden by name."""
    requests, name = tool.permissions(arguments, context), tool.spec.name
    if requests or (name == "Skill" and not must_ask):  # every way in leads to where it is judged
        return requests
    argument = str(arguments.get("skill", "")) if name == "Skill" else ""
    return (PermissionRequest(tool=name, argument=argument, harmless=True),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _HookedArguments:
    """What hooks made of the arguments, which is judged like any other, and what they add."""

    arguments: Mapping[str, Any]
    said: Sequence[str]
    must_ask: bool


async def _run_pre_tool_hooks(
    tool: Tool, arguments: Mapping[str, Any], context: ToolContext
) -> _HookedArguments:
    name = tool.spec.name
    facts = {"tool_name": name, "tool_input": arguments}
    verdict = await context.fire(HookEvent.PRE_TOOL_USE, name, facts)
    if verdict.outcome == "block":
        raise PermissionDeniedError(
            verdict.reason or "a hook said no", code="hook_blocked", name=name
        )
    changed = arguments if verdict.changed is None else dict(verdict.changed)
    return _HookedArguments(
        arguments=changed,
        said=[verdict.context] if verdict.context else [],
        must_ask=verdict.asks,
    )


async def _run_post_tool_hooks(
    tool: Tool, arguments: Mapping[str, Any], result: ToolResult, context: ToolContext
) -> Sequence[str]:
    facts = {
        "tool_name": tool.spec.name,
        "tool_input": arguments,
        "tool_response": {"text": result.text, "is_error": result.is_error},
    }
    verdict = await context.fire(HookEvent.POST_TOOL_USE, tool.spec.name, facts)
    return [text for text in (verdict.reason, verdict.context) if text]


def _append_context(result: ToolResult, said: Sequence[str]) -> ToolResult:
    if not said:
        return result
    return replace(result, text="\n\n".join((result.text, *said)))


def _error_result(error: ApexBridgeError) -> ToolResult:
    hint = f"\n{error.hint}" if error.hint else ""
    return ToolResult(text=f"[{error.code}] {error.message}{hint}", is_error=True)


class LoopDetector:
    """Counts equal calls of one turn."""

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self._counts: Counter[tuple[str, str]] = Counter()

    def note(self, call: ToolCall) -> int:
        """How often this very call was made, this time included."""
        key = (call.name, call.arguments.strip())
        self._counts[key] += 1
        return self._counts[key]

    def is_too_often(self, call: ToolCall) -> bool:
        """Say whether it was made more often than is carried out."""
        return self._counts[call.name, call.arguments.strip()] > self._allowed

    @property
    def is_hopeless(self) -> bool:
        """Say whether being told did not help: twice as often as is carried out."""
        return any(count > 2 * self._allowed for count in self._counts.values())


ContextFactory = Callable[[str], ToolContext]
_REPEATED_RESULT = ToolResult(
    text="[call_repeated] This very call was made before. Its result is above: go on.",
    is_error=True,
)


class ToolCallExecutor:
    """Carries out the calls of one turn; the tools are those that the model was told of last."""

    def __init__(self, session: Session, record: TurnRecord, limits: TurnLimits) -> None:
        self._session, self._record = session, record
        self._repeats, self._at_once = LoopDetector(limits.repeats), limits.calls_at_once
        self.tools = ToolRegistry()
        self.watch: ToolObserver | None = None

    @property
    def is_hopeless(self) -> bool:
        """Say whether the model goes round in circles."""
        return self._repeats.is_hopeless

    async def carry_out(
        self, calls: Sequence[ToolCall], context_of: ContextFactory
    ) -> tuple[Path, ...]:
        """Every call has its result in the conversation afterwards, whatever happens meanwhile.

        What comes back are the files that were touched or named. What a call lends holds from
        the next one on; what it adds to the conversation stands behind all results.
        """
        done = dict[
            int, ToolCallOutcome
        ]()  # by place: not every model gives each call an id of its own
        start = time.perf_counter()
        try:
            for group in self._groups(calls):
                async with anyio.create_task_group() as tasks:
                    for at in group:
                        tasks.start_soon(self._one, calls[at], at, done, context_of)
                for at in group:
                    if at in done:
                        apply_grants(self._session, done[at].result)
        finally:
            self._record.tool_seconds += time.perf_counter() - start
            for at, call in enumerate(calls):
                self._session.messages.append(_tool_message(call, done.get(at)))
            for at in sorted(done):
                self._session.messages += done[at].result.messages
        return tuple(self._touched([done[at] for at in sorted(done)]))

    def _groups(self, calls: Sequence[ToolCall]) -> list[list[int]]:
        """Calls that only read go side by side; any other goes alone, in its turn."""
        groups, room = list[list[int]](), self._at_once
        was_reading = False
        for at, call in enumerate(calls):
            tool = self.tools.get(call.name)
            reads = tool is not None and tool.spec.read_only
            if reads and was_reading and len(groups[-1]) < room:
                groups[-1].append(at)
            else:
                groups.append([at])
            was_reading = reads
        return groups

    async def _one(
        self, call: ToolCall, at: int, done: dict[int, ToolCallOutcome], context_of: ContextFactory
    ) -> None:
        self._repeats.note(call)
        if self._repeats.is_too_often(call):
            handled = ToolCallOutcome(call=call, result=_REPEATED_RESULT, code="call_repeated")
        else:
            with self._record.spanning("tool", call.name) as span:
                handled = await self._dispatch(call, context_of(call.id))
                span.is_error = handled.result.is_error
        done[at] = handled
        self._record.calls.append(
            CallRecord(
                tool=call.name,
                seconds=handled.seconds,
                argument_chars=len(call.arguments),
                result_chars=len(handled.result.text),
                code=handled.code,
                session_id=self._session.id,
            )
        )

    async def _dispatch(self, call: ToolCall, context: ToolContext) -> ToolCallOutcome:
        if self.watch is None:
            return await dispatch(call, self.tools, context)
        self.watch(call, None)
        handled = await dispatch(call, self.tools, context)
        self.watch(call, handled.result.text)
        return handled

    def _touched(self, handled: Sequence[ToolCallOutcome]) -> list[Path]:
        paths = list[Path]()
        for one in handled:
            paths += one.result.touched
            command = one.result.data.get("command")
            if isinstance(command, str):
                paths += paths_in_command(command, self._session.cwd)
        return paths


def apply_result(session: Session, result: ToolResult) -> None:
    """Do all that a result asks of the session."""
    session.messages += result.messages
    apply_grants(session, result)


def apply_grants(session: Session, result: ToolResult) -> None:
    """Do what a result asks of the session but its messages; the one place where that is done."""
    session.lend(result.grants)
    for message in result.messages:
        if isinstance(message, UserMessage) and message.skill:
            session.apply(message.skill, message.text, str(result.data.get("digest", "")))


def _tool_message(call: ToolCall, handled: ToolCallOutcome | None) -> ToolMessage:
    if handled is None:
        text = "[cancelled] It was not carried out."
        return ToolMessage(call_id=call.id, text=text, is_error=True)
    text = prompt.escape_tags(handled.result.text)
    return ToolMessage(call_id=call.id, text=text, is_error=handled.result.is_error)
