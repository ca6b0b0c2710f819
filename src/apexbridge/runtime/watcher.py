"""Keeps catalogue and index as the sources are, while a runtime lives."""

import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from apexbridge.catalog.catalog import FIRST_RETRY, LAST_RETRY, Catalog
from apexbridge.events import ChangeCause
from apexbridge.skills.model import Origin
from apexbridge.sources.file_watcher import watch

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.5
_REMOTE_PREFIXES = (f"{Origin.MCP}:", f"{Origin.REMOTE}:")


@asynccontextmanager
async def background_tasks(
    *runs: Callable[[], Coroutine[None, None, None]],
) -> AsyncGenerator[TaskGroup]:
    """Run things beside a block and end them with the block, whose own error stays as it is."""
    failure: BaseException | None = None
    async with anyio.create_task_group() as tasks:
        for run in runs:
            tasks.start_soon(run)
        try:
            yield tasks
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001  # any: it is raised again below
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


Reindex = Callable[[Collection[str]], Awaitable[None]]
"""Takes the names of skills that came, went or changed."""


class Watcher:
    """Watches the folders, asks sources again that are down or said that they changed.

    Whatever goes wrong here is said in the log and tried again: it must not end a server.
    """

    def __init__(self, catalog: Catalog, follow: Reindex, *, watches: bool) -> None:
        self._catalog = catalog
        self._follow = follow
        self._watches = watches
        self._stop = anyio.Event()
        self._said: set[str] = set()
        self._asked: set[str] = set()
        self._speaking = anyio.Event()
        self._following = anyio.Lock()
        self._owed: set[str] = set()
        self._failures = 0
        self._again_at = 0.0

    async def begin(self) -> None:
        """Scan what lies here; sources across a network follow as they answer, and hold up none."""
        far = {
            s.source.id for s in self._catalog.states if s.source.id.startswith(_REMOTE_PREFIXES)
        }
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
        while not self._stop.is_set():
            try:
                async for folders in watch(self._folders, stop=self._stop):
                    await self._refresh(self._concerned(folders), "disk")
            except Exception:
                log.warning("Watching broke, and begins anew", exc_info=True)
            await anyio.sleep(_TICK_SECONDS)

    def _folders(self) -> frozenset[Path]:
        return frozenset(root for state in self._catalog.states for root in state.source.roots)

    def _concerned(self, folders: frozenset[Path]) -> set[str]:
        states = self._catalog.states
        return {s.source.id for s in states if not folders.isdisjoint(s.source.roots)}

    async def _ask(self) -> None:
        """Each source by itself, so that one that is slow to answer holds up no other."""
        async with anyio.create_task_group() as tasks:
            while True:
                with anyio.move_on_after(_TICK_SECONDS):
                    await self._speaking.wait()
                self._speaking = anyio.Event()
                now = time.monotonic()
                concerned = self._said.union(self._catalog.due(now)) - self._asked
                self._said -= concerned
                self._asked |= concerned
                for source_id in concerned:
                    tasks.start_soon(self._ask_one, source_id)
                if self._owed and now >= self._again_at:
                    self._again_at = math.inf
                    tasks.start_soon(self._catch_up, ())

    async def _ask_one(self, source_id: str) -> None:
        try:
            await self._refresh({source_id}, "source")
        finally:
            self._asked.discard(source_id)

    async def _refresh(self, sources: Collection[str], cause: ChangeCause) -> None:
        try:
            change = await self._catalog.refresh(sources, cause=cause)
        except Exception as error:  # noqa: BLE001  # any: a server goes on
            log.warning("A change is not seen, and looked for again: %s", error)
            await anyio.sleep(FIRST_RETRY)
            self._said.update(sources)
            return
        if change.added or change.removed or change.changed:
            await self._catch_up((*change.added, *change.removed, *change.changed))

    async def _catch_up(self, names: Collection[str]) -> None:
        """Let the index follow; what it cannot follow now is owed, and tried again later."""
        self._owed.update(names)
        async with self._following:
            owed, self._owed = self._owed, set()
            if not owed:
                return  # another took them along
            try:
                await self._follow(owed)
            except Exception as error:  # noqa: BLE001  # any: a server goes on
                self._owed |= owed
                wait = min(LAST_RETRY, FIRST_RETRY * 2 ** min(self._failures, 10))
                self._failures, self._again_at = self._failures + 1, time.monotonic() + wait
                log.warning("A change is not followed, and tried again: %s", error)
            else:
                self._failures = 0
