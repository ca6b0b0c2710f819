"""The installed skills on disk: each change is one rename, and happens wholly or not at all.

skills/NAME/               a skill that is there; complete since the rename that brought it
skills/.staging/OPERATION/ what is being built; nobody reads it
skills/.trash/OPERATION/   what was taken away, for as long as that can be undone
skills/.versions/NAME/     what a skill was before it was updated: see `kept`
skills/.locks/NAME         held by whoever changes that name, in this process or another
"""

import json
import os
import time
import unicodedata
import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from apexbridge.errors import SkillExistsError, SkillNotFoundError, StorageError
from apexbridge.file_lock import file_lock, try_file_lock
from apexbridge.lifecycle.version_store import VersionStore
from apexbridge.paths import commit_dir, create_bytes, remove_tree, replace_file, storage_errors
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Origin, Provenance, Skill
from apexbridge.skills.parser import read_skill

STAGING, TRASH, LOCKS = ".staging", ".trash", ".locks"
_METADATA = "about.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrashedSkill:
    """A skill that was taken away and can be brought back."""

    operation: str
    name: str
    at: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What a start found left over of earlier operations, and did away with."""

    unfinished: int = 0
    expired: int = 0


def fold_name(name: str) -> str:
    """What two names have in common that no file system everywhere would keep apart."""
    return unicodedata.normalize("NFKC", name).casefold()


class SkillStore:
    """The folder of installed skills. Every method blocks; call them from a thread."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.versions = VersionStore(root)

    def folder(self, name: str) -> Path:
        """Where a skill of that name lies.

        Raises:
            SkillNotFoundError: If there is none, or it is no name of a folder at all.
        """
        if name in self._names():
            return self.root / name
        raise SkillNotFoundError(name)

    def read(self, name: str) -> Skill:
        """The skill of that name, as it lies there now.

        Raises:
            SkillNotFoundError: If there is none that can be read.
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

    def refuse_taken(self, name: str) -> None:
        """Say no if a skill has the name, in whatever letters.

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
    def changing(self, name: str) -> Generator[None]:
        """Be the only one who changes a name, here and in other processes."""
        with file_lock(self.root / LOCKS / fold_name(name)):
            yield

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Keep the recovery of another process from what is only half done."""
        with file_lock(self.root / STAGING / ".lock", is_shared=True):
            yield

    @contextmanager
    def staging(self) -> Generator[Path]:
        """Lend a private folder to build in; what is left in it afterwards is removed."""
        with self.in_use():
            folder = self.root / STAGING / uuid.uuid4().hex
            with storage_errors(folder):
                folder.mkdir(mode=0o700)
            try:
                yield folder
            finally:
                with suppress(OSError):  # the next start sweeps it
                    remove_tree(folder)

    def put(self, staged: Path, name: str) -> Path:
        """Let a built folder be the skill of that name. The rename in here is the commit.

        Raises:
            SkillExistsError: If there is one meanwhile; nothing was changed.
            StorageError: If the disk refuses.
        """
        target = self.root / name
        self.refuse_taken(name)
        try:
            commit_dir(staged, target)
        except StorageError as error:
            if error.code == "path_exists":
                raise SkillExistsError(name=name) from None
            raise
        return target

    def replace_file(self, name: str, data: bytes) -> None:
        """Put new bytes in the place of a skill's SKILL.md; a crash leaves the old or the new.

        Raises:
            StorageError: If the disk refuses.
        """
        target = self.folder(name) / SKILL_MD
        with self.staging() as place, storage_errors(target):
            create_bytes(place / SKILL_MD, data, mode=target.stat().st_mode & 0o777)
            replace_file(target, place / SKILL_MD)

    def take_away(self, name: str) -> TrashedSkill:
        """Move a skill where nobody looks. The rename in here is the commit.

        Raises:
            SkillNotFoundError: If there is none.
            StorageError: If the disk refuses.
        """
        source = self.folder(name)
        gone = TrashedSkill(operation=uuid.uuid4().hex, name=name, at=time.time())
        place = self.root / TRASH / gone.operation
        with self.in_use(), storage_errors(place), _new_folder(place):
            about = {"name": name, "at": gone.at}
            create_bytes(place / _METADATA, json.dumps(about).encode(), mode=0o600)
            commit_dir(source, place / name)
        return gone

    def trashed(self) -> tuple[TrashedSkill, ...]:
        """What can be brought back, the latest first."""
        found = list[TrashedSkill]()
        with suppress(FileNotFoundError):
            for place in (self.root / TRASH).iterdir():
                entry = _read_metadata(place)
                if entry is not None and (place / entry.name).is_dir():
                    found.append(entry)
        return tuple(sorted(found, key=lambda entry: entry.at, reverse=True))

    def last_trashed(self, name: str) -> TrashedSkill:
        """What was taken away last under a name.

        Raises:
            SkillNotFoundError: If nothing of that name was, or too long ago.
        """
        trashed = self.trashed()
        for entry in trashed:
            if entry.name == name:
                return entry
        raise SkillNotFoundError(name, near=[entry.name for entry in trashed][:3])

    def bring_back(self, gone: TrashedSkill) -> None:
        """Undo a removal. The rename in here is the commit.

        Raises:
            SkillExistsError: If another skill has the name by now.
            StorageError: If the disk refuses.
        """
        place = self.root / TRASH / gone.operation
        with self.in_use():
            with storage_errors(place):
                (place / gone.name / tree.MARKER).unlink(missing_ok=True)  # its row is gone
            self.put(place / gone.name, gone.name)
            with suppress(OSError):  # it is back; the next start sweeps the rest
                remove_tree(place)

    def recover(self, *, keep_seconds: float) -> RecoveryReport:
        """Do away with what a crash left unfinished, and with what can no longer be undone.

        While somebody is changing skills this does nothing: the next start will.

        Raises:
            StorageError: If the disk refuses.
        """
        if not (self.root / STAGING).is_dir():  # nothing was ever changed here
            return RecoveryReport()
        with try_file_lock(self.root / STAGING / ".lock") as lock:
            if lock is None:
                return RecoveryReport()
            with storage_errors(self.root):
                unfinished = self._empty_staging()
                unfinished += self.versions.recover()
                expired, broken = self._empty_trash(keep_seconds)
                unfinished += self._drop_claims()
                self.versions.forget_all_but({*self._names(), *(t.name for t in self.trashed())})
        return RecoveryReport(unfinished=unfinished + broken, expired=expired)

    def _drop_claims(self) -> int:
        """Remove empty folders: names that were claimed by somebody who did not get further."""
        dropped = 0
        for name in self._names():
            with suppress(OSError):  # it holds something, as it should
                (self.root / name).rmdir()
                dropped += 1
        return dropped

    def _empty_staging(self) -> int:
        left = [path for path in (self.root / STAGING).iterdir() if path.name != ".lock"]
        for path in left:
            remove_tree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return len(left)

    def _empty_trash(self, keep_seconds: float) -> tuple[int, int]:
        """How many were kept long enough, and how many never came there."""
        expired = broken = 0
        trash = self.root / TRASH
        for place in list(trash.iterdir()) if trash.is_dir() else ():
            entry = _read_metadata(place)
            is_whole = entry is not None and (place / entry.name).is_dir()
            if not is_whole or (entry and time.time() - entry.at > keep_seconds):
                expired += is_whole
                broken += not is_whole
                remove_tree(place)
        return expired, broken


def _is_folder(item: "os.DirEntry[str]") -> bool:
    try:
        return item.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _read_metadata(place: Path) -> TrashedSkill | None:
    try:
        about = json.loads((place / _METADATA).read_bytes())
        return TrashedSkill(operation=place.name, name=str(about["name"]), at=float(about["at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def _new_folder(place: Path) -> Generator[None]:
    """Make a folder to put things in; if they do not get there nothing is left of it."""
    place.mkdir(mode=0o700, parents=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            remove_tree(place)
        raise
