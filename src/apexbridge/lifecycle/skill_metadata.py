"""Metadata of installed skills, kept outside the folder: state, pin, usage, source, scan results.

They belong to one skill, not to its name: an uninstall moves them to the trash, an undo brings them
back, and the next skill of that name starts without them.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.snapshot import casefold_name
from apexbridge.catalog.usage import UsageStore
from apexbridge.errors import ApexBridgeError, SkillNotFoundError, StorageError
from apexbridge.lifecycle.source_records import SourceRecords
from apexbridge.lifecycle.states import SkillStates
from apexbridge.lifecycle.store import SkillStore
from apexbridge.lifecycle.trash import SkillMetadata, TrashedSkill
from apexbridge.paths import replace_bytes

log = logging.getLogger(__name__)

TAGS_FOLDER = "tags"


class MetadataStore:
    """Reads, clears and restores the metadata of a name. Methods block on the disk."""

    def __init__(
        self,
        store: SkillStore,
        states: SkillStates,
        catalog: Catalog,
        usage: UsageStore,
        sources: SourceRecords,
        folders: tuple[Path, ...],
    ) -> None:
        """Store the parts; `folders` have a JSON file for each content hash."""
        self._store = store
        self._states = states
        self._catalog = catalog
        self._usage = usage
        self._sources = sources
        self._folders = (*folders, store.root.parent / TAGS_FOLDER)

    def read(self, name: str) -> SkillMetadata:
        """Return state, pin, usage and source of a name."""
        count, last = self._usage.get(name)
        return SkillMetadata(
            is_disabled=name in self._states.disabled(),
            pinned=self._states.pinned().get(name, ""),
            uses=count,
            last_used=last,
            source=self._sources.get(name),
        )

    def clear(self, name: str) -> None:
        """Forget state, pin, usage and source of a name that no installed skill has.

        The name stays disabled if another source provides a skill of that name: it was hidden, and
        must not appear because of this.

        Raises:
            StorageError: If the disk refuses.
        """
        self._states.forget(name, keeps_disabled=self._has_other_source(name))
        self._usage.forget(name)
        self._sources.put(name, None)

    def _has_other_source(self, name: str) -> bool:
        with suppress(SkillNotFoundError):
            if not self._catalog.find(name).provenance.writable:
                return True
        folded, shadowed = casefold_name(name), self._catalog.snapshot.shadowed
        return any(casefold_name(skill.name) == folded for skill in shadowed)

    def move_to_trash(self, entry: TrashedSkill, sha256: str) -> None:
        """Clear the name of a skill that was moved to the trash, and move its files after it.

        A storage error does not undo the uninstall: what is left is cleared when the name is
        installed again.
        """
        versions = self._store.versions.created(entry.name)
        try:
            self.clear(entry.name)
            for path in self._files({sha256, *versions}):
                self._store.trash.keep(entry, path)
            self._store.keep_versions(entry)
        except StorageError as error:
            log.warning("Metadata of %s are not cleared: %s", entry.name, error)

    def restore(self, entry: TrashedSkill) -> None:
        """Move a skill back from the trash, with its metadata.

        Raises:
            SkillExistsError: If the name was taken meanwhile.
            StorageError: If the disk refuses.
        """
        files = self._read_kept(entry)
        self.clear(entry.name)
        try:
            self._restore_state(entry)  # first: a disabled skill is never there and enabled
            self._store.restore(entry)
        except ApexBridgeError:
            with suppress(StorageError):
                self.clear(entry.name)
            raise
        # From here on it is back. What cannot be written can be made again.
        with suppress(StorageError):
            for path, data in files.items():
                replace_bytes(path, data)
        if entry.metadata.uses:
            self._usage.restore(entry.name, entry.metadata.uses, entry.metadata.last_used)

    def _restore_state(self, entry: TrashedSkill) -> None:
        metadata = entry.metadata
        if metadata.is_disabled:
            self._states.set_enabled(entry.name, enabled=False)
        if metadata.pinned:
            self._states.pin(entry.name, metadata.pinned)
        if metadata.source is not None:
            self._sources.put(entry.name, metadata.source)

    def _read_kept(self, entry: TrashedSkill) -> dict[Path, bytes]:
        """Read the scan results and tags beside a trashed skill, by the path they had."""
        files = dict[Path, bytes]()
        for folder in self._folders:
            for kept in self._store.trash.kept(entry, folder):
                with suppress(OSError):
                    files[folder / kept.name.removeprefix(f"{folder.name}-")] = kept.read_bytes()
        return files

    def _files(self, hashes: set[str]) -> Iterator[Path]:
        for folder in self._folders:
            for sha256 in sorted(filter(None, hashes)):
                if (path := folder / f"{sha256}.json").is_file():
                    yield path
