"""UID pool: where we are root, each run gets an unprivileged UID that no account has.

The kernel then counts its processes apart from all others (RLIMIT_NPROC). A UID is leased only if
it can read everything that was granted; otherwise the run stays root, without capabilities.
"""

import errno
import fcntl
import itertools
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_FIRST_UID = 1_900_000_000
_UID_COUNT = 256
_LOCK_DIR = Path("/run/apexbridge-users")
"""Writable by root only: otherwise others could take the locks and exhaust the pool."""
_MAX_CHECKED_ENTRIES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedUid:
    """A UID leased to one run."""

    number: int
    lock: int

    def close(self) -> None:
        """Return the UID to the pool."""
        os.close(self.lock)


class UidPool:
    """Lease UIDs; file locks keep other servers on this machine from leasing the same one."""

    @classmethod
    def detect(cls) -> "UidPool | None":
        """Return a pool if we are root: only root can switch UIDs."""
        return cls() if os.geteuid() == 0 else None

    def __init__(self, home: Path = _LOCK_DIR) -> None:
        self._home = home
        self._next = itertools.count()
        self.is_enabled = True
        """False where such a UID cannot be isolated."""

    def lease(self, paths: Iterable[Path], workspace: Path | None) -> LeasedUid | None:
        """Lease a UID that can read these paths and owns the workspace; None if it cannot.

        OSError if all of them are taken, or none can be locked.
        """
        if not self.is_enabled or not all(map(is_world_readable, paths)):
            return None
        if workspace is not None and not is_world_readable(workspace.parent, is_listed=False):
            return None
        slot = self._free()
        if workspace is not None:
            chown_tree(workspace, slot.number)
        return slot

    def _free(self) -> LeasedUid:
        """Lock a free UID; the kernel releases the lock when this process dies."""
        self._home.mkdir(mode=0o700, exist_ok=True)
        for _ in range(_UID_COUNT):
            number = _FIRST_UID + next(self._next) % _UID_COUNT
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(self._home / str(number), flags, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
            else:
                return LeasedUid(number=number, lock=lock)
        raise OSError(errno.EAGAIN, "every user for runs is taken")


def is_run_uid(number: int) -> bool:
    """Return whether a process of this UID can belong to a run of ours."""
    is_pooled = os.geteuid() == 0 and _FIRST_UID <= number < _FIRST_UID + _UID_COUNT
    return number == os.geteuid() or is_pooled


def is_world_readable(path: Path, *, is_listed: bool = True) -> bool:
    """Return True if any user can read a path: its parent directories and its symlink target."""
    try:
        real = path.resolve(strict=True)
        on_the_way = all(parent.stat().st_mode & stat.S_IXOTH for parent in real.parents)
        mode = real.stat().st_mode
    except OSError:
        return False
    if not is_listed:
        return on_the_way and bool(mode & stat.S_IXOTH)
    is_readable = on_the_way and _is_world_accessible(mode)
    return is_readable and (not stat.S_ISDIR(mode) or _is_tree_readable(real))


def _is_world_accessible(mode: int) -> bool:
    wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return mode & wanted == wanted


def _is_tree_readable(folder: Path) -> bool:
    """Return True if a directory tree is readable; of a large one only the first entries."""
    seen = 0
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            seen += 1
            mode = os.lstat(os.path.join(place, name)).st_mode
            if not stat.S_ISLNK(mode) and not _is_world_accessible(mode):
                return False
        if seen > _MAX_CHECKED_ENTRIES:
            break
    return True


def chown_tree(place: Path, user: int) -> None:
    """Change the owner of a directory tree that no other process uses."""
    for folder, _, files in os.walk(place):
        os.chown(folder, user, user)
        for name in files:
            os.chown(os.path.join(folder, name), user, user, follow_symlinks=False)
