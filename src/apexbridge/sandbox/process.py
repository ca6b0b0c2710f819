"""From a backend's command line to a result: what bubblewrap, Landlock and plain share."""

import os
from collections.abc import Callable
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.lowlevel import RunVar

from apexbridge.sandbox import runner
from apexbridge.sandbox.base import TIMEOUT_EXIT, ExecRequest, ExecutionResult, Outcome
from apexbridge.sandbox.runner import Ended, Order, Started

MAX_AT_A_TIME = 16
"""How many commands run side by side; further ones wait."""

_limiters: RunVar[anyio.CapacityLimiter] = RunVar("sandbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a backend says of an end: the command's own exit code, or why it never started."""

    exit_code: int | None
    error: str = ""


def refuse_nul(request: ExecRequest) -> None:
    """A command line cannot carry NUL; the caller must hear of it before anything is started.

    Raises:
        ValueError: Naming what holds it.
    """
    for text in (*request.argv, *request.env, *request.env.values()):
        if "\0" in text:
            raise ValueError(f"{text!r} holds a NUL character")


async def run_started(start: Callable[[], Started], request: ExecRequest) -> Ended:
    """Run in a thread; when we are cancelled, kill the tree and wait until it is gone."""
    watched, trigger = os.pipe()
    ends = list[Ended]()
    order = Order(
        start=start, limits=request.limits, stdin=request.stdin, on_output=request.on_output
    )

    def work() -> None:
        ends.append(runner.run(order, watched))

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_trigger_when_cancelled, trigger)
            await anyio.to_thread.run_sync(work, limiter=_limiter())
            tasks.cancel_scope.cancel()
    finally:
        os.close(watched)
        os.close(trigger)
    await anyio.lowlevel.checkpoint()  # a caller that gave up gets no result
    return ends[0]


def _limiter() -> anyio.CapacityLimiter:
    """One limiter an event loop: runs wait for each other, and for nobody else's threads."""
    try:
        return _limiters.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(MAX_AT_A_TIME)
        _limiters.set(limiter)
        return limiter


async def _trigger_when_cancelled(descriptor: int) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        os.write(descriptor, b"x")


def exit_code_of(status: int | None) -> int | None:
    """Death by signal n is 128 + n, as shells say it."""
    return 128 - status if status is not None and status < 0 else status


def describe(ended: Ended, verdict: Verdict, isolation: str) -> ExecutionResult:
    """Put an end into the words of the seam."""
    outcome, exit_code, error = _outcome(ended, verdict)
    return ExecutionResult(
        outcome=outcome,
        exit_code=exit_code,
        stdout=ended.stdout,
        stderr=b"" if outcome == "not_started" else ended.stderr,
        duration=ended.seconds,
        error=error,
        truncated=ended.truncated,
        isolation=isolation,
    )


def _outcome(ended: Ended, verdict: Verdict) -> tuple[Outcome, int | None, str | None]:
    if ended.timed_out:
        return "timeout", TIMEOUT_EXIT, "timeout"
    if ended.truncated:
        return "output_limit", verdict.exit_code or 137, "output_limit"
    if verdict.exit_code is None:
        return "not_started", None, verdict.error or ended.error or "unknown"
    if verdict.exit_code > 128:
        return "killed", verdict.exit_code, None
    return ("ok" if verdict.exit_code == 0 else "failed"), verdict.exit_code, None
