"""Seal a built environment: what its build may have left is checked, then it is made read-only.

A build can run code of packages (`setup.py`), so nothing in its output is believed: links may stay
inside only, the interpreter's link is the one that we chose, and there are no devices, no hard
links and no set-user-id bits.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from apexbridge.errors import DependencyError
from apexbridge.paths import fsync_dir

_READ_ONLY_FOLDER, _READ_ONLY_FILE, _PROGRAM_FILE = 0o555, 0o444, 0o555
_INTERPRETER_LINKS = frozenset({"bin/python", "bin/python3"})
MANIFEST = "environment.json"


def check_tree(root: Path, interpreter: Path | None) -> int:
    """Check every entry and return the size in bytes on disk.

    Raises:
        DependencyError: `dependencies_unsafe`, if a link leads outside or a file is no plain file.
    """
    real, size = root.resolve(), 0
    for path in walk(root):
        status = path.lstat()
        size += status.st_blocks * 512
        if stat.S_ISLNK(status.st_mode):
            _check_link(real, path, interpreter)
        elif stat.S_ISREG(status.st_mode):
            if status.st_nlink != 1 or status.st_mode & (stat.S_ISUID | stat.S_ISGID):
                raise _unsafe(root, path)
        elif not stat.S_ISDIR(status.st_mode):
            raise _unsafe(root, path)
    return size


def _check_link(root: Path, path: Path, interpreter: Path | None) -> None:
    target = path.readlink()
    where = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    if interpreter is not None and where.startswith("bin/") and target == interpreter:
        return
    # Checked step by step, not only at its end: a link through the outside is one that leaves.
    end = Path(os.path.normpath(path.parent / target))
    if target.is_absolute() or not end.is_relative_to(root) or not _stays(root, path):
        raise _unsafe(root, path)


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


def _unsafe(root: Path, path: Path) -> DependencyError:
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    return DependencyError(code="dependencies_unsafe", path=ascii(name))


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
    """Yield every entry below a folder; links are never followed."""
    for place, folders, files in os.walk(root):
        for name in (*folders, *files):
            yield Path(place, name)
