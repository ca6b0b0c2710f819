"""Conversations in memory: those at work, and of the others the ones that were used last."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType

import anyio
import anyio.to_thread

from apexbridge.agent.session import Session
from apexbridge.agent.session_store import SessionStore

MAX_IDLE = 256
"""So many idle conversations stay in memory; the others are read again when they go on."""


def _lock() -> anyio.Lock:
    return anyio.Lock(fast_acquire=True)


@dataclass(slots=True)
class _Slot:
    """A conversation, and whose turn it is in it."""

    turn: anyio.Lock = field(default_factory=_lock)
    session: Session | None = None
    users: int = 0


class EphemeralSession:
    """A conversation among those that are kept nowhere, for the length of a block."""

    __slots__ = ("_others", "_session")

    def __init__(self, others: dict[str, Session], session: Session) -> None:
        self._others, self._session = others, session

    def __enter__(self) -> Session:
        self._others[self._session.id] = self._session
        return self._session

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del self._others[self._session.id]


class SessionPool:
    """Finds conversations by id, and lets go of those that nobody needs; the store has them all."""

    def __init__(
        self,
        store: SessionStore,
        make: Callable[[str], Session],
        lend_again: Callable[[Session], None],
        *,
        room: int = MAX_IDLE,
    ) -> None:
        self._store, self._make, self._lend_again = store, make, lend_again
        self._room = room
        self._places = OrderedDict[str, _Slot]()
        self._passing: dict[str, Session] = {}

    def __len__(self) -> int:
        return len(self._places)

    def at_work(self, session_id: str) -> Session:
        """The conversation of that id, which has a turn now.

        Raises:
            KeyError: If there is none.
        """
        passing = self._passing.get(session_id)
        if passing is not None:
            return passing
        found = self._places[session_id].session
        if found is None:
            raise KeyError(session_id)
        return found

    @asynccontextmanager
    async def taken(self, session_id: str) -> AsyncGenerator[Session]:
        """The conversation of that id for the length of the block, and for nobody else."""
        place = self._places.setdefault(session_id, _Slot())
        self._places.move_to_end(session_id)
        place.users += 1
        try:
            async with place.turn:
                yield await self._fill(session_id, place)
        finally:
            place.users -= 1
            self._make_room()

    async def get(self, session_id: str) -> Session:
        """The conversation of that id: the one going on, the one that was kept, or a new one."""
        place = self._places.get(session_id)
        if place is not None and place.session is not None:
            return place.session
        async with self.taken(session_id) as session:
            return session

    def passing(self, session: Session) -> "EphemeralSession":
        """A conversation that is found by its id during the block, and kept nowhere."""
        return EphemeralSession(self._passing, session)

    async def forget(self, session_id: str) -> bool:
        """Remove a conversation, after the turn it may have now; False if there was none.

        Raises:
            StorageError: If the disk refuses.
        """
        async with self.taken(session_id):
            is_gone = await anyio.to_thread.run_sync(self._store.forget, session_id)
            self._places[session_id].session = None
        return is_gone

    async def _fill(self, session_id: str, place: _Slot) -> Session:
        if place.session is None:
            made = self._make(session_id)
            if await anyio.to_thread.run_sync(self._store.load, made):
                self._lend_again(made)
            place.session = made
        return place.session

    def _make_room(self) -> None:
        """Let go of the idle ones that were used longest ago."""
        while len(self._places) > self._room:
            idle = (name for name, place in self._places.items() if not place.users)
            oldest = next(idle, None)
            if oldest is None:
                return
            del self._places[oldest]
            self._store.let_go(oldest)
