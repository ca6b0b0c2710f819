"""UID pool: where we are root, each run gets an unprivileged UID that no account has.

The kernel then counts its processes apart from all others (RLIMIT_NPROC), and files of root keep
their modes. Where such a UID cannot read everything that was granted, bubblewrap runs as root in
its own user namespace, which has no other files; Landlock lets the UID pass folders by
CAP_DAC_READ_SEARCH, and opens what was granted only (docs/decisions/0046).
"""

import errno
import fcntl
import itertools
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from apexbridge.errors import SandboxUnavailableError
from apexbridge.sandbox import kernel_limits

_FIRST_UID = 1_900_000_000
_UID_COUNT = 256
_LOCK_DIR = Path("/run/apexbridge-users")
"""Writable by root only: otherwise others could take the locks and exhaust the pool."""
_MAX_CHECKED_ENTRIES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedUid:
    """A UID leased to one run, or that of a folder's owner."""

    number: int
    group: int
    lock: int | None = None
    """None for an owner, who may have other processes."""
    searches: bool = False
    """Whether the run keeps CAP_DAC_READ_SEARCH."""

    def close(self) -> None:
        """Return the UID to the pool."""
        if self.lock is not None:
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
        if not self.is_enabled or not _is_reachable(paths, workspace):
            return None
        return _give(self._free(), workspace)

    def lease_unprivileged(
        self, paths: Iterable[Path], workspace: Path | None, written: Sequence[Path]
    ) -> LeasedUid:
        """Lease a UID under Landlock, never root's: that of the owner of the written folders.

        Raises:
            SandboxUnavailableError: If root owns such a folder, or the paths are in a private
                folder and we have not the capability to pass it.
            OSError: If all UIDs are taken, or none can be locked.
        """
        owner = _owner(written)
        searches = owner is not None or not _is_reachable(paths, workspace)
        if searches and not kernel_limits.has_capability(kernel_limits.CAP_DAC_READ_SEARCH):
            raise SandboxUnavailableError(code="sandbox_private_folder")
        user = self._free() if owner is None else owner
        return _give(replace(user, searches=searches), workspace)

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
                return LeasedUid(number=number, group=number, lock=lock)
        raise OSError(errno.EAGAIN, "every user for runs is taken")


def _owner(folders: Sequence[Path]) -> LeasedUid | None:
    """Return the one owner of folders that a run may change; None if there are none."""
    found = {folder: folder.stat() for folder in folders}
    owners = {status.st_uid for status in found.values()}
    for folder, status in found.items():
        if status.st_uid == 0 or len(owners) > 1:
            raise SandboxUnavailableError(code="sandbox_root_folder", path=folder)
    for status in found.values():
        return LeasedUid(number=status.st_uid, group=status.st_gid or status.st_uid)
    return None


def _is_reachable(paths: Iterable[Path], workspace: Path | None) -> bool:
    """Return whether a UID that owns nothing else can read the paths and get to its workspace."""
    if workspace is not None and not is_world_readable(workspace.parent, is_listed=False):
        around = workspace.parent
        # A private folder around it is opened for its group: see `_give`.
        if around.stat().st_uid != os.geteuid() or not is_world_readable(
            around.parent, is_listed=False
        ):
            return False
    return all(map(is_world_readable, paths))


def _give(user: LeasedUid, workspace: Path | None) -> LeasedUid:
    """Give the workspace to a UID; a dedicated one may pass the private folder around it."""
    if workspace is not None:
        chown_tree(workspace, user.number)
        around = workspace.parent
        if user.lock is not None and not around.stat().st_mode & stat.S_IXOTH:
            os.chown(around, -1, user.group)
            around.chmod(0o710)
    return user


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
