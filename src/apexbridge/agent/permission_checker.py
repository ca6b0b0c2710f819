"""Permission checks of a turn: rules, grants, human-in-the-loop approval, and hooks."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import anyio
import anyio.to_thread

from apexbridge.agent.session import Session
from apexbridge.agent.turn import TurnRecord
from apexbridge.events import EventSink, HookWarned
from apexbridge.hooks.runner import HookInput
from apexbridge.permissions.approvals import ApprovalStore, prefix_rule
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
from apexbridge.tools.base import ToolContext

_CONTINUE = HookVerdict()
_CHECKED_IN_THREAD = READ_TOOLS | WRITE_TOOLS | {SHELL_TOOL}


@runtime_checkable
class SerialApprover(Protocol):
    """An approver with a separate lock: its prompts do not queue behind those of others."""

    turn: anyio.Lock


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionChecker:
    """Evaluate permission requests of all sessions by configured rules and stored approvals."""

    rules: tuple[Rule, ...]
    approvals: ApprovalStore
    roots: PathRoots
    approver: Approver | None = None
    """Answers for a person; without one, every `ask` decision is a denial."""
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while a person is asked, unless the approver is a `SerialApprover`."""
    skill_rules: tuple[Rule, ...] = field(init=False)

    def __post_init__(self) -> None:
        about_skills = tuple(rule for rule in self.rules if rule.pattern.names("Skill"))
        object.__setattr__(self, "skill_rules", about_skills)

    def decide(
        self, session: Session, request: PermissionRequest, granted: Sequence[ToolPattern] = ()
    ) -> Decision:
        """Evaluate a request by rules, stored approvals and the grants of the session's turn."""
        grants = session.grants
        denied = (Rule(effect="deny", pattern=pattern) for pattern in grants.denied)
        context = PermissionContext(
            roots=self.roots, restrictions=grants.restrictions, approved=self.approvals.approved()
        )
        rules = (*self.rules, *self.approvals.rules(), *denied)
        return decide(request, rules, (*grants.tools, *granted), context)

    def is_skill_denied(self, name: str) -> bool:
        """Return whether a rule denies a skill: to the model it does not exist then."""
        if not self.skill_rules:
            return False
        request = PermissionRequest(tool="Skill", argument=name, harmless=True)
        return decide(request, self.skill_rules).effect == "deny"

    def may_read(self, path: Path, _context: ToolContext) -> bool:
        """Return whether no rule denies `Read` of a file that a search came upon."""
        if not self.rules:
            return True
        request = PermissionRequest(tool="Read", argument=str(path), path=path, harmless=True)
        context = PermissionContext(roots=self.roots)
        return decide(request, self.rules, (), context).effect != "deny"

    async def ask(self, request: PermissionRequest, decision: Decision) -> None:
        """Ask the approver, and store the answer `always` or `always_prefix`.

        Raises:
            PermissionDeniedError: If there is no approver, or the answer is `no`.
        """
        if self.approver is None:
            raise permission_error(request, decision)
        answer = await self.approver(request, decision)
        if answer in {"no", "expired", "unasked"}:
            raise permission_error(request, decision, answer=answer)
        if answer in {"always", "always_prefix"}:
            rule = prefix_rule(request, decision) if answer == "always_prefix" else None
            await anyio.to_thread.run_sync(partial(self.approvals.store, request, decision, rule))


class TurnPermissions:
    """Permission checks and hooks of one session's turn, in the form that tools call them."""

    def __init__(
        self, checker: PermissionChecker, session: Session, record: TurnRecord, emit: EventSink
    ) -> None:
        self._checker, self._session, self._record, self._emit = checker, session, record, emit

    async def allow(
        self,
        requests: Sequence[PermissionRequest],
        granted: Sequence[ToolPattern] = (),
        *,
        must_ask: bool = False,
    ) -> None:
        """Return if every request is allowed; with `must_ask` a person has to approve in any case.

        Raises:
            PermissionDeniedError: By a rule or by a person.
        """
        approver = self._checker.approver
        lock = approver.turn if isinstance(approver, SerialApprover) else self._checker.lock
        for request in requests:
            if await self._open_decision(request, granted, must_ask=must_ask) is None:
                continue
            async with lock:
                # Evaluated again: a stored approval may have come while this waited for the lock.
                decision = await self._open_decision(request, granted, must_ask=must_ask)
                if decision is not None:
                    with self._record.span("approval", request.tool):
                        await self._checker.ask(request, decision)

    async def _open_decision(
        self, request: PermissionRequest, granted: Sequence[ToolPattern], *, must_ask: bool
    ) -> Decision | None:
        """Return the decision that a person has to approve; None if it is allowed."""
        check = partial(self._checker.decide, self._session, request, granted)
        # Only these resolve symlinks or parse shell commands: the others need no worker thread.
        in_thread = request.tool in _CHECKED_IN_THREAD
        decision = await anyio.to_thread.run_sync(check) if in_thread else check()
        is_unanswered = decision.effect == "ask" and self._checker.approver is None
        if decision.effect == "deny" or is_unanswered:
            raise permission_error(request, decision)
        return decision if decision.effect == "ask" or must_ask else None

    async def fire(self, event: HookEvent, target: str, facts: Mapping[str, Any]) -> HookVerdict:
        """Run the session's hooks of an event; each warning becomes an event."""
        session = self._session
        if session.hooks.is_empty:
            return _CONTINUE
        call = HookInput(
            event=event, session_id=session.id, cwd=session.cwd, subject=target, facts=facts
        )
        is_hooked = session.hooks.has_hook(event, target)
        with self._record.span("hook", event) if is_hooked else nullcontext():
            verdict = await session.hooks.fire(call)
        for warning in verdict.warnings:
            self._emit(HookWarned(session_id=session.id, code=warning.code, text=warning.message))
        return verdict
