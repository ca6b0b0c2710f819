"""Retries: exponential backoff with full jitter, Retry-After and the deadline, on a fake clock."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.errors import ModelOutputError, ModelRejectedError, ModelUnavailableError
from apexbridge.models.retry import RetryPolicy, parse_retry_after, with_retries
from apexbridge.models.upstream_errors import ErrorMapping, UpstreamFault

pytestmark = pytest.mark.anyio

ERRORS = ErrorMapping(
    name="tiny",
    unavailable=ModelUnavailableError,
    rejected=ModelRejectedError,
    unusable=ModelOutputError,
)


class FakeClock:
    """Time that passes only while a retry waits or an attempt lasts."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def read(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(anyio, "sleep", clock.sleep)
    return clock


def _overloaded(retry_after: float = 0.0) -> UpstreamFault:
    return UpstreamFault("unavailable", "busy", is_overloaded=True, retry_after=retry_after)


async def _run(
    clock: FakeClock, policy: RetryPolicy, faults: Iterator[UpstreamFault], seconds: float = 0.0
) -> str:
    async def attempt() -> str:
        clock.now += seconds
        for fault in faults:
            raise fault
        return "done"

    return await with_retries(attempt, ERRORS, policy)


def _half(low: float, high: float) -> float:
    return (low + high) / 2


async def test_the_backoff_doubles_up_to_the_cap(clock: FakeClock) -> None:
    policy = RetryPolicy(clock=clock.read, jitter=_half)
    assert await _run(clock, policy, iter([_overloaded()] * 5)) == "done"
    assert clock.slept == [0.5, 1.0, 2.0, 4.0, 4.0]


@given(st.integers(0, 2_000), st.floats(0, 1e6))
def test_full_jitter_is_between_zero_and_the_ceiling(retry: int, retry_after: float) -> None:
    policy = RetryPolicy()
    assert 0.0 <= policy.delay(min(retry, 60), 0.0) <= policy.ceiling(min(retry, 60)) <= 8.0
    assert policy.delay(0, retry_after) >= retry_after


def test_two_clients_do_not_retry_in_step() -> None:
    delays = {RetryPolicy().delay(3, 0.0) for _ in range(20)}
    assert len(delays) > 10


async def test_a_retry_never_starts_before_retry_after(clock: FakeClock) -> None:
    policy = RetryPolicy(clock=clock.read, jitter=_half)
    assert await _run(clock, policy, iter([_overloaded(3.0), _overloaded(0.1)])) == "done"
    assert clock.slept == [3.0, 1.0]


@pytest.mark.parametrize(
    ("deadline", "seconds", "slept"),
    [(30.0, 0.0, [0.5, 1.0, 2.0, 4.0, 4.0]), (30.0, 8.0, [0.5, 1.0, 2.0]), (0.0, 0.0, [])],
    ids=["quick", "slow attempts", "none"],
)
async def test_no_retry_starts_after_the_deadline(
    clock: FakeClock, deadline: float, seconds: float, slept: list[float]
) -> None:
    policy = RetryPolicy(clock=clock.read, jitter=_half, deadline_seconds=deadline)
    start = clock.now
    with pytest.raises(ModelUnavailableError, match=r"busy$"):
        await _run(clock, policy, iter([_overloaded()] * 9), seconds)
    assert clock.slept == slept
    assert clock.now - start - seconds <= deadline


async def test_a_retry_after_beyond_the_deadline_is_in_the_error(clock: FakeClock) -> None:
    policy = RetryPolicy(clock=clock.read, deadline_seconds=30)
    with pytest.raises(ModelUnavailableError, match="busy; Retry-After is 31 s") as caught:
        await _run(clock, policy, iter([_overloaded(30.2 + 0.4)]))
    assert caught.value.details["retry_after"] == 31
    assert clock.slept == []


@pytest.mark.parametrize(
    ("fault", "retries"),
    [
        (UpstreamFault("rejected", "no"), 0),
        (UpstreamFault("unavailable", "no", is_transient=True), 2),
        (UpstreamFault("unavailable", "no", is_overloaded=True), 5),
    ],
    ids=["rejected", "unreachable", "overloaded"],
)
async def test_the_number_of_retries_depends_on_the_fault(
    clock: FakeClock, fault: UpstreamFault, retries: int
) -> None:
    policy = RetryPolicy(clock=clock.read, jitter=_half)
    with pytest.raises((ModelRejectedError, ModelUnavailableError)):
        await _run(clock, policy, iter([fault] * 9))
    assert len(clock.slept) == retries
    clock.slept.clear()
    with pytest.raises((ModelRejectedError, ModelUnavailableError)):
        await _run(clock, RetryPolicy(clock=clock.read, max_retries=1), iter([fault] * 9))
    assert len(clock.slept) == min(1, retries)


def test_retry_after_may_be_an_http_date() -> None:
    later = datetime.now(UTC) + timedelta(seconds=90)
    assert parse_retry_after(format_datetime(later, usegmt=True)) == pytest.approx(90, abs=2)
    earlier = datetime.now(UTC) - timedelta(days=1)
    assert parse_retry_after(format_datetime(earlier, usegmt=True)) == 0.0


@given(st.text(max_size=40))
def test_any_other_retry_after_is_ignored(header: str) -> None:
    assert parse_retry_after(header) >= 0.0
