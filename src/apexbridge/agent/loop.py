"""The loop: the model is asked, its calls are carried out, and it is asked again, until done."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio

from apexbridge.activation.activator import ActivationContext, Activator, Invocation
from apexbridge.agent import compaction, prompt
from apexbridge.agent.model_call import ModelCaller
from apexbridge.agent.permission_checker import PermissionChecker
from apexbridge.agent.session import (
    Session,
    SubagentBudget,
    activation_context,
    parse_slash_command,
    subagent_name,
)
from apexbridge.agent.skill_announcer import SkillAnnouncer, ToolSelection
from apexbridge.agent.tool_calls import ToolCallExecutor, apply_result
from apexbridge.agent.turn import TurnFinish, TurnLimits, TurnRecord, TurnRequest, TurnResult
from apexbridge.catalog.catalog import TouchResult
from apexbridge.events import EventSink, TextDelta
from apexbridge.messages import AssistantMessage, SystemMessage, ToolCall, UserMessage
from apexbridge.models.base import ModelClient
from apexbridge.permissions.engine import Approver
from apexbridge.permissions.hook_protocol import HookEvent, HookVerdict
from apexbridge.tools.base import PathScope, SubagentRequest, ToolContext, ToolRegistry, ToolResult

_LAST_ROUND = "No more tools can be used now. Answer with what you have."
_NO_TOOLS = ToolSelection(specs=(), registry=ToolRegistry())
_NO_VERDICT = HookVerdict()
_HOOK_CONTINUES = "A hook says that there is more to do: go on."


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDeps:
    """What an agent is made of; who builds the house gives these."""

    model: ModelClient
    model_name: str
    registry: ToolRegistry
    activator: Activator
    guard: PermissionChecker
    offering: SkillAnnouncer
    touch: Callable[[Sequence[Path], Session], Awaitable[TouchResult]]
    child: Callable[[Session, SubagentRequest], AbstractContextManager[Session]]
    project: Path
    limits: TurnLimits


class Agent:
    """Carries out turns. Holds no state of its own: that is the session's."""

    def __init__(self, parts: AgentDeps) -> None:
        self.parts = parts

    async def turn(
        self,
        session: Session,
        request: TurnRequest,
        emit: EventSink,
        *,
        record: TurnRecord | None = None,
        family: SubagentBudget | None = None,
    ) -> TurnResult:
        """Do what is asked, to its end or to a limit. The record is filled whatever happens.

        Raises:
            ModelError: If the model cannot be reached or understood; what was done so far stays
                in the session.
            ApexBridgeError: If a skill that the user named cannot be used.
        """
        if not request.text.isascii():
            request = replace(request, text=_replace_surrogates(request.text))
        running = _TurnRun(self, session, request, emit, record or TurnRecord.new(session.id))
        return await running.run(family or SubagentBudget())

    async def invoke(
        self,
        session: Session,
        wish: Invocation,
        emit: EventSink,
        *,
        approver: Approver | None = None,
    ) -> ToolResult:
        """Invoke a skill without a turn: inline its text stands in the session from then on.

        Raises:
            ApexBridgeError: If the skill cannot be used.
        """
        asked = TurnRequest(text="", approver=approver)
        running = _TurnRun(self, session, asked, emit, TurnRecord.new(session.id))
        return await running.invoke(wish)


class _TurnRun:
    """One turn while it runs."""

    def __init__(
        self,
        agent: Agent,
        session: Session,
        request: TurnRequest,
        emit: EventSink,
        record: TurnRecord,
    ) -> None:
        self._agent, self._parts, self._session = agent, agent.parts, session
        emit = record.hearing(emit)
        self._request, self._emit, self._record = request, emit, record
        record.request_chars = len(request.text)
        self._limits = request.limits or self._parts.limits
        self._calls = ToolCallExecutor(session, record, self._limits)
        self._calls.watch = request.watch
        self._family = SubagentBudget()
        guard = self._parts.guard
        if request.approver is not None:
            guard = replace(guard, approver=request.approver)
        self._allow = guard.allow_for(session, record)
        self._ask_hooks = guard.fire_for(session, emit, record)
        self._theirs = frozenset(spec.name for spec in request.client_tools)
        self._asking = ModelCaller(self._parts.model, session, record, emit)
        self._stopped = ""
        """Why a hook wants the turn to end, if one does."""

    async def run(self, family: SubagentBudget) -> TurnResult:
        session, record = self._session, self._record
        start = record.begin()
        self._family = family
        session.begin_turn()
        session.lend(self._request.grants)
        session.withhold(self._request.withheld)
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
            text=text or self._asking.said,
            finish=finish,
            record=record,
            client_calls=calls,
            reason=self._asking.reason,
        )

    async def invoke(self, wish: Invocation) -> ToolResult:
        self._session.begin_turn()
        context = self._context("")
        result = await self._parts.activator.activate(wish, self._situation(), context)
        apply_result(self._session, result)
        return result

    async def _fire(self, event: HookEvent, target: str, facts: Mapping[str, Any]) -> HookVerdict:
        if self._session.hooks.is_empty:
            return _NO_VERDICT
        verdict = await self._ask_hooks(event, target, facts)
        if verdict.stops:
            self._stopped = verdict.reason or "A hook ended the turn."
        return verdict

    async def _greet(self) -> None:
        """Tell hooks, once, that a session began; what they say stands before the request."""
        session = self._session
        if session.is_started or session.depth:
            return
        session.is_started = True
        source = "resume" if session.turns > 1 else "startup"
        verdict = await self._fire(HookEvent.SESSION_START, source, {"source": source})
        if verdict.context:
            session.messages.append(prompt.reminder_message(verdict.context))

    async def _begin(self) -> tuple[str, TurnFinish, tuple[ToolCall, ...]]:
        session, request = self._session, self._request
        if request.system is not None:
            session.system = request.system
        session.messages += request.before
        if request.continues:
            return await self._rounds()
        await self._greet()
        verdict = await self._fire(HookEvent.USER_PROMPT_SUBMIT, "", {"prompt": request.text})
        if verdict.outcome == "block" or self._stopped:
            return verdict.reason or self._stopped, "blocked", ()
        invoked = await self._invoked_by_user()
        if invoked is not None and not invoked.messages and invoked.data.get("mode") == "fork":
            session.messages += [
                UserMessage(text=request.text),
                AssistantMessage(text=invoked.text),
            ]
            self._emit(TextDelta(session_id=session.id, text=invoked.text))
            return invoked.text, "skill", ()
        await self._announce()
        if verdict.context:
            session.messages.append(prompt.reminder_message(verdict.context))
        session.messages.append(UserMessage(text=request.text, parts=request.parts))
        if invoked is not None:
            apply_result(session, invoked)
        return await self._rounds()

    async def _announce(self) -> None:
        """Tell the model of skills it does not know yet, those that fit the request first."""
        if not self._request.uses_tools:
            return
        said = await self._parts.offering.announce(
            self._session, self._request, self._record, self._emit
        )
        self._session.messages += said

    async def _invoked_by_user(self) -> ToolResult | None:
        wish = parse_slash_command(self._request.text)
        if wish is None or self._session.depth or not self._request.uses_tools:
            return None
        context = self._context("user")
        return await self._parts.activator.activate(wish, self._situation(), context)

    def _situation(self) -> ActivationContext:
        return activation_context(self._session, self._parts.project)

    async def _rounds(self) -> tuple[str, TurnFinish, tuple[ToolCall, ...]]:
        limits, record = self._limits, self._record
        stops = 0
        while True:
            record.rounds += 1
            finish = self._limit_reached()
            if finish:
                self._session.messages.append(prompt.reminder_message(_LAST_ROUND))
            await self._shorten()
            if self._stopped:
                return self._stopped, "blocked", ()
            reply = await self._ask(with_tools=not finish)
            mine, others = self._sorted(reply.tool_calls)
            if not reply.tool_calls:
                verdict = await self._fire(self._end_event, "", {"response": reply.text})
                goes_on = verdict.outcome == "block" and not verdict.stops
                if goes_on and not finish and stops < limits.repeats:
                    stops += 1
                    self._session.messages.append(
                        prompt.reminder_message(verdict.reason or _HOOK_CONTINUES)
                    )
                    continue
                return reply.text, finish or "stop", ()
            touched = await self._calls.carry_out(mine, self._context)
            await self._wake(touched)
            if others and not self._stopped:
                return reply.text, "client_tools", others

    @property
    def _end_event(self) -> HookEvent:
        return HookEvent.SUBAGENT_STOP if self._session.depth else HookEvent.STOP

    def _limit_reached(self) -> TurnFinish | None:
        limits, record = self._limits, self._record
        if self._calls.is_hopeless:
            return "repeats"
        if record.usage.input_tokens + record.usage.output_tokens > limits.tokens:
            return "tokens"
        return "rounds" if record.rounds >= limits.rounds else None

    def _sorted(
        self, calls: Sequence[ToolCall]
    ) -> tuple[tuple[ToolCall, ...], tuple[ToolCall, ...]]:
        mine = tuple(call for call in calls if call.name not in self._theirs)
        return mine, tuple(call for call in calls if call.name in self._theirs)

    async def _ask(self, *, with_tools: bool) -> AssistantMessage:
        """One reply of the model, told while it comes."""
        session, parts, request = self._session, self._parts, self._request
        own = _NO_TOOLS
        if with_tools and request.uses_tools:  # a client's tool wins over one of ours of its name
            left_out = self._theirs | request.withheld
            own = parts.offering.tools(session, parts.registry, left_out)
        self._calls.tools = own.registry
        specs = (*own.specs, *request.client_tools) if with_tools else ()
        asked = replace(
            request.like,
            model=session.lent.model or request.model or parts.model_name,
            messages=prompt.with_system_message(self._opening(), session.messages),
            tools=specs,
            effort=session.lent.effort or request.like.effort,
            extra=request.extra if specs else prompt.drop_tool_parameters(request.extra),
        )
        return await self._asking.reply(asked, keeps_calls=with_tools)

    def _opening(self) -> SystemMessage:
        """What stands above the conversation; a model asked without our tools hears only theirs."""
        session = self._session
        if not self._request.uses_tools:
            return SystemMessage(text=session.system)
        has_skills = self._parts.offering.has_skills(session)
        return prompt.system_message(session.system, session.cwd, has_skills=has_skills)

    async def _wake(self, paths: Sequence[Path]) -> None:
        """Skills wake by the files that calls touched or named."""
        if not paths:
            return
        touched = await self._parts.touch(paths, self._session)
        names = (*touched.activated, *touched.found)
        self._record.woken += names
        said = self._parts.offering.woken(self._session, names)
        if said is not None:
            self._session.messages.append(said)

    def _context(self, call_id: str) -> ToolContext:
        session = self._session
        return ToolContext(
            session_id=session.id,
            call_id=call_id,
            cwd=session.cwd,
            emit=self._emit,
            spawn=self._spawn,
            scope=PathScope(read=tuple(session.reach), write=(session.cwd,)),
            effort=session.lent.effort or "",
            depth=session.depth,
            allow=self._allow,
            fire=self._fire,
        )

    async def _spawn(self, request: SubagentRequest) -> str:
        """Give a task to a child session, and its last words back."""
        session = self._session
        self._family.admit(session, request, self._limits)
        asked = replace(
            TurnRequest(text=request.prompt, model=self._request.model, grants=request.grants),
            limits=self._request.limits,
            withheld=self._request.withheld,
            approver=self._request.approver,
            watch=self._request.watch,
        )
        with (
            self._record.spanning("fork", subagent_name(request)),
            self._parts.child(session, request) as child,
        ):
            record = self._record.below(child.id)
            try:
                end = await self._agent.turn(
                    child, asked, self._emit, record=record, family=self._family
                )
            finally:
                self._record.take(record)
                self._asking.spend(record.usage)
        if end.finish == "blocked":  # a hook that ends the turn of a child ends its parent's too
            self._stopped = end.text
        return end.text or f"(no answer: {end.finish})"

    async def _shorten(self) -> None:
        limits, session = self._limits, self._session
        if compaction.fits_budget(session.messages, limits.window * limits.compact_at):
            return
        await self._fire(HookEvent.PRE_COMPACT, "", {})
        if await compaction.compact(session, limits.window, self._summarise):
            self._record.compacted += 1
            said = self._parts.offering.relisted(session)
            if said is not None:
                session.messages.append(said)

    async def _summarise(self, text: str) -> str:
        name = self._request.model or self._parts.model_name
        return await self._asking.summary(f"{compaction.SUMMARY_PROMPT}\n\n{text}", name)


def _replace_surrogates(text: str) -> str:
    """No halves of characters, which neither a model nor a file could take."""
    return text.encode("utf-8", "replace").decode()
