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

from apexbridge.activation.activator import ActivationContext, Activator, Invocation
from apexbridge.activation.scripts import ScriptCall
from apexbridge.agent.loop import Agent, AgentDeps
from apexbridge.agent.permission_checker import PermissionChecker
from apexbridge.agent.session import Session, activation_context, init_child_session
from apexbridge.agent.session_store import SessionStore
from apexbridge.agent.skill_announcer import SKILL_TOOLS, SkillAnnouncer
from apexbridge.agent.turn import TurnLimits, TurnRecord, TurnRequest, TurnResult
from apexbridge.catalog.catalog import Catalog, TouchResult
from apexbridge.catalog.listing_budget import ListingBudget
from apexbridge.catalog.path_activation import PathActivation
from apexbridge.catalog.usage import UsageStore
from apexbridge.errors import SkillNotFoundError, StorageError
from apexbridge.events import EventSink, TurnFinished
from apexbridge.hooks import HookReply, HookRunner, sandbox_runner
from apexbridge.messages import AssistantMessage
from apexbridge.permissions.approvals import ApprovalStore
from apexbridge.permissions.engine import Approver, decide
from apexbridge.permissions.rules import PermissionContext, PermissionRequest, resolve_symlinks
from apexbridge.permissions.wildcards import PathRoots
from apexbridge.retrieval.results import SearchResults
from apexbridge.runtime.agent_factory import configured_hooks, permission_rules
from apexbridge.runtime.model_factory import ModelHandle, open_model
from apexbridge.runtime.script_runner import ScriptRunner, run_inline_command
from apexbridge.runtime.session_pool import SessionPool
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.settings import Config
from apexbridge.skills.model import Skill
from apexbridge.sources.remote.http_client import FetchLimits, post
from apexbridge.tools.base import SubagentRequest, Tool, ToolContext, ToolRegistry, ToolResult
from apexbridge.tools.builtin.skill_script import SkillScriptTool
from apexbridge.tools.builtin.skills import (
    SkillSearchTool,
    SkillsListTool,
    SkillsLoadTool,
    SkillTool,
)
from apexbridge.tools.builtin.toolset import builtin_tools

log = logging.getLogger(__name__)

_MAX_HOOK_REPLY = 1024 * 1024
_HARMLESS_TOOLS = SKILL_TOOLS - {"SkillScript"} | {"Calculate", "Now", "Platform"}
_USAGE_TTL = 5.0
_FLUSH_DELAY = 0.2
"""Records of turns that are written later wait so long for others."""


class SkillSearcher(Protocol):
    """Finds the skills that fit a request."""

    async def __call__(self, query: str, limit: int = 5) -> SearchResults:
        """The best, with a confidence that any of them fits."""
        ...


Touch = Callable[[Sequence[Path], PathActivation], Awaitable[TouchResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDeps:
    """What conversations use of the house."""

    catalog: Catalog
    script_runner: ScriptRunner
    usage: UsageStore
    search: SkillSearcher
    touch: Touch
    tasks: TaskGroup
    """Where turns run: whoever reads of one may leave at any time, from any task."""
    tools: Sequence[Tool] = ()


class _UsageCache:
    """How much each skill is used; read from disk every few seconds at most."""

    def __init__(self, store: UsageStore) -> None:
        self._store = store
        self._scores: Mapping[str, float] = {}
        self._read_at = -math.inf

    def scores(self) -> Mapping[str, float]:
        """The same mapping for as long as it is good."""
        now = time.monotonic()
        if now - self._read_at > _USAGE_TTL:
            self._scores, self._read_at = self._store.scores(time.time()), now
        return self._scores

    def record(self, name: str, now: float) -> bool:
        """Count a use, which shows in the next list."""
        self._read_at = -math.inf
        return self._store.record(name, now)


class ChatService:
    """All conversations of one runtime."""

    def __init__(self, config: Config, rooms: ChatDeps, approver: Approver | None = None) -> None:
        self._config, self._rooms = config, rooms
        self.store = SessionStore(config.data / "sessions.db")
        self.conversations = SessionPool(self.store, self._new, self._lend_again)
        self._is_flushing = False
        self._used = _UsageCache(rooms.usage)
        self._kept_parts: tuple[ModelHandle, Approver | None, AgentDeps] | None = None
        self._hooks = tuple(configured_hooks(config))
        self._run_hook = sandbox_runner(rooms.script_runner.workshop)
        self._ground = PathRoots.resolved(config.project, config.home)
        self._rules = resolve_symlinks(tuple(permission_rules(config)), self._ground)
        self._about_skills = tuple(rule for rule in self._rules if rule.pattern.names("Skill"))
        self.approvals = ApprovalStore(config.data / "approvals.json", config.project)
        self.approver, self._asking = approver, anyio.Lock()
        self.model: ModelHandle = open_model(config)
        self.registry = self._registry()
        self.acting = frozenset(t.spec.name for t in self.registry) - _HARMLESS_TOOLS
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
    ) -> TurnResult:
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
        emit(_turn_finished(end))
        return end

    async def turn_once(
        self, request: TurnRequest, emit: EventSink, record: TurnRecord
    ) -> TurnResult:
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
        emit(_turn_finished(end))
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
            await anyio.sleep(_FLUSH_DELAY)
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
                rounds=chosen.agent.max_rounds,
                tokens=chosen.agent.token_budget,
                seconds=chosen.agent.timeout_seconds,
                depth=chosen.agent.max_subagent_depth,
                children=chosen.agent.max_subagents,
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
        standing = PermissionContext(roots=self._ground)
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


def _turn_finished(end: TurnResult) -> TurnFinished:
    record = end.record
    return TurnFinished(
        session_id=record.session_id,
        turn_id=record.id,
        finish=end.finish,
        text=end.text,
        input_tokens=record.usage.input_tokens,
        output_tokens=record.usage.output_tokens,
    )


async def _post_hook(url: str, body: bytes, seconds: float) -> HookReply:
    limits = FetchLimits.from_cidr(seconds=seconds, max_bytes=_MAX_HOOK_REPLY)
    return HookReply(*await post(url, body, limits))
