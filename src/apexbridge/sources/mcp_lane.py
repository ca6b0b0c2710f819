"""One thing kept open for many callers, in an event loop and a thread of its own."""

import math
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal

_GRACE_SECONDS = 5.0

T = TypeVar("T")
R = TypeVar("R")


class LostError(Exception):
    """What was open has ended; the cause, where one is known, is its `__cause__`."""


class LaneClosedError(Exception):
    """The lane was closed for good."""


@dataclass(slots=True, eq=False)
class _Hold(Generic[T]):
    """One opening, from its start to its end."""

    scope: anyio.CancelScope
    ready: anyio.Event = field(default_factory=anyio.Event)
    over: anyio.Event = field(default_factory=anyio.Event)
    values: list[T] = field(default_factory=list[T])
    uses: set[anyio.CancelScope] = field(default_factory=set[anyio.CancelScope])
    error: Exception | None = None


class Lane(Generic[T]):
    """Opens at the first call, keeps open between calls, and opens anew after a loss.

    A context must be left by the task that entered it, and no task may outlive the call that
    started it: so the context has a loop of its own, and callers in any loop send their work there.
    """

    def __init__(
        self, opening: Callable[[], AbstractAsyncContextManager[T]], *, seconds: float
    ) -> None:
        self._opening = opening
        self._seconds = seconds
        self._lock = threading.Lock()
        self._portal: BlockingPortal | None = None
        self._closing = ExitStack()
        self._is_closed = False
        self._hold: _Hold[T] | None = None
        self._tasks: TaskGroup
        self._stop: anyio.Event

    async def run(self, work: Callable[[T], Awaitable[R]]) -> R:
        """Do some work with what is open; once more if an older opening is lost meanwhile.

        Raises:
            LostError: If it cannot be opened, or is lost at once.
            TimeoutError: If opening and working take too long; the next call opens anew.
            LaneClosedError: If the lane was closed.
        """
        portal = await anyio.to_thread.run_sync(self._start)
        try:
            # The deadline is kept over there; this one is for a loop that ends under our feet.
            with anyio.fail_after(self._seconds + _GRACE_SECONDS):
                return await portal.call_async(self._attempt, work, abandon_on_cancel=True)
        except RuntimeError:
            if self._is_closed:
                raise LaneClosedError from None
            raise

    async def close(self) -> None:
        """End what is open, and the thread with it."""
        await anyio.to_thread.run_sync(self._shut)

    def _start(self) -> BlockingPortal:
        with self._lock:
            if self._is_closed:
                raise LaneClosedError
            if self._portal is None:
                self._portal = self._closing.enter_context(start_blocking_portal())
                self._portal.start_task(self._main)
                self._closing.callback(self._portal.call, self._end)
            return self._portal

    def _shut(self) -> None:
        with self._lock:
            self._is_closed = True
            self._closing.close()

    async def _main(self, *, task_status: TaskStatus[None]) -> None:
        self._stop = anyio.Event()
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            await self._stop.wait()
            self._tasks.cancel_scope.cancel()

    def _end(self) -> None:
        self._stop.set()

    async def _attempt(self, work: Callable[[T], Awaitable[R]]) -> R:
        older = hold = self._hold
        try:
            with anyio.fail_after(self._seconds):
                if older is not None:
                    with suppress(LostError):
                        return await self._use(older, work)
                hold = self._current()
                return await self._use(hold, work)
        except TimeoutError:
            self._drop(hold)
            raise

    async def _use(self, hold: _Hold[T], work: Callable[[T], Awaitable[R]]) -> R:
        await hold.ready.wait()
        if not hold.values:
            raise LostError from hold.error
        with anyio.CancelScope() as scope:
            hold.uses.add(scope)
            try:
                return await work(hold.values[0])
            except LostError:
                self._drop(hold)
                await hold.over.wait()  # by then the cause is known, and nothing is left of it
                raise
            finally:
                hold.uses.discard(scope)
        raise LostError from hold.error

    def _current(self) -> _Hold[T]:
        """The opening there is, or a new one."""
        if self._is_closed:
            raise LaneClosedError
        if self._hold is None:
            scope = anyio.CancelScope(deadline=anyio.current_time() + self._seconds)
            self._hold = _Hold[T](scope)
            self._tasks.start_soon(self._keep, self._hold)
        return self._hold

    async def _keep(self, hold: _Hold[T]) -> None:
        try:
            with hold.scope:
                async with self._opening() as value:
                    hold.scope.deadline = math.inf
                    hold.values.append(value)
                    hold.ready.set()
                    await anyio.sleep_forever()
        except Exception as error:  # noqa: BLE001  # whoever waits for it must hear of it
            hold.error = error
        finally:
            self._drop(hold)
            hold.ready.set()
            hold.over.set()
            for scope in hold.uses:
                scope.cancel()

    def _drop(self, hold: _Hold[T] | None) -> None:
        """Let go of an opening, so that the next call makes another."""
        if hold is not None:
            hold.scope.cancel()
            if self._hold is hold:
                self._hold = None
