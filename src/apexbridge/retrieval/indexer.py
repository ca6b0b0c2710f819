"""Index sync of skills: skip unchanged rows, embed new ones, re-embed what differs.

The folder is the source of truth. A skill is skipped if its row has the folder's fingerprint and,
for an installed skill, the `.vectorized` marker agrees; anything else is embedded again. The marker
is written after the row is durable, so a marker implies a row. No language model is called here:
tags are keywords, or what `background_tags` has stored before.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from anyio import to_thread

from apexbridge.errors import SkillNotInvocableError, StorageError
from apexbridge.retrieval import skill_document
from apexbridge.retrieval.base import IndexEntry
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.results import NO_CALLBACKS, SyncCallbacks, SyncReport
from apexbridge.retrieval.skill_document import SkillText
from apexbridge.retrieval.sync import IndexItem, make_entry, sync
from apexbridge.retrieval.tags import MAX_TAG, MAX_TAGS, Tags, TagStore, keyword_tags
from apexbridge.retrieval.vectorized_marker import Marker, has_marker, write_marker
from apexbridge.skills.model import Skill, SkillContent

log = logging.getLogger(__name__)

ReadContent = Callable[[Skill], Awaitable[SkillContent]]
ReadContentNow = Callable[[Skill], SkillContent | None]
"""Reads on the calling thread; None if the source needs the event loop (MCP, HTTP)."""


def _never_now(_: Skill) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TagPolicy:
    """Source of a skill's tags: none, keywords of its text, or stored tags of a language model."""

    is_on: bool = True
    store: TagStore | None = None
    model_name: str = ""
    """The configured language model; without one, tags are keywords."""

    def uses_model(self, skill: Skill) -> bool:
        """Say whether a language model tags this skill: only installed ones, never a stranger's."""
        has_model = self.is_on and self.store is not None and bool(self.model_name)
        return has_model and skill.provenance.writable and skill.fingerprint is not None

    def stored(self, skill: Skill) -> Tags | None:
        """Return the model's tags for the skill's content hash, if it has answered before."""
        if self.store is None or skill.fingerprint is None or not self.uses_model(skill):
            return None
        return self.store.get(skill.fingerprint.sha256)

    def is_missing(self, skill: Skill) -> bool:
        """Say whether the language model has yet to tag the skill's content."""
        return self.uses_model(skill) and self.stored(skill) is None

    def origin(self, skill: Skill) -> str:
        """Describe the source of the tags, for the row's fingerprint: other tags, another row."""
        if not self.is_on:
            return "none"
        return "text" if self.stored(skill) is None else f"model {self.model_name}"

    def tags(self, skill: Skill, text: SkillText) -> Tags:
        """Return the stored tags of the model, or else keywords; the author's own come first."""
        if not self.is_on:
            return Tags(tags=())
        declared = declared_tags(skill)
        stored = self.stored(skill)
        if stored is None:
            return keyword_tags(
                name=text.name, summary=text.summary, body=text.body, declared=declared
            )
        # The author's tags outrank the model's when the limit cuts the list.
        every = dict.fromkeys((*(tag for tag in declared if len(tag) <= MAX_TAG), *stored.tags))
        return replace(stored, tags=tuple(every)[:MAX_TAGS])


NO_TAGS = TagPolicy(is_on=False)


def declared_tags(skill: Skill) -> tuple[str, ...]:
    """Return the author's tags, keywords, triggers and category, also those in `metadata`."""
    extra: Mapping[str, object] = skill.manifest.model_extra or {}
    found = list[str]()
    for fields in (extra, skill.manifest.metadata):
        for key in ("tags", "keywords", "triggers", "category"):
            value = fields.get(key)
            parts = value if isinstance(value, list) else str(value or "").split(",")  # pyright: ignore[reportUnknownVariableType]
            found += [str(part).strip(" \t\"'[]") for part in parts]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return tuple(dict.fromkeys(tag for tag in found if tag))


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillTexts:
    """Reads the texts of skills and combines them with their tags."""

    read: ReadContent
    read_now: ReadContentNow = _never_now
    tags: TagPolicy = NO_TAGS

    def item(self, skill: Skill) -> IndexItem:
        """Describe a skill for the index sync."""
        return IndexItem(
            name=skill.name,
            fingerprint=self.fingerprint(skill),
            read=partial(self._read, skill),
            read_at_once=partial(self._read_now, skill),
        )

    def fingerprint(self, skill: Skill) -> str:
        """Hash the state of a skill that a row stands for: content, tags, document version."""
        content = skill.fingerprint.sha256 if skill.fingerprint else skill.summary
        version = f"v{skill_document.DOCUMENT_VERSION}"
        parts = (version, skill.name, content, self.tags.origin(skill))
        return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()

    async def _read(self, skill: Skill) -> SkillText:
        try:
            content = await self.read(skill)
        except SkillNotInvocableError as error:
            if error.code != "argument_missing":
                raise
            # A prompt has no text before its arguments are known: what the server lists is indexed.
            content = SkillContent(skill=skill, body=_argument_names(skill))
        return await to_thread.run_sync(self.text, skill, content)

    def _read_now(self, skill: Skill) -> SkillText | None:
        content = self.read_now(skill)
        return content and self.text(skill, content)

    def text(self, skill: Skill, content: SkillContent) -> SkillText:
        """Combine body and tags of a skill into the text that is indexed."""
        text = SkillText(name=skill.name, summary=skill.summary, body=content.body)
        tags = self.tags.tags(skill, text)
        return replace(text, tags=tags.tags, other_language=tags.other_language)


def _argument_names(skill: Skill) -> str:
    """Return the names of a skill's arguments as words."""
    return ", ".join(name.replace("_", " ") for name in skill.manifest.arguments)


async def sync_index(
    index: SkillIndex,
    skills: Sequence[Skill],
    texts: SkillTexts,
    *,
    watch: SyncCallbacks = NO_CALLBACKS,
    everything: bool = False,
    only: Collection[str] | None = None,
) -> SyncReport:
    """Bring rows and markers up to date with the skills; `everything` embeds all of them anew.

    With `only`, no skills but those of these names are looked at.

    Raises:
        StorageError: If the index cannot be written.
    """
    if only is not None:
        skills = [skill for skill in skills if skill.name in only]
    managed = {skill.name: skill for skill in skills if _is_managed(skill)}
    markers = _Markers(index.store.embedder_id, managed)

    def plan() -> tuple[set[str], list[IndexItem]]:
        return markers.outdated(), [texts.item(skill) for skill in skills]

    again, items = await to_thread.run_sync(plan)  # reads markers and stored tags
    if everything:
        again = {item.name for item in items}

    async def stored(names: Sequence[str]) -> None:
        await watch.stored(names)
        await to_thread.run_sync(markers.write, names)

    callbacks = SyncCallbacks(progress=watch.progress, stored=stored)
    return await sync(index, items, again=again, only=only, watch=callbacks)


def unmarked_skills(index: SkillIndex, skills: Sequence[Skill]) -> set[str]:
    """Return the installed skills whose marker is missing or of another state; reads files."""
    managed = {skill.name: skill for skill in skills if _is_managed(skill)}
    return _Markers(index.store.embedder_id, managed).outdated()


async def make_skill_entry(
    index: SkillIndex, skill: Skill, body: str, texts: SkillTexts
) -> IndexEntry:
    """Embed a skill with this body and store nothing.

    Raises:
        RetrievalError: If the embedder fails.
    """
    read = partial(texts.text, skill, SkillContent(skill=skill, body=body))
    return await make_entry(index, texts.item(skill), read)


async def store_skill_entry(index: SkillIndex, skill: Skill, entry: IndexEntry) -> None:
    """Upsert the row of a skill, then write its marker.

    Raises:
        StorageError: If the index cannot be written.
    """
    await index.store.upsert([entry])
    await index.refresh()
    markers = _Markers(index.store.embedder_id, {skill.name: skill})
    await to_thread.run_sync(markers.write, [skill.name])


def _is_managed(skill: Skill) -> bool:
    """Say whether a skill folder gets a marker: no file is written into foreign repositories."""
    return skill.provenance.writable and skill.root is not None and skill.fingerprint is not None


@dataclass(frozen=True, slots=True)
class _Markers:
    """The `.vectorized` markers of installed skills, for one embedder."""

    embedder: str
    skills: Mapping[str, Skill]

    def _expected(self, skill: Skill) -> Marker | None:
        if skill.fingerprint is None:
            return None
        generation = f"v{skill_document.DOCUMENT_VERSION}"
        return Marker.from_fingerprint(
            skill.fingerprint, embedder=self.embedder, generation=generation
        )

    def outdated(self) -> set[str]:
        """Return the skills whose marker is missing, broken, forged or of another state."""
        return {name for name, skill in self.skills.items() if not self._is_current(skill)}

    def _is_current(self, skill: Skill) -> bool:
        marker = self._expected(skill)
        return marker is None or skill.root is None or has_marker(skill.root, marker)

    def write(self, names: Sequence[str]) -> None:
        """Write the markers of durable rows; on failure the skill is only embedded again."""
        for name in names:
            skill = self.skills.get(name)
            marker = self._expected(skill) if skill else None
            if skill is None or skill.root is None or marker is None:
                continue
            if has_marker(skill.root, marker):
                continue  # a crash during a needless rewrite would cost one embedding
            try:
                write_marker(skill.root, marker)
            except StorageError as error:
                log.warning("%s cannot be marked: %s", name, error)
