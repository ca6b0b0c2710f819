"""Human-in-the-loop approvals: permission requests of running turns that wait for an answer."""

import logging
import time
import uuid
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from apexbridge.events import ApprovalAsked, ApprovalOutcome, ApprovalSettled, Event, EventSink
from apexbridge.permissions.approvals import prefix_rule
from apexbridge.permissions.engine import Answer, Approver, ApproverReply
from apexbridge.permissions.rules import Decision, PermissionRequest

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_SECONDS = 120.0
MAX_EVENT_CHARS = 2_000
"""Longer arguments are truncated in events, which carry their full length."""
MAX_ARGUMENT_CHARS = 100_000
"""Longer arguments are truncated: a person cannot review more before the deadline."""
_MAX_SETTLED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """Permission request without an answer yet."""

    id: str
    session: str
    tool: str
    argument: str
    argument_chars: int
    reason: str
    created_at: float
    deadline: float
    choices: tuple[Answer, ...]
    rule: str
    """The permission rule that `always` would add; empty where it would have no effect."""
    prefix_rule: str = ""
    """The rule that `always_prefix` would add: a skill's name, and every name below it."""


@dataclass(slots=True)
class _OpenApproval:
    """A pending approval, and the event that its turn waits for."""

    pending: PendingApproval
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: Answer = "no"


class ApprovalQueue:
    """Pending approvals of all turns, each denied when its deadline passes."""

    def __init__(self, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        self._open: dict[str, _OpenApproval] = {}
        self._settled: deque[str] = deque(maxlen=_MAX_SETTLED)
        self._sinks: list[EventSink] = []

    def approver_for(self, session_id: str, emit: EventSink) -> Approver:
        """Create the approver of one turn; `emit` receives its approval events."""
        return _TurnApprover(self, session_id, emit)

    def pending(self) -> tuple[PendingApproval, ...]:
        """Return the pending approvals, oldest first."""
        return tuple(approval.pending for approval in self._open.values())

    def answer(self, approval_id: str, answer: Answer) -> bool:
        """Settle an approval; return False if no approval of that id is pending."""
        approval = self._open.pop(approval_id, None)
        if approval is None:
            return False
        self._settled.append(approval_id)
        approval.answer = answer
        approval.answered.set()
        return True

    def is_settled(self, approval_id: str) -> bool:
        """Return whether an approval was settled recently."""
        return approval_id in self._settled

    @contextmanager
    def subscribe(self, sink: EventSink) -> Generator[None]:
        """Receive the approval events of all turns, including those whose client disconnected."""
        self._sinks.append(sink)
        try:
            yield
        finally:
            self._sinks.remove(sink)

    async def wait(self, pending: PendingApproval, emit: EventSink) -> ApproverReply:
        """Wait for an answer until the deadline; cancellation withdraws the approval."""
        approval = _OpenApproval(pending)
        self._open[pending.id] = approval
        outcome: ApprovalOutcome = "withdrawn"
        try:
            self._publish(_asked_event(pending, self._timeout), emit)
            with anyio.move_on_after(self._timeout):
                await approval.answered.wait()
            outcome = approval.answer if approval.answered.is_set() else "expired"
        finally:
            if self._open.pop(pending.id, None) is not None:
                self._settled.append(pending.id)
            settled = ApprovalSettled(
                session_id=pending.session, approval_id=pending.id, answer=outcome
            )
            self._publish(settled, emit)
        return approval.answer if approval.answered.is_set() else "expired"

    def _publish(self, event: Event, emit: EventSink) -> None:
        for sink in (*self._sinks, emit):
            try:
                sink(event)
            except Exception:  # one failing subscriber must not keep the event from the others
                log.warning("An event subscriber failed", exc_info=True)

    def create(
        self, session_id: str, request: PermissionRequest, decision: Decision
    ) -> PendingApproval:
        """Create a pending approval from a permission request."""
        now, rule = time.time(), _always_rule(request, decision)
        wider = prefix_rule(request, decision)
        more: tuple[Answer, ...] = ("always_prefix",) if wider else ()
        argument = request.argument or request.summary
        return PendingApproval(
            id=f"approval_{uuid.uuid4().hex[:16]}",
            session=session_id,
            tool=request.tool,
            argument=argument[:MAX_ARGUMENT_CHARS],
            argument_chars=len(argument),
            reason=_reason(decision),
            created_at=now,
            deadline=now + self._timeout,
            choices=("once", "always", *more, "no") if rule else ("once", "no"),
            rule=rule,
            prefix_rule=str(wider.pattern) if wider else "",
        )


class _TurnApprover:
    """Approver of one turn; its lock makes the turn's requests wait for one another."""

    def __init__(self, queue: ApprovalQueue, session_id: str, emit: EventSink) -> None:
        self._queue, self._session_id, self._emit = queue, session_id, emit
        self.turn = anyio.Lock()

    async def __call__(self, request: PermissionRequest, decision: Decision) -> ApproverReply:
        """Ask for approval and wait for the answer."""
        pending = self._queue.create(self._session_id, request, decision)
        return await self._queue.wait(pending, self._emit)


def _asked_event(pending: PendingApproval, timeout: float) -> ApprovalAsked:
    return ApprovalAsked(
        session_id=pending.session,
        approval_id=pending.id,
        tool=pending.tool,
        argument=pending.argument[:MAX_EVENT_CHARS],
        argument_chars=pending.argument_chars,
        reason=pending.reason,
        seconds=timeout,
    )


def _always_rule(request: PermissionRequest, decision: Decision) -> str:
    """Return the rule that `always` would add: a skill's content hash, or the suggested rule."""
    if decision.rule is not None or (request.tool == "Skill" and not request.sha256):
        return ""
    if request.sha256:
        return f"{request.tool}({request.argument})"
    return str(decision.suggestions[0].pattern) if decision.suggestions else ""


def _reason(decision: Decision) -> str:
    """Return the rule that requires approval, or the reason why no rule decides."""
    if decision.rule is not None:
        return f"ask: {decision.rule.pattern}"
    return decision.about or decision.why
