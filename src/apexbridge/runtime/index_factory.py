"""Open the skill index that settings describe: embedder, vector store, tag policy and tagger.

Imports numpy; `index_service` imports this module when the index is first used.
"""

import hashlib
import os
import shutil
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from apexbridge.catalog.catalog import Catalog
from apexbridge.errors import RetrievalError
from apexbridge.lifecycle.background_tags import BackgroundTagger, TagFailures
from apexbridge.models.openai import OpenAiModel
from apexbridge.retrieval.base import DocumentModelUnloader, Embedder
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.indexer import SkillTexts, TagPolicy, unmarked_skills
from apexbridge.retrieval.model_tags import ModelTagger
from apexbridge.retrieval.results import IndexStatus
from apexbridge.retrieval.tags import TagStore
from apexbridge.runtime.embedder_factory import (
    create_embedder,
    create_vector_store,
    offline_embedders,
)
from apexbridge.settings import Config, IndexSettings
from apexbridge.settings.schema import ModelSettings
from apexbridge.skills.model import Skill

_SAMPLE_SIZE = 50
"""Entries that a thorough check looks up in the vector store."""


@dataclass(slots=True, kw_only=True)
class OpenIndex:
    """An open index with what is needed to keep it in sync."""

    settings: IndexSettings
    path: Path
    index: SkillIndex
    texts: SkillTexts
    is_copy: bool
    """The data folder is read-only, and the index a temporary copy."""
    old: SkillIndex | None = None
    """Rows of another embedder, which serve searches until the first sync is done."""
    tagger: BackgroundTagger | None = None
    """None without a configured language model."""

    async def status(self, skills: Sequence[Skill], *, is_thorough: bool) -> IndexStatus:
        """Compare rows and skills."""
        index = self.index
        await index.refresh()
        stored = await index.store.fingerprints()
        fingerprint = self.texts.fingerprint
        wanted = await to_thread.run_sync(lambda: {s.name: fingerprint(s) for s in skills})
        unmarked = await to_thread.run_sync(unmarked_skills, index, skills)
        problems = list(await index.store.check())
        if is_thorough:
            problems += await _check_self_retrieval(index)
        return IndexStatus(
            embedder=_embedder_id(index.embedder, self.settings),
            dimensions=index.memory.dimensions or index.embedder.dimensions,
            store=self.settings.store,
            path=self.path,
            bytes=await to_thread.run_sync(_disk_usage, self.path),
            rows=len(stored),
            skills=len(wanted),
            missing=tuple(name for name in wanted if name not in stored),
            stale=tuple(n for n in wanted if n in stored and stored[n] != wanted[n]),
            orphaned=tuple(name for name in stored if name not in wanted),
            unmarked=tuple(name for name in wanted if name in stored and name in unmarked),
            problems=tuple(problems),
        )


async def open_index(
    config: Config,
    catalog: Catalog,
    stack: AsyncExitStack,
    *,
    path: Path,
    usage: Callable[[], Mapping[str, float]],
    tags_dir: Path,
) -> OpenIndex:
    """Open the index; `stack` closes embedder, store and model client."""
    chosen = config.settings.index
    actual_path = await _writable_path(path, stack)

    async def open_with(embedder: Embedder) -> SkillIndex:
        stack.push_async_callback(embedder.close)
        identity = await to_thread.run_sync(_embedder_id, embedder, chosen)
        store = create_vector_store(chosen, actual_path, identity)
        stack.push_async_callback(store.close)
        return SkillIndex(embedder, store, usage=usage)

    model = config.settings.model
    policy = TagPolicy(
        is_on=chosen.tags, store=TagStore(tags_dir), model_name=model.name if model.base_url else ""
    )
    texts = SkillTexts(read=catalog.content, read_now=catalog.content_at_once, tags=policy)
    index = await open_with(create_embedder(chosen, config))
    opened = OpenIndex(
        settings=chosen, path=path, index=index, texts=texts, is_copy=actual_path != path
    )
    if not await index.store.fingerprints():
        # Another embedder's rows can serve until the first sync, if it needs no network.
        known = {embedder.id: embedder for embedder in offline_embedders()}
        usable = [known[identity] for identity in await index.store.others() if identity in known]
        opened.old = await open_with(usable[0]) if usable else None
    return opened


async def unload_document_model(embedder: Embedder) -> None:
    """Free the document encoder's memory, if the embedder has a separate one."""
    if isinstance(embedder, DocumentModelUnloader):
        await to_thread.run_sync(embedder.unload_document_model)


def create_tagger(
    chosen: ModelSettings,
    opened: OpenIndex,
    catalog: Catalog,
    stack: AsyncExitStack,
    *,
    tags_dir: Path,
    reindex: Callable[[Collection[str]], Awaitable[object]],
) -> BackgroundTagger | None:
    """Create the background tagger, if tags are on and a language model is configured."""
    policy = opened.texts.tags
    if not (policy.is_on and policy.model_name):
        return None
    model = OpenAiModel(chosen.base_url, api_key=chosen.api_key.get_secret_value())
    stack.push_async_callback(model.close)
    identity = hashlib.sha256(f"{chosen.base_url}\0{chosen.name}".encode()).hexdigest()
    return BackgroundTagger(
        ModelTagger(model, chosen.name),
        policy,
        TagFailures(tags_dir / "failures.json", identity),
        catalog=catalog,
        reindex=reindex,
    )


async def _writable_path(path: Path, stack: AsyncExitStack) -> Path:
    """Return the path of the index; on read-only storage, of a temporary copy.

    A search writes, because it embeds new skills first. The copy lets users search who can only
    read the data folder.
    """
    if await to_thread.run_sync(_is_writable, path):
        return path
    folder = stack.enter_context(TemporaryDirectory(prefix="apexbridge-"))
    copy = Path(folder) / path.name
    await to_thread.run_sync(_copy_index, path, copy)
    return copy


def _embedder_id(embedder: Embedder, chosen: IndexSettings) -> str:
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


async def _check_self_retrieval(index: SkillIndex) -> list[str]:
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
