"""Index service: open the skill index on first use, keep it in sync with the catalog, search it."""

import logging
from collections.abc import Collection
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.usage import UsageScores, UsageStore
from apexbridge.errors import ApexBridgeError, StorageError
from apexbridge.events import Event, EventSink, IndexSynced
from apexbridge.lifecycle.index_updates import PreparedRow, TagRound
from apexbridge.retrieval.results import (
    NO_CALLBACKS,
    IndexStatus,
    SearchResults,
    SearchScope,
    SyncCallbacks,
    SyncReport,
)
from apexbridge.settings import Config
from apexbridge.skills.model import Skill

if TYPE_CHECKING:  # numpy and the HTTP client are imported when the index is opened
    from apexbridge.retrieval.index import SkillIndex
    from apexbridge.runtime.index_factory import OpenIndex

log = logging.getLogger(__name__)

_FOLDED = SearchScope(kinds=frozenset({"skill"}), folds_alike=True)
_MANY_EMBEDDED = 32
"""A sync of this size was a first or a full one: few documents are expected after it."""
_FIRST_SYNC_SECONDS = 5.0
"""Time that a search waits for the sync at a server's start; then it searches what is there."""


def _ignore_event(_: Event) -> None:
    """Default: emit nothing."""


class IndexService:
    """The skill index of a project, opened on first use. Search never waits for a language model.

    Construction is cheap. Only `run_tagging` and `tag_pending` send requests to the language model.
    """

    def __init__(
        self,
        config: Config,
        catalog: Catalog,
        usage: UsageStore,
        *,
        tags: Path | None = None,
        emit: EventSink = _ignore_event,
    ) -> None:
        self._config, self._emit = config, emit
        self._tags_dir = tags or config.data / "tags"
        self._catalog = catalog
        self._usage = UsageScores(usage)
        self._opened: OpenIndex | None = None
        self._is_synced = False
        self._has_opened, self._has_synced = anyio.Event(), anyio.Event()
        self._open_lock = anyio.Lock()
        self._sync_lock = anyio.Lock()
        self._stack = AsyncExitStack()

    @property
    def path(self) -> Path:
        """Path of the index file or folder."""
        kind = self._config.settings.index.store
        return self._config.data / ("index.lance" if kind == "lance" else "index.db")

    @property
    def size(self) -> int | None:
        """Number of rows; None as long as the index is not open."""
        return None if self._opened is None else len(self._opened.index)

    async def search(
        self,
        query: str,
        *,
        query_en: str | None = None,
        query_zh: str | None = None,
        limit: int = 5,
    ) -> SearchResults:
        """Find the skills that fit a request best; the first search syncs the index."""
        index = await self.index()
        found = await index.search(
            query, query_en=query_en, query_zh=query_zh, limit=limit, scope=_FOLDED
        )
        # A row that could not be deleted yet must not find an uninstalled skill.
        snapshot = self._catalog.snapshot
        if all(name in snapshot.by_name for hit in found.hits for name in (hit.name, *hit.alike)):
            return found
        visible = (
            hit.visible(lambda name: snapshot.winner(name) is not None) for hit in found.hits
        )
        return replace(found, hits=tuple(hit for hit in visible if hit is not None))

    async def index(self) -> "SkillIndex":
        """Return the index, synced once; during a full rebuild, the one of the old embedder."""
        opened = self._opened or await self._open()
        if self._sync_lock.locked():
            if not self._is_synced and opened.old is None:
                # At a server's start: most indexes are current in less than this.
                with anyio.move_on_after(_FIRST_SYNC_SECONDS):
                    await self._has_synced.wait()
            return opened.index if opened.old is None else opened.old
        if not self._is_synced:
            await self.sync()
        return opened.index

    async def sync(
        self,
        watch: SyncCallbacks = NO_CALLBACKS,
        *,
        everything: bool = False,
        only: Collection[str] | None = None,
    ) -> SyncReport:
        """Embed new and changed skills, delete rows of removed ones; `everything` embeds all anew.

        With `only`, no skills but those of these names are looked at. Searches go on meanwhile.
        """
        from apexbridge.retrieval.indexer import sync_index
        from apexbridge.runtime.index_factory import unload_document_model

        opened = await self._open()
        if everything and opened.is_copy:
            raise StorageError("the folder cannot be written to", path=self.path)
        async with self._sync_lock:
            report = await sync_index(
                opened.index,
                self._catalog.snapshot.skills,
                opened.texts,
                watch=watch,
                everything=everything,
                only=only,
            )
            if only is None:
                self._is_synced, opened.old = True, None
                self._has_synced.set()
        if len(report.added) + len(report.redone) >= _MANY_EMBEDDED:
            await unload_document_model(opened.index.embedder)
        self._wake_tagger()
        self._announce(report, is_whole=only is None)
        if report.problem is not None:
            log.info("No embeddings, BM25 only: %s", report.problem)
        return report

    async def sync_at_start(self) -> None:
        """Sync in the background when a server starts; an error is left to the first search."""
        try:
            await self.sync()
        except ApexBridgeError as error:
            log.warning("Cannot update the index at the start: %s", error)

    def _announce(self, report: SyncReport, *, is_whole: bool) -> None:
        """Log the report and emit it as an event; of a sync of some skills, if any has changed."""
        event = IndexSynced(
            kept=len(report.kept),
            added=report.added,
            redone=report.redone,
            removed=report.dropped,
            failed=report.failed,
        )
        if not (is_whole or event.has_changes):
            return
        counts = [len(names) for names in (event.added, event.redone, event.removed, event.failed)]
        log.info(
            "Index: %d kept, %d added, %d redone, %d removed, %d unreadable", event.kept, *counts
        )
        self._emit(event)

    async def reindex(self, names: Collection[str]) -> None:
        """Sync changed skills, if the index is open; otherwise the first search does it."""
        if self._opened is not None:
            await self.sync(only=names)

    async def make_entry(self, skill: Skill, body: str) -> PreparedRow:
        """Embed a skill with this body, without storing it."""
        from apexbridge.retrieval.indexer import make_skill_entry

        opened = await self._open()
        return await make_skill_entry(opened.index, skill, body, opened.texts)

    async def update(self, name: str, entry: PreparedRow | None) -> None:
        """Store the entry of the skill that now has the name, or sync that name without one.

        The entry is stored only if it describes the skill that the catalog lists: an installed
        skill may be disabled, or shadowed by a source of higher precedence.
        """
        if self._opened is None and not self.path.exists():
            return
        from apexbridge.retrieval.base import IndexEntry
        from apexbridge.retrieval.indexer import store_skill_entry

        opened = await self._open()
        skill = self._catalog.snapshot.winner(name)
        if (
            skill is None
            or not isinstance(entry, IndexEntry)
            or opened.texts.fingerprint(skill) != entry.fingerprint
        ):
            await self.sync(only=[name])
            return
        async with self._sync_lock:
            await store_skill_entry(opened.index, skill, entry)
        self._wake_tagger()

    async def run_tagging(self) -> None:
        """Ask the language model for missing tags in the background, until cancelled.

        For long-lived processes. It begins when the index is first opened.
        """
        await self._has_opened.wait()
        tagger = (await self._open()).tagger
        if tagger is not None:
            await tagger.run()

    async def tag_pending(self) -> TagRound | None:
        """Ask the language model for all missing tags now; None without a configured model."""
        tagger = (await self._open()).tagger
        return None if tagger is None else await tagger.run_once()

    async def status(self, *, is_thorough: bool = False) -> IndexStatus:
        """Compare the index with the catalog; `is_thorough` reads every row and samples lookups."""
        opened = await self._open()
        return await opened.status(self._catalog.snapshot.skills, is_thorough=is_thorough)

    async def close(self) -> None:
        """Close embedder, store and model client."""
        await self._stack.aclose()

    def _wake_tagger(self) -> None:
        if self._opened is not None and self._opened.tagger is not None:
            self._opened.tagger.wake()

    async def _open(self) -> "OpenIndex":
        if self._opened is not None:
            return self._opened
        from apexbridge.runtime.index_factory import create_tagger, open_index

        async with self._open_lock:
            if self._opened is None:
                opened = await open_index(
                    self._config,
                    self._catalog,
                    self._stack,
                    path=self.path,
                    usage=self._usage.scores,
                    tags_dir=self._tags_dir,
                )
                opened.tagger = create_tagger(
                    self._config.settings.model,
                    opened,
                    self._catalog,
                    self._stack,
                    tags_dir=self._tags_dir,
                    reindex=self.reindex,
                )
                self._opened = opened
                self._has_opened.set()
            return self._opened
