"""Warm pool: sandboxes that are pre-started, each used once, for one kind of run only.

A warm sandbox is made for one interpreter with one set of grants and limits, so it can access
exactly what a cold one could; only a run with the same key gets it. It holds its own workspace.
After each run another is started in the background; idle ones are stopped.
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
"""Delay before the first refill: a program that is about to end should not pay for one."""
_REFILL_SECONDS = 0.05
"""Delay before later refills: most runs are over by then, and keep the CPU to themselves."""
_MAX_PER_KEY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolKey:
    """Warm-pool key: interpreter, mounts and limits that a run shares with a warm sandbox."""

    interpreter: WarmInterpreter
    read: tuple[Path, ...]
    env: tuple[tuple[str, str], ...]
    limits: SandboxLimits
    inodes: tuple[tuple[int, int], ...] = ()
    """Device and inode of each path: a directory that was replaced is another one."""

    @classmethod
    def create(
        cls,
        interpreter: WarmInterpreter,
        read: tuple[Path, ...],
        env: Mapping[str, str],
        limits: SandboxLimits,
    ) -> "PoolKey":
        """Build the key, with the inodes as they are now."""
        found = [path.stat() for path in read]
        inodes = tuple((status.st_dev, status.st_ino) for status in found)
        variables = tuple(sorted(env.items()))
        return cls(interpreter=interpreter, read=read, env=variables, limits=limits, inodes=inodes)

    def request(self, workspace: Path) -> ExecRequest:
        """Build the request that starts the warm interpreter in a workspace."""
        return ExecRequest(
            argv=self.interpreter.argv,
            cwd=workspace,
            env=dict(self.env) | workspace_env(workspace),
            limits=self.limits,
            access=Access(read=self.read, write=(workspace,)),
            workspace=workspace,
        )


def workspace_env(workspace: Path) -> dict[str, str]:
    """Return the environment variables that point to the workspace."""
    return {"HOME": str(workspace), "TMPDIR": str(workspace)}


@dataclass(slots=True, kw_only=True)
class SandboxLease:
    """A leased workspace, and the pre-started process in it, if there is one."""

    workspace: Path
    resources: ExitStack
    """Releases the workspace."""
    key: PoolKey | None = None
    started: RunningProcess | None = None
    is_used: bool = False

    def claim(self) -> RunningProcess:
        """Claim the pre-started process: the caller watches it to its end."""
        if self.started is None or self.is_used:
            raise OSError("no pre-started process")
        self.is_used = True
        return self.started

    def is_alive(self) -> bool:
        """Return True if the process is still running."""
        if self.started is None:
            return False
        watch = select.poll()
        watch.register(self.started.exit_fd, select.POLLIN)
        return not watch.poll(0)

    def close(self) -> None:
        """Kill the process if it was not claimed, and release the workspace."""
        with self.resources:
            if self.started is not None and not self.is_used:
                kill_process(self.started)


@dataclass(slots=True)
class _PoolEntry:
    """Pre-started sandboxes of one key."""

    idle: list[SandboxLease] = field(default_factory=list[SandboxLease])
    target_size: int = 1
    refill_at: float = 0.0
    """Time of the next refill."""
    last_used: float = 0.0


class WarmPool:
    """Pool of pre-started sandboxes; its thread runs only while there is something to maintain."""

    def __init__(
        self,
        backend: Backend,
        workspaces: Workspaces,
        *,
        capacity: int = 4,
        idle_seconds: float = 60,
    ) -> None:
        self._backend = backend
        self._workspaces = workspaces
        self._capacity = capacity
        self._idle_seconds = idle_seconds
        self._entries: dict[PoolKey, _PoolEntry] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._owner = os.getpid()

    def acquire(self, key: PoolKey) -> SandboxLease | None:
        """Take a pre-started sandbox with this key, if there is one, and schedule a refill."""
        found = None
        if self._owner != os.getpid():  # after a fork the sandboxes belong to the parent
            return None
        with self._changed:
            now = time.monotonic()
            is_new = key not in self._entries
            entry = self._entries.pop(key, _PoolEntry())
            self._entries[key] = entry  # the most recently used come last
            entry.target_size = max(entry.target_size, 1)
            if entry.idle:
                found = entry.idle.pop()
            elif not is_new:  # runs come faster than one at a time
                entry.target_size = min(entry.target_size + 1, _MAX_PER_KEY)
            entry.last_used = now
            if entry.refill_at <= now:
                entry.refill_at = now + (_FIRST_REFILL_SECONDS if is_new else _REFILL_SECONDS)
            self._wake()
        if found is not None and not found.is_alive():
            found.close()
            return None
        return found

    def idle_count(self) -> int:
        """Return the number of idle sandboxes."""
        with self._changed:
            return sum(len(entry.idle) for entry in self._entries.values())

    def idle_keys(self) -> list[PoolKey]:
        """Return the key of each idle sandbox, least recently used first."""
        with self._changed:
            return [key for key, entry in self._entries.items() for _ in entry.idle]

    def close(self) -> None:
        """Stop all sandboxes and wait for their end."""
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
            self._thread = threading.Thread(target=self._maintain, name="warm pool", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _maintain(self) -> None:
        """Start and stop sandboxes until the pool is empty (the maintenance thread)."""
        while True:
            with self._changed:
                expired = self._remove_expired()
                key = self._next_key(expired)
                if key is None and not expired:
                    if not self._entries:
                        self._thread = None
                        return
                    self._changed.wait(self._next_deadline())
            for idle in expired:
                idle.close()
            if key is not None:
                self._start(key)

    def _remove_expired(self) -> list[SandboxLease]:
        """Remove sandboxes that were idle too long; all of them on close."""
        now = time.monotonic()
        old = [
            key
            for key, entry in self._entries.items()
            if self._is_closed or now - entry.last_used >= self._idle_seconds
        ]
        return [idle for key in old for idle in self._entries.pop(key).idle]

    def _next_key(self, expired: list[SandboxLease]) -> PoolKey | None:
        """Return the most recent key that lacks a sandbox; evict a less recent one for it."""
        now = time.monotonic()
        count = sum(len(entry.idle) for entry in self._entries.values())
        for key, entry in reversed(self._entries.items()):
            if entry.refill_at > now or len(entry.idle) >= entry.target_size:
                continue
            if count < self._capacity:
                return key
            for older in self._entries.values():
                if older.idle and older.last_used < entry.last_used:
                    expired.append(older.idle.pop())
                    older.target_size = len(older.idle)
                    return key
        return None

    def _next_deadline(self) -> float:
        """Return the seconds until the next refill or expiry."""
        now = time.monotonic()
        moments = [entry.last_used + self._idle_seconds for entry in self._entries.values()]
        moments += [entry.refill_at for entry in self._entries.values() if entry.refill_at > now]
        return max(min(moments) - now, 0)

    def _start(self, key: PoolKey) -> None:
        try:
            idle = prestart(self._backend, key, self._workspaces)
        except (ApexBridgeError, OSError):  # a run will fail the same way, and report it
            with self._changed:
                self._entries.pop(key, None)
            return
        with self._changed:
            entry = self._entries.get(key)
            if entry is not None and not self._is_closed:
                entry.idle.append(idle)
                return
        idle.close()


def prestart(backend: Backend, key: PoolKey, workspaces: Workspaces) -> SandboxLease:
    """Pre-start a sandbox in its own workspace; OSError or StorageError if that fails."""
    lease = cold_lease(workspaces)
    try:
        lease.started = backend.start(key.request(lease.workspace), has_stdin=True)
    except BaseException:
        lease.close()
        raise
    lease.key = key
    return lease


def cold_lease(workspaces: Workspaces) -> SandboxLease:
    """Lease a workspace without a pre-started process; StorageError if the disk refuses."""
    with ExitStack() as resources:
        workspace = resources.enter_context(workspaces.lease())
        return SandboxLease(workspace=workspace, resources=resources.pop_all())
