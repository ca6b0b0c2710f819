"""Rate limiter, concurrency limiter and draining."""

import anyio
import pytest

from apexbridge.errors import RequestError
from apexbridge.server.limits import ConcurrencyLimiter, RateLimiter, shutdown_error
from tests.server.test_console_sign_in import Clock

pytestmark = pytest.mark.anyio


def test_the_token_bucket_limits_requests_per_minute() -> None:
    clock = Clock()
    limiter = RateLimiter(60, clock)
    for _ in range(60):
        limiter.acquire("a")
    with pytest.raises(RequestError) as refused:
        limiter.acquire("a")
    assert refused.value.details["retry_after"] == 1
    limiter.acquire("b")
    clock.now += 1
    limiter.acquire("a")
    with pytest.raises(RequestError):
        limiter.acquire("a")
    clock.now += 3_600  # what was saved up in an hour is no more than a minute's
    for _ in range(60):
        limiter.acquire("a")
    with pytest.raises(RequestError):
        limiter.acquire("a")


def test_retry_after_is_long_at_a_low_rate() -> None:
    limiter = RateLimiter(1, Clock())
    limiter.acquire("a")
    with pytest.raises(RequestError) as refused:
        limiter.acquire("a")
    assert refused.value.details["retry_after"] == 60


def test_rate_zero_disables_the_rate_limiter() -> None:
    limiter = RateLimiter(0, Clock())
    for _ in range(1_000):
        limiter.acquire("a")


async def test_the_concurrency_limit_refuses_with_server_busy() -> None:
    limiter = ConcurrencyLimiter()
    one = limiter.acquire(2)
    limiter.acquire(2)
    with pytest.raises(RequestError) as refused:
        limiter.acquire(2)
    assert (refused.value.code, refused.value.details["retry_after"]) == ("server_busy", 1)
    limiter.acquire(None)  # health is always told
    assert len(limiter) == 3
    limiter.release(one)
    assert len(limiter) == 2


async def test_drain_ends_with_the_last_request() -> None:
    limiter = ConcurrencyLimiter()
    request, listener = limiter.acquire(None), limiter.acquire(None)
    limiter.mark_event_stream(listener)
    limiter.stop()
    assert listener.scope.cancel_called
    assert not request.scope.cancel_called
    assert not await limiter.drain(0)
    limiter.release(listener)
    later = limiter.acquire(None)
    limiter.mark_event_stream(later)
    assert later.scope.cancel_called
    limiter.release(later)
    limiter.cancel_all()
    assert request.scope.cancel_called
    limiter.release(request)
    with anyio.fail_after(10):
        assert await limiter.drain(60)


async def test_an_idle_server_is_at_rest_at_once() -> None:
    limiter = ConcurrencyLimiter()
    limiter.stop()
    with anyio.fail_after(10):
        assert await limiter.drain(60)


async def test_only_late_bodies_are_ended_and_the_first_reason_counts() -> None:
    limiter = ConcurrencyLimiter()
    late, other = limiter.acquire(None), limiter.acquire(None)
    late.body_deadline = 5
    limiter.cancel_slow_bodies(6)
    assert late.scope.cancel_called
    assert not other.scope.cancel_called
    late.cancel(shutdown_error())
    assert late.error is not None
    assert late.error.code == "request_slow"
