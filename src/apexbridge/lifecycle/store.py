"""The installed skills on disk: each change is one rename, and happens wholly or not at all.

skills/NAME/               a skill that is there; complete since the rename that brought it
skills/.staging/OPERATION/ what is being built; nobody reads it
skills/.trash/OPERATION/   what was taken away, for as long as that can be undone
skills/.locks/NAME         held by whoever changes that name, in this process or another
"""

import fcntl
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
from apexbridge.paths import commit_folder, create_bytes, fsync_folder, remove_tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Origin, Provenance, Skill
from apexbridge.skills.reader import read_skill

STAGING, TRASH, LOCKS = ".staging", ".trash", ".locks"
_ABOUT = "about.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trashed:
    """A skill that was taken away and can be brought back."""

    operation: str
    name: str
    at: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What a start found left over of earlier operations, and did away with."""

    unfinished: int = 0
    expired: int = 0


def folded(name: str) -> str:
    """What two names have in common that no file system everywhere would keep apart."""
    return unicodedata.normalize("NFKC", name).casefold()


class SkillStore:
    """The folder of installed skills. Every method blocks; call them from a thread."""

    def __init__(self, root: Path) -> None:
        self.root = root

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
            if folded(taken) == folded(name):
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
        place = self._ready(LOCKS)
        with _locked(place / folded(name), fcntl.LOCK_EX):
            yield

    @contextmanager
    def staging(self) -> Generator[Path]:
        """Lend a private folder to build in; what is left in it afterwards is removed."""
        place = self._ready(STAGING)
        with _locked(place / ".lock", fcntl.LOCK_SH):  # recovery leaves alone what is in use
            folder = place / uuid.uuid4().hex
            folder.mkdir(mode=0o700)
            try:
                yield folder
            finally:
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
            commit_folder(staged, target)
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
        with self.staging() as place, _as_storage(target):
            create_bytes(place / SKILL_MD, data, mode=target.stat().st_mode & 0o777)
            (place / SKILL_MD).replace(target)
            fsync_folder(target.parent)

    def take_away(self, name: str) -> Trashed:
        """Move a skill where nobody looks. The rename in here is the commit.

        Raises:
            SkillNotFoundError: If there is none.
            StorageError: If the disk refuses.
        """
        source = self.folder(name)
        gone = Trashed(operation=uuid.uuid4().hex, name=name, at=time.time())
        place = self._ready(TRASH) / gone.operation
        with _as_storage(place):
            place.mkdir(mode=0o700)
            about = {"name": name, "at": gone.at}
            create_bytes(place / _ABOUT, json.dumps(about).encode(), mode=0o600)
        commit_folder(source, place / name)
        return gone

    def trashed(self) -> tuple[Trashed, ...]:
        """What can be brought back, the latest first."""
        found = list[Trashed]()
        with suppress(FileNotFoundError):
            for place in (self.root / TRASH).iterdir():
                entry = _read_about(place)
                if entry is not None and (place / entry.name).is_dir():
                    found.append(entry)
        return tuple(sorted(found, key=lambda entry: entry.at, reverse=True))

    def bring_back(self, name: str) -> Trashed:
        """Undo the last removal of a name. The rename in here is the commit.

        Raises:
            SkillNotFoundError: If nothing of that name was taken away, or too long ago.
            SkillExistsError: If another skill has the name by now.
        """
        for entry in self.trashed():
            if entry.name == name:
                place = self.root / TRASH / entry.operation
                self.put(place / name, name)
                remove_tree(place)
                return entry
        raise SkillNotFoundError(name, near=[entry.name for entry in self.trashed()][:3])

    def recover(self, *, keep_seconds: float) -> Recovered:
        """Do away with what a crash left unfinished, and with what can no longer be undone."""
        if not self.root.is_dir():
            return Recovered()
        unfinished = self._empty_staging()
        expired = 0
        with suppress(FileNotFoundError):
            for place in list((self.root / TRASH).iterdir()):
                entry = _read_about(place)
                is_whole = entry is not None and (place / entry.name).is_dir()
                if not is_whole or (entry and time.time() - entry.at > keep_seconds):
                    expired += is_whole
                    unfinished += not is_whole
                    remove_tree(place)
        return Recovered(unfinished=unfinished, expired=expired)

    def _empty_staging(self) -> int:
        place = self.root / STAGING
        if not place.is_dir():
            return 0
        try:
            with _locked(place / ".lock", fcntl.LOCK_EX | fcntl.LOCK_NB):
                left = [path for path in place.iterdir() if path.name != ".lock"]
                for path in left:
                    remove_tree(path) if path.is_dir() else path.unlink(missing_ok=True)
                return len(left)
        except BlockingIOError:  # somebody is building there right now
            return 0

    def _ready(self, place: str) -> Path:
        folder = self.root / place
        with _as_storage(folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder


def _is_folder(item: "os.DirEntry[str]") -> bool:
    try:
        return item.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _read_about(place: Path) -> Trashed | None:
    try:
        about = json.loads((place / _ABOUT).read_bytes())
        return Trashed(operation=place.name, name=str(about["name"]), at=float(about["at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def _locked(path: Path, how: int) -> Generator[None]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=path) from error
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _as_storage(path: Path) -> Generator[None]:
    """The disk's errors become ours."""
    try:
        yield
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=path) from error
