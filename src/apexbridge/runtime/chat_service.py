"""Chat service: run turns of sessions, stream their events, and store sessions and turn records."""

import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from apexbridge.activation.activator import Invocation
from apexbridge.activation.input_files import InputFiles
from apexbridge.agent.loop import Agent
from apexbridge.agent.session import Session
from apexbridge.agent.turn import TurnRecord, TurnRequest, TurnResult
from apexbridge.errors import StorageError
from apexbridge.events import Event, EventSink, TurnFinished
from apexbridge.messages import AssistantMessage
from apexbridge.paths import printable_path
from apexbridge.permissions.engine import Approver
from apexbridge.runtime.agent_factory import AgentFactory
from apexbridge.runtime.file_store import new_id
from apexbridge.runtime.model_factory import ModelHandle
from apexbridge.tools.base import ToolRegistry, ToolResult

log = logging.getLogger(__name__)

_FLUSH_DELAY = 0.2
"""Seconds for which turn records wait, to be written in one transaction."""


class ChatService:
    """All chat sessions of one runtime; turns run in the runtime's task group."""

    def __init__(self, agents: AgentFactory, model: ModelHandle, tasks: TaskGroup) -> None:
        self._agents, self._tasks = agents, tasks
        self.store, self.sessions = agents.session_store, agents.sessions
        self._is_flushing = False
        self._model = model
        self._approver: Approver | None = None
        self._agent: Agent | None = None
        self._files = agents.files
        self.acting_tools = agents.acting_tools()
        """Names of tools that read or change files or run code: a key needs `exec` for them."""

    def check_approvals(self) -> None:
        """Check that the answer `always` can be stored; blocks.

        Raises:
            StateDamagedError: If the stored approvals cannot be read.
        """
        self._agents.permissions.approvals.check()

    @property
    def model(self) -> ModelHandle:
        """The model that turns use; another one can be assigned."""
        return self._model

    @model.setter
    def model(self, model: ModelHandle) -> None:
        self._model, self._agent = model, None

    @property
    def approver(self) -> Approver | None:
        """The approver of turns that bring none; another one can be assigned."""
        return self._approver

    @approver.setter
    def approver(self, approver: Approver | None) -> None:
        self._approver, self._agent = approver, None

    @property
    def agent(self) -> Agent:
        """The agent for the present model and approver."""
        if self._agent is None:
            self._agent = self._agents.create(self._model, self._approver)
        return self._agent

    @property
    def registry(self) -> ToolRegistry:
        """All tools that the model may call."""
        return self._agents.registry

    def start(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Start a background task, which is cancelled when the runtime closes."""
        self._tasks.start_soon(work)

    async def close(self) -> None:
        """Close the HTTP connections of the model and the session store."""
        await self._model.close()
        await anyio.to_thread.run_sync(self.store.close)

    async def turn(
        self,
        session_id: str,
        request: TurnRequest,
        emit: EventSink,
        *,
        record: TurnRecord | None = None,
    ) -> TurnResult:
        """Run one turn of a session, and store the session also when the turn fails.

        Raises:
            ApexBridgeError: If the model, or a skill that was named explicitly, cannot be used.
        """
        agent, record = self.agent, record or TurnRecord.new(session_id)
        async with self.sessions.acquire(session_id) as session:
            try:
                result = await agent.turn(session, request, emit, record=record)
            finally:
                await self._save(session, record)
        emit(_turn_finished(result))
        return result

    async def turn_once(
        self, request: TurnRequest, emit: EventSink, record: TurnRecord
    ) -> TurnResult:
        """Run a stateless turn, whose history is in the request; only its record is stored.

        Raises:
            ApexBridgeError: If the model, or a skill that was named explicitly, cannot be used.
        """
        session = self.sessions.create_ephemeral(record.session_id)
        session.is_started = any(isinstance(old, AssistantMessage) for old in request.history)
        with self.sessions.ephemeral(session):
            try:
                result = await self.agent.turn(session, request, emit, record=record)
            finally:
                self.store.put(record)
                self._schedule_flush()
        emit(_turn_finished(result))
        return result

    async def stream(self, session_id: str, request: TurnRequest) -> AsyncGenerator[Event]:
        """Run a turn, and yield its events, `TurnFinished` last; closing the generator cancels it.

        The turn runs in a separate task: a generator may be closed by another task than the one
        that iterates, and anyio's cancel scopes must not cross tasks.
        """
        sender, receiver = anyio.create_memory_object_stream[Event](float("inf"))
        scope, ended, failed = anyio.CancelScope(), anyio.Event(), list[Exception]()

        async def work() -> None:
            try:
                with sender, scope:
                    await self.turn(session_id, request, sender.send_nowait)
            except Exception as error:  # noqa: BLE001  # any: it is raised where events are read
                failed.append(error)
            finally:
                ended.set()

        self.start(work)
        with receiver:
            try:
                async for event in receiver:
                    yield event
            finally:
                scope.cancel()
                with anyio.CancelScope(shield=True):
                    await ended.wait()
        if failed:
            raise failed[0]

    async def invoke(
        self,
        session_id: str,
        invocation: Invocation,
        emit: EventSink,
        *,
        approver: Approver | None = None,
    ) -> ToolResult:
        """Invoke a skill in a session without a model call.

        Raises:
            ApexBridgeError: If the skill cannot be used.
        """
        async with self.sessions.acquire(session_id) as session:
            result = await self.agent.invoke(session, invocation, emit, approver=approver)
            await self._save(session, replace(TurnRecord.new(session_id), finish="skill"))
        return result

    async def compact(self, session_id: str, emit: EventSink) -> bool:
        """Summarize a session's history now; False if there is nothing to summarize."""
        record = replace(TurnRecord.new(session_id), finish="compact")
        async with self.sessions.acquire(session_id) as session:
            has_changed = await self.agent.compact(session, emit, record)
            await self._save(session, record)
        return has_changed

    async def session(self, session_id: str, *, system: str = "") -> Session:
        """Return a session: the running one, the stored one, or a new one."""
        found = await self.sessions.get(session_id)
        found.system = system or found.system
        return found

    async def attach(self, session_id: str, files: Mapping[str, bytes]) -> Path:
        """Store files that come with a request; returns the folder for `TurnRequest.files`.

        Raises:
            StorageError: If the disk refuses.
        """
        put = partial(self._files.put, new_id("upload"), session_id, files)
        return await anyio.to_thread.run_sync(put)

    async def attach_from_disk(
        self, session_id: str, paths: Sequence[Path]
    ) -> tuple[Path, Mapping[str, str]]:
        """Store copies of files and folders that come with a request.

        Returns the folder for `TurnRequest.files`, and what was left out, with the reason.

        Raises:
            OSError: If one cannot be read.
            StorageError: If the disk refuses.
            ToolInputError: If two have the same name, or all together are too large.
        """
        inputs = await anyio.to_thread.run_sync(InputFiles.from_disk, paths)
        folder = await self.attach(session_id, inputs.files)
        return folder, {printable_path(name): why for name, why in inputs.skipped.items()}

    async def delete(self, session_id: str) -> bool:
        """Delete a session, the records of its turns and its files; False if there was none.

        Raises:
            StorageError: If the disk refuses.
        """
        await anyio.to_thread.run_sync(self._files.delete_of_session, session_id)
        return await self.sessions.delete(session_id)

    async def _save(self, session: Session, record: TurnRecord) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await anyio.to_thread.run_sync(self.store.save, session, record)
            except StorageError:
                # The caller is told that it failed: the next turn must not go on from it.
                self.sessions.forget(session.id)
                raise

    def _schedule_flush(self) -> None:
        # Batched: one fsync for all turns of a burst, and no turn waits for it.
        if not self._is_flushing:
            self._is_flushing = True
            self.start(self._flush)

    async def _flush(self) -> None:
        try:
            await anyio.sleep(_FLUSH_DELAY)
        finally:
            self._is_flushing = False
        try:
            await anyio.to_thread.run_sync(self.store.flush)
        except StorageError as error:  # a trace is not worth a failed turn
            log.warning("Turn records are lost: %s", error)


def _turn_finished(result: TurnResult) -> TurnFinished:
    record = result.record
    return TurnFinished(
        session_id=record.session_id,
        turn_id=record.id,
        finish=result.finish,
        text=result.text,
        input_tokens=record.usage.input_tokens,
        output_tokens=record.usage.output_tokens,
    )
