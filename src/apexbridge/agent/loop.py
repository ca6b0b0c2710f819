"""Agent loop: call the model, execute its tool calls, repeat until it stops or hits a limit."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio

from apexbridge.activation.activator import Activator, Invocation
from apexbridge.agent import compaction, prompt
from apexbridge.agent.model_call import ModelCaller
from apexbridge.agent.permission_checker import PermissionChecker, TurnPermissions
from apexbridge.agent.project_instructions import ProjectInstructions
from apexbridge.agent.session import Session, SubagentBudget, subagent_name
from apexbridge.agent.session_pool import SessionPool
from apexbridge.agent.skill_announcer import SkillAnnouncer, SkillSearch, ToolSelection
from apexbridge.agent.tool_calls import ToolCallExecutor, apply_result
from apexbridge.agent.turn import TurnFinish, TurnLimits, TurnRecord, TurnRequest, TurnResult
from apexbridge.catalog.catalog import Catalog
from apexbridge.events import EventSink, TextDelta
from apexbridge.messages import AssistantMessage, Message, SystemMessage, ToolCall, UserMessage
from apexbridge.models.aliases import context_window, override_model
from apexbridge.models.base import ModelClient
from apexbridge.permissions.engine import Approver
from apexbridge.permissions.hook_protocol import HookEvent, HookVerdict
from apexbridge.tools.base import PathScope, SubagentRequest, ToolContext, ToolRegistry, ToolResult

_LAST_ROUND = "No more tools can be used now. Answer with what you have."
_NO_TOOLS = ToolSelection(specs=(), registry=ToolRegistry())
_NO_VERDICT = HookVerdict()
_HOOK_CONTINUES = "A hook says that there is more to do: go on."

_Ending = tuple[str, TurnFinish, tuple[ToolCall, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDeps:
    """The objects that an agent works with, built once by the runtime's container."""

    model: ModelClient
    model_name: str
    registry: ToolRegistry
    catalog: Catalog
    index: SkillSearch
    sessions: SessionPool
    activator: Activator
    permissions: PermissionChecker
    announcer: SkillAnnouncer
    instructions: ProjectInstructions
    project: Path
    readable: tuple[Path, ...] = ()
    limits: TurnLimits


class Agent:
    """Run turns. Stateless: everything that lasts is in the session."""

    def __init__(self, deps: AgentDeps) -> None:
        self.deps = deps

    async def turn(
        self,
        session: Session,
        request: TurnRequest,
        emit: EventSink,
        *,
        record: TurnRecord | None = None,
        subagents: SubagentBudget | None = None,
    ) -> TurnResult:
        """Run one turn to its end or to a limit. The record is completed also on errors.

        Raises:
            ModelError: If the model cannot be reached or its response is invalid; messages so far
                stay in the session.
            ApexBridgeError: If a skill that the user named cannot be used.
        """
        if not request.text.isascii():
            request = replace(request, text=_replace_surrogates(request.text))
        run = _TurnRun(self, session, request, emit, record or TurnRecord.new(session.id))
        return await run.run(subagents or SubagentBudget())

    async def invoke(
        self,
        session: Session,
        invocation: Invocation,
        emit: EventSink,
        *,
        approver: Approver | None = None,
    ) -> ToolResult:
        """Invoke a skill without a model call; an inline skill's text is added to the session.

        Raises:
            ApexBridgeError: If the skill cannot be used.
        """
        request = TurnRequest(text="", approver=approver)
        run = _TurnRun(self, session, request, emit, TurnRecord.new(session.id))
        return await run.invoke(invocation)

    async def compact(self, session: Session, emit: EventSink, record: TurnRecord) -> bool:
        """Compact a session's history now; False if there is nothing to free."""
        return await _TurnRun(self, session, TurnRequest(text=""), emit, record).compact_now()


class _TurnRun:
    """State of one running turn."""

    def __init__(
        self,
        agent: Agent,
        session: Session,
        request: TurnRequest,
        emit: EventSink,
        record: TurnRecord,
    ) -> None:
        self._agent, self._deps, self._session = agent, agent.deps, session
        emit = record.wrap_sink(emit)
        self._request, self._emit, self._record = request, emit, record
        record.request_chars = len(request.text)
        self._limits = request.limits or self._deps.limits
        self._tool_calls = ToolCallExecutor(session, record, self._limits, request.observer)
        self._subagents = SubagentBudget()
        checker = self._deps.permissions
        if request.approver is not None:
            checker = replace(checker, approver=request.approver)
        self._permissions = TurnPermissions(checker, session, record, emit)
        self._client_tools = frozenset(spec.name for spec in request.client_tools)
        self._model = ModelCaller(self._deps.model, session, record, emit)
        self._stop_reason = ""
        """Reason of a hook that ends the turn, if one does."""
        self._instructions = ""

    async def run(self, subagents: SubagentBudget) -> TurnResult:
        session, record = self._session, self._record
        start = record.begin()
        self._subagents = subagents
        session.begin_turn()
        session.apply_grants(self._request.grants)
        session.deny_tools(self._request.denied_tools)
        text, finish, calls = "", "time", ()
        record.finish = "error"
        try:
            with anyio.move_on_after(self._limits.seconds):
                text, finish, calls = await self._begin()
            record.finish = finish
        except anyio.get_cancelled_exc_class():
            record.finish = "cancelled"
            raise
        finally:
            record.seconds = time.perf_counter() - start
        return TurnResult(
            text=text or self._model.last_text,
            finish=finish,
            record=record,
            client_calls=calls,
            reason=self._model.finish_reason,
        )

    async def invoke(self, invocation: Invocation) -> ToolResult:
        self._session.begin_turn()
        result = await self._activate(invocation, "")
        apply_result(self._session, result)
        return result

    async def _activate(self, invocation: Invocation, call_id: str) -> ToolResult:
        session = self._session.activation_context(self._deps.project)
        return await self._deps.activator.activate(invocation, session, self._context(call_id))

    async def _fire(self, event: HookEvent, target: str, facts: Mapping[str, Any]) -> HookVerdict:
        if self._session.hooks.is_empty:
            return _NO_VERDICT
        verdict = await self._permissions.fire(event, target, facts)
        if verdict.stops:
            self._stop_reason = verdict.reason or "A hook ended the turn."
        return verdict

    async def _run_session_start_hooks(self) -> None:
        """Run `SessionStart` hooks once a process; their context precedes the request."""
        session = self._session
        if session.is_started or session.depth:
            return
        session.is_started = True
        source = "resume" if session.turns > 1 else "startup"
        verdict = await self._fire(HookEvent.SESSION_START, source, {"source": source})
        if verdict.context:
            session.messages.append(prompt.reminder_message(verdict.context))

    async def _begin(self) -> _Ending:
        session, request = self._session, self._request
        if request.system is not None:
            session.system = request.system
        if request.uses_tools:
            self._instructions = await self._deps.instructions.read()
        session.messages += request.history
        if request.is_continuation:
            return await self._run_rounds()
        await self._run_session_start_hooks()
        verdict = await self._fire(HookEvent.USER_PROMPT_SUBMIT, "", {"prompt": request.text})
        if verdict.outcome == "block" or self._stop_reason:
            return verdict.reason or self._stop_reason, "blocked", ()
        invoked = await self._run_slash_command()
        if invoked is not None and not invoked.messages and invoked.data.get("mode") == "fork":
            session.messages += [
                UserMessage(text=request.text),
                AssistantMessage(text=invoked.text),
            ]
            self._emit(TextDelta(session_id=session.id, text=invoked.text))
            return invoked.text, "skill", ()
        if request.uses_tools:
            session.messages += await self._deps.announcer.announce(
                session, request, self._record, self._emit
            )
        if verdict.context:
            session.messages.append(prompt.reminder_message(verdict.context))
        if request.files is not None and request.uses_tools:
            session.messages.append(await self._attach(request.files, request.skipped_files))
        session.messages.append(UserMessage(text=request.text, parts=request.parts))
        if invoked is not None:
            apply_result(session, invoked)
        return await self._run_rounds()

    async def _attach(self, folder: Path, skipped: Mapping[str, str]) -> Message:
        """Make the files of the request readable, and name them to the model."""
        session = self._session
        if folder not in session.readable:
            session.readable.append(folder)
        names = await anyio.to_thread.run_sync(_list_files, folder)
        return prompt.reminder_message(prompt.attached_files(folder, names, skipped))

    async def _run_slash_command(self) -> ToolResult | None:
        invocation = Invocation.from_slash_command(self._request.text)
        if invocation is None or self._session.depth or not self._request.uses_tools:
            return None
        return await self._activate(invocation, "user")

    async def _run_rounds(self) -> _Ending:
        hook_continuations = 0
        while True:
            self._record.rounds += 1
            limit = self._limit_reached()
            if limit:
                self._session.messages.append(prompt.reminder_message(_LAST_ROUND))
            await self._compact()
            if self._stop_reason:
                return self._stop_reason, "blocked", ()
            reply = await self._call_model(with_tools=not limit)
            if not reply.tool_calls:
                event = HookEvent.SUBAGENT_STOP if self._session.depth else HookEvent.STOP
                verdict = await self._fire(event, "", {"response": reply.text})
                continues = verdict.outcome == "block" and not verdict.stops
                # A Stop hook may demand more work, but not for ever.
                if continues and not limit and hook_continuations < self._limits.repeats:
                    hook_continuations += 1
                    text = verdict.reason or _HOOK_CONTINUES
                    self._session.messages.append(prompt.reminder_message(text))
                    continue
                return reply.text, limit or "stop", ()
            ours = [call for call in reply.tool_calls if call.name not in self._client_tools]
            theirs = tuple(call for call in reply.tool_calls if call.name in self._client_tools)
            touched = await self._tool_calls.execute(ours, self._context)
            await self._activate_by_paths(touched)
            if theirs and not self._stop_reason:
                return reply.text, "client_tools", theirs

    def _limit_reached(self) -> TurnFinish | None:
        limits, record = self._limits, self._record
        if self._tool_calls.is_looping:
            return "repeats"
        if record.usage.input_tokens + record.usage.output_tokens > limits.tokens:
            return "tokens"
        return "rounds" if record.rounds >= limits.rounds else None

    async def _call_model(self, *, with_tools: bool) -> AssistantMessage:
        session, deps, request = self._session, self._deps, self._request
        ours = _NO_TOOLS
        if with_tools and request.uses_tools:
            # A client's tool replaces one of ours with the same name.
            excluded = self._client_tools | request.denied_tools
            ours = deps.announcer.select_tools(session, deps.registry, excluded)
        self._tool_calls.tools = ours.registry
        specs = (*ours.specs, *request.client_tools) if with_tools else ()
        model_request = replace(
            request.template,
            model=self._model_name(),
            messages=prompt.with_system_message(self._system_message(), session.messages),
            tools=specs,
            effort=session.grants.effort or request.template.effort,
            extra=request.extra if specs else prompt.drop_tool_parameters(request.extra),
        )
        return await self._model.reply(model_request, keeps_calls=with_tools)

    def _model_name(self) -> str:
        model = self._request.model or self._deps.model_name
        return override_model(model, self._session.grants.model)

    def _system_message(self) -> SystemMessage:
        session = self._session
        if not self._request.uses_tools:  # a plain completion: the client's system prompt alone
            return SystemMessage(text=session.system)
        deps = self._deps
        instructions = prompt.project_part(deps.instructions.name, self._instructions)
        return prompt.system_message(
            session.system,
            session.cwd,
            has_skills=deps.announcer.has_skills(session),
            project=(instructions, deps.announcer.section.text),
        )

    async def _activate_by_paths(self, paths: Sequence[Path]) -> None:
        """Activate skills whose `paths` match touched files, and discover skills beside them."""
        if not paths:
            return
        session, deps = self._session, self._deps
        touched = await deps.catalog.touch(paths, session.path_activation)
        if touched.found:
            await deps.index.reindex(touched.found)
        names = (*touched.activated, *touched.found)
        self._record.woken += names
        if message := deps.announcer.announce_new(session, names):
            session.messages.append(message)

    def _context(self, call_id: str) -> ToolContext:
        session = self._session
        return ToolContext(
            session_id=session.id,
            call_id=call_id,
            cwd=session.cwd,
            emit=self._emit,
            spawn=self._run_subagent,
            scope=PathScope(read=(*session.readable, *self._deps.readable), write=(session.cwd,)),
            effort=session.grants.effort or "",
            depth=session.depth,
            request="" if session.depth else self._request.text,
            allow=self._permissions.allow,
            fire=self._fire,
        )

    async def _run_subagent(self, request: SubagentRequest) -> str:
        """Run a task in a child session, and return its final text."""
        session, deps = self._session, self._deps
        self._subagents.admit(session, request, self._limits)
        task = TurnRequest(
            text=request.prompt,
            model=self._request.model,
            grants=request.grants,
            limits=self._request.limits,
            denied_tools=self._request.denied_tools,
            approver=self._request.approver,
            observer=self._request.observer,
        )
        with (
            self._record.span("fork", subagent_name(request)),
            deps.sessions.child(session, request) as child,
        ):
            record = self._record.child(child.id)
            try:
                result = await self._agent.turn(
                    child, task, self._emit, record=record, subagents=self._subagents
                )
            finally:
                self._record.merge(record)
                self._model.spend(record.usage)
        if result.finish == "blocked":  # a hook that ends a subagent's turn ends its parent's too
            self._stop_reason = result.text
        return result.text or f"(no answer: {result.finish})"

    async def _compact(self) -> None:
        window = context_window(self._model_name(), self._limits.window)
        budget = window * self._limits.compact_at
        if not compaction.fits_budget(self._session.messages, budget):
            await self._compact_to(window)

    async def compact_now(self) -> bool:
        """Compact to a fraction of the present history, also if it fits in the context window."""
        return await self._compact_to(compaction.total_tokens(self._session.messages))

    async def _compact_to(self, window: int) -> bool:
        session = self._session
        await self._fire(HookEvent.PRE_COMPACT, "", {})
        if not await compaction.compact(session, window, self._summarize):
            return False
        self._record.compacted += 1
        if message := self._deps.announcer.announce_all(session):
            session.messages.append(message)
        return True

    async def _summarize(self, text: str) -> str:
        name = self._request.model or self._deps.model_name
        return await self._model.summarize(f"{compaction.SUMMARY_PROMPT}\n\n{text}", name)


def _list_files(folder: Path) -> list[str]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path.relative_to(folder).as_posix() for path in paths]


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded as UTF-8 for a model or a file."""
    return text.encode("utf-8", "replace").decode()
