"""Where we are root, runs get users of their own: they may do what anybody may, and no more.

The kernel also counts their processes apart from everybody else's. They have numbers that no
account has. One is lent only if everything that was granted can be reached by such a user; else a
run stays root's, without any power of root's.
"""

import contextlib
import os
import socket
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_FIRST = 1_900_000_000
_COUNT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A user that one run has, and nobody else at that time."""

    number: int
    lock: socket.socket

    def close(self) -> None:
        """Let others have it."""
        self.lock.close()


class SlotUsers:
    """Lends users; also other servers on this machine never have the same one."""

    @classmethod
    def detect(cls) -> "SlotUsers | None":
        """Only root can turn a process into another user."""
        return cls() if os.geteuid() == 0 else None

    def __init__(self) -> None:
        self._next = 0
        self.is_enabled = True
        """Switched off where such a user cannot be isolated."""

    def lend(self, paths: Iterable[Path], workspace: Path | None) -> Slot | None:
        """A user who can reach these paths and owns the workspace; None if that cannot be."""
        if not self.is_enabled or not all(map(can_be_reached, paths)):
            return None
        if workspace is not None and not can_be_reached(workspace.parent, is_listed=False):
            return None
        slot = self._free()
        if slot is not None and workspace is not None:
            give(workspace, slot.number)
        return slot

    def _free(self) -> Slot | None:
        for _ in range(_COUNT):
            number = _FIRST + self._next % _COUNT
            self._next += 1
            lock = socket.socket(socket.AF_UNIX)
            with contextlib.suppress(OSError):
                lock.bind(f"\0apexbridge-user-{number}")  # gone with this process, however it ends
                return Slot(number=number, lock=lock)
            lock.close()
        return None


def can_be_reached(path: Path, *, is_listed: bool = True) -> bool:
    """Say whether anybody may read a path: the folders on the way, and what it leads to."""
    try:
        real = path.resolve(strict=True)
        on_the_way = all(parent.stat().st_mode & stat.S_IXOTH for parent in real.parents)
        mode = real.stat().st_mode
    except OSError:
        return False
    wanted = stat.S_IXOTH if stat.S_ISDIR(mode) else 0
    if is_listed:
        wanted |= stat.S_IROTH
    return on_the_way and mode & wanted == wanted


def give(place: Path, user: int) -> None:
    """Make a folder and all that is in it a user's. Nobody else is at work in it."""
    for folder, _, files in os.walk(place):
        os.chown(folder, user, user)
        for name in files:
            os.chown(os.path.join(folder, name), user, user, follow_symlinks=False)
