"""Who says what a session may do: rules, what skills lent, what a person answers, and hooks."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable

import anyio
import anyio.to_thread

from apexbridge.agent.session import Session
from apexbridge.agent.turn import TurnRecord
from apexbridge.events import EventSink, HookWarned
from apexbridge.hooks import HookInput
from apexbridge.permissions.approvals import ApprovalStore
from apexbridge.permissions.engine import Approver, decide, permission_error
from apexbridge.permissions.hook_protocol import HookEvent, HookVerdict
from apexbridge.permissions.rules import (
    READ_TOOLS,
    WRITE_TOOLS,
    Decision,
    PermissionContext,
    PermissionRequest,
    Rule,
    ToolPattern,
)
from apexbridge.permissions.shell_evaluation import SHELL_TOOL
from apexbridge.permissions.wildcards import PathRoots
from apexbridge.tools.base import HookTrigger, PermissionCheck

_CONTINUE = HookVerdict()
_CHECKED_IN_THREAD = READ_TOOLS | WRITE_TOOLS | {SHELL_TOOL}


@runtime_checkable
class SerialApprover(Protocol):
    """An approver whose questions wait for one another only, not for those of other turns."""

    turn: anyio.Lock


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionChecker:
    """Judges for all sessions. People are asked one thing at a time by each approver."""

    rules: Callable[[], Sequence[Rule]]
    approvals: ApprovalStore
    ground: PathRoots
    approver: Approver | None = None
    """Who answers for a person; without one the answer is no."""
    turn: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while a person is asked, unless the approver has a turn of its own."""

    def decide(
        self, session: Session, request: PermissionRequest, granted: Sequence[ToolPattern] = ()
    ) -> Decision:
        """What rules, grants and kept approvals say."""
        lent = session.lent
        denied = (Rule(effect="deny", pattern=pattern) for pattern in lent.denied)
        rules = (*self.rules(), *self.approvals.rules(), *denied)
        standing = PermissionContext(
            roots=self.ground,
            restrictions=lent.restrictions,
            approved=self.approvals.approved(),
        )
        return decide(request, rules, (*lent.tools, *granted), standing)

    def allow_for(self, session: Session, record: TurnRecord) -> PermissionCheck:
        """What a session's tools have their requests judged by."""

        async def allow(
            requests: Sequence[PermissionRequest],
            granted: Sequence[ToolPattern] = (),
            *,
            must_ask: bool = False,
        ) -> None:
            for request in requests:
                judge = partial(self.decide, session, request, granted)
                if await self._must_ask(judge, request, is_asked=must_ask) is None:
                    continue
                async with self._turn():  # an answer of the meantime may have settled it
                    decision = await self._must_ask(judge, request, is_asked=must_ask)
                    if decision is not None:
                        with record.spanning("approval", request.tool):
                            await self._ask(request, decision)

        return allow

    def _turn(self) -> anyio.Lock:
        return self.approver.turn if isinstance(self.approver, SerialApprover) else self.turn

    async def _must_ask(
        self, judge: Callable[[], Decision], request: PermissionRequest, *, is_asked: bool
    ) -> Decision | None:
        """What a person is to be asked about, if anything."""
        # Paths are followed on the disk and commands are parsed; all else is judged at once.
        is_slow = request.tool in _CHECKED_IN_THREAD
        decision = await anyio.to_thread.run_sync(judge) if is_slow else judge()
        if decision.effect == "deny" or (decision.effect == "ask" and self.approver is None):
            raise permission_error(request, decision)
        return decision if decision.effect == "ask" or is_asked else None

    async def _ask(self, request: PermissionRequest, decision: Decision) -> None:
        if self.approver is None:
            raise permission_error(request, decision)
        answer = await self.approver(request, decision)
        if answer == "no":
            raise permission_error(request, decision, answer=answer)
        if answer == "always":
            keep = lambda: self.approvals.store(request, decision)  # noqa: E731
            await anyio.to_thread.run_sync(keep)

    def fire_for(self, session: Session, emit: EventSink, record: TurnRecord) -> HookTrigger:
        """What a session's hooks are run by."""

        async def fire(event: HookEvent, target: str, facts: Mapping[str, Any]) -> HookVerdict:
            if session.hooks.is_empty:
                return _CONTINUE
            occasion = HookInput(
                event=event, session_id=session.id, cwd=session.cwd, subject=target, facts=facts
            )
            is_heard = session.hooks.is_heard(event, target)
            with record.spanning("hook", event) if is_heard else nullcontext():
                verdict = await session.hooks.fire(occasion)
            for warning in verdict.warnings:
                emit(HookWarned(session_id=session.id, code=warning.code, text=warning.message))
            return verdict

        return fire
