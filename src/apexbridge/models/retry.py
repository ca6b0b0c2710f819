"""Retries: exponential backoff with full jitter, `Retry-After`, and a total deadline."""

import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import anyio

from apexbridge.models.upstream_errors import ErrorMapping, UpstreamFault

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Timeouts of an HTTP request to a model server, in seconds."""

    connect_seconds: float = 10
    first_byte_seconds: float = 120
    """Prompt processing: a large prompt on a small machine takes long."""
    idle_seconds: float = 60
    """Between two chunks of a streamed response."""
    retry_seconds: float = 30
    """Total deadline: no retry starts later than this."""

    @property
    def total_seconds(self) -> float:
        """For a response that is not streamed: its first byte comes after its last token."""
        return 5 * self.first_byte_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential backoff with full jitter, bounded by a number of retries and a deadline."""

    max_retries: int = 5
    base_seconds: float = 1.0
    cap_seconds: float = 8.0
    deadline_seconds: float = math.inf
    jitter: Callable[[float, float], float] = random.uniform  # noqa: S311  # no secret
    clock: Callable[[], float] = time.monotonic

    def ceiling(self, retry: int) -> float:
        """Return the longest backoff before a retry, the first being number 0.

        >>> [RetryPolicy().ceiling(retry) for retry in range(5)]
        [1.0, 2.0, 4.0, 8.0, 8.0]
        """
        return min(self.cap_seconds, self.base_seconds * 2**retry)

    def delay(self, retry: int, retry_after: float) -> float:
        """Draw the backoff before a retry; never shorter than the server's `Retry-After`."""
        return max(retry_after, self.jitter(0.0, self.ceiling(retry)))


async def with_retries(
    attempt: Callable[[], Awaitable[T]], errors: ErrorMapping, policy: RetryPolicy
) -> T:
    """Call `attempt`, and again after each transient fault for as long as the policy allows.

    Raises:
        ApexBridgeError: The last fault, as `errors` maps it.
    """
    start, retry = policy.clock(), 0
    while True:
        try:
            return await attempt()
        except UpstreamFault as fault:
            # The ceiling and not the drawn delay: a lucky draw must not squeeze in a retry.
            latest = policy.clock() - start + max(fault.retry_after, policy.ceiling(retry))
            is_last = retry >= min(policy.max_retries, fault.max_retries)
            if is_last or latest > policy.deadline_seconds:
                asked = f"; Retry-After is {fault.retry_after:.0f} s" if fault.retry_after else ""
                raise errors.to_error(fault, asked) from None
            delay = policy.delay(retry, fault.retry_after)
        await anyio.sleep(delay)
        retry += 1


def parse_retry_after(header: str) -> float:
    """Parse a `Retry-After` header, seconds or an HTTP date, to seconds; 0 if it is neither.

    >>> [parse_retry_after(text) for text in ("3", "soon", "Wed, 21 Oct 2015 07:28:00 GMT")]
    [3.0, 0.0, 0.0]
    """
    # Some servers send fractions of a second, which RFC 9110 does not have.
    if header.isascii() and header.replace(".", "", 1).isdecimal():
        return float(header)
    try:
        moment = parsedate_to_datetime(header)
    except ValueError:
        return 0.0
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())
