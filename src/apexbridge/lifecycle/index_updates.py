"""Index updates of a change: make the entry before the commit, store it once after the commit."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from apexbridge.catalog.catalog import Catalog
from apexbridge.errors import ModelError, RetrievalError, SkillInvalidError, StorageError
from apexbridge.events import ChangeCause
from apexbridge.skills.model import Origin, Problem, Skill
from apexbridge.skills.parser import parse_document, read_skill_file

log = logging.getLogger(__name__)


class PreparedRow(Protocol):
    """A row that is ready to be stored. Its vectors stay opaque here, to import no numpy."""

    @property
    def fingerprint(self) -> str:
        """Hash of the skill state that the row stands for."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TagRound:
    """Result of one explicit pass over all untagged skills."""

    tagged: tuple[str, ...]
    left: int
    error: ModelError | None = None


class SkillIndexer(Protocol):
    """Embeds a skill and writes its row; implemented by the runtime's index service."""

    async def make_entry(self, skill: Skill, body: str) -> PreparedRow:
        """Embed a skill with this body, without storing it; raises RetrievalError."""
        ...

    async def update(self, name: str, entry: PreparedRow | None) -> None:
        """Store the entry of the skill that now has the name, or sync that name without one."""
        ...


@dataclass(frozen=True, slots=True)
class PreparedEntry:
    """An index entry made before the commit; without one, the error that the embedder raised."""

    entry: PreparedRow | None = None
    error: RetrievalError | None = None


NO_ENTRY = PreparedEntry()


class IndexUpdates:
    """Keeps catalog and index in step with the installed skills."""

    def __init__(self, root: Path, catalog: Catalog, indexer: SkillIndexer) -> None:
        self._source_id = f"{Origin.INSTALLED}:{root}"
        self._catalog = catalog
        self._indexer = indexer

    async def prepare(self, skill: Skill, skill_md: bytes) -> PreparedEntry:
        """Embed a skill before anything is changed; an embedder that is down does not block it."""
        try:
            body = parse_body(skill_md, skill.name)
            return PreparedEntry(await self._indexer.make_entry(skill, body))
        except RetrievalError as error:
            return PreparedEntry(error=error)

    async def commit(
        self, name: str, cause: ChangeCause, prepared: PreparedEntry = NO_ENTRY
    ) -> None:
        """Refresh the catalog, then write row and marker of what was just committed on disk.

        A storage error here does not undo the change: the next index sync repairs the row.
        """
        try:
            await self.refresh(cause)
            await self._indexer.update(name, prepared.entry)
        except StorageError as error:
            log.warning("The index is behind at %s: %s", name, error)

    async def refresh(self, cause: ChangeCause) -> None:
        """Scan the folder of installed skills again."""
        await self._catalog.refresh([self._source_id], cause=cause)


def read_skill_md(root: Path) -> bytes:
    """Read the bytes of a skill's SKILL.md.

    Raises:
        SkillInvalidError: If it cannot be read.
    """
    file = read_skill_file(root)
    if isinstance(file, Problem):
        raise SkillInvalidError(root.name, [file])
    return file.data


def parse_body(data: bytes, name: str) -> str:
    """Return the Markdown body below the frontmatter of a SKILL.md.

    Raises:
        SkillInvalidError: If it cannot be parsed.
    """
    document = parse_document(data)
    if isinstance(document, Problem):
        raise SkillInvalidError(name, [document])
    return document[0].body
