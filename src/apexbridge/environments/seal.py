"""Seal a built environment: what its build may have left is checked, then it is made read-only.

A build can run code of packages (`setup.py`), so nothing in its output is believed: links may stay
inside only, the interpreter's link is the one that we chose, and there are no devices, no hard
links and no set-user-id bits.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from apexbridge.errors import DependencyError
from apexbridge.paths import fsync_dir
from apexbridge.tree_removal import remove_tree

_READ_ONLY_FOLDER, _READ_ONLY_FILE, _PROGRAM_FILE = 0o555, 0o444, 0o555
_INTERPRETER_LINKS = frozenset({"bin/python", "bin/python3"})
_SHOWN_PATH = 200
MANIFEST = "environment.json"


def remove_leftovers(place: Path, folders: Sequence[str]) -> None:
    """Remove all that a build left beside its environment, which must have these real folders.

    Before anything is written there: a link in the place of a folder would lead it outside.

    Raises:
        DependencyError: `dependencies_unsafe`.
    """
    env = place / "env"
    for folder in (env, *(env / name for name in folders)):
        if folder.is_symlink() or not folder.is_dir():
            raise unsafe(env, folder)
    with unsafe_errors(env):
        for path in place.iterdir():
            if path.is_dir() and not path.is_symlink():
                if path != env:
                    remove_tree(path)
            else:
                path.unlink()


def check_tree(root: Path, interpreter: Path | None, max_bytes: int) -> int:
    """Check every entry and return the size in bytes on disk.

    Raises:
        DependencyError: `dependencies_unsafe`, if a link leads outside, a file is no plain file, or
            a path cannot be read; `dependencies_too_large`.
    """
    real, size, apparent = root.resolve(), 0, 0
    with unsafe_errors(root):
        for path in walk(root):
            status = path.lstat()
            size += status.st_blocks * 512
            apparent += status.st_size
            if apparent > max_bytes:  # sparse files take no space, but hours to read
                raise DependencyError(code="dependencies_too_large")
            _check_entry(real, path, status, interpreter)
    return size


def _check_entry(root: Path, path: Path, status: os.stat_result, interpreter: Path | None) -> None:
    if stat.S_ISLNK(status.st_mode):
        _check_link(root, path, interpreter)
    elif not (_is_plain_file(status) or stat.S_ISDIR(status.st_mode)):
        raise unsafe(root, path)
    if path == root / MANIFEST and not _is_plain_file(status):  # ours is written there
        raise unsafe(root, path)


def _is_plain_file(status: os.stat_result) -> bool:
    sets_user = status.st_mode & (stat.S_ISUID | stat.S_ISGID)
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and not sets_user


def _check_link(root: Path, path: Path, interpreter: Path | None) -> None:
    target = path.readlink()
    where = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    if interpreter is not None and where.startswith("bin/") and target == interpreter:
        return
    # Checked step by step, not only at its end: a link through the outside is one that leaves.
    end = Path(os.path.normpath(path.parent / target))
    if target.is_absolute() or not end.is_relative_to(root) or not _stays(root, path):
        raise unsafe(root, path)


def _stays(root: Path, path: Path) -> bool:
    """Return whether a link ends inside, or at an interpreter's link that is checked itself."""
    for _ in range(16):
        if not path.is_symlink():
            return path.resolve().is_relative_to(root)
        if path.relative_to(root).as_posix() in _INTERPRETER_LINKS:
            return True
        path = Path(os.path.normpath(path.parent / path.readlink()))
        if not path.is_relative_to(root):
            return False
    return False


@contextmanager
def unsafe_errors(root: Path) -> Generator[None]:
    """Turn a path that cannot be followed (too long, a loop, no permission) into the one error."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # `resolve` reports a loop of links as RuntimeError
        path = error.filename if isinstance(error, OSError) else None
        raise unsafe(root, Path(os.fsdecode(path or root))) from error


def unsafe(root: Path, path: Path) -> DependencyError:
    """Return the error for an entry that discards the environment."""
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    return DependencyError(code="dependencies_unsafe", path=ascii(name)[:_SHOWN_PATH])


def make_read_only(root: Path, share: Callable[[Path], None]) -> None:
    """Give the tree to us, without any write permission, share its files, and sync it."""
    user, group = os.geteuid(), os.getegid()
    folders = list[Path]()
    for path in (root, *list(walk(root))):  # listed first: sharing makes temporary files
        status = path.lstat()
        if status.st_uid != user:
            os.chown(path, user, group, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            folders.append(path)
        elif stat.S_ISREG(status.st_mode):
            path.chmod(_PROGRAM_FILE if status.st_mode & stat.S_IXUSR else _READ_ONLY_FILE)
            share(path)
    os.sync()  # one call: an environment has thousands of files
    for folder in reversed(folders):
        folder.chmod(_READ_ONLY_FOLDER)
    root.chmod(0o755)  # the manifest is written yet, and a folder that is moved must be writable
    fsync_dir(root)


def tree_digest(root: Path) -> str:
    """Hash names, kinds and contents of all files but the manifest, which holds the hash."""
    digest = hashlib.sha256()
    for path in sorted(walk(root)):
        name = path.relative_to(root).as_posix()
        status = path.lstat()
        if name == MANIFEST or stat.S_ISDIR(status.st_mode):
            continue
        digest.update(os.fsencode(name) + b"\0%o\0" % stat.S_IFMT(status.st_mode))
        if stat.S_ISLNK(status.st_mode):
            digest.update(os.fsencode(path.readlink()) + b"\0")
            continue
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def walk(root: Path) -> Iterator[Path]:
    """Yield every entry below a folder; links are never followed.

    `os.walk` would leave out what it cannot read, and recurse as deep as a build nests folders.
    """
    pending = [root]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                yield Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))
