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
from apexbridge.agent.turn import CallRecord, TurnRecord, Watch
from apexbridge.catalog.mentions import named_paths
from apexbridge.messages import ToolCall, ToolMessage, UserMessage
from apexbridge.tools.base import ToolContext, ToolRegistry, ToolResult

ContextOf = Callable[[str], ToolContext]
_REPEATED = ToolResult(
    text="[call_repeated] This very call was made before. Its result is above: go on.",
    is_error=True,
)


class Calls:
    """Carries out the calls of one turn; the tools are those that the model was told of last."""

    def __init__(self, session: Session, record: TurnRecord, limits: TurnLimits) -> None:
        self._session, self._record = session, record
        self._repeats, self._at_once = Repeats(limits.repeats), limits.calls_at_once
        self.tools = ToolRegistry()
        self.watch: Watch | None = None

    @property
    def is_hopeless(self) -> bool:
        """Say whether the model goes round in circles."""
        return self._repeats.is_hopeless

    async def carry_out(self, calls: Sequence[ToolCall], context_of: ContextOf) -> tuple[Path, ...]:
        """Every call has its result in the conversation afterwards, whatever happens meanwhile.

        What comes back are the files that were touched or named. What a call lends holds from
        the next one on; what it adds to the conversation stands behind all results.
        """
        done = dict[int, Handled]()  # by place: not every model gives each call an id of its own
        start = time.perf_counter()
        try:
            for group in self._groups(calls):
                async with anyio.create_task_group() as tasks:
                    for at in group:
                        tasks.start_soon(self._one, calls[at], at, done, context_of)
                for at in group:
                    if at in done:
                        lend(self._session, done[at].result)
        finally:
            self._record.tool_seconds += time.perf_counter() - start
            for at, call in enumerate(calls):
                self._session.messages.append(_message(call, done.get(at)))
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
        self, call: ToolCall, at: int, done: dict[int, Handled], context_of: ContextOf
    ) -> None:
        self._repeats.note(call)
        if self._repeats.is_too_often(call):
            handled = Handled(call=call, result=_REPEATED, code="call_repeated")
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

    async def _dispatch(self, call: ToolCall, context: ToolContext) -> Handled:
        if self.watch is None:
            return await dispatch(call, self.tools, context)
        self.watch(call, None)
        handled = await dispatch(call, self.tools, context)
        self.watch(call, handled.result.text)
        return handled

    def _touched(self, handled: Sequence[Handled]) -> list[Path]:
        paths = list[Path]()
        for one in handled:
            paths += one.result.touched
            command = one.result.data.get("command")
            if isinstance(command, str):
                paths += named_paths(command, self._session.cwd)
        return paths


def take(session: Session, result: ToolResult) -> None:
    """Do all that a result asks of the session."""
    session.messages += result.messages
    lend(session, result)


def lend(session: Session, result: ToolResult) -> None:
    """Do what a result asks of the session but its messages; the one place where that is done."""
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
