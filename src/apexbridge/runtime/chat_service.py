"""Chat service: run turns of sessions, stream their events, and store sessions and turn records."""

import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import replace

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from apexbridge.activation.activator import Invocation
from apexbridge.agent.loop import Agent
from apexbridge.agent.session import Session
from apexbridge.agent.turn import TurnRecord, TurnRequest, TurnResult
from apexbridge.errors import StorageError
from apexbridge.events import Event, EventSink, TurnFinished
from apexbridge.messages import AssistantMessage
from apexbridge.permissions.engine import Approver
from apexbridge.runtime.agent_factory import AgentFactory
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
        self.acting_tools = agents.acting_tools()
        """Names of tools that read or change files or run code: a key needs `exec` for them."""

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

        The turn runs in a task of its own: a generator may be closed by another task than the one
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

    async def session(self, session_id: str, *, system: str = "") -> Session:
        """Return a session: the running one, the stored one, or a new one."""
        found = await self.sessions.get(session_id)
        found.system = system or found.system
        return found

    async def delete(self, session_id: str) -> bool:
        """Delete a session and the records of its turns; False if there was none.

        Raises:
            StorageError: If the disk refuses.
        """
        return await self.sessions.delete(session_id)

    async def _save(self, session: Session, record: TurnRecord) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.store.save, session, record)

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
<<<<<<< HEAD
        except StorageError as error:  # a trace is not worth a failed turn
            log.warning("Turn records are lost: %s", error)
=======
        except StorageError as error:  # a record is never worth failing for
            log.warning("Records of turns are lost: %s", error)

    async def session(self, session_id: str, *, system: str = "") -> Session:
        """The conversation of that id: the one going on, the one that was kept, or a new one."""
        found = await self.conversations.get(session_id)
        found.system = system or found.system
        return found

    async def forget(self, session_id: str) -> bool:
        """Remove a conversation and the records of its turns; False if there was none.

        Raises:
            StorageError: If the disk refuses.
        """
        return await self.conversations.forget(session_id)

    def _new(self, session_id: str) -> Session:
        hooks = HookRunner(self._run_hook, _post_hook)
        hooks.register(self._hooks, root=self._config.project)
        return Session(
            id=session_id,
            cwd=self._config.project,
            waking=PathActivation(self._config.project),
            hooks=hooks,
            tools_mode=self._config.settings.agent.allowed_tools,
        )

    def _lend_again(self, session: Session) -> None:
        """Hooks of skills stay for the session, also of one that is taken up again."""
        for name in session.applied:
            skill = self._rooms.catalog.snapshot.winner(name)
            if skill is not None and skill.is_trusted:
                session.hooks.register(skill.hooks, skill=skill.name, root=skill.root)

    @contextmanager
    def _child(self, parent: Session, request: SubagentRequest) -> Generator[Session]:
        """A session below another, known for as long as it is at work."""
        child = self._new(f"{parent.id}.{uuid.uuid4().hex[:6]}")
        init_child_session(child, parent, request)
        with self.conversations.passing(child):
            yield child

    @property
    def parts(self) -> AgentDeps:
        """What turns are made of; built anew only where somebody put another model here."""
        kept = self._kept_parts
        if kept is None or kept[0] is not self.model or kept[1] is not self.approver:
            self._kept_parts = kept = (self.model, self.approver, self._parts())
        return kept[2]

    def _parts(self) -> AgentDeps:
        chosen, rooms = self._config.settings, self._rooms
        return AgentDeps(
            model=self.model.client,
            model_name=self.model.name,
            registry=self.registry,
            activator=self._activator(),
            guard=self._guard(),
            offering=SkillAnnouncer(
                snapshot=lambda: rooms.catalog.snapshot,
                find=rooms.catalog.get,
                search=partial(rooms.search, limit=8),
                is_denied=self._is_denied,
                usage=self._used.scores,
                threshold=chosen.index.threshold,
                budget=ListingBudget.for_window(self.model.window),
            ),
            touch=self._touch,
            child=self._child,
            project=self._config.project,
            limits=TurnLimits(
                rounds=chosen.agent.rounds,
                tokens=chosen.agent.tokens,
                seconds=chosen.agent.seconds,
                depth=chosen.agent.depth,
                children=chosen.agent.children,
                window=self.model.window,
            ),
        )

    async def _touch(self, paths: Sequence[Path], session: Session) -> TouchResult:
        return await self._rooms.touch(paths, session.waking)

    def _activator(self) -> Activator:
        return Activator(
            self._rooms.catalog,
            partial(run_inline_command, self._rooms.script_runner),
            self._used.record,
            runs_commands=self._config.settings.agent.inline_commands,
        )

    def _guard(self) -> PermissionChecker:
        return PermissionChecker(
            rules=lambda: self._rules,
            approvals=self.approvals,
            ground=self._ground,
            approver=self.approver,
            turn=self._asking,
        )

    def _is_denied(self, name: str) -> bool:
        request = PermissionRequest(tool="Skill", argument=name, harmless=True)
        return bool(self._about_skills) and decide(request, self._about_skills).effect == "deny"

    def _may_read(self, path: Path, context: ToolContext) -> bool:
        if not self._rules:
            return True
        request = PermissionRequest(tool="Read", argument=str(path), path=path, harmless=True)
        standing = PermissionContext(ground=self._ground)
        return decide(request, self._rules, (), standing).effect != "deny"

    def _situation(self, session_id: str) -> ActivationContext:
        return activation_context(self.conversations.at_work(session_id), self._config.project)

    def _registry(self) -> ToolRegistry:
        rooms, registry = self._rooms, ToolRegistry()
        own = builtin_tools(
            rooms.script_runner.workshop,
            limits=rooms.script_runner.limits,
            may_read=self._may_read,
            protected=(self._config.data,),
        )
        for tool, aliases in own:
            registry.add(tool, aliases=aliases)
        registry.add(SkillTool(self._activator(), self._situation))
        seen = (self._situation, self._is_denied)
        search = SkillSearchTool(rooms.search, rooms.catalog, *seen)
        registry.add(search, aliases=("VectorSearch",))
        registry.add(SkillScriptTool(self._execute, self._find_to_run, self._is_isolated))
        registry.add(SkillsListTool(lambda: rooms.catalog.skills, *seen))
        registry.add(SkillsLoadTool(rooms.catalog, *seen))
        for tool in rooms.tools:
            registry.add(tool)
        return registry

    def _find_to_run(self, name: str, session_id: str) -> Skill:
        """A skill whose script the model may run: one it may invoke, or one that is at work."""
        catalog, situation = self._rooms.catalog, self._situation(session_id)
        skill = catalog.get(name)
        if skill.name in situation.active:
            return skill
        if self._is_denied(skill.name):
            raise SkillNotFoundError(skill.name)
        return catalog.get_for_model(skill.name, situation.waking)

    async def _execute(self, call: ScriptCall) -> ExecutionResult:
        executing = self._rooms.script_runner
        return await executing.execute(replace(call, limits=executing.limits()))

    def _is_isolated(self) -> bool:
        return not self._config.settings.sandbox.allow_unsandboxed
>>>>>>> main


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
