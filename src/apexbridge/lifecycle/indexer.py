"""The start-up scan: skip what is in the index, embed what is not, redo what differs.

The folder is the truth. A skill is skipped when its row has the folder's fingerprint and, where the
skill is ours to mark, its marker says the same; anything else is embedded again. The marker is
written after the row is durable, so a marker implies a row.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import anyio.to_thread

from apexbridge.errors import ModelError, StorageError
from apexbridge.lifecycle.tags import MAX_TAG, MAX_TAGS, ModelTagger, Tags, TagStore, keyword_tags
from apexbridge.lifecycle.vectorized_marker import Marker, has_marker, write_marker
from apexbridge.retrieval import skill_document
from apexbridge.retrieval.base import IndexEntry
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.results import NO_CALLBACKS, SyncCallbacks, SyncReport
from apexbridge.retrieval.skill_document import SkillText
from apexbridge.retrieval.sync import IndexItem, make_entry, sync
from apexbridge.skills.model import Skill, SkillContent

log = logging.getLogger(__name__)

ReadContent = Callable[[Skill], Awaitable[SkillContent]]
ReadContentNow = Callable[[Skill], SkillContent | None]
"""On a thread, where nothing must be waited for; else nothing."""


def _never_now(_: Skill) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TagPolicy:
    """Where a skill's tags come from: nowhere, its own text, or the model that made them once."""

    is_on: bool = True
    store: TagStore | None = None
    tagger: ModelTagger | None = None

    def way(self, skill: Skill) -> str:
        """Part of the fingerprint: tags made another way make another entry."""
        if not self.is_on:
            return "none"
        asks = self.asks_for(skill)
        return f"model {self.tagger.model_name}" if self.tagger and asks else "text"

    def asks_for(self, skill: Skill) -> bool:
        """Whether a model makes the tags of this skill."""
        has_model = self.is_on and self.tagger is not None and self.store is not None
        return has_model and skill.provenance.writable

    def lacks(self, skill: Skill) -> bool:
        """Whether the model is still to be asked, because it could not answer before."""
        if self.store is None or not self.asks_for(skill):
            return False
        return skill.fingerprint is not None and self.store.get(skill.fingerprint.sha256) is None

    def mined(self, skill: Skill, body: str) -> Tags:
        """The tags that the skill's own text gives."""
        if not self.is_on:
            return Tags(tags=())
        declared = declared_tags(skill)
        return keyword_tags(name=skill.name, summary=skill.summary, body=body, declared=declared)

    async def tags(self, skill: Skill, body: str) -> Tags:
        """The tags of a skill; a model that cannot answer is no obstacle."""
        mined, declared = self.mined(skill, body), declared_tags(skill)
        if not self.asks_for(skill) or self.store is None or skill.fingerprint is None:
            return mined
        known = await anyio.to_thread.run_sync(self.store.get, skill.fingerprint.sha256)
        if known is None and self.tagger is not None:
            try:
                known = await self.tagger.tags(name=skill.name, summary=skill.summary, body=body)
                await anyio.to_thread.run_sync(self.store.put, skill.fingerprint.sha256, known)
            except (ModelError, StorageError) as error:
                log.warning("%s gets no tags from the model: %s", skill.name, error)
        if known is None:
            return mined
        every = dict.fromkeys((*(tag for tag in declared if len(tag) <= MAX_TAG), *known.tags))
        return replace(known, tags=tuple(every)[:MAX_TAGS])


NO_TAGS = TagPolicy(is_on=False)


def declared_tags(skill: Skill) -> tuple[str, ...]:
    """What the author called tags or keywords, in the frontmatter or its `metadata`."""
    extra: Mapping[str, object] = skill.manifest.model_extra or {}
    found = list[str]()
    for place in (extra, skill.manifest.metadata):
        for key in ("tags", "keywords"):
            value = place.get(key)
            parts = value if isinstance(value, list) else str(value or "").split(",")  # pyright: ignore[reportUnknownVariableType]
            found += [str(part).strip(" \t\"'[]") for part in parts]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return tuple(dict.fromkeys(tag for tag in found if tag))


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillTexts:
    """Where the texts of skills come from."""

    read: ReadContent
    read_at_once: ReadContentNow = _never_now
    tagging: TagPolicy = NO_TAGS

    def item(self, skill: Skill) -> IndexItem:
        """A skill as the index takes it."""
        return IndexItem(
            name=skill.name,
            fingerprint=self.fingerprint(skill),
            read=partial(self._of, skill),
            read_at_once=partial(self._at_once, skill),
        )

    def fingerprint(self, skill: Skill) -> str:
        """Names the state of a skill that an entry stands for."""
        content = skill.fingerprint.sha256 if skill.fingerprint else skill.summary
        parts = (
            f"v{skill_document.DOCUMENT_VERSION}",
            skill.name,
            content,
            self.tagging.way(skill),
        )
        return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()

    async def _of(self, skill: Skill) -> SkillText:
        content = await self.read(skill)
        return _skill_text(skill, content, await self.tagging.tags(skill, content.body))

    def _at_once(self, skill: Skill) -> SkillText | None:
        content = None if self.tagging.asks_for(skill) else self.read_at_once(skill)
        return content and _skill_text(skill, content, self.tagging.mined(skill, content.body))


def _skill_text(skill: Skill, content: SkillContent, tags: Tags) -> SkillText:
    return SkillText(
        name=skill.name,
        summary=skill.summary,
        body=content.body,
        tags=tags.tags,
        other_language=tags.other_language,
    )


async def sync_index(
    index: SkillIndex,
    skills: Sequence[Skill],
    texts: SkillTexts,
    *,
    watch: SyncCallbacks = NO_CALLBACKS,
    everything: bool = False,
    only: Collection[str] | None = None,
) -> SyncReport:
    """Bring index and markers up to date with the skills; `everything` makes all entries anew.

    With `only`, nothing but the skills of these names is looked at.

    Raises:
        StorageError: If the index cannot be written.
    """
    if only is not None:
        skills = [skill for skill in skills if skill.name in only]
    ours = {skill.name: skill for skill in skills if _is_managed(skill)}
    markers = _Markers(index.store.embedder_id, ours)
    again = await anyio.to_thread.run_sync(markers.wrong)
    lacking = await anyio.to_thread.run_sync(
        lambda: {s.name for s in skills if texts.tagging.lacks(s)}
    )
    items = [texts.item(skill) for skill in skills]
    if everything:
        again = {item.name for item in items}

    async def stored(names: Sequence[str]) -> None:
        await watch.stored(names)
        await anyio.to_thread.run_sync(markers.write, names)

    return await sync(
        index,
        items,
        again=again | lacking,
        only=only,
        watch=SyncCallbacks(progress=watch.progress, stored=stored),
    )


async def make_skill_entry(
    index: SkillIndex, skill: Skill, body: str, texts: SkillTexts
) -> IndexEntry:
    """What the index would hold of a skill; nothing is stored.

    Raises:
        RetrievalError: If the embedder fails.
    """

    async def read(_: Skill) -> SkillContent:
        return SkillContent(skill=skill, body=body)

    return await make_entry(index, replace(texts, read=read).item(skill))


async def store_skill_entry(index: SkillIndex, skill: Skill, entry: IndexEntry) -> None:
    """Store what was made of a skill, and then mark it.

    Raises:
        StorageError: If the index cannot be written.
    """
    await index.store.upsert([entry])
    await index.refresh()
    markers = _Markers(index.store.embedder_id, {skill.name: skill})
    await anyio.to_thread.run_sync(markers.write, [skill.name])


def _is_managed(skill: Skill) -> bool:
    """Only folders that we manage are marked: nobody else's repository gets a file of ours."""
    return skill.provenance.writable and skill.root is not None and skill.fingerprint is not None


@dataclass(frozen=True, slots=True)
class _Markers:
    embedder: str
    skills: Mapping[str, Skill]

    def _right(self, skill: Skill) -> Marker | None:
        if skill.fingerprint is None:
            return None
        generation = f"v{skill_document.DOCUMENT_VERSION}"
        return Marker.of(skill.fingerprint, embedder=self.embedder, generation=generation)

    def wrong(self) -> set[str]:
        """The skills whose marker is missing, broken, forged or of another state."""
        return {name for name, skill in self.skills.items() if not self._is_right(skill)}

    def _is_right(self, skill: Skill) -> bool:
        marker = self._right(skill)
        return marker is None or skill.root is None or has_marker(skill.root, marker)

    def write(self, names: Sequence[str]) -> None:
        """Mark skills whose rows are durable; a folder that refuses is only scanned again."""
        for name in names:
            skill = self.skills.get(name)
            marker = self._right(skill) if skill else None
            if skill is None or skill.root is None or marker is None:
                continue
            if has_marker(skill.root, marker):
                continue  # nothing would take up what a kill left of a needless write
            try:
                write_marker(skill.root, marker)
            except StorageError as error:
                log.warning("%s cannot be marked: %s", name, error)
