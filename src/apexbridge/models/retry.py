"""Second tries: which faults are passing, how long to wait, and when to give up."""

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal, TypeVar

import anyio

from apexbridge.errors import ApexBridgeError

_MAX_RETRIES_BUSY = 5
_MAX_RETRIES_UNREACHABLE = 2
"""A server that is not there at all is not waited for as long."""

FaultKind = Literal["unavailable", "rejected", "unusable"]
_GATEWAY_STATUS: Mapping[FaultKind, int] = {"unavailable": 502, "rejected": 400, "unusable": 502}
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long to wait for a server, in seconds."""

    connect_seconds: float = 10
    first_seconds: float = 120
    """For the first byte of an answer: a large prompt on a small machine takes long."""
    between_seconds: float = 60
    """Between two pieces of an answer."""
    retry_seconds: float = 30
    """Nothing is tried again that would start later than this."""

    @property
    def whole_seconds(self) -> float:
        """For an answer in one piece, whose first byte comes when all of it is thought out."""
        return 5 * self.first_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorMapping:
    """The errors that a caller wants for each kind of fault, and the name they tell."""

    name: str
    unavailable: type[ApexBridgeError]
    rejected: type[ApexBridgeError]
    unusable: type[ApexBridgeError]

    def error(self, fault: "UpstreamFault", asked: str = "") -> ApexBridgeError:
        """The error for a fault; `status` in its details is what a gateway would answer."""
        kinds = {
            "unavailable": self.unavailable,
            "rejected": self.rejected,
            "unusable": self.unusable,
        }
        status = fault.status or _GATEWAY_STATUS[fault.kind]
        error = kinds[fault.kind](fault.detail + asked, name=self.name, status=status)
        if fault.after:
            error.details["retry_after"] = math.ceil(fault.after)
        return error


class UpstreamFault(Exception):  # noqa: N818  # it becomes an error where the blame is known
    """What went wrong, and how many more tries it is worth, after how many seconds."""

    def __init__(
        self,
        kind: FaultKind,
        detail: str,
        *,
        is_passing: bool = False,
        is_busy: bool = False,
        status: int = 0,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind: FaultKind = kind
        self.detail = detail
        self.more_tries = (
            _MAX_RETRIES_BUSY if is_busy else _MAX_RETRIES_UNREACHABLE if is_passing else 0
        )
        self.after = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The pauses before the tries after the first, and when not to wait any more."""

    pauses: Sequence[float] = (0.25, 1.0)
    within: float = math.inf
    longest: float = math.inf
    """A server that asks for a longer pause gets this one."""


async def with_retries(
    once: Callable[[], Awaitable[T]], blame: ErrorMapping, tries: RetryPolicy
) -> T:
    """Do it, and again after a passing fault.

    Raises:
        ApexBridgeError: The blame for the last fault.
    """
    start = time.monotonic()
    for number, pause in enumerate((*tries.pauses, None)):
        try:
            return await once()
        except UpstreamFault as fault:
            wait = min(max(fault.after, pause or 0.0), tries.longest)
            is_late = time.monotonic() - start + wait > tries.within
            if pause is None or is_late or number >= fault.more_tries:
                asked = f"; it asks to wait {fault.after:.0f} s" if fault.after else ""
                raise blame.error(fault, asked) from None
        await anyio.sleep(wait)
    raise AssertionError  # the last try returns or raises


def parse_retry_after(retry_after: str) -> float:
    """What a `Retry-After` header asks for, a number or a date; 0 if it says nothing.

    >>> parse_retry_after("3"), parse_retry_after("soon"), parse_retry_after("Wed, 21 Oct 2015 07:28:00 GMT")
    (3.0, 0.0, 0.0)
    """
    if retry_after.isascii() and retry_after.replace(".", "", 1).isdecimal():
        return float(retry_after)
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return 0.0
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())
