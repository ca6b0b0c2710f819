"""The calls of one reply: carried out, side by side where that is safe, their effects applied."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

from apexbridge.agent import prompt
from apexbridge.agent.dispatch import Handled, dispatch
from apexbridge.agent.limits import TurnLimits
from apexbridge.agent.repeats import Repeats
from apexbridge.agent.session import Session
from apexbridge.agent.turn import CallRecord, TurnRecord
from apexbridge.catalog.mentions import named_paths
from apexbridge.messages import ToolCall, ToolMessage, UserMessage
from apexbridge.tools.base import ToolContext, ToolRegistry, ToolResult

ContextOf = Callable[[str], ToolContext]


class Calls:
    """Carries out the calls of one turn."""

    def __init__(
        self, registry: ToolRegistry, session: Session, record: TurnRecord, limits: TurnLimits
    ) -> None:
        self._registry, self._session, self._record = registry, session, record
        self._repeats, self._at_once = Repeats(limits.repeats), limits.calls_at_once

    @property
    def is_hopeless(self) -> bool:
        """Say whether the model goes round in circles."""
        return self._repeats.is_hopeless

    async def carry_out(self, calls: Sequence[ToolCall], context_of: ContextOf) -> tuple[Path, ...]:
        """Every call has its result in the conversation afterwards, whatever happens meanwhile.

        What comes back are the files that were touched or named.
        """
        done = dict[str, Handled]()
        start = time.perf_counter()
        try:
            for group in self._groups(calls):
                async with anyio.create_task_group() as tasks:
                    for call in group:
                        tasks.start_soon(self._one, call, done, context_of)
        finally:
            self._record.tool_seconds += time.perf_counter() - start
            for call in calls:
                self._session.messages.append(_message(call, done.get(call.id)))
        for call in calls:
            if call.id in done:
                take(self._session, done[call.id].result)
        return tuple(self._touched([done[call.id] for call in calls if call.id in done]))

    def _groups(self, calls: Sequence[ToolCall]) -> list[list[ToolCall]]:
        """Calls that only read go side by side; any other goes alone, in its turn."""
        groups, room = list[list[ToolCall]](), self._at_once
        was_reading = False
        for call in calls:
            tool = self._registry.get(call.name)
            reads = tool is not None and tool.spec.read_only
            if reads and was_reading and len(groups[-1]) < room:
                groups[-1].append(call)
            else:
                groups.append([call])
            was_reading = reads
        return groups

    async def _one(self, call: ToolCall, done: dict[str, Handled], context_of: ContextOf) -> None:
        self._repeats.note(call)
        if self._repeats.is_too_often(call):
            text = "[call_repeated] This very call was made before. Its result is above: go on."
            done[call.id] = Handled(
                call=call, result=ToolResult(text=text, is_error=True), code="call_repeated"
            )
        else:
            done[call.id] = await dispatch(call, self._registry, context_of(call.id))
        handled = done[call.id]
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

    def _touched(self, handled: Sequence[Handled]) -> list[Path]:
        paths = list[Path]()
        for one in handled:
            paths += one.result.touched
            command = one.result.data.get("command")
            if isinstance(command, str):
                paths += named_paths(command, self._session.cwd)
        return paths


def take(session: Session, result: ToolResult) -> None:
    """Do what a result asks of the session: the one place where effects are applied."""
    session.messages += result.messages
    session.lend(result.grants)
    for message in result.messages:
        if isinstance(message, UserMessage) and message.skill:
            session.apply(message.skill, message.text, str(result.data.get("digest", "")))


def _message(call: ToolCall, handled: Handled | None) -> ToolMessage:
    if handled is None:
        text = "[cancelled] It was not carried out."
        return ToolMessage(call_id=call.id, text=text, is_error=True)
    text = prompt.as_data(handled.result.text)
    return ToolMessage(call_id=call.id, text=text, is_error=handled.result.is_error)
