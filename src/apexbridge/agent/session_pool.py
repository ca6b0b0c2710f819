"""Session pool: running sessions, and an LRU of idle ones that the session store has on disk."""

import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from apexbridge.agent.session import Session, init_child_session
from apexbridge.agent.session_store import SessionStore
from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.path_activation import PathActivation
from apexbridge.hooks.commands import HookCommandRunner
from apexbridge.hooks.runner import HookPoster, HookRunner
from apexbridge.permissions.engine import ToolsMode
from apexbridge.permissions.hook_protocol import Hook
from apexbridge.tools.base import SubagentRequest

MAX_IDLE = 256
"""Idle sessions kept in memory; the others are loaded from SQLite when they continue."""


class SessionFactory:
    """Create sessions with the working directory, hooks and tools mode of a project's settings."""

    def __init__(
        self,
        project: Path,
        catalog: Catalog,
        *,
        hooks: Sequence[Hook] = (),
        run_hook: HookCommandRunner,
        post_hook: HookPoster | None = None,
        tools_mode: ToolsMode = "preapprove",
    ) -> None:
        self._project, self._catalog = project, catalog
        self._hooks, self._run_hook, self._post_hook = tuple(hooks), run_hook, post_hook
        self._tools_mode: ToolsMode = tools_mode

    def create(self, session_id: str) -> Session:
        """Create an empty session."""
        hooks = HookRunner(self._run_hook, self._post_hook)
        hooks.register(self._hooks, root=self._project)
        return Session(
            id=session_id,
            cwd=self._project,
            path_activation=PathActivation(self._project),
            hooks=hooks,
            tools_mode=self._tools_mode,
        )

    def create_child(self, parent: Session, request: SubagentRequest) -> Session:
        """Create the session of a subagent: it inherits limits from its parent, and no messages."""
        child = self.create(request.agent_id or f"{parent.id}.{uuid.uuid4().hex[:6]}")
        init_child_session(child, parent, request)
        return child

    def restore_hooks(self, session: Session) -> None:
        """Register the hooks of applied skills again, in a session that was loaded from disk."""
        for name in session.applied:
            skill = self._catalog.snapshot.winner(name)
            # Trust may have been revoked since: hooks are never restored from the stored session.
            if skill is not None and skill.is_trusted:
                session.hooks.register(
                    skill.hooks, skill=skill.name, root=skill.root, sha256=skill.trusted_sha256
                )


@dataclass(slots=True)
class _Slot:
    """A pooled session, and the lock that serialises its turns."""

    lock: anyio.Lock = field(default_factory=partial(anyio.Lock, fast_acquire=True))
    session: Session | None = None
    users: int = 0


class SessionPool:
    """Find sessions by id, one turn at a time each; evict idle ones in LRU order."""

    def __init__(
        self, store: SessionStore, factory: SessionFactory, *, max_idle: int = MAX_IDLE
    ) -> None:
        self._store, self._factory, self._max_idle = store, factory, max_idle
        self._slots = OrderedDict[str, _Slot]()
        self._ephemeral: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def running(self, session_id: str) -> Session:
        """Return the session of a turn that is running.

        Raises:
            KeyError: If no session of that id is in memory.
        """
        ephemeral = self._ephemeral.get(session_id)
        if ephemeral is not None:
            return ephemeral
        found = self._slots[session_id].session
        if found is None:
            raise KeyError(session_id)
        return found

    @asynccontextmanager
    async def acquire(self, session_id: str) -> AsyncGenerator[Session]:
        """Hold a session exclusively: from memory, else from the store, else a new one."""
        slot = self._slots.setdefault(session_id, _Slot())
        self._slots.move_to_end(session_id)
        slot.users += 1
        try:
            async with slot.lock:
                yield await self._load(session_id, slot)
        finally:
            slot.users -= 1
            self._evict()

    async def get(self, session_id: str) -> Session:
        """Return a session without waiting for its running turn."""
        slot = self._slots.get(session_id)
        if slot is not None and slot.session is not None:
            return slot.session
        async with self.acquire(session_id) as session:
            return session

    def create_ephemeral(self, session_id: str) -> Session:
        """Create a session that is stored nowhere; `ephemeral` makes it findable."""
        return self._factory.create(session_id)

    @contextmanager
    def ephemeral(self, session: Session) -> Generator[Session]:
        """Make a session that is stored nowhere findable by its id during the block."""
        self._ephemeral[session.id] = session
        try:
            yield session
        finally:
            del self._ephemeral[session.id]

    @contextmanager
    def child(self, parent: Session, request: SubagentRequest) -> Generator[Session]:
        """Create the session of a subagent, findable by its id during the block."""
        with self.ephemeral(self._factory.create_child(parent, request)) as child:
            yield child

    async def delete(self, session_id: str) -> bool:
        """Delete a session after its running turn; False if there was none."""
        async with self.acquire(session_id):
            is_gone = await anyio.to_thread.run_sync(self._store.delete, session_id)
            self._slots[session_id].session = None
        return is_gone

    def forget(self, session_id: str) -> None:
        """Drop the state in memory of a session that the caller holds: the stored one counts."""
        self._slots[session_id].session = None
        self._store.evict(session_id)

    async def _load(self, session_id: str, slot: _Slot) -> Session:
        if slot.session is None:
            session = self._factory.create(session_id)
            if await anyio.to_thread.run_sync(self._store.load, session):
                self._factory.restore_hooks(session)
            slot.session = session
        return slot.session

    def _evict(self) -> None:
        while len(self._slots) > self._max_idle:
            idle = (name for name, slot in self._slots.items() if not slot.users)
            oldest = next(idle, None)
            if oldest is None:
                return
            del self._slots[oldest]
            self._store.evict(oldest)
