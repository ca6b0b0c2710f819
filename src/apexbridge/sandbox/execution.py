"""Asynchronous execution on a backend: concurrency limit, worker thread, cancellation, result."""

import math
import os
import threading
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar, runtime_checkable

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from apexbridge.sandbox import child_process
from apexbridge.sandbox.base import TIMEOUT_EXIT, ExecRequest, ExecutionResult, Outcome
from apexbridge.sandbox.child_process import ProcessResult, RunningProcess, RunSpec
from apexbridge.sandbox.workspace_quota import WorkspaceQuota

Result = TypeVar("Result")

_SIGKILL_EXIT = 137
MAX_CONCURRENT_RUNS = 16
"""Commands that run concurrently; further ones wait."""

_POLL_SECONDS = 0.002
_runs: RunVar[anyio.CapacityLimiter] = RunVar("sandbox runs")
_run_threads: RunVar[anyio.CapacityLimiter] = RunVar("sandbox threads")


def reject_nul(words: Iterable[str]) -> None:
    """Reject NUL bytes, which no argv can carry, with a ValueError before anything is started."""
    for text in words:
        if "\0" in text:
            raise ValueError(f"{text!r} holds a NUL character")
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            raise ValueError(f"{text!r} holds a lone surrogate") from None


@runtime_checkable
class Backend(Protocol):
    """Protocol of a backend that starts local processes."""

    @property
    def name(self) -> str:
        """Short name for results, logs and `doctor`."""
        ...

    def start(self, request: ExecRequest, *, has_stdin: bool) -> RunningProcess:
        """Start the command. The caller watches the process, and writes to its stdin if it has one.

        Raises:
            OSError: If it cannot be started.
        """
        ...


async def run_backend(backend: Backend, request: ExecRequest) -> ExecutionResult:
    """Run one command on a backend to its end or its limits."""
    reject_nul((*request.argv, *request.env, *request.env.values()))
    has_stdin = bool(request.stdin)
    ended = await run_process(lambda: backend.start(request, has_stdin=has_stdin), request)
    return to_execution_result(ended, backend.name)


async def run_process(start: Callable[[], RunningProcess], request: ExecRequest) -> ProcessResult:
    """Run the process that `start` returns to its end or its limits."""
    spec = run_spec_for(request, start)
    return await run_in_thread(lambda cancel: child_process.run(spec, cancel))


def run_spec_for(request: ExecRequest, start: Callable[[], RunningProcess]) -> RunSpec:
    """Build the run specification of a request."""
    quota = WorkspaceQuota(request.workspace, request.limits) if request.workspace else None
    return RunSpec(
        start=start,
        limits=request.limits,
        stdin=request.stdin,
        on_output=request.on_output,
        is_oversized=quota.is_exceeded if quota else None,
    )


async def run_in_thread(work: Callable[[int], Result]) -> Result:
    """Run blocking work in a worker thread, within the concurrency limit.

    On cancellation the file descriptor given to the work becomes readable; the thread is awaited.
    """
    async with _loop_limiter(_runs, MAX_CONCURRENT_RUNS):
        task = _ThreadTask(work)
        threads = _loop_limiter(_run_threads, math.inf)  # an admitted run always gets its thread
        try:
            # Not left to anyio to wait for: asyncio's own cancellation does not respect a shield.
            await anyio.to_thread.run_sync(task, abandon_on_cancel=True, limiter=threads)
        finally:
            if task.abandon():
                with anyio.CancelScope(shield=True):
                    while not task.is_over.is_set():  # noqa: ASYNC110  # set by a thread
                        await anyio.sleep(_POLL_SECONDS)
    return task.results[0]


class _ThreadTask(Generic[Result]):
    """Work of the thread. Either side may leave first: the last one closes the pipe."""

    def __init__(self, work: Callable[[int], Result]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._is_abandoned = False
        self._has_begun = False
        self._watched, self._trigger = os.pipe()
        self.is_over = threading.Event()
        self.results = list[Result]()

    def __call__(self) -> None:
        with self._lock:
            if self._is_abandoned:
                return
            self._has_begun = True
        try:
            self.results.append(self._work(self._watched))
        finally:
            os.close(self._watched)
            self.is_over.set()

    def abandon(self) -> bool:
        """Signal cancellation to the thread; True if it is running."""
        with self._lock:
            self._is_abandoned = True
            os.close(self._trigger)
            if not self._has_begun:
                os.close(self._watched)
        return self._has_begun


def _loop_limiter(
    variable: RunVar[anyio.CapacityLimiter], capacity: float
) -> anyio.CapacityLimiter:
    try:
        return variable.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(capacity)
        variable.set(limiter)
        return limiter


def to_execution_result(ended: ProcessResult, isolation: str) -> ExecutionResult:
    """Convert a process result to an execution result."""
    outcome, exit_code, error = _outcome(ended)
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


def _outcome(ended: ProcessResult) -> tuple[Outcome, int | None, str | None]:
    status = ended.status
    signal = -status if status is not None and status < 0 else 0
    exit_code = 128 + signal if signal else status  # as shells do
    if ended.timed_out:
        return "timeout", TIMEOUT_EXIT, "timeout"
    if ended.truncated:
        return "output_limit", exit_code or _SIGKILL_EXIT, "output_limit"
    if ended.is_oversized:
        return "workspace_limit", exit_code or _SIGKILL_EXIT, "workspace_limit"
    if exit_code is None:
        return "not_started", None, ended.error or "unknown"
    if signal:
        return "killed", exit_code, None
    return ("ok" if exit_code == 0 else "failed"), exit_code, None
