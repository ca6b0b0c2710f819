"""How a folder looks: what tells whether its skills should be read again."""

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from apexbridge.skills.document import SKILL_MD
from apexbridge.sources.walking import is_open_folder

_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})

FileState = tuple[str, int, int, int, int]


class Place(NamedTuple):
    """The folder that stands for one handed in: itself, or its nearest parent that exists."""

    path: Path
    device: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How a folder looked."""

    place: Place | None
    is_there: bool = False
    mtime: int = 0
    skill_files: tuple[FileState, ...] = ()
    folders: int = 0
    """A hash of the names and inodes of its sub-folders: a folder may hold very many."""
    others: int = 0
    """The same of everything else in it."""

    def differs(self, before: "Seen | None", *, was_read: bool) -> bool:
        """Say whether someone who read the folder before should read it again.

        Who read it since then may have found a sub-folder missing that is there again, even with
        the same inode. Only the folder's time tells, where no other file explains it.
        """
        if before is None or not (self.is_there and before.is_there):
            return self.is_there or (before is not None and before.is_there)
        if (self.place, self.skill_files) != (before.place, before.skill_files):
            return True
        is_unexplained = self.mtime != before.mtime and self.others == before.others
        return self.folders != before.folders or (was_read and is_unexplained)


def place_of(folder: Path) -> tuple[Place | None, int]:
    """Where it stands, and the time of the folder there."""
    whole = _absolute(folder)
    for path in (whole, *whole.parents):
        try:
            status = path.stat()
        except (OSError, ValueError):
            continue
        if stat.S_ISDIR(status.st_mode):
            return Place(path, status.st_dev, status.st_ino), status.st_mtime_ns
    return None, 0


def _absolute(folder: Path) -> Path:
    try:
        return folder.absolute()
    except OSError:  # the working folder was removed
        return folder


def look_at(folder: Path, before: Seen | None) -> Seen:
    """Look at a folder once; what it looked like before helps where it cannot be listed."""
    place, mtime = place_of(folder)
    if place is None or place.path != _absolute(folder):
        return Seen(place=place)
    files, folders, others = list[FileState](), list[tuple[str, int]](), list[tuple[str, int]]()
    try:
        with os.scandir(folder) as items:
            for item in items:
                if item.name.lower() == SKILL_MD.lower():
                    files.append(_state(folder / item.name))
                else:
                    group = folders if is_open_folder(item) else others
                    group.append((item.name, item.inode()))
    except OSError as error:
        if error.errno in _NO_DESCRIPTORS:
            return _look_without_opening(folder, place, mtime, before)
        folders = [("", error.errno or 0)]
    return Seen(
        place=place,
        is_there=True,
        mtime=mtime,
        skill_files=tuple(sorted(files)),
        folders=hash(frozenset(folders)),
        others=hash(frozenset(others)),
    )


def _look_without_opening(folder: Path, place: Place, mtime: int, before: Seen | None) -> Seen:
    """Go by times alone, for a folder cannot be listed when no descriptor is left."""
    names = [state[0] for state in before.skill_files] if before else []
    states = [_state(folder / name) for name in names or [SKILL_MD]]
    is_same = before is not None and before.mtime == mtime
    return Seen(
        place=place,
        is_there=True,
        mtime=mtime,
        skill_files=tuple(state for state in states if any(state[1:])),
        folders=before.folders if before is not None and is_same else mtime,
    )


def _state(path: Path) -> FileState:
    """What tells one state of a file from the next; zeros where it is gone."""
    try:
        status = path.stat()
    except OSError:
        try:
            status = path.lstat()
        except OSError:
            return path.name, 0, 0, 0, 0
    return path.name, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
