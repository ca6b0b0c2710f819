"""Remove directory trees that a script or a package may have made: of any depth, mode or name."""

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _Level:
    """A directory on the way down of `remove_tree`, and what is left to do in it."""

    name: str
    inode: tuple[int, int]
    folders: list[str]


def remove_tree(root: Path) -> None:
    """Remove a directory tree of any depth, mode or file names; a missing one is fine.

    It descends with one file descriptor, so that no path exceeds PATH_MAX and nothing recurses.
    Nothing is renamed: a file system may refuse that (EXDEV between project ids, a full disk).
    What cannot be removed stays, the rest goes, and the first error is raised at the end. Symlinks
    are removed, never followed. No other process may write to the tree.
    """
    try:
        if not stat.S_ISLNK(root.lstat().st_mode):
            root.chmod(stat.S_IRWXU)
        top = os.open(root, _DIRECTORY)
    except FileNotFoundError:
        return
    failures = list[OSError]()
    _remove_content(top, failures)
    if failures:
        raise failures[0]
    root.rmdir()


def _remove_content(top: int, failures: list[OSError]) -> None:
    """Empty a directory; its file descriptor is closed."""
    folder, way = top, list[_Level]()
    try:
        way.append(_enter(top, "", failures))
        while way:
            level = way[-1]
            if level.folders:
                name = level.folders.pop()
                try:
                    inner = os.open(name, _DIRECTORY, dir_fd=folder)
                except OSError as error:
                    failures.append(error)
                    continue
                os.close(folder)
                folder = inner
                way.append(_enter(folder, name, failures))
                continue
            way.pop()
            if way:
                folder = _leave(folder, level, way[-1], failures)
    finally:
        os.close(folder)


def _enter(folder: int, name: str, failures: list[OSError]) -> _Level:
    """Unlink the files of a directory; return it with its subdirectories."""
    status, folders = os.fstat(folder), list[str]()
    try:
        names = os.listdir(folder)
    except OSError as error:
        failures.append(error)
        names = []
    for found in names:
        try:
            if not stat.S_ISDIR(os.stat(found, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(found, dir_fd=folder)
                continue
            os.chmod(found, stat.S_IRWXU, dir_fd=folder)
            folders.append(found)
        except OSError as error:
            failures.append(error)
    return _Level(name, (status.st_dev, status.st_ino), folders)


def _leave(folder: int, level: _Level, above: _Level, failures: list[OSError]) -> int:
    """Go up and remove the directory that was left; return the file descriptor of the upper one."""
    parent = os.open("..", _DIRECTORY, dir_fd=folder)
    status = os.fstat(parent)
    if (status.st_dev, status.st_ino) != above.inode:  # moved meanwhile: this is not our tree
        os.close(parent)
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    os.close(folder)
    try:
        os.rmdir(level.name, dir_fd=parent)
    except OSError as error:
        failures.append(error)
    return parent
