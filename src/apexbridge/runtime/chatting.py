"""Conversations: everything a turn needs, built when the first one begins."""

import logging
import math
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from apexbridge.activation.activator import Activator, Invocation, Situation
from apexbridge.activation.scripts import ScriptCall
from apexbridge.agent.guard import Guard
from apexbridge.agent.history import SessionStore
from apexbridge.agent.invoking import situation_of
from apexbridge.agent.limits import TurnLimits
from apexbridge.agent.loop import Agent, Parts
from apexbridge.agent.offering import SKILL_TOOLS, Offering
from apexbridge.agent.session import Session
from apexbridge.agent.subagent import raise_child
from apexbridge.agent.turn import TurnEnd, TurnRecord, TurnRequest
from apexbridge.catalog.catalog import Catalog, Touched
from apexbridge.catalog.listing import ListingBudget
from apexbridge.catalog.usage import UsageStore
from apexbridge.catalog.waking import Waking
from apexbridge.errors import SkillNotFoundError, StorageError
from apexbridge.events import EventSink, TurnFinished
from apexbridge.hooks import HookReply, HookRunner, in_workshop
from apexbridge.messages import AssistantMessage
from apexbridge.policy.approvals import Approvals
from apexbridge.policy.engine import Approver, decide
from apexbridge.policy.judging import Standing
from apexbridge.policy.rules import PermissionRequest, follow_links
from apexbridge.policy.wildcards import Ground
from apexbridge.retrieval.results import Results
from apexbridge.runtime.conversations import Conversations
from apexbridge.runtime.executing import Executing
from apexbridge.runtime.inlining import run_inline
from apexbridge.runtime.modelling import Opened, open_model
from apexbridge.runtime.permitting import hooks_of, rules_of
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.settings import Loaded
from apexbridge.skills.model import Skill
from apexbridge.sources.fetching import FetchLimits, post
from apexbridge.toolbox.builtin import builtin_tools
from apexbridge.toolbox.scripts import SkillScriptTool
from apexbridge.toolbox.skills import (
    SkillSearchTool,
    SkillsListTool,
    SkillsLoadTool,
    SkillTool,
)
from apexbridge.tools.base import SubagentRequest, Tool, ToolContext, ToolRegistry, ToolResult

log = logging.getLogger(__name__)

_MAX_REPLY = 1024 * 1024
_HARMLESS = SKILL_TOOLS - {"SkillScript"} | {"Calculate", "Now", "Platform"}
_USAGE_SECONDS = 5.0
_FLUSH_SECONDS = 0.2
"""Records of turns that are written later wait so long for others."""


class Search(Protocol):
    """Finds the skills that fit a request."""

    async def __call__(self, query: str, limit: int = 5) -> Results:
        """The best, with a confidence that any of them fits."""
        ...


Touch = Callable[[Sequence[Path], Waking], Awaitable[Touched]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """What conversations use of the house."""

    catalog: Catalog
    executing: Executing
    usage: UsageStore
    search: Search
    touch: Touch
    tasks: TaskGroup
    """Where turns run: whoever reads of one may leave at any time, from any task."""
    tools: Sequence[Tool] = ()


class _Used:
    """How much each skill is used; read from disk every few seconds at most."""

    def __init__(self, store: UsageStore) -> None:
        self._store = store
        self._scores: Mapping[str, float] = {}
        self._read_at = -math.inf

    def scores(self) -> Mapping[str, float]:
        """The same mapping for as long as it is good."""
        now = time.monotonic()
        if now - self._read_at > _USAGE_SECONDS:
            self._scores, self._read_at = self._store.scores(time.time()), now
        return self._scores

    def record(self, name: str, now: float) -> bool:
        """Count a use, which shows in the next list."""
        self._read_at = -math.inf
        return self._store.record(name, now)


class Chatting:
    """All conversations of one runtime."""

    def __init__(self, loaded: Loaded, rooms: Rooms, approver: Approver | None = None) -> None:
        self._loaded, self._rooms = loaded, rooms
        self.store = SessionStore(loaded.data / "sessions.db")
        self.conversations = Conversations(self.store, self._new, self._lend_again)
        self._is_flushing = False
        self._used = _Used(rooms.usage)
        self._kept_parts: tuple[Opened, Approver | None, Parts] | None = None
        self._hooks = tuple(hooks_of(loaded))
        self._run_hook = in_workshop(rooms.executing.workshop)
        self._ground = Ground.of(loaded.project, loaded.home)
        self._rules = follow_links(tuple(rules_of(loaded)), self._ground)
        self._about_skills = tuple(rule for rule in self._rules if rule.pattern.names("Skill"))
        self.approvals = Approvals(loaded.data / "approvals.json", loaded.project)
        self.approver, self._asking = approver, anyio.Lock()
        self.model: Opened = open_model(loaded)
        self.registry = self._registry()
        self.acting = frozenset(t.spec.name for t in self.registry) - _HARMLESS
        """Tools that read or change files, or run something; and those of extensions."""

    def start(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Begin something that ends with the runtime at the latest."""
        self._rooms.tasks.start_soon(work)

    async def close(self) -> None:
        """Let go of the model and the store."""
        await self.model.close()
        await anyio.to_thread.run_sync(self.store.close)

    async def turn(
        self,
        session_id: str,
        request: TurnRequest,
        emit: EventSink,
        *,
        record: TurnRecord | None = None,
    ) -> TurnEnd:
        """One turn of a conversation, which is kept afterwards, whatever it came to.

        Raises:
            ApexBridgeError: If the model, or a skill that was asked for by name, cannot be used.
        """
        agent, record = Agent(self.parts), record or TurnRecord.new(session_id)
        async with self.conversations.taken(session_id) as session:
            try:
                end = await agent.turn(session, request, emit, record=record)
            finally:
                await self._save(session, record)
        emit(_finished(end))
        return end

    async def turn_once(self, request: TurnRequest, emit: EventSink, record: TurnRecord) -> TurnEnd:
        """One turn of a conversation that is whole in the request; only its record is kept.

        Raises:
            ApexBridgeError: If the model, or a skill that was asked for by name, cannot be used.
        """
        made = self._new(record.session_id)
        made.is_started = any(isinstance(said, AssistantMessage) for said in request.before)
        with self.conversations.passing(made) as session:
            try:
                end = await Agent(self.parts).turn(session, request, emit, record=record)
            finally:
                self.store.put(record)
                self._flush_soon()
        emit(_finished(end))
        return end

    async def invoke(
        self,
        session_id: str,
        wish: Invocation,
        emit: EventSink,
        *,
        approver: Approver | None = None,
    ) -> ToolResult:
        """Invoke a skill in a conversation without asking the model.

        Raises:
            ApexBridgeError: If the skill cannot be used.
        """
        async with self.conversations.taken(session_id) as session:
            result = await Agent(self.parts).invoke(session, wish, emit, approver=approver)
            await self._save(session, replace(TurnRecord.new(session_id), finish="skill"))
        return result

    async def _save(self, session: Session, record: TurnRecord) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self.store.save, session, record)

    def _flush_soon(self) -> None:
        """Have records written together, a moment later, while nobody waits for it."""
        if not self._is_flushing:
            self._is_flushing = True
            self.start(self._flush)

    async def _flush(self) -> None:
        try:
            await anyio.sleep(_FLUSH_SECONDS)
        finally:
            self._is_flushing = False
        try:
            await anyio.to_thread.run_sync(self.store.flush)
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
        hooks = HookRunner(self._run_hook, _post)
        hooks.register(self._hooks, root=self._loaded.project)
        return Session(
            id=session_id,
            cwd=self._loaded.project,
            waking=Waking(self._loaded.project),
            hooks=hooks,
            tools_mode=self._loaded.settings.agent.allowed_tools,
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
        raise_child(child, parent, request)
        with self.conversations.passing(child):
            yield child

    @property
    def parts(self) -> Parts:
        """What turns are made of; built anew only where somebody put another model here."""
        kept = self._kept_parts
        if kept is None or kept[0] is not self.model or kept[1] is not self.approver:
            self._kept_parts = kept = (self.model, self.approver, self._parts())
        return kept[2]

    def _parts(self) -> Parts:
        chosen, rooms = self._loaded.settings, self._rooms
        return Parts(
            model=self.model.client,
            model_name=self.model.name,
            registry=self.registry,
            activator=self._activator(),
            guard=self._guard(),
            offering=Offering(
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
            project=self._loaded.project,
            limits=TurnLimits(
                rounds=chosen.agent.rounds,
                tokens=chosen.agent.tokens,
                seconds=chosen.agent.seconds,
                depth=chosen.agent.depth,
                children=chosen.agent.children,
                window=self.model.window,
            ),
        )

    async def _touch(self, paths: Sequence[Path], session: Session) -> Touched:
        return await self._rooms.touch(paths, session.waking)

    def _activator(self) -> Activator:
        return Activator(
            self._rooms.catalog,
            partial(run_inline, self._rooms.executing),
            self._used.record,
            runs_commands=self._loaded.settings.agent.inline_commands,
        )

    def _guard(self) -> Guard:
        return Guard(
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
        standing = Standing(ground=self._ground)
        return decide(request, self._rules, (), standing).effect != "deny"

    def _situation(self, session_id: str) -> Situation:
        return situation_of(self.conversations.at_work(session_id), self._loaded.project)

    def _registry(self) -> ToolRegistry:
        rooms, registry = self._rooms, ToolRegistry()
        own = builtin_tools(
            rooms.executing.workshop,
            limits=rooms.executing.limits,
            may_read=self._may_read,
            closed=(self._loaded.data,),
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
        executing = self._rooms.executing
        return await executing.execute(replace(call, limits=executing.limits()))

    def _is_isolated(self) -> bool:
        return not self._loaded.settings.sandbox.allow_unsandboxed


def _finished(end: TurnEnd) -> TurnFinished:
    record = end.record
    return TurnFinished(
        session_id=record.session_id,
        turn_id=record.id,
        finish=end.finish,
        text=end.text,
        input_tokens=record.usage.input_tokens,
        output_tokens=record.usage.output_tokens,
    )


async def _post(url: str, body: bytes, seconds: float) -> HookReply:
    limits = FetchLimits.of(seconds=seconds, max_bytes=_MAX_REPLY)
    return HookReply(*await post(url, body, limits))
