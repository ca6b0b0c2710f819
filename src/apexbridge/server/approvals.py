"""Questions that wait for a person who looks at the console, or at the list of them."""

import logging
import time
import uuid
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from apexbridge.events import ApprovalAsked, ApprovalOutcome, ApprovalSettled, Event, EventSink
from apexbridge.permissions.engine import Answer, Approver
from apexbridge.permissions.rules import Decision, PermissionRequest

log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_SECONDS = 120.0
MAX_EVENT_CHARS = 2_000
"""Of a longer argument an event tells the beginning, and how long it is."""
MAX_ARGUMENT_CHARS = 100_000
"""Nobody can read more before an answer is due."""
_MAX_SETTLED = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingApproval:
    """A question that nobody has answered yet."""

    id: str
    session: str
    tool: str
    argument: str
    argument_chars: int
    reason: str
    asked: float
    deadline: float
    choices: tuple[Answer, ...]
    rule: str
    """What `always` would allow from then on; empty where it would be asked again all the same."""


@dataclass(slots=True)
class _OpenApproval:
    """A pending question, and the place where its turn waits."""

    pending: PendingApproval
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: Answer = "no"


class ApprovalQueue:
    """Questions of running turns, each with a deadline after which the answer is no."""

    def __init__(self, seconds: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        self._seconds = seconds
        self._open: dict[str, _OpenApproval] = {}
        self._settled: deque[str] = deque(maxlen=_MAX_SETTLED)
        self._sinks: list[EventSink] = []

    def approver_for(self, session_id: str, emit: EventSink) -> Approver:
        """Who answers for a person in one turn; `emit` is told of its questions and answers."""
        return _TurnApprover(self, session_id, emit)

    def pending(self) -> tuple[PendingApproval, ...]:
        """What waits, the oldest first."""
        return tuple(question.pending for question in self._open.values())

    def answer(self, approval_id: str, answer: Answer) -> bool:
        """Settle a question; False if there is none of that id that still waits."""
        question = self._open.pop(approval_id, None)
        if question is None:
            return False
        self._settled.append(approval_id)
        question.answer = answer
        question.answered.set()
        return True

    def is_settled(self, approval_id: str) -> bool:
        """Whether there was such a question not long ago, and it waits no more."""
        return approval_id in self._settled

    @contextmanager
    def listen(self, sink: EventSink) -> Generator[None]:
        """Be told of every question and of what came of it, also where a turn was left."""
        self._sinks.append(sink)
        try:
            yield
        finally:
            self._sinks.remove(sink)

    async def ask(self, pending: PendingApproval, emit: EventSink) -> Answer:
        """Wait for an answer, at most until the deadline; whoever leaves withdraws the question."""
        question = _OpenApproval(pending)
        self._open[pending.id] = question
        settlement: ApprovalOutcome = "withdrawn"
        try:
            self._tell(_asked_event(pending, self._seconds), emit)
            with anyio.move_on_after(self._seconds):
                await question.answered.wait()
            settlement = question.answer if question.answered.is_set() else "expired"
        finally:
            if self._open.pop(pending.id, None) is not None:
                self._settled.append(pending.id)
            settled = ApprovalSettled(
                session_id=pending.session, approval_id=pending.id, answer=settlement
            )
            self._tell(settled, emit)
        return question.answer

    def _tell(self, event: Event, emit: EventSink) -> None:
        """Tell everybody; one who fails, or is gone, keeps nothing from the others."""
        for sink in (*self._sinks, emit):
            try:
                sink(event)
            except Exception:
                log.warning("A listener failed", exc_info=True)

    def new(
        self, session_id: str, request: PermissionRequest, decision: Decision
    ) -> PendingApproval:
        """A question, put into the words that a person is shown."""
        now, rule = time.time(), _always_rule(request, decision)
        argument = request.argument or request.summary
        return PendingApproval(
            id=f"approval_{uuid.uuid4().hex[:16]}",
            session=session_id,
            tool=request.tool,
            argument=argument[:MAX_ARGUMENT_CHARS],
            argument_chars=len(argument),
            reason=_reason(decision),
            asked=now,
            deadline=now + self._seconds,
            choices=("once", "always", "no") if rule else ("once", "no"),
            rule=rule,
        )


class _TurnApprover:
    """Asks in the name of one turn; its questions wait for one another, not for other turns'."""

    def __init__(self, house: ApprovalQueue, session_id: str, emit: EventSink) -> None:
        self._house, self._session_id, self._emit = house, session_id, emit
        self.turn = anyio.Lock()

    async def __call__(self, request: PermissionRequest, decision: Decision) -> Answer:
        """Ask, and wait."""
        house = self._house
        return await house.ask(house.new(self._session_id, request, decision), self._emit)


def _asked_event(pending: PendingApproval, seconds: float) -> ApprovalAsked:
    return ApprovalAsked(
        session_id=pending.session,
        approval_id=pending.id,
        tool=pending.tool,
        argument=pending.argument[:MAX_EVENT_CHARS],
        argument_chars=pending.argument_chars,
        reason=pending.reason,
        seconds=seconds,
    )


def _always_rule(request: PermissionRequest, decision: Decision) -> str:
    """What an `always` would keep: a skill's state, or the rule that is suggested."""
    if decision.rule is not None or (request.tool == "Skill" and not request.sha256):
        return ""
    if request.sha256:
        return f"{request.tool}({request.argument})"
    return str(decision.suggestions[0].pattern) if decision.suggestions else ""


def _reason(decision: Decision) -> str:
    """Why a person is asked: the rule that asks, or that no rule settles it."""
    if decision.rule is not None:
        return f"ask: {decision.rule.pattern}"
    return decision.about or decision.why
