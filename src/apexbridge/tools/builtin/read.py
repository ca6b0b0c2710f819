"""Read tool: a text file with line numbers, or a directory listing."""

import os
import stat
from collections.abc import Sequence
from typing import BinaryIO

import anyio.to_thread
from pydantic import AliasChoices, Field

from apexbridge.permissions.rules import PermissionRequest
from apexbridge.tools.base import ToolContext, ToolResult
from apexbridge.tools.builtin import charset_detection
from apexbridge.tools.builtin.path_access import (
    ResolvedPath,
    is_directory,
    open_directory,
    open_parent,
    open_target,
    resolve_path,
)
from apexbridge.tools.truncation import MAX_CHARS, truncate_text
from apexbridge.tools.typed import Arguments, TypedTool

MAX_BYTES = 32 * 1024 * 1024
MAX_LINES = 2_000
MAX_LINE_CHARS = 2_000
MAX_DIR_ENTRIES = 500


class ReadArguments(Arguments):
    """Arguments of Read."""

    file_path: str = Field(
        validation_alias=AliasChoices("file_path", "path", "filename", "file"),
        description="The file, from the working folder or in full.",
    )
    offset: int = Field(default=1, ge=0, description="The first line, counted from 1.")
    limit: int = Field(default=MAX_LINES, ge=1, description="How many lines at most.")


class ReadTool(TypedTool[ReadArguments]):
    """Read a text file or list a directory."""

    def __init__(self) -> None:
        description = (
            "Read a text file of the workspace; each line comes with its number. Long files come "
            "in parts: give offset and limit. A folder is listed."
        )
        super().__init__("Read", description, ReadArguments, read_only=True)

    def required_permissions(
        self, arguments: ReadArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request a harmless read of the resolved path."""
        target = resolve_path(arguments.file_path, context, self.spec.name)
        return (target.request(f"Read {target.display}", harmless=True),)

    async def run(self, arguments: ReadArguments, context: ToolContext) -> ToolResult:
        """Read the file or directory."""
        target = resolve_path(arguments.file_path, context, self.spec.name)
        text = await anyio.to_thread.run_sync(_read, target, arguments, abandon_on_cancel=True)
        return ToolResult(text=text, touched=(target.path,))


def _read(target: ResolvedPath, arguments: ReadArguments) -> str:
    if is_directory(target):
        return _list_directory(target)
    with open_parent(target) as parent, open_target(target, parent) as file:
        size = os.fstat(file.fileno()).st_size
        data = read_text(target, file)
    is_cut = len(data) > MAX_BYTES
    head = charset_detection.decode(data.rpartition(b"\n")[0] or data[:-1] if is_cut else data)
    notes = [f"The file is written in {head.label}"] if head.label else []
    if is_cut:
        notes.append(f"Only the first {MAX_BYTES:,} of its {size:,} bytes can be read")
    note = "".join(f"[{note}]\n" for note in notes)
    return note + _with_line_numbers(head.text, max(arguments.offset, 1), arguments.limit)


def read_text(target: ResolvedPath, file: BinaryIO) -> bytes:
    """Read a text file's bytes, at most `MAX_BYTES` + 1.

    Raises:
        ToolFailedError: If it is not text; the error names the file type.
    """
    try:
        # One byte more shows that the file is too large, without a race against its size.
        data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise target.error(error.strerror or str(error)) from error
    kind = charset_detection.binary_kind(data)
    if kind:
        size = f"{len(data):,} bytes" if len(data) <= MAX_BYTES else "large"
        raise target.error(f"it is {kind} ({size}), not text")
    return data


def split_lines(text: str) -> list[str]:
    """Split into lines without their LF or CRLF; a final line ending starts no further line."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _with_line_numbers(text: str, first: int, limit: int) -> str:
    lines = split_lines(text)
    if not lines:
        return "[The file is empty]"
    if first > len(lines):
        return f"[The file has {len(lines):,} lines: there is no line {first:,}]"
    shown, budget, number = list[str](), MAX_CHARS, first
    for number, line in enumerate(lines[first - 1 : first - 1 + limit], first):
        numbered = f"{number:>6}\t{truncate_line(line)}"
        budget -= len(numbered) + 1
        if budget < 0:
            number -= 1
            break
        shown.append(numbered)
    if number < len(lines):
        shown.append(
            f"[Lines {first:,} to {number:,} of {len(lines):,}; read on with offset={number + 1}]"
        )
    return "\n".join(shown)


def truncate_line(line: str) -> str:
    """Truncate a long line, with a note of how much is missing."""
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[:MAX_LINE_CHARS]} [{len(line) - MAX_LINE_CHARS:,} more characters]"


def _list_directory(target: ResolvedPath) -> str:
    with open_directory(target) as folder, os.scandir(folder) as entries:
        names = sorted(_entry_name(entry) for entry in entries)
    if not names:
        return f"[The folder {target.display} is empty]"
    more = len(names) - MAX_DIR_ENTRIES
    lines = [
        f"[{target.display} is a folder with {len(names):,} entries]",
        *names[:MAX_DIR_ENTRIES],
    ]
    lines += [f"[{more:,} more: use Glob with a pattern]"] if more > 0 else []
    return truncate_text("\n".join(lines), keeps="start", hint="use Glob with a pattern")


def _entry_name(entry: "os.DirEntry[str]") -> str:
    name = entry.name.encode("utf-8", "replace").decode()
    mode = entry.stat(follow_symlinks=False).st_mode
    return name + ("/" if stat.S_ISDIR(mode) else "@" if stat.S_ISLNK(mode) else "")
