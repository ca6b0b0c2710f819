"""Path access guard for file tools: stop path traversal and symlink races (TOCTOU).

A path is resolved first, symlinks included, and must lie inside the call's `PathScope`. It is then
opened component by component with `openat` and `O_NOFOLLOW`, from the scope's directory on. The
resolved path holds no symlink, so one that is met was put there since, and is refused. This is
portable; Linux's `openat2` is not needed. A hard link cannot be note from the file itself: it can
only be read by its other name, because a write replaces the directory entry.
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
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.regular_files import NotRegularFileError, open_regular
from apexbridge.tools.base import ToolContext

DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_PATH = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPath:
    """A path inside the scope, symlinks resolved, and the scope's directory that contains it."""

    path: Path
    root: Path
    tool: str
    cwd: Path

    @property
    def display(self) -> str:
        """The path for the model: relative to the working directory, if it lies in it."""
        return display_path(self.path, self.cwd)

    def request(self, summary: str, *, harmless: bool = False) -> PermissionRequest:
        """Build the tool's permission request for this path."""
        argument = str(self.path)
        return PermissionRequest(
            tool=self.tool, argument=argument, path=self.path, summary=summary, harmless=harmless
        )

    def error(self, detail: str) -> ToolFailedError:
        """Build the error for this path."""
        return ToolFailedError(f"{self.display}: {detail}", name=self.tool)


def display_path(path: Path, cwd: Path) -> str:
    """Return the path relative to the working directory, or the absolute path."""
    is_inside = path.is_relative_to(cwd) and path != cwd
    return str(path.relative_to(cwd) if is_inside else path)


def resolve_path(
    text: str, context: ToolContext, tool: str, *, writes: bool = False
) -> ResolvedPath:
    """Resolve a path and check that it is inside the call's scope.

    Raises:
        ToolInputError: If it is not a path, or `path_outside` if it is outside the scope: the model
            can correct that before a person is asked.
    """
    if not text or "\0" in text or len(text) > _MAX_PATH:
        raise ToolInputError("invalid path" if text else "the path is empty", name=tool)
    if text == "~" or text.startswith("~/"):
        raise ToolInputError("'~' is not known here: write the path out", name=tool)
    try:
        cwd = _realpath(context.cwd)
        path = _realpath(cwd / text)
    except (OSError, ValueError) as error:  # the name is too long or not encodable
        raise ToolInputError(f"invalid path: {error}", name=tool) from None
    written = [_realpath(folder) for folder in context.scope.write]
    readable = [_realpath(folder) for folder in context.scope.read]
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
def open_directory(target: ResolvedPath, *, create: bool = False) -> Generator[int]:
    """Open a directory as a file descriptor, creating it and its parents if `create`.

    Raises:
        ToolFailedError: If it is none, cannot be opened, or was swapped for a link.
    """
    held = _open_beneath(target, target.path, create=create)
    try:
        yield held
    finally:
        os.close(held)


@contextmanager
def open_parent(target: ResolvedPath, *, create: bool = False) -> Generator[int]:
    """Open the parent directory as a file descriptor.

    Raises:
        ToolFailedError: If there is none, it cannot be opened, or was swapped for a link.
    """
    if target.path == target.root:
        raise target.error("it is a folder, not a file")
    held = _open_beneath(target, target.path.parent, create=create)
    try:
        yield held
    finally:
        os.close(held)


def _open_beneath(target: ResolvedPath, folder: Path, *, create: bool) -> int:
    try:
        held = os.open(target.root, DIRECTORY_FLAGS)
        for name in folder.relative_to(target.root).parts:
            above = held
            try:
                held = _openat(above, name, create=create)
            finally:
                os.close(above)
    except OSError as error:
        raise target.error(_os_error_text(error)) from error
    return held


def _openat(above: int, name: str, *, create: bool) -> int:
    try:
        return os.open(name, DIRECTORY_FLAGS, dir_fd=above)
    except FileNotFoundError:
        if not create:
            raise
    with contextlib.suppress(FileExistsError):  # created concurrently
        os.mkdir(name, 0o755, dir_fd=above)
    return os.open(name, DIRECTORY_FLAGS, dir_fd=above)


def _os_error_text(error: OSError) -> str:
    if error.errno == errno.ENOENT:
        return "there is no such file or folder"
    if error.errno == errno.ENOTDIR:
        return "a part of the path is not a directory"
    if error.errno == errno.ELOOP:
        return "it became a symlink meanwhile"
    return error.strerror or str(error)


def open_target(target: ResolvedPath, parent: int) -> BinaryIO:
    """Open a regular file; a FIFO or a device is not even opened.

    Raises:
        ToolFailedError: If it is not there, or is no plain file.
    """
    try:
        return open_regular(target.path.name, dir_fd=parent)
    except NotRegularFileError as error:
        raise target.error(str(error)) from None
    except OSError as error:
        raise target.error(_os_error_text(error)) from error


def is_directory(target: ResolvedPath) -> bool:
    """Return True if the path is a directory."""
    try:
        return stat.S_ISDIR(target.path.lstat().st_mode)
    except (OSError, ValueError):
        return False
