"""Where we are root, runs get users of their own: they may do what anybody may, and no more.

The kernel also counts their processes apart from everybody else's. They have numbers that no
account has. One is lent only if everything that was granted can be reached by such a user; else a
run stays root's, without any power of root's.
"""

import errno
import fcntl
import itertools
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_FIRST = 1_900_000_000
_COUNT = 256
_LOCKS = Path("/run/apexbridge-users")
"""Root's own: where others could take the locks, they could keep runs from being other users."""
_MOST_ENTRIES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A user that one run has, and nobody else at that time."""

    number: int
    lock: int

    def close(self) -> None:
        """Let others have it."""
        os.close(self.lock)


class SlotUsers:
    """Lends users; also other servers on this machine never have the same one."""

    @classmethod
    def detect(cls) -> "SlotUsers | None":
        """Only root can turn a process into another user."""
        return cls() if os.geteuid() == 0 else None

    def __init__(self, home: Path = _LOCKS) -> None:
        self._home = home
        self._next = itertools.count()
        self.is_enabled = True
        """Switched off where such a user cannot be isolated."""

    def lend(self, paths: Iterable[Path], workspace: Path | None) -> Slot | None:
        """A user who can reach these paths and owns the workspace; None if that cannot be.

        Raises:
            OSError: If all of them are taken, or none can be locked.
        """
        if not self.is_enabled or not all(map(can_be_reached, paths)):
            return None
        if workspace is not None and not can_be_reached(workspace.parent, is_listed=False):
            return None
        slot = self._free()
        if workspace is not None:
            give(workspace, slot.number)
        return slot

    def _free(self) -> Slot:
        """One that nobody has, held by a lock that goes with this process, however it ends."""
        self._home.mkdir(mode=0o700, exist_ok=True)
        for _ in range(_COUNT):
            number = _FIRST + next(self._next) % _COUNT
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(self._home / str(number), flags, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
            else:
                return Slot(number=number, lock=lock)
        raise OSError(errno.EAGAIN, "every user for runs is taken")


def can_be_reached(path: Path, *, is_listed: bool = True) -> bool:
    """Say whether anybody may read a path: the folders on the way, and what it leads to."""
    try:
        real = path.resolve(strict=True)
        on_the_way = all(parent.stat().st_mode & stat.S_IXOTH for parent in real.parents)
        mode = real.stat().st_mode
    except OSError:
        return False
    if not is_listed:
        return on_the_way and bool(mode & stat.S_IXOTH)
    return on_the_way and _is_open(mode) and (not stat.S_ISDIR(mode) or _is_open_inside(real))


def _is_open(mode: int) -> bool:
    wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return mode & wanted == wanted


def _is_open_inside(folder: Path) -> bool:
    """Whether all that is in a folder can be read; of very large ones the first part tells."""
    seen = 0
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            seen += 1
            mode = os.lstat(os.path.join(place, name)).st_mode
            if not stat.S_ISLNK(mode) and not _is_open(mode):
                return False
        if seen > _MOST_ENTRIES:
            break
    return True


def give(place: Path, user: int) -> None:
    """Make a folder and all that is in it a user's. Nobody else is at work in it."""
    for folder, _, files in os.walk(place):
        os.chown(folder, user, user)
        for name in files:
            os.chown(os.path.join(folder, name), user, user, follow_symlinks=False)
