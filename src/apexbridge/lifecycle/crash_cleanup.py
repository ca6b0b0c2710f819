"""Crash cleanup: find staging folders, temporary files and workspaces of killed processes."""

import fcntl
import math
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from apexbridge.lifecycle.store import LOCKS, STAGING
from apexbridge.lifecycle.trash import TRASH
from apexbridge.paths import remove_abandoned
from apexbridge.skills.model import Problem

_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.new")
"""Name of a file during an atomic write, before its rename."""
_WRITE_GRACE_SECONDS = 60.0
_LOCK_SUFFIX = ".lock"
WORKSPACES = "workspaces"


@dataclass(slots=True)
class CheckTally:
    """Number of checked items, and the problems found."""

    checked: int = 0
    problems: list[Problem] = field(default_factory=list[Problem])

    def violation(self, code: str, where: str, **details: str | int) -> None:
        """Add a violated invariant."""
        self.problems.append(Problem(code=code, where=where, details=details))

    def remark(self, code: str, where: str, **details: str | int) -> None:
        """Add a harmless observation."""
        self.problems.append(Problem(code=code, where=where, severity="warning", details=details))


def find_leftovers(data: Path) -> CheckTally:
    """Find leftovers of killed operations; work in progress of a live process is none."""
    tally = CheckTally()
    if is_store_busy(data):
        tally.remark("fsck_busy", STAGING)
    else:
        for path in _list_folder(data / "skills" / STAGING):
            if path.name != _LOCK_SUFFIX:
                _add_leftover(tally, "fsck_staging_left", data, path)
        for path in temporary_files(data):
            _add_leftover(tally, "fsck_temporary_left", data, path)
    for path in _list_folder(data / WORKSPACES):
        lock = path if path.suffix == _LOCK_SUFFIX else path.with_suffix(_LOCK_SUFFIX)
        if not is_lock_held(lock) and (path != lock or not path.with_suffix("").exists()):
            _add_leftover(tally, "fsck_workspace_left", data, path)
    # Lock files stay: unlinking one that a waiter has open would let two processes hold it.
    tally.checked += len(_list_folder(data / "skills" / LOCKS))
    return tally


def _add_leftover(tally: CheckTally, code: str, data: Path, path: Path) -> None:
    where = path.relative_to(data).as_posix()
    tally.checked += 1
    tally.violation(code, where, path=where)


def temporary_files(data: Path) -> Iterator[Path]:
    """Find temporary files of interrupted atomic writes, outside of staging and trash.

    A recent one is skipped: an earlier version, which locks none, may be writing it.
    """
    oldest = time.time() - _WRITE_GRACE_SECONDS
    for path in _temporary_files(data):
        if _modified_at(path) < oldest and not is_lock_held(path):
            yield path


def remove_temporary_files(data: Path) -> int:
    """Remove the temporary files that no live process has locked; return their number.

    For the start of a server, which is often right after the kill that left them.
    """
    count = 0
    for path in _temporary_files(data):
        with suppress(OSError):
            count += remove_abandoned(path)
    return count


def _temporary_files(data: Path) -> Iterator[Path]:
    skills = data / "skills"
    excluded = {STAGING, TRASH, WORKSPACES, skills.name}
    below = [
        path for path in (*_list_folder(data), *_list_folder(skills)) if path.name not in excluded
    ]
    for folder in (data, skills, *(path for path in below if path.is_dir())):
        for path in _list_folder(folder):
            if _TEMPORARY.fullmatch(path.name):
                yield path


def _modified_at(path: Path) -> float:
    """Return the mtime of a regular file; infinity for anything else, which is never stale."""
    try:
        status = path.lstat()
    except OSError:
        return math.inf
    return status.st_mtime if stat.S_ISREG(status.st_mode) else math.inf


def is_store_busy(data: Path) -> bool:
    """Say whether a live process is changing skills."""
    return is_lock_held(data / "skills" / STAGING / _LOCK_SUFFIX)


def is_lock_held(lock: Path) -> bool:
    """Say whether a live process holds a file lock (`flock`)."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _list_folder(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []
