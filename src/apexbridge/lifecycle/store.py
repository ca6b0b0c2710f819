"""Installed skills on disk: every change commits by one atomic rename.

skills/NAME/               an installed skill; complete since the rename that committed it
skills/.staging/OPERATION/ work in progress that no reader looks into
skills/.trash/OPERATION/   uninstalled skills: see `trash`
skills/.versions/NAME/     earlier versions of a skill: see `version_store`
skills/.locks/NAME         lock file of a name, held by the process that changes it
"""

import os
import unicodedata
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from apexbridge.errors import (
    ApexBridgeError,
    SkillExistsError,
    SkillNotFoundError,
    StorageError,
)
from apexbridge.file_lock import file_lock, try_file_lock
from apexbridge.lifecycle.trash import NO_METADATA, SkillMetadata, Trash, TrashedSkill
from apexbridge.lifecycle.version_store import VersionStore
from apexbridge.paths import commit_dir, create_bytes, replace_file, storage_errors
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Origin, Provenance, Skill
from apexbridge.skills.parser import read_skill
from apexbridge.tree_removal import remove_tree

STAGING, LOCKS = ".staging", ".locks"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """Crash recovery: how many unfinished operations and expired trash entries were removed."""

    unfinished: int = 0
    expired: int = 0


def fold_name(name: str) -> str:
    """Fold a name so that names which collide on some file system become equal."""
    return unicodedata.normalize("NFKC", name).casefold()


class SkillStore:
    """The folder of installed skills. Methods block on the disk, whose errors are StorageErrors."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.versions = VersionStore(root)
        self.trash = Trash(root)

    def folder(self, name: str) -> Path:
        """Return the folder of an installed skill.

        Raises:
            SkillNotFoundError: If there is none, or the name is not a plain folder name.
        """
        # Compared with the directory listing, never joined first: no path traversal by name.
        if name in self._names():
            return self.root / name
        raise SkillNotFoundError(name)

    def read(self, name: str) -> Skill:
        """Parse the installed skill of a name from disk.

        Raises:
            SkillNotFoundError: If there is none that can be parsed.
        """
        provenance = Provenance(
            origin=Origin.INSTALLED,
            source_id=f"{Origin.INSTALLED}:{self.root}",
            needs_trust=False,
            may_run_shell=True,
            writable=True,
        )
        skill = read_skill(self.folder(name), provenance).skill
        if skill is None:
            raise SkillNotFoundError(name)
        return skill

    def check_name_free(self, name: str) -> None:
        """Refuse a name that an installed skill has, ignoring case and Unicode form.

        Raises:
            SkillExistsError: With the name that is there.
        """
        for taken in self._names():
            if fold_name(taken) == fold_name(name):
                raise SkillExistsError(name=taken)

    def _names(self) -> list[str]:
        try:
            with os.scandir(self.root) as items:
                return [i.name for i in items if not i.name.startswith(".") and _is_folder(i)]
        except FileNotFoundError:
            return []

    @contextmanager
    def name_lock(self, name: str) -> Generator[None]:
        """Hold the exclusive lock of a name, across processes."""
        with file_lock(self.root / LOCKS / fold_name(name)):
            yield

    @contextmanager
    def shared_lock(self) -> Generator[None]:
        """Hold the lock that keeps crash recovery from removing unfinished work."""
        with file_lock(self.root / STAGING / ".lock", is_shared=True):
            yield

    @contextmanager
    def staging(self) -> Generator[Path]:
        """Create a private staging folder, removed at the end of the block."""
        with self.shared_lock():
            folder = self.root / STAGING / uuid.uuid4().hex
            with storage_errors(folder):
                folder.mkdir(mode=0o700)
            try:
                yield folder
            finally:
                with suppress(OSError):  # recovery at the next start removes it
                    remove_tree(folder)

    def install(self, staged: Path, name: str) -> Path:
        """Move a staged folder into place. The rename in here is the commit.

        Raises:
            SkillExistsError: If the name was taken meanwhile; nothing was changed.
            StorageError: If the disk refuses.
        """
        self.check_name_free(name)
        self._clear_versions(name)
        return self._commit(staged, name)

    def _commit(self, staged: Path, name: str) -> Path:
        target = self.root / name
        try:
            commit_dir(staged, target)
        except StorageError as error:
            if error.code == "path_exists":
                raise SkillExistsError(name=name) from None
            raise
        return target

    def replace_skill_md(self, name: str, data: bytes) -> None:
        """Replace SKILL.md atomically: after a crash it is the old file or the new one."""
        target = self.folder(name) / SKILL_MD
        with self.staging() as folder, storage_errors(target):
            create_bytes(folder / SKILL_MD, data, mode=target.stat().st_mode & 0o777)
            replace_file(target, folder / SKILL_MD)

    def uninstall(self, name: str, metadata: SkillMetadata = NO_METADATA) -> TrashedSkill:
        """Move a skill to the trash, with its metadata.

        Raises:
            SkillNotFoundError: If there is none.
            StorageError: If the disk refuses.
        """
        with self.shared_lock():
            return self.trash.add(self.folder(name), metadata)

    def keep_versions(self, entry: TrashedSkill) -> None:
        """Move the stored versions of a trashed skill beside it."""
        target = self.trash.versions(entry)
        with storage_errors(target):
            self.versions.move(entry.name, target)

    def _clear_versions(self, name: str) -> None:
        """Move or delete what a crash left of the versions of another skill of this name."""
        if not self.versions.created(name):
            return
        entries = (entry for entry in self.trash.list() if entry.name == name)
        former = next((e for e in entries if not self.trash.versions(e).exists()), None)
        with storage_errors(self.root):
            if former is None:
                self.versions.discard(name)
            else:
                self.versions.move(name, self.trash.versions(former))

    def restore(self, entry: TrashedSkill) -> None:
        """Move a skill from the trash back into place. The second rename in here is the commit.

        Raises:
            SkillExistsError: If the name was taken meanwhile; nothing was changed.
            StorageError: If the disk refuses.
        """
        folder = self.trash.folder(entry)
        with self.shared_lock():
            self.check_name_free(entry.name)
            self._clear_versions(entry.name)
            with storage_errors(folder):
                (folder / tree.MARKER).unlink(missing_ok=True)  # its index row was deleted
            try:
                # Before the commit: the recovery after a crash finds the skill still in the trash.
                with storage_errors(folder):
                    self.versions.take_back(entry.name, self.trash.versions(entry))
                self._commit(folder, entry.name)
            except ApexBridgeError:
                with suppress(StorageError):
                    self._clear_versions(entry.name)
                raise
            self.trash.discard(entry)

    def recover(self, *, keep_seconds: float) -> RecoveryReport:
        """Crash recovery: remove unfinished operations and expired trash.

        It does nothing while any process is changing skills: a later start will.
        """
        if not (self.root / STAGING).is_dir():  # nothing was ever changed here
            return RecoveryReport()
        with try_file_lock(self.root / STAGING / ".lock") as lock:
            if lock is None:
                return RecoveryReport()
            with storage_errors(self.root):
                unfinished = self._empty_staging()
                unfinished += self.versions.recover()
                expired, incomplete = self.trash.purge(keep_seconds)
                unfinished += self._remove_empty_folders()
                trashed = {entry.name for entry in self.trash.list()}
                for name in trashed.difference(self._names()):
                    self._clear_versions(name)
                self.versions.keep_only(self._names())
        return RecoveryReport(unfinished=unfinished + incomplete, expired=expired)

    def _remove_empty_folders(self) -> int:
        """Remove names that an install reserved before it was killed."""
        removed = 0
        for name in self._names():
            with suppress(OSError):  # not empty, as it should be
                (self.root / name).rmdir()
                removed += 1
        return removed

    def _empty_staging(self) -> int:
        left = [path for path in (self.root / STAGING).iterdir() if path.name != ".lock"]
        for path in left:
            remove_tree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return len(left)


def _is_folder(item: "os.DirEntry[str]") -> bool:
    try:
        return item.is_dir(follow_symlinks=False)
    except OSError:
        return False
