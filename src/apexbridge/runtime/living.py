"""Keeps catalogue and index as the sources are, while a runtime lives."""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from apexbridge.catalog.catalog import Catalog
from apexbridge.errors import ApexBridgeError
from apexbridge.events import CatalogChanged, Cause
from apexbridge.skills.model import Origin
from apexbridge.sources.watch import watch

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.5
_FAR = (f"{Origin.MCP}:", f"{Origin.REMOTE}:")


@asynccontextmanager
async def beside(run: Callable[[], Coroutine[None, None, None]]) -> AsyncGenerator[None]:
    """Run something beside a block and end it with the block, whose own error stays as it is."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        try:
            yield
        except Exception as error:  # noqa: BLE001  # any: it is raised again below
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


Follow = Callable[[CatalogChanged], Awaitable[None]]


class Living:
    """Watches the folders, asks sources again that are down or said that they changed."""

    def __init__(self, catalog: Catalog, follow: Follow, *, watches: bool) -> None:
        self._catalog = catalog
        self._follow = follow
        self._watches = watches
        self._stop = anyio.Event()
        self._said: set[str] = set()
        self._speaking = anyio.Event()

    async def begin(self) -> None:
        """Scan what lies here; sources across a network follow as they answer, and hold up none."""
        far = {s.source.id for s in self._catalog.states if s.source.id.startswith(_FAR)}
        await self._catalog.refresh({s.source.id for s in self._catalog.states} - far)
        for source_id in far:
            self.changed(source_id)

    def changed(self, source_id: str) -> None:
        """Take a source's word that it has other skills now."""
        self._said.add(source_id)
        self._speaking.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._ask)
            if self._watches:
                tasks.start_soon(self._watch)

    async def _watch(self) -> None:
        async for folders in watch(self._folders, stop=self._stop):
            await self._refresh(self._concerned(folders), "disk")

    def _folders(self) -> frozenset[Path]:
        return frozenset(root for state in self._catalog.states for root in state.source.roots)

    def _concerned(self, folders: frozenset[Path]) -> set[str]:
        states = self._catalog.states
        return {s.source.id for s in states if not folders.isdisjoint(s.source.roots)}

    async def _ask(self) -> None:
        while True:
            with anyio.move_on_after(_TICK_SECONDS):
                await self._speaking.wait()
            self._speaking = anyio.Event()
            said, self._said = self._said, set()
            if concerned := said.union(self._catalog.due(time.monotonic())):
                await self._refresh(concerned, "source")

    async def _refresh(self, sources: Collection[str], cause: Cause) -> None:
        """What goes wrong here is said in the log: it must not end a server."""
        try:
            change = await self._catalog.refresh(sources, cause=cause)
            if change.added or change.removed or change.changed:
                await self._follow(change)
        except ApexBridgeError as error:
            log.warning("A change is not followed: %s", error)
