"""The index of a project's skills: built as settings say, and kept up to date."""

import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread

from apexbridge.catalog.usage import UsageStore
from apexbridge.errors import RetrievalError, StorageError
from apexbridge.lifecycle.indexer import (
    ReadContent,
    ReadContentNow,
    SkillTexts,
    TagPolicy,
    make_skill_entry,
    store_skill_entry,
    sync_index,
)
from apexbridge.lifecycle.tags import ModelTagger, TagStore
from apexbridge.models.openai import OpenAiModel
from apexbridge.retrieval.base import Embedder, IndexEntry, VectorStore
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.results import NO_CALLBACKS, IndexStatus, SyncCallbacks, SyncReport
from apexbridge.settings import Config, IndexSettings
from apexbridge.skills.model import Skill

log = logging.getLogger(__name__)

_USAGE_SECONDS = 10
_SAMPLE_SIZE = 50
"""Entries that a check asks the store itself for."""


class UsageScores:
    """How much each skill is used, between 0 and 1; read from disk every few seconds at most."""

    def __init__(self, store: UsageStore) -> None:
        self._store = store
        self._shares: Mapping[str, float] = {}
        self._read_at = -math.inf

    def shares(self) -> Mapping[str, float]:
        """A use or two lift a skill a little, many lift it ever less."""
        now = time.monotonic()
        if now - self._read_at > _USAGE_SECONDS:
            scores = self._store.scores(time.time())
            self._shares = {name: score / (score + 3) for name, score in scores.items()}
            self._read_at = now
        return self._shares


class IndexService:
    """Opens the index when it is first needed, and closes it at the end."""

    def __init__(
        self,
        loaded: Config,
        skills: Callable[[], Sequence[Skill]],
        read: ReadContent,
        read_at_once: ReadContentNow,
        usage: UsageStore,
    ) -> None:
        self._loaded = loaded
        self._used = UsageScores(usage)
        self._skills = skills
        self._texts = SkillTexts(read=read, read_at_once=read_at_once)
        self._opened: SkillIndex | None = None
        self._old: SkillIndex | None = None
        self._is_synced = False
        self._opening = anyio.Lock()
        self._syncing = anyio.Lock()
        self._stack = AsyncExitStack()
        self._copy: Path | None = None

    @property
    def place(self) -> Path:
        """Where the index lies."""
        kind = self._loaded.settings.index.store
        return self._loaded.data / ("index.lance" if kind == "lance" else "index.db")

    @property
    def size(self) -> int | None:
        """How many entries the index has; None as long as it is not open."""
        return None if self._opened is None else len(self._opened)

    async def index(self) -> SkillIndex:
        """The index, brought up to date once; while that goes on, what there was before."""
        index = self._opened or await self._open()
        if self._syncing.locked():
            return index if self._old is None else self._old
        if not self._is_synced:
            await self.vectorise()
        return index

    async def vectorise(
        self,
        watch: SyncCallbacks = NO_CALLBACKS,
        *,
        everything: bool = False,
        only: Collection[str] | None = None,
    ) -> SyncReport:
        """Scan: skip what is indexed, embed what is not; `everything` embeds all anew.

        With `only`, nothing but the skills of these names is looked at. What is there goes on
        serving meanwhile.

        Raises:
            StorageError: If the index cannot be written.
        """
        index = await self._open()
        if everything and self._copy is not None:
            raise StorageError("the folder cannot be written to", path=self.place)
        async with self._syncing:
            report = await sync_index(
                index,
                self._skills(),
                self._texts,
                watch=watch,
                everything=everything,
                only=only,
            )
            if only is None:
                self._is_synced, self._old = True, None
        if report.problem is not None:
            log.info("Skills are found by words only: %s", report.problem)  # doors say it aloud
        return report

    async def make_entry(self, skill: Skill, body: str) -> IndexEntry:
        """What the index would hold of a skill with this body; nothing is stored.

        Raises:
            RetrievalError: If the embedder fails.
        """
        return await make_skill_entry(await self._open(), skill, body, self._texts)

    async def put_entry(self, skill: Skill, entry: IndexEntry) -> None:
        """Store an entry that was made, and then mark the skill.

        Raises:
            StorageError: If the index cannot be written.
        """
        async with self._syncing:
            await store_skill_entry(await self._open(), skill, entry)

    async def status(self, *, is_thorough: bool = False) -> IndexStatus:
        """How the index stands to the skills; thorough: every entry is read, and some asked for."""
        index = await self._open()
        await index.refresh()
        stored = await index.store.fingerprints()
        wanted = {skill.name: self._texts.fingerprint(skill) for skill in self._skills()}
        problems = list(await index.store.check())
        if is_thorough:
            problems += await _check_self_retrieval(index)
        return IndexStatus(
            embedder=_embedder_id(index.embedder, self._loaded.settings.index),
            dimensions=index.memory.dimensions or index.embedder.dimensions,
            store=self._loaded.settings.index.store,
            path=self.place,
            bytes=await anyio.to_thread.run_sync(_disk_usage, self.place),
            rows=len(stored),
            skills=len(wanted),
            missing=tuple(name for name in wanted if name not in stored),
            stale=tuple(n for n in wanted if n in stored and stored[n] != wanted[n]),
            orphaned=tuple(name for name in stored if name not in wanted),
            problems=tuple(problems),
        )

    async def close(self) -> None:
        """Let go of everything."""
        await self._stack.aclose()

    async def _open(self) -> SkillIndex:
        async with self._opening:
            if self._opened is None:
                self._texts = replace(self._texts, tagging=self._open_tagging())
                embedder = create_embedder(self._loaded.settings.index, self._loaded)
                self._opened = await self._index_of(embedder)
                if not await self._opened.store.fingerprints():
                    self._old = await self._open_old(self._opened)
            return self._opened

    async def _index_of(self, embedder: Embedder) -> SkillIndex:
        chosen = self._loaded.settings.index
        self._stack.push_async_callback(embedder.close)
        identity = await anyio.to_thread.run_sync(_embedder_id, embedder, chosen)
        place = await self._usable_place()
        store = create_vector_store(chosen, place, identity)
        self._stack.push_async_callback(store.close)
        return SkillIndex(embedder, store, usage=self._used.shares)

    async def _usable_place(self) -> Path:
        """Where the index lies; where nothing can be written, a copy that goes with this process.

        Searching writes: what is new is embedded first. A copy lets those search who only read.
        """
        if self._copy is None and not await anyio.to_thread.run_sync(_is_writable, self.place):
            folder = self._stack.enter_context(TemporaryDirectory(prefix="apexbridge-"))
            self._copy = Path(folder) / self.place.name
            await anyio.to_thread.run_sync(_copy_index, self.place, self._copy)
        return self._copy or self.place

    async def _open_old(self, index: SkillIndex) -> SkillIndex | None:
        """What another embedder left here, if that one can still be asked without a network."""
        known = {embedder.id: embedder for embedder in offline_embedders()}
        for identity in await index.store.others():
            if identity in known:
                return await self._index_of(known[identity])
        return None

    def _open_tagging(self) -> TagPolicy:
        chosen = self._loaded.settings.model
        store = TagStore(self._loaded.data / "tags")
        if not (chosen.base_url and chosen.name):
            return TagPolicy(is_on=self._loaded.settings.index.tags, store=store)
        model = OpenAiModel(chosen.base_url, api_key=chosen.api_key.get_secret_value())
        self._stack.push_async_callback(model.close)
        return TagPolicy(
            is_on=self._loaded.settings.index.tags,
            store=store,
            tagger=ModelTagger(model, chosen.name),
        )


def create_embedder(chosen: IndexSettings, loaded: Config) -> Embedder:
    """The embedder that settings name; what it needs is imported here and loaded later still."""
    kind, _, rest = chosen.embedder.partition(":")
    match kind:
        case "hash":
            from apexbridge.retrieval.embedders.hashing import HashEmbedder

            return HashEmbedder()
        case "onnx":
            from apexbridge.retrieval.embedders.onnx import OnnxEmbedder

            folder = loaded.home / rest[2:] if rest.startswith("~/") else loaded.project / rest
            return OnnxEmbedder(folder)
        case "fastembed":
            from apexbridge.retrieval.embedders.fastembed import FastembedEmbedder

            return FastembedEmbedder(rest)
        case "http":
            from apexbridge.retrieval.embedders.http import HttpEmbedder

            return HttpEmbedder(
                chosen.embedder_url,
                chosen.embedder_model,
                api_key=chosen.embedder_key.get_secret_value(),
                dimensions=chosen.embedder_dimensions,
            )
        case "use":
            from apexbridge.retrieval.embedders.use import UseEmbedder

            return UseEmbedder()
        case _:
            from apexbridge.retrieval.embedders.default import DefaultEmbedder

            return DefaultEmbedder()


def offline_embedders() -> list[Embedder]:
    """Those that need nothing but themselves."""
    from apexbridge.retrieval.embedders.default import DefaultEmbedder
    from apexbridge.retrieval.embedders.hashing import HashEmbedder
    from apexbridge.retrieval.embedders.use import UseEmbedder

    return [DefaultEmbedder(), UseEmbedder(), UseEmbedder(is_adapted=False), HashEmbedder()]


def create_vector_store(chosen: IndexSettings, place: Path, embedder_id: str) -> VectorStore:
    """The store that settings name, for one embedder's entries."""
    if chosen.store == "lance":
        from apexbridge.retrieval.stores.lance import LanceStore

        return LanceStore(place, embedder_id)
    from apexbridge.retrieval.stores.sqlite import SqliteStore

    return SqliteStore(place, embedder_id, precision=chosen.precision)


def _embedder_id(embedder: Embedder, chosen: IndexSettings) -> str:
    """An embedder that is not there has no id of its own; its entries are found by words only."""
    try:
        return embedder.id
    except RetrievalError:
        return chosen.embedder


def _is_writable(place: Path) -> bool:
    """Say whether an index can be written here; its folder is made if need be."""
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = [path for path in place.parent.glob(f"{place.name}*") if path.is_file()]
    return all(os.access(path, os.W_OK) for path in (place.parent, *files))


def _copy_index(place: Path, target: Path) -> None:
    """Copy an index with what lies beside it, its log among that, as far as it can be read."""
    with suppress(OSError):
        for path in place.parent.glob(f"{place.name}*"):
            beside = target.with_name(path.name)
            if path.is_dir():
                shutil.copytree(path, beside, copy_function=shutil.copyfile)
            else:
                shutil.copyfile(path, beside)


async def _check_self_retrieval(index: SkillIndex) -> list[str]:
    """A skill whose own vector does not find it in the store is not stored as it should be."""
    problems = list[str]()
    memory = index.memory
    names = sorted(memory.row_of.keys() - memory.pending)
    for name in names[:: max(1, len(names) // _SAMPLE_SIZE)]:
        vector = index.memory.vectors_of(index.memory.row_of[name])[0]
        found = await index.store.nearest(vector, text="", limit=1)
        if not found or found[0].score < 1 - 1e-3:
            problems.append(f"{name} is not found by its own vector")
    return problems


def _disk_usage(place: Path) -> int:
    """What the index takes on disk, with what lies beside it."""
    if place.is_dir():
        return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    return sum(path.stat().st_size for path in place.parent.glob(f"{place.name}*"))
