"""Where file tools may go: paths resolved and checked, then opened so that no swap leads away.

A path is resolved first, links and all, and must lie inside the call's `Reach`. It is then opened
folder by folder from the reach's own folder, following no link: what was resolved holds none, so
a link found on the way was put there since, and is refused. That needs nothing but `openat`, so it
holds on every system. A file that has another name elsewhere (a hard link) cannot be told apart
from any other; it is only read through that name, for writing puts a new file in its place.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from apexbridge.errors import ToolFailedError, ToolInputError
from apexbridge.tools.base import ToolContext

DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
REGULAR_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_PATH = 4_096
_FILE_TYPES = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPath:
    """A path inside the reach, as it really is, and the folder of the reach that it lies in."""

    path: Path
    root: Path
    tool: str
    cwd: Path

    @property
    def shown(self) -> str:
        """How it is told to the model: from the working folder, if it lies in it."""
        return display_path(self.path, self.cwd)

    def failed(self, detail: str) -> ToolFailedError:
        """The error that says what is wrong with it."""
        return ToolFailedError(f"{self.shown}: {detail}", name=self.tool)


def display_path(path: Path, cwd: Path) -> str:
    """A path from the working folder, or all of it."""
    is_inside = path.is_relative_to(cwd) and path != cwd
    return str(path.relative_to(cwd) if is_inside else path)


def resolve_path(
    text: str, context: ToolContext, tool: str, *, writes: bool = False
) -> ResolvedPath:
    """Find out where a path really leads, and that the call may go there.

    Raises:
        ToolInputError: If it is no path, or `path_outside` if it leads out of reach: the model
            can mend that, and nobody has yet been asked.
    """
    if not text or "\0" in text or len(text) > _MAX_PATH:
        raise ToolInputError("it is no path" if text else "the path is empty", name=tool)
    if text == "~" or text.startswith("~/"):
        raise ToolInputError("'~' is not known here: write the path out", name=tool)
    try:
        cwd = _realpath(context.cwd)
        path = _realpath(cwd / text)
    except (OSError, ValueError) as error:  # a name that the disk cannot have
        raise ToolInputError(f"it is no path: {error}", name=tool) from None
    written = [_realpath(folder) for folder in context.reach.write]
    readable = [_realpath(folder) for folder in context.reach.read]
    for root in written if writes else (*written, *readable):
        if path.is_relative_to(root):
            return ResolvedPath(path=path, root=root, tool=tool, cwd=cwd)
    folders = ", ".join(map(str, written if writes else (*written, *readable)))
    raise ToolInputError(
        code="path_outside", name=tool, path=ascii(str(path))[1:-1], folders=folders or "nothing"
    )


def _realpath(path: Path) -> Path:
    return Path(os.path.realpath(path))


@contextmanager
def open_directory(place: ResolvedPath, *, makes: bool = False) -> Generator[int]:
    """Open the folder at a place, making it and those on the way if asked to.

    Raises:
        ToolFailedError: If it is none, cannot be opened, or was swapped for a link.
    """
    held = _open_beneath(place, place.path, makes=makes)
    try:
        yield held
    finally:
        os.close(held)


@contextmanager
def open_parent(place: ResolvedPath, *, makes: bool = False) -> Generator[int]:
    """Open the folder that a place lies in.

    Raises:
        ToolFailedError: If there is none, it cannot be opened, or was swapped for a link.
    """
    if place.path == place.root:
        raise place.failed("it is a folder, not a file")
    held = _open_beneath(place, place.path.parent, makes=makes)
    try:
        yield held
    finally:
        os.close(held)


def _open_beneath(place: ResolvedPath, folder: Path, *, makes: bool) -> int:
    try:
        held = os.open(place.root, DIRECTORY_FLAGS)
        for name in folder.relative_to(place.root).parts:
            above = held
            try:
                held = _openat(above, name, makes=makes)
            finally:
                os.close(above)
    except OSError as error:
        raise place.failed(_os_error_text(error)) from error
    return held


def _openat(above: int, name: str, *, makes: bool) -> int:
    try:
        return os.open(name, DIRECTORY_FLAGS, dir_fd=above)
    except FileNotFoundError:
        if not makes:
            raise
    with contextlib.suppress(FileExistsError):  # someone was faster
        os.mkdir(name, 0o755, dir_fd=above)
    return os.open(name, DIRECTORY_FLAGS, dir_fd=above)


def _os_error_text(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "there is no such file or folder"
    if error.errno == errno.ENOTDIR:
        return "a part of the path is no folder"
    if error.errno == errno.ELOOP:
        return "it became a link meanwhile"
    return error.strerror or str(error)


def open_regular(place: ResolvedPath, parent: int) -> BinaryIO:
    """Open the file at a place, if it is a plain file; nothing else is even touched.

    Raises:
        ToolFailedError: If it is not there, or is no plain file.
    """
    try:
        return open_entry(parent, place.path.name)
    except OSError as error:
        raise place.failed(_os_error_text(error)) from error
    except NotRegularFileError as error:
        raise place.failed(f"it is {error}, not a file") from None


class NotRegularFileError(Exception):
    """What is there is no plain file; its words say what it is."""


def open_entry(parent: int, name: str) -> BinaryIO:
    """Open a plain file in an open folder.

    Raises:
        NotPlainError: If it is something else.
        OSError: If it cannot be opened.
    """
    _reject_special_file(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    file = os.fdopen(os.open(name, REGULAR_FLAGS, dir_fd=parent), "rb")
    try:
        _reject_special_file(
            os.fstat(file.fileno()).st_mode
        )  # what was looked at may have been swapped
    except NotRegularFileError:
        file.close()
        raise
    return file


def _reject_special_file(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise NotRegularFileError(_FILE_TYPES.get(stat.S_IFMT(mode), "something odd"))


def is_directory(place: ResolvedPath) -> bool:
    """Whether a folder is there."""
    try:
        return stat.S_ISDIR(place.path.lstat().st_mode)
    except (OSError, ValueError):
        return False
