"""Rates, and how a server comes to rest."""

import anyio
import pytest

from apexbridge.errors import RequestError
from apexbridge.server.limits import ConcurrencyLimiter, RateLimiter, shutdown_error
from tests.server.test_console_sign_in import Clock

pytestmark = pytest.mark.anyio


def test_a_key_may_ask_so_often_in_a_minute() -> None:
    clock = Clock()
    rates = RateLimiter(60, clock)
    for _ in range(60):
        rates.take("a")
    with pytest.raises(RequestError) as refused:
        rates.take("a")
    assert refused.value.details["retry_after"] == 1
    rates.take("b")
    clock.now += 1
    rates.take("a")
    with pytest.raises(RequestError):
        rates.take("a")
    clock.now += 3_600  # what was saved up in an hour is no more than a minute's
    for _ in range(60):
        rates.take("a")
    with pytest.raises(RequestError):
        rates.take("a")


def test_who_may_ask_seldom_is_told_to_wait_long() -> None:
    rates = RateLimiter(1, Clock())
    rates.take("a")
    with pytest.raises(RequestError) as refused:
        rates.take("a")
    assert refused.value.details["retry_after"] == 60


def test_without_a_rate_nothing_is_counted() -> None:
    rates = RateLimiter(0, Clock())
    for _ in range(1_000):
        rates.take("a")


async def test_no_more_are_worked_on_than_may_be() -> None:
    traffic = ConcurrencyLimiter()
    one = traffic.admit(2)
    traffic.admit(2)
    with pytest.raises(RequestError) as refused:
        traffic.admit(2)
    assert (refused.value.code, refused.value.details["retry_after"]) == ("server_busy", 1)
    traffic.admit(None)  # health is always told
    assert len(traffic) == 3
    traffic.leave(one)
    assert len(traffic) == 2


async def test_rest_comes_when_the_last_has_left() -> None:
    traffic = ConcurrencyLimiter()
    flight, listener = traffic.admit(None), traffic.admit(None)
    traffic.listens(listener)
    traffic.stop()
    assert listener.scope.cancel_called
    assert not flight.scope.cancel_called
    assert not await traffic.rest(0)
    traffic.leave(listener)
    later = traffic.admit(None)
    traffic.listens(later)
    assert later.scope.cancel_called
    traffic.leave(later)
    traffic.cut_off()
    assert flight.scope.cancel_called
    traffic.leave(flight)
    with anyio.fail_after(10):
        assert await traffic.rest(60)


async def test_an_idle_server_is_at_rest_at_once() -> None:
    traffic = ConcurrencyLimiter()
    traffic.stop()
    with anyio.fail_after(10):
        assert await traffic.rest(60)


async def test_only_late_bodies_are_ended_and_the_first_reason_counts() -> None:
    traffic = ConcurrencyLimiter()
    late, other = traffic.admit(None), traffic.admit(None)
    late.due = 5
    traffic.stop_late(6)
    assert late.scope.cancel_called
    assert not other.scope.cancel_called
    late.stop(shutdown_error())
    assert late.refusal is not None
    assert late.refusal.code == "request_slow"
