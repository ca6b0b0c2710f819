"""Trash: uninstalled skills, restorable until they expire.

.trash/OPERATION/about.json            name of the skill, time of its removal, and its state
.trash/OPERATION/NAME/                 its folder
.trash/OPERATION/.versions/            its stored versions
.trash/OPERATION/verdicts-SHA256.json  a scan result of it; `tags-` are its tags
"""

import json
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from apexbridge.errors import SkillNotFoundError
from apexbridge.lifecycle.expiry_clock import ExpiryClock
from apexbridge.lifecycle.source_records import SourceRecord
from apexbridge.paths import commit_dir, create_bytes, storage_errors
from apexbridge.tree_removal import remove_tree

TRASH = ".trash"
_METADATA = "about.json"
_VERSIONS = ".versions"


class SkillMetadata(BaseModel):
    """State, pin and usage of an installed skill."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    is_disabled: bool = False
    pinned: str = ""
    """Content hash of the version that it is pinned to."""
    uses: int = 0
    last_used: float = 0.0
    """Time of the last use, in seconds since the epoch."""
    source: SourceRecord | None = None
    """Where it was installed from, if that is known."""


NO_METADATA = SkillMetadata()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashedSkill:
    """An uninstalled skill that can be restored."""

    operation: str
    name: str
    at: float
    """Time of removal, in seconds since the epoch."""
    metadata: SkillMetadata = NO_METADATA


class Trash:
    """The trash folder of a skill store. Methods block, and raise StorageError."""

    def __init__(self, skills: Path) -> None:
        self._root = skills / TRASH
        self._clock = ExpiryClock(skills.parent)

    def add(self, folder: Path, metadata: SkillMetadata = NO_METADATA) -> TrashedSkill:
        """Move a skill folder into the trash. The rename in here is the commit."""
        entry = TrashedSkill(
            operation=uuid.uuid4().hex, name=folder.name, at=time.time(), metadata=metadata
        )
        target = self._root / entry.operation
        with storage_errors(target), _removed_on_error(target):
            about = {"name": entry.name, "at": entry.at, "metadata": metadata.model_dump()}
            create_bytes(target / _METADATA, json.dumps(about).encode(), mode=0o600)
            commit_dir(folder, target / entry.name)
        return entry

    def folder(self, entry: TrashedSkill) -> Path:
        """Return the folder of a trashed skill."""
        return self._root / entry.operation / entry.name

    def versions(self, entry: TrashedSkill) -> Path:
        """Return the folder for the stored versions of a trashed skill; it may not exist."""
        return self._root / entry.operation / _VERSIONS

    def keep(self, entry: TrashedSkill, path: Path) -> None:
        """Move a file that belongs to a trashed skill beside it."""
        target = self._root / entry.operation / f"{path.parent.name}-{path.name}"
        with storage_errors(target):
            path.rename(target)

    def kept(self, entry: TrashedSkill, folder: Path) -> "list[Path]":
        """Return the files from a folder that were moved beside a trashed skill."""
        return sorted((self._root / entry.operation).glob(f"{folder.name}-*.json"))

    def list(self) -> "tuple[TrashedSkill, ...]":
        """Return every restorable skill, the most recent removal first."""
        entries = [entry for path in self._operations() if (entry := _read_entry(path))]
        return tuple(sorted(entries, key=lambda entry: entry.at, reverse=True))

    def latest(self, name: str) -> TrashedSkill:
        """Return the most recent removal of a name.

        Raises:
            SkillNotFoundError: If there is none, or it has expired.
        """
        entries = self.list()
        for entry in entries:
            if entry.name == name:
                return entry
        raise SkillNotFoundError(name, near=[entry.name for entry in entries][:3])

    def discard(self, entry: TrashedSkill) -> None:
        """Remove what is left of a restored entry; on failure the next recovery does it."""
        with suppress(OSError):
            remove_tree(self._root / entry.operation)

    def purge(self, keep_seconds: float) -> tuple[int, int]:
        """Remove expired and incomplete entries; return how many there were of each."""
        expired = incomplete = 0
        operations = self._operations()
        now = self._clock.now() if operations else 0.0
        for path in operations:
            entry = _read_entry(path)
            if entry is None or now - entry.at > keep_seconds:
                expired += entry is not None
                incomplete += entry is None
                remove_tree(path)
        return expired, incomplete

    def _operations(self) -> "list[Path]":
        try:
            return [*self._root.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []


def _read_entry(path: Path) -> TrashedSkill | None:
    """Read the metadata of an entry; None if it, or the skill folder, is missing or broken."""
    try:
        about = json.loads((path / _METADATA).read_bytes())
        name, at = str(about["name"]), float(about["at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not (path / name).is_dir():
        return None
    try:
        metadata = SkillMetadata.model_validate(about.get("metadata", {}))
    except ValidationError:  # of no use, but the skill can be restored without it
        metadata = NO_METADATA
    return TrashedSkill(operation=path.name, name=name, at=at, metadata=metadata)


@contextmanager
def _removed_on_error(folder: Path) -> Generator[None]:
    """Create a folder, and remove it again if the block raises."""
    folder.mkdir(mode=0o700, parents=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            remove_tree(folder)
        raise
