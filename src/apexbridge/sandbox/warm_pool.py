"""Sandboxes that wait: up before they are needed, each used once, for one kind of run only.

A waiting sandbox was made for one interpreter with one set of grants and limits, so it can reach
exactly what a cold one could; only a run with the same mould may have it. It holds a workspace of
its own. After each run another is made in the background; those nobody asks for are dropped.
"""

import os
import select
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from apexbridge.errors import ApexBridgeError
from apexbridge.sandbox.base import Access, ExecRequest, SandboxLimits
from apexbridge.sandbox.child_process import RunningProcess, kill_process
from apexbridge.sandbox.execution import Backend
from apexbridge.sandbox.interpreters import WarmInterpreter
from apexbridge.sandbox.workspace import Workspaces

_FIRST_REFILL_SECONDS = 0.2
"""How long after a first run a second one is prepared for: a program that ends does not pay."""
_REFILL_SECONDS = 0.05
"""Most runs are over by then, and need not share the processor with the making of the next."""
_MAX_PER_KEY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolKey:
    """What a run must have in common with a waiting sandbox to be given it."""

    waiter: WarmInterpreter
    read: tuple[Path, ...]
    env: tuple[tuple[str, str], ...]
    limits: SandboxLimits
    marks: tuple[tuple[int, int], ...] = ()
    """Which folders the paths were: one that was replaced since is another."""

    @classmethod
    def of(
        cls,
        waiter: WarmInterpreter,
        read: tuple[Path, ...],
        env: Mapping[str, str],
        limits: SandboxLimits,
    ) -> "PoolKey":
        """The mould for these, as they are now."""
        found = [path.stat() for path in read]
        marks = tuple((status.st_dev, status.st_ino) for status in found)
        variables = tuple(sorted(env.items()))
        return cls(waiter=waiter, read=read, env=variables, limits=limits, marks=marks)

    def request(self, place: Path) -> ExecRequest:
        """The waiter's own command, in a workspace."""
        return ExecRequest(
            argv=self.waiter.argv,
            cwd=place,
            env=dict(self.env) | workspace_env(place),
            limits=self.limits,
            access=Access(read=self.read, write=(place,)),
            workspace=place,
        )


def workspace_env(place: Path) -> dict[str, str]:
    """What tells a command where it may write."""
    return {"HOME": str(place), "TMPDIR": str(place)}


@dataclass(slots=True, kw_only=True)
class SandboxLease:
    """A workspace, and the sandbox that waits in it, if one does."""

    place: Path
    held: ExitStack
    """Gives the workspace back."""
    mould: PoolKey | None = None
    started: RunningProcess | None = None
    is_used: bool = False

    def use(self) -> RunningProcess:
        """The process that waits: whoever takes it watches it to its end."""
        if self.started is None or self.is_used:
            raise OSError("nothing waits here")
        self.is_used = True
        return self.started

    def is_alive(self) -> bool:
        """Whether it still waits."""
        if self.started is None:
            return False
        watch = select.poll()
        watch.register(self.started.end, select.POLLIN)
        return not watch.poll(0)

    def close(self) -> None:
        """End what waits, if it was not used, and give the workspace back."""
        with self.held:
            if self.started is not None and not self.is_used:
                kill_process(self.started)


@dataclass(slots=True)
class _PoolEntry:
    """What waits for one mould."""

    waiting: list[SandboxLease] = field(default_factory=list[SandboxLease])
    wanted: int = 1
    due: float = 0.0
    """From when on more are made."""
    used: float = 0.0


class WarmPool:
    """Keeps sandboxes waiting; its thread lives only while there is something to keep."""

    def __init__(
        self, backend: Backend, workspaces: Workspaces, *, room: int = 4, idle_seconds: float = 60
    ) -> None:
        self._backend = backend
        self._workspaces = workspaces
        self._room = room
        self._idle_seconds = idle_seconds
        self._shelves: dict[PoolKey, _PoolEntry] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._owner = os.getpid()

    def take(self, mould: PoolKey) -> SandboxLease | None:
        """One that waits for this kind of run, if there is one; another is made for the next."""
        found = None
        if self._owner != os.getpid():  # a fork has the same ones: they stay its parent's
            return None
        with self._changed:
            now = time.monotonic()
            is_new = mould not in self._shelves
            shelf = self._shelves.pop(mould, _PoolEntry())
            self._shelves[mould] = shelf  # the most recently used come last
            shelf.wanted = max(shelf.wanted, 1)
            if shelf.waiting:
                found = shelf.waiting.pop()
            elif not is_new:  # runs come faster than one at a time
                shelf.wanted = min(shelf.wanted + 1, _MAX_PER_KEY)
            shelf.used = now
            if shelf.due <= now:
                shelf.due = now + (_FIRST_REFILL_SECONDS if is_new else _REFILL_SECONDS)
            self._wake()
        if found is not None and not found.is_alive():
            found.close()
            return None
        return found

    def waiting(self) -> int:
        """How many wait now."""
        with self._changed:
            return sum(len(shelf.waiting) for shelf in self._shelves.values())

    def moulds(self) -> list[PoolKey]:
        """What those that wait now were made for, the least lately used first."""
        with self._changed:
            return [mould for mould, shelf in self._shelves.items() for _ in shelf.waiting]

    def close(self) -> None:
        """Drop all of them, and wait until they are gone."""
        if self._owner != os.getpid():
            return
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _wake(self) -> None:
        if self._is_closed:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="warm pool", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _keep(self) -> None:
        """Make what is wanted, drop what nobody asks for, until there is nothing left."""
        while True:
            with self._changed:
                dropped = self._take_outdated()
                mould = self._next_to_make(dropped)
                if mould is None and not dropped:
                    if not self._shelves:
                        self._thread = None
                        return
                    self._changed.wait(self._pause())
            for waiting in dropped:
                waiting.close()
            if mould is not None:
                self._make(mould)

    def _take_outdated(self) -> list[SandboxLease]:
        """Take from the shelves what nobody asked for long enough; everything at the end."""
        now = time.monotonic()
        old = [
            mould
            for mould, shelf in self._shelves.items()
            if self._is_closed or now - shelf.used >= self._idle_seconds
        ]
        return [waiting for mould in old for waiting in self._shelves.pop(mould).waiting]

    def _next_to_make(self, dropped: list[SandboxLease]) -> PoolKey | None:
        """The most recently used mould that lacks one; an older one makes room for it."""
        now = time.monotonic()
        count = sum(len(shelf.waiting) for shelf in self._shelves.values())
        for mould, shelf in reversed(self._shelves.items()):
            if shelf.due > now or len(shelf.waiting) >= shelf.wanted:
                continue
            if count < self._room:
                return mould
            for older in self._shelves.values():
                if older.waiting and older.used < shelf.used:
                    dropped.append(older.waiting.pop())
                    older.wanted = len(older.waiting)
                    return mould
        return None

    def _pause(self) -> float:
        """How long nothing changes by itself."""
        now = time.monotonic()
        moments = [shelf.used + self._idle_seconds for shelf in self._shelves.values()]
        moments += [shelf.due for shelf in self._shelves.values() if shelf.due > now]
        return max(min(moments) - now, 0)

    def _make(self, mould: PoolKey) -> None:
        try:
            waiting = prestart(self._backend, mould, self._workspaces)
        except (ApexBridgeError, OSError):  # a run will meet the same, and tell it
            with self._changed:
                self._shelves.pop(mould, None)
            return
        with self._changed:
            shelf = self._shelves.get(mould)
            if shelf is not None and not self._is_closed:
                shelf.waiting.append(waiting)
                return
        waiting.close()


def prestart(backend: Backend, mould: PoolKey, workspaces: Workspaces) -> SandboxLease:
    """Have a sandbox wait, in a workspace of its own.

    Raises:
        OSError: If it cannot be started.
        StorageError: If the disk refuses a workspace.
    """
    station = cold_lease(workspaces)
    try:
        station.started = backend.start(mould.request(station.place), has_stdin=True)
    except OSError:
        station.close()
        raise
    station.mould = mould
    return station


def cold_lease(workspaces: Workspaces) -> SandboxLease:
    """A workspace in which nothing waits.

    Raises:
        StorageError: If the disk refuses.
    """
    with ExitStack() as held:
        place = held.enter_context(workspaces.lend())
        return SandboxLease(place=place, held=held.pop_all())
