"""Path traversal guard, and atomic, durable file system changes (rename, fsync).

If the disk refuses to commit, exchange or replace, `StorageError` is raised and the old state kept.
"""

import contextlib
import ctypes
import errno
import fcntl
import itertools
import os
import re
import stat
import sys
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from apexbridge.errors import StorageError, UnsafePathError
from apexbridge.tree_removal import remove_tree

_AT_FDCWD = -100
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2
_ESCAPED = re.compile(r"[\x00-\x1f\x7f]|\\(?=x[0-9a-f]{2}|udc[0-9a-f]{2})")
"""Control characters, and backslashes of names that look as if they were escaped."""
_NOT_SUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


def safe_join(root: Path, relative: str) -> Path:
    r"""Path traversal guard: join an untrusted relative POSIX path to a directory.

    Symlinks are resolved before the check. It cannot prevent a TOCTOU race with a process
    that may write below `root` and swaps a directory for a symlink: open with O_NOFOLLOW.

    >>> safe_join(Path("/skills/pdf"), "references/forms.md").name
    'forms.md'

    Raises:
        UnsafePathError: For absolute paths, escaping `..` or symlinks, NUL, backslashes.
    """
    first = next(iter(PurePosixPath(relative).parts), "")
    is_drive = ":" in first and len(first) == 2
    if is_drive or "\\" in relative or relative.startswith("~"):
        raise UnsafePathError(path=relative)
    return join_posix(root, relative)


def join_posix(root: Path, relative: str) -> Path:
    r"""Path traversal guard for names of files that are data, and may be `~$draft.docx` or `a\b`.

    As `safe_join`, but for names that only this system reads: backslashes and colons are letters.

    Raises:
        UnsafePathError: For absolute paths, escaping `..` or symlinks, NUL.
    """
    parts = PurePosixPath(relative).parts
    if not parts or "\0" in relative or relative.startswith("/"):
        raise UnsafePathError(path=relative)
    home = root.resolve()
    joined = home.joinpath(*parts).resolve()
    if not joined.is_relative_to(home):
        raise UnsafePathError(path=relative)
    return joined


def printable_path(path: str) -> str:
    """Escape line breaks and the like in a file name, and bytes that are not valid UTF-8.

    No two names become one.
    """
    escaped = _ESCAPED.sub(lambda match: f"\\x{ord(match[0]):02x}", path)
    return escaped.encode("utf-8", "backslashreplace").decode()


def fsync_file(path: Path) -> None:
    """Fsync a file."""
    _fsync(path, os.O_RDONLY)


def fsync_dir(path: Path) -> None:
    """Fsync a directory: without it a crash may undo a rename."""
    _fsync(path, os.O_RDONLY | os.O_DIRECTORY)


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(root: Path) -> None:
    """Fsync a directory tree, files first, then the directories that name them."""
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                fsync_file(path)
        fsync_dir(Path(folder))


@contextmanager
def staging_dir(home: Path) -> Generator[Path]:
    """Create a private directory below `home/.staging`, removed at the end of the block.

    It is on the file system of `home`, so that its content can be moved by an atomic rename.
    """
    place = home / ".staging" / uuid.uuid4().hex
    place.mkdir(parents=True, mode=0o700)
    try:
        yield place
    finally:
        remove_tree(place)


def commit_dir(source: Path, target: Path) -> None:
    """Move a directory into place by an atomic, durable rename that never replaces anything.

    Raises:
        StorageError: `path_exists` if the target exists, `storage_failed` if the disk refuses.
    """
    with _creation_errors(target):
        fsync_tree(source)
        _rename_noreplace(source, target)
        _fsync_or_undo(lambda: target.rename(source), target.parent, source.parent)


def _rename_noreplace(source: Path, target: Path) -> None:
    if _renameat2_call(source, target, _RENAME_NOREPLACE):
        return
    # Portable fallback: mkdir is the atomic claim that only one process wins, and rename(2)
    # replaces an empty directory, and no other, in one step.
    target.mkdir()
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            raise FileExistsError(error.errno, "Folder exists", str(target)) from error
        target.rmdir()
        raise


def exchange_dirs(one: Path, other: Path) -> None:
    """Exchange two directories atomically (RENAME_EXCHANGE): neither is ever missing.

    A file system without that gets three renames; `recover_exchange` repairs what a crash leaves
    between them.
    """
    with storage_errors(other):
        fsync_tree(one)
        _exchange(one, other)
        _fsync_or_undo(lambda: _exchange(one, other), other.parent, one.parent)


def _exchange(one: Path, other: Path) -> None:
    if not _renameat2_call(one, other, _RENAME_EXCHANGE):
        _exchange_by_renames(one, other)


def _fsync_or_undo(undo: Callable[[], object], *folders: Path) -> None:
    """Fsync directories; undo the change that cannot be made durable."""
    try:
        for folder in folders:
            fsync_dir(folder)
    except OSError:
        undo()
        raise


def _exchange_by_renames(one: Path, other: Path) -> None:
    other.rename(_backup_path(one))
    try:
        one.rename(other)
    except OSError:
        _backup_path(one).rename(other)
        raise
    try:
        _backup_path(one).rename(one)
    except OSError:
        other.rename(one)
        _backup_path(one).rename(other)
        raise


def recover_exchange(one: Path, other: Path) -> None:
    """Recover from a crash during an exchange: to the old state, or the new one."""
    aside = _backup_path(one)
    with storage_errors(other):
        if aside.exists():
            aside.rename(one if other.exists() else other)
            fsync_dir(other.parent)
            fsync_dir(one.parent)


def _backup_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.aside")


def _renameat2_call(source: Path, target: Path, how: int) -> bool:
    """Call renameat2(2); False where the kernel or the file system does not support it."""
    renameat2 = _renameat2()
    if renameat2 is None:
        return False
    arguments = (_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target))
    if renameat2(*arguments, how) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_SUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(target))


def _renameat2() -> "ctypes._NamedFuncPointer | None":  # pyright: ignore[reportPrivateUsage]
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def replace_bytes(path: Path, data: bytes, *, new_mode: int = 0o644) -> None:
    """Replace a file's content atomically: a crash leaves the old bytes or the new ones.

    The mode of the old file is kept; a file that was not there gets `new_mode`. A symlink or device
    in its place is refused (StorageError).
    """
    with _creation_errors(path):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            mode = stat.S_IFREG | new_mode
        if not stat.S_ISREG(mode):
            raise StorageError("it is not a regular file", path=path)
        with _temporary_file(path, data, stat.S_IMODE(mode)) as temporary:
            temporary.replace(path)
            fsync_dir(path.parent)


def replace_file(path: Path, new: Path) -> None:
    """Replace a file atomically by one that is already written and synced on the same disk."""
    old = _backup_path(new)
    with storage_errors(path):
        old.hardlink_to(path)
        new.replace(path)
        _fsync_or_undo(lambda: old.replace(path), path.parent)
    with contextlib.suppress(OSError):  # the replacement is already durable
        old.unlink()


def rename_free(path: Path, suffix: str, side_files: Sequence[str] = ()) -> Path:
    """Rename a file to `NAME.SUFFIX-N`, the first free one, and return that; nothing is replaced.

    `side_files` are endings of files that belong to it and are renamed first.
    """
    with storage_errors(path):
        names = (path.with_name(f"{path.name}.{suffix}-{number}") for number in itertools.count(1))
        target = next(name for name in names if not os.path.lexists(name))
        for ending in side_files:
            with contextlib.suppress(FileNotFoundError):
                path.with_name(path.name + ending).rename(f"{target}{ending}")
        path.rename(target)
        fsync_dir(path.parent)
        return target


def create_bytes(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Create a file that must not exist yet; a reader sees all of it or nothing.

    Raises:
        StorageError: `path_exists` if there is one, `storage_failed` if the disk refuses.
    """
    with _creation_errors(path), _temporary_file(path, data, mode) as temporary:
        path.hardlink_to(temporary)
        fsync_dir(path.parent)


@contextmanager
def storage_errors(path: Path) -> Generator[None]:
    """Convert `OSError` to `StorageError`."""
    try:
        yield
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=path) from error


@contextmanager
def _creation_errors(path: Path) -> Generator[None]:
    with storage_errors(path):
        try:
            yield
        except FileExistsError:
            raise StorageError(code="path_exists", path=path) from None


@contextmanager
def _temporary_file(path: Path, data: bytes, mode: int) -> Generator[Path]:
    """Write and sync a temporary file in the same directory; it is removed afterwards.

    It is locked until then, so that `remove_abandoned` can tell it from one of a killed process.
    """
    if not path.name:
        raise StorageError("it names no file", path=path)
    temporary, descriptor = _create_locked(path.parent, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
            yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _create_locked(folder: Path, mode: int) -> tuple[Path, int]:
    while True:
        path = folder / f".{uuid.uuid4().hex}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, mode)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return path, descriptor
        os.close(descriptor)  # removed as abandoned before it was locked


def remove_abandoned(path: Path) -> bool:
    """Remove a temporary file whose writer was killed; False if one holds its lock, or it is gone.

    Raises OSError.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)  # under the lock: its writer then sees that it is gone
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
