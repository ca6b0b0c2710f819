"""Index service: open the skill index, keep it in sync with the catalog, search and preview it."""

import hashlib
import logging
import os
import shutil
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.usage import UsageScores, UsageStore
from apexbridge.errors import RetrievalError, SkillInvalidError, StorageError
from apexbridge.retrieval.results import (
    NO_CALLBACKS,
    IndexStatus,
    SearchResults,
    SyncCallbacks,
    SyncReport,
)
from apexbridge.settings import Config, IndexSettings
from apexbridge.skills.model import Problem, Skill
from apexbridge.sources.base import SkillSource

if TYPE_CHECKING:  # numpy and the HTTP client are imported when the index is opened
    from apexbridge.evals.interference import DescriptionPreview
    from apexbridge.lifecycle.background_tags import BackgroundTagger, TagRound
    from apexbridge.lifecycle.indexer import SkillTexts, TagPolicy
    from apexbridge.retrieval.base import Embedder, IndexEntry
    from apexbridge.retrieval.index import SkillIndex
    from apexbridge.retrieval.skill_document import SkillText

log = logging.getLogger(__name__)

_SAMPLE_SIZE = 50
"""Entries that a thorough check looks up in the vector store."""


class IndexService:
    """The skill index of a project, opened on first use. Search never waits for a language model.

    Construction is cheap. Only `run_tagging` and `tag_pending` send requests to the language model.
    """

    def __init__(
        self, config: Config, catalog: Catalog, usage: UsageStore, *, tags: Path | None = None
    ) -> None:
        self._config = config
        self._tags_dir = tags or config.data / "tags"
        self._catalog = catalog
        self._usage = UsageScores(usage)
        self._opened: SkillIndex | None = None
        self._old: SkillIndex | None = None
        self._texts: SkillTexts | None = None
        self._tagger: BackgroundTagger | None = None
        self._is_synced = False
        self._has_opened = anyio.Event()
        self._open_lock = anyio.Lock()
        self._sync_lock = anyio.Lock()
        self._stack = AsyncExitStack()
        self._copy: Path | None = None

    @property
    def path(self) -> Path:
        """Path of the index file or folder."""
        kind = self._config.settings.index.store
        return self._config.data / ("index.lance" if kind == "lance" else "index.db")

    @property
    def size(self) -> int | None:
        """Number of rows; None as long as the index is not open."""
        return None if self._opened is None else len(self._opened)

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
        found = await index.search(query, query_en=query_en, query_zh=query_zh, limit=limit)
        # A row that could not be deleted yet must not find an uninstalled skill.
        snapshot = self._catalog.snapshot
        if all(hit.name in snapshot.by_name for hit in found.hits):
            return found
        return replace(found, hits=tuple(hit for hit in found.hits if snapshot.winner(hit.name)))

    async def index(self) -> "SkillIndex":
        """Return the index, synced once; during a full rebuild, the one of the old embedder."""
        index = self._opened or (await self._open())[0]
        if self._sync_lock.locked():
            return index if self._old is None else self._old
        if not self._is_synced:
            await self.sync()
        return index

    async def sync(
        self,
        watch: SyncCallbacks = NO_CALLBACKS,
        *,
        everything: bool = False,
        only: Collection[str] | None = None,
    ) -> SyncReport:
        """Embed new and changed skills, delete rows of removed ones; `everything` embeds all anew.

        With `only`, no skills but those of these names are looked at. Searches go on meanwhile.

        Raises:
            StorageError: If the index cannot be written.
        """
        from apexbridge.lifecycle.indexer import sync_index

        index, texts = await self._open()
        if everything and self._copy is not None:
            raise StorageError("the folder cannot be written to", path=self.path)
        async with self._sync_lock:
            report = await sync_index(
                index,
                self._catalog.snapshot.skills,
                texts,
                watch=watch,
                everything=everything,
                only=only,
            )
            if only is None:
                self._is_synced, self._old = True, None
        self._wake_tagger()
        if report.problem is not None:
            log.info("No embeddings, BM25 only: %s", report.problem)
        return report

    async def reindex(self, names: Collection[str]) -> None:
        """Sync changed skills, if the index is open; otherwise the first search does it."""
        if self._opened is not None:
            await self.sync(only=names)

    async def make_entry(self, skill: Skill, body: str) -> "IndexEntry":
        """Embed a skill with this body, without storing it.

        Raises:
            RetrievalError: If the embedder fails.
        """
        from apexbridge.lifecycle.indexer import make_skill_entry

        index, texts = await self._open()
        return await make_skill_entry(index, skill, body, texts)

    async def update(self, name: str, entry: "IndexEntry | None") -> None:
        """Store the entry of the skill that now has the name, or sync that name without one.

        The entry is stored only if it describes the skill that the catalog lists: an installed
        skill may be disabled, or shadowed by a source of higher precedence.

        Raises:
            StorageError: If the index cannot be written.
        """
        if self._opened is None and not self.path.exists():
            return
        index, texts = await self._open()
        skill = self._catalog.snapshot.winner(name)
        if entry is None or skill is None or texts.fingerprint(skill) != entry.fingerprint:
            await self.sync(only=[name])
            return
        from apexbridge.lifecycle.indexer import store_skill_entry

        async with self._sync_lock:
            await store_skill_entry(index, skill, entry)
        self._wake_tagger()

    async def run_tagging(self) -> None:
        """Ask the language model for missing tags in the background, until cancelled.

        For long-lived processes. It begins when the index is first opened.
        """
        await self._has_opened.wait()
        if self._tagger is not None:
            await self._tagger.run()

    async def tag_pending(self) -> "TagRound | None":
        """Ask the language model for all missing tags now; None without a configured model."""
        await self._open()
        return None if self._tagger is None else await self._tagger.run_once()

    async def preview_description(
        self, name: str, description: str, *, watch: SyncCallbacks = NO_CALLBACKS
    ) -> "DescriptionPreview":
        """Compare the ranks of a skill with those it would have with another description.

        Raises:
            SkillNotFoundError: If there is no such skill.
            SkillInvalidError: If the description is empty.
            EvalInputError: If the skill's saved queries are malformed.
            RetrievalError: If the embedder fails.
        """
        from apexbridge.evals.interference import compare_descriptions
        from apexbridge.evals.trigger_eval import positive_queries

        if not description.strip():
            raise SkillInvalidError(name, [Problem(code="description_empty", where=name)])
        skill = self._catalog.get(name)
        source = self._catalog.source_of(skill).source
        await self.sync(watch)
        index = await self.index()
        old = await self.skill_text(skill, source)
        changed = replace(skill, description=description.strip())
        new = await self.skill_text(changed, source)
        return await compare_descriptions(index, old, new, await positive_queries(source, skill))

    async def skill_text(self, skill: Skill, source: SkillSource) -> "SkillText":
        """Return the text that is indexed of a skill, with keyword tags.

        Stored tags of a model are left out: they belong to the content hash, and a preview
        compares two texts of which one has no hash yet.
        """
        from apexbridge.lifecycle.indexer import SkillTexts, TagPolicy

        policy = TagPolicy(is_on=self._config.settings.index.tags)
        texts = SkillTexts(read=source.content, tags=policy)
        return await texts.item(skill).read()

    async def status(self, *, is_thorough: bool = False) -> IndexStatus:
        """Compare the index with the catalog; `is_thorough` reads every row and samples lookups."""
        index, texts = await self._open()
        await index.refresh()
        stored = await index.store.fingerprints()
        skills = self._catalog.snapshot.skills
        wanted = await to_thread.run_sync(lambda: {s.name: texts.fingerprint(s) for s in skills})
        problems = list(await index.store.check())
        if is_thorough:
            problems += await _check_self_retrieval(index)
        return IndexStatus(
            embedder=_embedder_id(index.embedder, self._config.settings.index),
            dimensions=index.memory.dimensions or index.embedder.dimensions,
            store=self._config.settings.index.store,
            path=self.path,
            bytes=await to_thread.run_sync(_disk_usage, self.path),
            rows=len(stored),
            skills=len(wanted),
            missing=tuple(name for name in wanted if name not in stored),
            stale=tuple(n for n in wanted if n in stored and stored[n] != wanted[n]),
            orphaned=tuple(name for name in stored if name not in wanted),
            problems=tuple(problems),
        )

    async def close(self) -> None:
        """Close embedder, store and model client."""
        await self._stack.aclose()

    def _wake_tagger(self) -> None:
        if self._tagger is not None:
            self._tagger.wake()

    async def _open(self) -> "tuple[SkillIndex, SkillTexts]":
        if self._opened is not None and self._texts is not None:
            return self._opened, self._texts
        from apexbridge.lifecycle.indexer import SkillTexts
        from apexbridge.runtime.embedder_factory import create_embedder

        async with self._open_lock:
            if self._opened is None or self._texts is None:
                catalog = self._catalog
                self._texts = SkillTexts(
                    read=catalog.content,
                    read_now=catalog.content_at_once,
                    tags=self._create_tag_policy(),
                )
                self._tagger = self._create_tagger(self._texts)
                opened = await self._open_index(
                    create_embedder(self._config.settings.index, self._config)
                )
                if not await opened.store.fingerprints():
                    self._old = await self._open_old(opened)
                self._opened = opened
                self._has_opened.set()
            return self._opened, self._texts

    async def _open_index(self, embedder: "Embedder") -> "SkillIndex":
        from apexbridge.retrieval.index import SkillIndex
        from apexbridge.runtime.embedder_factory import create_vector_store

        chosen = self._config.settings.index
        self._stack.push_async_callback(embedder.close)
        identity = await to_thread.run_sync(_embedder_id, embedder, chosen)
        store = create_vector_store(chosen, await self._writable_path(), identity)
        self._stack.push_async_callback(store.close)
        return SkillIndex(embedder, store, usage=self._usage.scores)

    async def _writable_path(self) -> Path:
        """Return the path of the index; on read-only storage, of a temporary copy.

        A search writes, because it embeds new skills first. The copy lets users search who can
        only read the data folder.
        """
        if self._copy is None and not await to_thread.run_sync(_is_writable, self.path):
            folder = self._stack.enter_context(TemporaryDirectory(prefix="apexbridge-"))
            self._copy = Path(folder) / self.path.name
            await to_thread.run_sync(_copy_index, self.path, self._copy)
        return self._copy or self.path

    async def _open_old(self, index: "SkillIndex") -> "SkillIndex | None":
        """Open the rows of another embedder, if that embedder works without a network."""
        from apexbridge.runtime.embedder_factory import offline_embedders

        known = {embedder.id: embedder for embedder in offline_embedders()}
        for identity in await index.store.others():
            if identity in known:
                return await self._open_index(known[identity])
        return None

    def _create_tag_policy(self) -> "TagPolicy":
        from apexbridge.lifecycle.indexer import TagPolicy
        from apexbridge.lifecycle.tags import TagStore

        settings = self._config.settings
        has_model = settings.model.base_url and settings.model.name
        return TagPolicy(
            is_on=settings.index.tags,
            store=TagStore(self._tags_dir),
            model_name=settings.model.name if has_model else "",
        )

    def _create_tagger(self, texts: "SkillTexts") -> "BackgroundTagger | None":
        """Create the background tagger, if tags are on and a language model is configured."""
        policy, chosen = texts.tags, self._config.settings.model
        if not (policy.is_on and policy.model_name):
            return None
        from apexbridge.lifecycle.background_tags import BackgroundTagger, TagFailures
        from apexbridge.lifecycle.model_tags import ModelTagger
        from apexbridge.models.openai import OpenAiModel

        model = OpenAiModel(chosen.base_url, api_key=chosen.api_key.get_secret_value())
        self._stack.push_async_callback(model.close)
        identity = hashlib.sha256(f"{chosen.base_url}\0{chosen.name}".encode()).hexdigest()
        return BackgroundTagger(
            ModelTagger(model, chosen.name),
            policy,
            TagFailures(self._tags_dir / "failures.json", identity),
            skills=self._snapshot_skills,
            read=self._catalog.content,
            reindex=self.reindex,
        )

    def _snapshot_skills(self) -> Sequence[Skill]:
        return self._catalog.snapshot.skills


def _embedder_id(embedder: "Embedder", chosen: IndexSettings) -> str:
    """Return the id of an embedder; one that cannot be loaded goes by its setting."""
    try:
        return embedder.id
    except RetrievalError:
        return chosen.embedder


def _is_writable(path: Path) -> bool:
    """Say whether an index can be written here; creates its folder if needed."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = [file for file in path.parent.glob(f"{path.name}*") if file.is_file()]
    return all(os.access(checked, os.W_OK) for checked in (path.parent, *files))


def _copy_index(path: Path, target: Path) -> None:
    """Copy an index and its write-ahead log, as far as they can be read."""
    with suppress(OSError):
        for part in path.parent.glob(f"{path.name}*"):
            copy = target.with_name(part.name)
            if part.is_dir():
                shutil.copytree(part, copy, copy_function=shutil.copyfile)
            else:
                shutil.copyfile(part, copy)


async def _check_self_retrieval(index: "SkillIndex") -> list[str]:
    """Look up some rows by their own vector: one that is not found is stored wrongly."""
    problems = list[str]()
    memory = index.memory
    names = sorted(memory.row_of.keys() - memory.pending)
    for name in names[:: max(1, len(names) // _SAMPLE_SIZE)]:
        vector = index.memory.vectors_of(index.memory.row_of[name])[0]
        found = await index.store.nearest(vector, text="", limit=1)
        if not found or found[0].score < 1 - 1e-3:
            problems.append(f"{name} is not found by its own vector")
    return problems


def _disk_usage(path: Path) -> int:
    """Return the bytes on disk of an index and its write-ahead log."""
    files = path.rglob("*") if path.is_dir() else path.parent.glob(f"{path.name}*")
    return sum(file.stat().st_size for file in files if file.is_file())
