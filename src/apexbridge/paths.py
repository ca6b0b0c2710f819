"""Paths that stay inside, and changes on disk that happen wholly or not at all."""

import contextlib
import ctypes
import errno
import os
import stat
import sys
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from apexbridge.errors import StorageError, UnsafePathError

_AT_FDCWD = -100
_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2
_NOT_SUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


def safe_join(root: Path, relative: str) -> Path:
    r"""Join a relative POSIX path from outside to a folder, and stay inside it.

    Links on the way are resolved before the check. The check cannot stop someone who may write
    below `root` from swapping a folder for a link afterwards: open what matters with O_NOFOLLOW.

    >>> safe_join(Path("/skills/pdf"), "references/forms.md").name
    'forms.md'

    Raises:
        UnsafePathError: For absolute paths, `..` that leaves, links that leave, NUL, backslashes.
    """
    parts = PurePosixPath(relative).parts
    if not parts or "\0" in relative or "\\" in relative or relative.startswith(("/", "~")):
        raise UnsafePathError(path=relative)
    if ":" in parts[0] and len(parts[0]) == 2:  # a drive letter
        raise UnsafePathError(path=relative)
    home = root.resolve()
    joined = home.joinpath(*parts).resolve()
    if not joined.is_relative_to(home):
        raise UnsafePathError(path=relative)
    return joined


def fsync_file(path: Path) -> None:
    """Force a file's bytes to the disk."""
    _fsync(path, os.O_RDONLY)


def fsync_dir(path: Path) -> None:
    """Force a folder's entries to the disk: without it a rename may be forgotten by a crash."""
    _fsync(path, os.O_RDONLY | os.O_DIRECTORY)


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(root: Path) -> None:
    """Force a whole folder to the disk, files first, then the folders that name them."""
    for folder, _, files in os.walk(root, topdown=False):
        for name in files:
            path = Path(folder, name)
            if not path.is_symlink():
                fsync_file(path)
        fsync_dir(Path(folder))


@contextmanager
def staging_dir(home: Path) -> Generator[Path]:
    """Lend a private folder below `home/.staging`; whatever is left in it afterwards is removed.

    It lies on the file system of `home`, so that what was built in it can be moved by one rename.
    """
    place = home / ".staging" / uuid.uuid4().hex
    place.mkdir(parents=True, mode=0o700)
    try:
        yield place
    finally:
        remove_tree(place)


def remove_tree(root: Path) -> None:
    """Remove a folder however deep, locked or oddly named its tree is; one that is gone is fine.

    Every folder found is first moved up to the root, so that no path is ever long and nothing
    recurses. Links are removed, never followed. Nobody else may be writing to the tree.
    """
    try:
        if not stat.S_ISLNK(root.lstat().st_mode):
            root.chmod(stat.S_IRWXU)
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        pending = _flatten(top, top)
        while pending:
            name = pending.pop()
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
            try:
                pending += _flatten(folder, top)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    root.rmdir()


def _flatten(folder: int, top: int) -> list[str]:
    """Unlink a folder's files and move its folders, made accessible, up; their new names."""
    moved = list[str]()
    for name in os.listdir(folder):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=folder)
            continue
        os.chmod(name, stat.S_IRWXU, dir_fd=folder)
        moved.append(uuid.uuid4().hex)
        os.rename(name, moved[-1], src_dir_fd=folder, dst_dir_fd=top)
    return moved


def commit_dir(source: Path, target: Path) -> None:
    """Move a folder into place by one durable rename, and never replace anything.

    If the disk refuses, the folder is where it was.

    Raises:
        StorageError: `path_exists` if the target exists, `storage_failed` if the disk refuses.
    """
    try:
        fsync_tree(source)
        _rename_noreplace(source, target)
        _fsync_or_undo(lambda: target.rename(source), target.parent, source.parent)
    except FileExistsError:
        raise StorageError(code="path_exists", path=target) from None
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=target) from error


def _rename_noreplace(source: Path, target: Path) -> None:
    if _renameat2_call(source, target, _RENAME_NOREPLACE):
        return
    # A portable second way: making the empty folder is the claim that only one can win, and
    # rename(2) replaces an empty folder, and no other, in one step.
    target.mkdir()
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            raise FileExistsError(error.errno, "Folder exists", str(target)) from error
        target.rmdir()
        raise


def exchange_dirs(one: Path, other: Path) -> None:
    """Let two folders change places by one durable rename: at no moment is either missing.

    Where the file system cannot do that there are three renames. What a crash leaves between them
    is put right by `finish_exchange`.

    Raises:
        StorageError: If the disk refuses.
    """
    try:
        fsync_tree(one)
        _exchange(one, other)
        _fsync_or_undo(lambda: _exchange(one, other), other.parent, one.parent)
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=other) from error


def _exchange(one: Path, other: Path) -> None:
    if not _renameat2_call(one, other, _RENAME_EXCHANGE):
        _exchange_by_renames(one, other)


def _fsync_or_undo(take_back: Callable[[], object], *folders: Path) -> None:
    """Force folders to the disk; what cannot be made durable is taken back."""
    try:
        for folder in folders:
            fsync_dir(folder)
    except OSError:
        take_back()
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
    """Put right what a crash left of an exchange: the old state, or the new one.

    Raises:
        StorageError: If the disk refuses.
    """
    aside = _backup_path(one)
    try:
        if aside.exists():
            aside.rename(one if other.exists() else other)
            fsync_dir(other.parent)
            fsync_dir(one.parent)
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=other) from error


def _backup_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.aside")


def _renameat2_call(source: Path, target: Path, how: int) -> bool:
    """Ask the kernel; False where this system or this file system cannot."""
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


def replace_bytes(path: Path, data: bytes) -> None:
    """Write a file anew so that a crash leaves the old bytes or the new ones, never a mixture.

    The old file's mode is kept. What is there and no plain file (a link, a device) is refused.

    Raises:
        StorageError: If the path is no plain file, or the disk refuses.
    """
    with _temporary_sibling(path) as temporary:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            mode = stat.S_IFREG | 0o644
        if not stat.S_ISREG(mode):
            raise StorageError("it is no plain file", path=path)
        _write_new(temporary, data, stat.S_IMODE(mode))
        temporary.replace(path)
        fsync_dir(path.parent)


def replace_file(path: Path, new: Path) -> None:
    """Put a file, written and synced already, in another's place; the old or the new is there.

    Both lie on one file system. If the disk refuses, the old one is there.

    Raises:
        StorageError: If the disk refuses.
    """
    old = _backup_path(new)
    with storage_errors(path):
        old.hardlink_to(path)
        new.replace(path)
        _fsync_or_undo(lambda: old.replace(path), path.parent)
    with contextlib.suppress(OSError):  # the change is made
        old.unlink()


def create_bytes(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file that must not exist yet; a reader sees all of it or nothing.

    Raises:
        StorageError: `path_exists` if there is one, `storage_failed` if the disk refuses.
    """
    with _temporary_sibling(path) as temporary:
        _write_new(temporary, data, mode)
        path.hardlink_to(temporary)
        fsync_dir(path.parent)


@contextmanager
def storage_errors(path: Path) -> Generator[None]:
    """The disk's errors become ours."""
    try:
        yield
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=path) from error


@contextmanager
def _temporary_sibling(path: Path) -> Generator[Path]:
    """A name for a new file in the same folder, gone afterwards; the disk's errors become ours."""
    if not path.name:
        raise StorageError("it names no file", path=path)
    temporary = path.with_name(f".{uuid.uuid4().hex}.new")
    try:
        yield temporary
    except FileExistsError:
        raise StorageError(code="path_exists", path=path) from None
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=path) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
