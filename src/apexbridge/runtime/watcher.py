"""Watcher: keep catalog and index current by file events, polling, and retry with backoff."""

import logging
import math
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from apexbridge.catalog.catalog import FIRST_RETRY, LAST_RETRY, Catalog
from apexbridge.events import CatalogChanged, ChangeCause
from apexbridge.runtime.index_service import IndexService
from apexbridge.runtime.source_factory import SourceChanges
from apexbridge.skills.model import Origin
from apexbridge.sources.file_watcher import watch

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.5
_REMOTE_PREFIXES = (f"{Origin.MCP}:", f"{Origin.REMOTE}:")


@asynccontextmanager
async def background_tasks(
    *runs: Callable[[], Coroutine[None, None, None]],
) -> AsyncGenerator[TaskGroup]:
    """Run coroutines in a task group beside a block; an exception of the block is not wrapped."""
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


class Watcher:
    """Refresh the catalog when files or sources change, and update the index afterwards.

    Errors are logged and retried with exponential backoff: they must not end a server.
    """

    def __init__(
        self, catalog: Catalog, index: IndexService, changes: SourceChanges, *, watches: bool
    ) -> None:
        self._catalog, self._index, self.changes = catalog, index, changes
        self._watches = watches
        self._stop = anyio.Event()
        self._scanning: set[str] = set()
        self._index_lock = anyio.Lock()
        self._unindexed: set[str] = set()
        self._failures = 0
        self._retry_at = 0.0
        catalog.on_rescan = self._index_later

    async def begin(self) -> None:
        """Scan local sources; remote ones are scanned in the background, and delay nothing."""
        ids = {state.source_id for state in self._catalog.states}
        remote = {source_id for source_id in ids if source_id.startswith(_REMOTE_PREFIXES)}
        await self._catalog.refresh(ids - remote)
        for source_id in remote:
            self.changes.notify(source_id)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._poll)
            if self._watches:
                tasks.start_soon(self._watch_files)

    async def _watch_files(self) -> None:
        while not self._stop.is_set():
            try:
                async for folders in watch(self._roots, stop=self._stop):
                    await self._refresh(self._sources_of(folders), "disk")
            except Exception:
                log.warning("The file watcher failed and is restarted", exc_info=True)
            await anyio.sleep(_TICK_SECONDS)

    def _roots(self) -> frozenset[Path]:
        return frozenset(root for state in self._catalog.states for root in state.source.roots)

    def _sources_of(self, folders: frozenset[Path]) -> set[str]:
        states = self._catalog.states
        return {s.source_id for s in states if not folders.isdisjoint(s.source.roots)}

    async def _poll(self) -> None:
        """Scan each changed or recovering source in its own task: a slow one delays no other."""
        async with anyio.create_task_group() as tasks:
            while True:
                await self.changes.wait(_TICK_SECONDS)
                now = time.monotonic()
                sources = self.changes.take(self._catalog.due(now), except_for=self._scanning)
                self._scanning |= sources
                for source_id in sources:
                    tasks.start_soon(self._scan, source_id)
                if self._unindexed and now >= self._retry_at:
                    self._retry_at = math.inf
                    tasks.start_soon(self._update_index, ())

    async def _scan(self, source_id: str) -> None:
        try:
            await self._refresh({source_id}, "source")
        finally:
            self._scanning.discard(source_id)

    def _index_later(self, change: CatalogChanged) -> None:
        self._unindexed.update((*change.added, *change.removed, *change.changed))

    async def _refresh(self, sources: Collection[str], cause: ChangeCause) -> None:
        try:
            change = await self._catalog.refresh(sources, cause=cause)
        except Exception as error:  # noqa: BLE001  # any: a server continues
            log.warning("Cannot refresh the catalog, retrying: %s", error)
            await anyio.sleep(FIRST_RETRY)
            for source_id in sources:
                self.changes.notify(source_id)
            return
        if change.added or change.removed or change.changed:
            await self._update_index((*change.added, *change.removed, *change.changed))

    async def _update_index(self, names: Collection[str]) -> None:
        """Update the index; skills whose update fails are retried with exponential backoff."""
        self._unindexed.update(names)
        async with self._index_lock:
            pending, self._unindexed = self._unindexed, set()
            if not pending:
                return  # another task has taken them
            try:
                await self._index.reindex(pending)
            except Exception as error:  # noqa: BLE001  # any: a server continues
                self._unindexed |= pending
                wait = min(LAST_RETRY, FIRST_RETRY * 2 ** min(self._failures, 10))
                self._failures, self._retry_at = self._failures + 1, time.monotonic() + wait
                log.warning("Cannot update the index, retrying: %s", error)
            else:
                self._failures = 0
