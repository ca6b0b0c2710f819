"""The loop: the model is asked, its calls are carried out, and it is asked again, until done."""

import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import anyio

from apexbridge.activation.activator import Activator, Invocation, Situation
from apexbridge.agent import compaction, prompt
from apexbridge.agent.calls import Calls, take
from apexbridge.agent.guard import Guard
from apexbridge.agent.limits import TurnLimits
from apexbridge.agent.offering import Offering
from apexbridge.agent.session import Lent, Session
from apexbridge.agent.turn import Finish, TurnEnd, TurnRecord, TurnRequest
from apexbridge.catalog.catalog import Touched
from apexbridge.errors import SkillNotInvocableError
from apexbridge.events import EventSink, ReasoningDelta, TextDelta
from apexbridge.messages import AssistantMessage, ToolCall, UserMessage
from apexbridge.models.base import ModelClient, ModelRequest, Usage
from apexbridge.policy.hookspec import HookEvent
from apexbridge.tools.base import (
    Reach,
    SubagentRequest,
    ToolContext,
    ToolRegistry,
    ToolResult,
    ToolSpec,
)

_LAST = "<reminder>\nNo more tools can be used now. Answer with what you have.\n</reminder>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What an agent is made of; who builds the house gives these."""

    model: ModelClient
    model_name: str
    registry: ToolRegistry
    activator: Activator
    guard: Guard
    offering: Offering
    touch: Callable[[Sequence[Path], Session], Awaitable[Touched]]
    child: Callable[[Session, SubagentRequest], AbstractContextManager[Session]]
    project: Path
    limits: TurnLimits


class Agent:
    """Carries out turns. Holds no state of its own: that is the session's."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def turn(self, session: Session, request: TurnRequest, emit: EventSink) -> TurnEnd:
        """Do what is asked, to its end or to a limit.

        Raises:
            ModelError: If the model cannot be reached or understood; the session is as it was then.
            ApexBridgeError: If a skill that the user named cannot be used.
        """
        running = _Running(self, self._parts, session, request, emit)
        return await running.run()


class _Running:
    """One turn while it runs."""

    def __init__(
        self, agent: Agent, parts: Parts, session: Session, request: TurnRequest, emit: EventSink
    ) -> None:
        self._agent, self._parts, self._session = agent, parts, session
        self._request, self._emit = request, emit
        self._record = TurnRecord(
            id=uuid.uuid4().hex[:12], session_id=session.id, request_chars=len(request.text)
        )
        self._calls = Calls(parts.registry, session, self._record, parts.limits)
        self._children = 0
        self._allow = parts.guard.allow_for(session)
        self._fire = parts.guard.fire_for(session, emit)

    async def run(self) -> TurnEnd:
        session, start = self._session, time.perf_counter()
        session.turns += 1
        session.lent = Lent()
        session.lend(self._request.grants)
        text, finish, calls = "", "time", ()
        with anyio.move_on_after(self._parts.limits.seconds):
            text, finish, calls = await self._begin()
        self._record.finish, self._record.seconds = finish, time.perf_counter() - start
        return TurnEnd(
            text=text or self._last_text(), finish=finish, record=self._record, client_calls=calls
        )

    def _last_text(self) -> str:
        """What there is of a reply when the time is up."""
        last = self._session.messages[-1] if self._session.messages else None
        return last.text if isinstance(last, AssistantMessage) else ""

    async def _begin(self) -> tuple[str, Finish, tuple[ToolCall, ...]]:
        session, request = self._session, self._request
        verdict = await self._fire(HookEvent.USER_PROMPT_SUBMIT, "", {"prompt": request.text})
        if verdict.outcome == "block":
            return verdict.reason, "blocked", ()
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
            session.messages.append(UserMessage(text=verdict.context, kind="reminder"))
        session.messages.append(UserMessage(text=request.text))
        if invoked is not None:
            take(session, invoked)
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
        wish = user_wish(self._request.text)
        if wish is None or self._session.depth or not self._request.uses_tools:
            return None
        context = self._context("user")
        return await self._parts.activator.activate(wish, self._situation(), context)

    def _situation(self) -> Situation:
        return situation_of(self._session, self._parts.project)

    async def _rounds(self) -> tuple[str, Finish, tuple[ToolCall, ...]]:
        limits, record = self._parts.limits, self._record
        stops = 0
        while True:
            record.rounds += 1
            finish = self._limit_reached()
            if finish:
                self._session.messages.append(UserMessage(text=_LAST, kind="reminder"))
            await self._shorten()
            reply = await self._ask(with_tools=not finish)
            mine, others = self._sorted(reply.tool_calls)
            if finish or not reply.tool_calls:
                verdict = await self._fire(self._end_event, "", {"response": reply.text})
                if not finish and verdict.outcome == "block" and stops < limits.repeats:
                    stops += 1
                    self._session.messages.append(UserMessage(text=verdict.reason, kind="reminder"))
                    continue
                return reply.text, finish or "stop", ()
            touched = await self._calls.carry_out(mine, self._context)
            await self._wake(touched)
            if others:
                return reply.text, "client_tools", others

    @property
    def _end_event(self) -> HookEvent:
        return HookEvent.SUBAGENT_STOP if self._session.depth else HookEvent.STOP

    def _limit_reached(self) -> Finish | None:
        limits, record = self._parts.limits, self._record
        if self._calls.is_hopeless:
            return "repeats"
        if record.usage.input_tokens + record.usage.output_tokens > limits.tokens:
            return "tokens"
        return "rounds" if record.rounds >= limits.rounds else None

    def _specs(self) -> tuple[ToolSpec, ...]:
        """What the model may call; a client's tool wins over one of ours with its name."""
        theirs = {spec.name for spec in self._request.client_tools}
        if not self._request.uses_tools:
            return self._request.client_tools
        own = self._parts.offering.tools(self._session, self._parts.registry)
        return (*(spec for spec in own if spec.name not in theirs), *self._request.client_tools)

    def _sorted(
        self, calls: Sequence[ToolCall]
    ) -> tuple[tuple[ToolCall, ...], tuple[ToolCall, ...]]:
        theirs = {spec.name for spec in self._request.client_tools}
        mine = tuple(call for call in calls if call.name not in theirs)
        return mine, tuple(call for call in calls if call.name in theirs)

    async def _ask(self, *, with_tools: bool) -> AssistantMessage:
        """One reply of the model, told while it comes."""
        session, parts = self._session, self._parts
        system = prompt.opening(
            session.system, session.cwd, has_skills=parts.offering.has_skills(session)
        )
        asked = ModelRequest(
            model=session.lent.model or self._request.model or parts.model_name,
            messages=prompt.conversation(system, session.messages),
            tools=self._specs() if with_tools else (),
            effort=session.lent.effort,
            extra=self._request.extra,
        )
        start, texts, calls = time.perf_counter(), list[str](), list[ToolCall]()
        async with parts.model.stream(asked) as deltas:
            async for delta in deltas:
                if delta.reasoning:
                    self._emit(ReasoningDelta(session_id=session.id, text=delta.reasoning))
                if delta.text:
                    texts.append(delta.text)
                    self._emit(TextDelta(session_id=session.id, text=delta.text))
                calls += delta.tool_calls
                if delta.usage:
                    self._spend(delta.usage)
        self._record.model_seconds += time.perf_counter() - start
        reply = AssistantMessage(text="".join(texts), tool_calls=tuple(calls))
        session.messages.append(reply)
        return reply

    def _spend(self, usage: Usage) -> None:
        for spender in (self._record, self._session):
            spent = spender.usage if isinstance(spender, TurnRecord) else spender.spent
            both = Usage(
                input_tokens=spent.input_tokens + usage.input_tokens,
                output_tokens=spent.output_tokens + usage.output_tokens,
            )
            if isinstance(spender, TurnRecord):
                spender.usage = both
            else:
                spender.spent = both

    async def _wake(self, paths: Sequence[Path]) -> None:
        """Skills wake by the files that calls touched or named."""
        if not paths:
            return
        touched = await self._parts.touch(paths, self._session)
        names = (*touched.woken, *touched.found)
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
            reach=Reach(read=tuple(session.reach), write=(session.cwd,)),
            effort=session.lent.effort or "",
            depth=session.depth,
            allow=self._allow,
            fire=self._fire,
        )

    async def _spawn(self, request: SubagentRequest) -> str:
        """Give a task to a child session, and its last words back."""
        session, limits = self._session, self._parts.limits
        name = request.skill or request.agent
        if name in session.chain:
            raise SkillNotInvocableError(code="fork_recursion", name=name)
        if session.depth >= limits.depth:
            raise SkillNotInvocableError(code="fork_too_deep", name=name, limit=limits.depth)
        if self._children >= limits.children:
            raise SkillNotInvocableError(code="fork_too_many", name=name, limit=limits.children)
        self._children += 1
        asked = TurnRequest(text=request.prompt, model=self._request.model, grants=request.grants)
        with self._parts.child(session, request) as child:
            end = await self._agent.turn(child, asked, self._emit)
        self._record.calls += end.record.calls
        self._spend(end.record.usage)
        return end.text or f"(no answer: {end.finish})"

    async def _shorten(self) -> None:
        limits, session = self._parts.limits, self._session
        if compaction.total_tokens(session.messages) <= limits.window * limits.compact_at:
            return
        await self._fire(HookEvent.PRE_COMPACT, "", {})
        if await compaction.compact(session, limits.window, self._summarise):
            self._record.compacted += 1

    async def _summarise(self, text: str) -> str:
        asked = ModelRequest(
            model=self._request.model or self._parts.model_name,
            messages=(UserMessage(text=f"{compaction.INSTRUCTION}\n\n{text}"),),
        )
        parts = list[str]()
        async with self._parts.model.stream(asked) as deltas:
            async for delta in deltas:
                parts.append(delta.text)
                if delta.usage:
                    self._spend(delta.usage)
        return "".join(parts)


def user_wish(text: str) -> Invocation | None:
    """The skill that a person calls by `/name arguments`; a path such as `/etc/x` is none."""
    first, _, rest = text.strip().partition(" ")
    name = first.partition("\n")[0]
    if not name.startswith("/") or len(name) < 2 or "/" in name[1:] or "." in name:
        return None
    rest = text.strip()[len(name) :]
    return Invocation(name=name, arguments=rest.strip(), trigger="user")


def situation_of(session: Session, project: Path) -> Situation:
    """What the activation of a skill needs to know of a session."""
    applied = {name: applied.digest for name, applied in session.applied.items()}
    return Situation(waking=session.waking, project=project, applied=applied)
