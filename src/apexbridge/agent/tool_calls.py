"""Tool calls of a model reply: dispatch, loop detection, concurrency, effects on the session."""

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

from apexbridge.activation.activator import REFUSALS
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
from apexbridge.redaction import redact_credentials
from apexbridge.tools.base import Tool, ToolContext, ToolRegistry, ToolResult

log = logging.getLogger(__name__)

SKILL_TOOL = "Skill"
_MAX_ARGUMENT_CHARS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallOutcome:
    """Result of a dispatched call; `code` is the error code, empty on success."""

    call: ToolCall
    result: ToolResult
    seconds: float = 0.0
    code: str = ""


async def dispatch(call: ToolCall, registry: ToolRegistry, context: ToolContext) -> ToolCallOutcome:
    """Dispatch a call: find, parse, hooks, permission, call, hooks.

    Never raises for what the call did: errors become results that the model reads.
    """
    start = time.perf_counter()
    try:
        tool = find_tool(call.name, registry)
        hooked = await _run_pre_tool_hooks(tool, parse_arguments(call), context)
        arguments = hooked.arguments
        requests = _permission_requests(tool, arguments, context, must_ask=hooked.must_ask)
        await context.allow(requests, must_ask=hooked.must_ask)
        context.emit(
            ToolStarted(session_id=context.session_id, call_id=context.call_id, tool=tool.spec.name)
        )
        result = await tool.call(arguments, context)
        added = await _run_post_tool_hooks(tool, arguments, result, context)
        if hooked.context or added:
            result = replace(result, text="\n\n".join((result.text, *hooked.context, *added)))
        outcome = ToolCallOutcome(call=call, result=result)
    except ApexBridgeError as error:
        outcome = _failed(call, error.code, _error_text(call, error))
    except PermissionError as error:  # a script without the executable bit
        outcome = _failed(call, "permission_denied", str(error.strerror or error))
    except (Exception, SystemExit) as error:  # a third-party tool must not end this process
        log.exception("The tool %s failed", call.name)
        outcome = _failed(call, "tool_failed", f"The tool failed: {type(error).__name__}")
    seconds = time.perf_counter() - start
    context.emit(
        ToolFinished(
            session_id=context.session_id,
            call_id=context.call_id,
            tool=call.name,
            seconds=seconds,
            is_error=outcome.result.is_error,
        )
    )
    return replace(outcome, seconds=seconds)


def find_tool(name: str, registry: ToolRegistry) -> Tool:
    """Look up a tool by name or alias.

    Raises:
        ToolNotFoundError: With the closest matches by edit distance.
    """
    tool = registry.get(name)
    if tool is None:
        near = difflib.get_close_matches(name, registry.names(), n=3)
        raise ToolNotFoundError(name, near=near)
    return tool


def parse_arguments(call: ToolCall) -> dict[str, Any]:
    """Parse the JSON object that a model wrote as arguments; empty text is `{}`.

    Raises:
        ToolInputError: If it is too long, not JSON, or not an object.
    """
    text = call.arguments.strip() or "{}"
    if len(text) > _MAX_ARGUMENT_CHARS:
        raise ToolInputError("the arguments are too long", name=call.name)
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ToolInputError(f"the arguments are not JSON: {error}", name=call.name) from None
    if not isinstance(parsed, dict):
        raise ToolInputError("the arguments are not a JSON object", name=call.name)
    return parsed  # pyright: ignore[reportUnknownVariableType]


def _permission_requests(
    tool: Tool, arguments: Mapping[str, Any], context: ToolContext, *, must_ask: bool
) -> Sequence[PermissionRequest]:
    requests, name = tool.permissions(arguments, context), tool.spec.name
    # The Skill tool asks nothing here: the activator checks each invocation, whatever triggered it.
    if requests or (name == SKILL_TOOL and not must_ask):
        return requests
    # A tool that requests nothing can still be denied by its name.
    argument = str(arguments.get("skill", "")) if name == SKILL_TOOL else ""
    return (PermissionRequest(tool=name, argument=argument, harmless=True),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _HookedArguments:
    """Arguments after the `PreToolUse` hooks; changed ones pass the permission check like any."""

    arguments: Mapping[str, Any]
    context: Sequence[str]
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
    return _HookedArguments(
        arguments=arguments if verdict.changed is None else dict(verdict.changed),
        context=[verdict.context] if verdict.context else [],
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


def _error_text(call: ToolCall, error: ApexBridgeError) -> str:
    """Return message and hint; a refused skill has its number, by which a model can tell why."""
    number = REFUSALS.get(error.code, 0) if call.name == SKILL_TOOL else 0
    refusal = f" (refusal {number})" if number else ""
    hint = f"\n{error.hint}" if error.hint else ""
    return f"{error.message}{refusal}{hint}"


def _failed(call: ToolCall, code: str, text: str) -> ToolCallOutcome:
    result = ToolResult(text=f"[{code}] {text}", is_error=True)
    return ToolCallOutcome(call=call, result=result, code=code)


class LoopDetector:
    """Loop detection: count calls with equal name and arguments within a turn."""

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self._counts: Counter[tuple[str, str]] = Counter()

    def count(self, call: ToolCall) -> int:
        """Count a call, and return its number of occurrences so far."""
        key = (call.name, call.arguments.strip())
        self._counts[key] += 1
        return self._counts[key]

    def is_repeated(self, call: ToolCall) -> bool:
        """Return whether the call occurred more often than it is executed."""
        return self._counts[call.name, call.arguments.strip()] > self._allowed

    @property
    def is_looping(self) -> bool:
        """Return whether the error results did not help: twice the allowed number."""
        return any(count > 2 * self._allowed for count in self._counts.values())


ContextFactory = Callable[[str], ToolContext]
_REPEATED_RESULT = ToolResult(
    text="[call_repeated] This call was already made. Its result is above: continue with it.",
    is_error=True,
)


class ToolCallExecutor:
    """Execute the tool calls of one turn; `tools` are those offered in the latest model request."""

    def __init__(
        self,
        session: Session,
        record: TurnRecord,
        limits: TurnLimits,
        observer: ToolObserver | None = None,
    ) -> None:
        self._session, self._record, self._observer = session, record, observer
        self._loops, self._max_concurrent = LoopDetector(limits.repeats), limits.calls_at_once
        self._redacts = limits.redacts
        self.tools = ToolRegistry()

    @property
    def is_looping(self) -> bool:
        """Return whether the model repeats the same call in spite of error results."""
        return self._loops.is_looping

    async def execute(
        self, calls: Sequence[ToolCall], context_for: ContextFactory
    ) -> tuple[Path, ...]:
        """Execute calls and append one result each, also when cancelled.

        Returns the paths that were touched or named. Grants apply from the next group on; further
        messages (skill texts) follow behind all results, for providers demand that tool results
        come directly after the calls.
        """
        done = dict[int, ToolCallOutcome]()  # by position: some models reuse call ids
        start = time.perf_counter()
        try:
            for group in self._concurrent_groups(calls):
                async with anyio.create_task_group() as tasks:
                    for at in group:
                        tasks.start_soon(self._execute_one, calls[at], at, done, context_for)
                for at in group:
                    if at in done:
                        apply_grants(self._session, done[at].result)
        finally:
            self._record.tool_seconds += time.perf_counter() - start
            for at, call in enumerate(calls):
                self._session.messages.append(_tool_message(call, done.get(at)))
            for at in sorted(done):
                self._session.messages += done[at].result.messages
        return tuple(self._touched_paths([done[at] for at in sorted(done)]))

    def _concurrent_groups(self, calls: Sequence[ToolCall]) -> list[list[int]]:
        """Group consecutive read-only calls to run concurrently; any other call runs alone."""
        groups, was_read_only = list[list[int]](), False
        for at, call in enumerate(calls):
            tool = self.tools.get(call.name)
            is_read_only = tool is not None and tool.spec.read_only
            if is_read_only and was_read_only and len(groups[-1]) < self._max_concurrent:
                groups[-1].append(at)
            else:
                groups.append([at])
            was_read_only = is_read_only
        return groups

    async def _execute_one(
        self, call: ToolCall, at: int, done: dict[int, ToolCallOutcome], context_for: ContextFactory
    ) -> None:
        self._loops.count(call)
        if self._loops.is_repeated(call):
            outcome = ToolCallOutcome(call=call, result=_REPEATED_RESULT, code="call_repeated")
        else:
            with self._record.span("tool", call.name) as span:
                outcome = await self._dispatch(call, context_for(call.id))
                span.is_error = outcome.result.is_error
        done[at] = outcome
        self._record.calls.append(
            CallRecord(
                tool=call.name,
                seconds=outcome.seconds,
                argument_chars=len(call.arguments),
                result_chars=len(outcome.result.text),
                code=outcome.code,
                session_id=self._session.id,
            )
        )

    async def _dispatch(self, call: ToolCall, context: ToolContext) -> ToolCallOutcome:
        if self._observer is not None:
            self._observer.tool_started(call)
        outcome = await dispatch(call, self.tools, context)
        if self._redacts:
            text = redact_credentials(outcome.result.text)
            outcome = replace(outcome, result=replace(outcome.result, text=text))
        if self._observer is not None:
            self._observer.tool_finished(call, outcome.result.text)
        return outcome

    def _touched_paths(self, outcomes: Sequence[ToolCallOutcome]) -> list[Path]:
        paths = list[Path]()
        for outcome in outcomes:
            paths += outcome.result.touched
            command = outcome.result.data.get("command")
            if isinstance(command, str):
                paths += paths_in_command(command, self._session.cwd)
        return paths


def apply_result(session: Session, result: ToolResult) -> None:
    """Append the messages of a result to the session, and apply its grants."""
    session.messages += result.messages
    apply_grants(session, result)


def apply_grants(session: Session, result: ToolResult) -> None:
    """Apply the grants of a result and mark its skills as applied; messages are not appended."""
    session.apply_grants(result.grants)
    for message in result.messages:
        if isinstance(message, UserMessage) and message.skill:
            session.mark_applied(message.skill, message.text, str(result.data.get("digest", "")))


def _tool_message(call: ToolCall, outcome: ToolCallOutcome | None) -> ToolMessage:
    if outcome is None:
        text = "[cancelled] It was not executed."
        return ToolMessage(call_id=call.id, text=text, is_error=True)
    text = prompt.escape_tags(outcome.result.text)
    return ToolMessage(call_id=call.id, text=text, is_error=outcome.result.is_error)
