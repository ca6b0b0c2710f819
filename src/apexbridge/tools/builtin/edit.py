"""Write and Edit tools: atomic writes, exact string replacement, and hints on a near miss."""

import difflib
import os
import re
import stat
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio.to_thread
from pydantic import AliasChoices, Field

from apexbridge.errors import StorageError, ToolInputError
from apexbridge.paths import replace_bytes
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.redaction import HIDDEN_CREDENTIAL
from apexbridge.tools.base import ToolContext, ToolResult
from apexbridge.tools.builtin import charset_detection
from apexbridge.tools.builtin.path_access import (
    ResolvedPath,
    open_parent,
    open_target,
    resolve_path,
)
from apexbridge.tools.builtin.read import MAX_BYTES, read_text
from apexbridge.tools.typed import Arguments, TypedTool

_NUMBERED = re.compile(r"^\s*\d+\t", re.MULTILINE)
_WHITESPACE = re.compile(r"\s+")
_MAX_LINES = 5_000
_MAX_DISPLAY_LINES = 5
_MIN_SIMILARITY = 0.7
_COMPARED_CHARS = 200
_LOOKALIKES = str.maketrans("‘’“”–—\u00a0，：；（）！？", "''\"\"-- ,:;()!?")


def matching_lines(text: str, wanted: str) -> str:
    """List the numbers of the first lines where a string begins."""
    numbers, at = list[str](), text.find(wanted)
    while at >= 0 and len(numbers) < _MAX_DISPLAY_LINES:
        numbers.append(str(text.count("\n", 0, at) + 1))
        at = text.find(wanted, at + len(wanted))
    return ", ".join(numbers) + (", …" if at >= 0 else "")


def explain_mismatch(text: str, wanted: str) -> str:
    """Describe the closest match: by case, look-alike characters, whitespace or similarity."""
    plain = _NUMBERED.sub("", wanted)
    if plain != wanted and plain in text.replace("\r\n", "\n"):
        return "leave out the line numbers that Read shows"
    if wanted.casefold() in text.casefold():
        line = matching_lines(text.casefold(), wanted.casefold())
        return f"it occurs with different letter case (line {line})"
    if wanted.translate(_LOOKALIKES) in text.translate(_LOOKALIKES):
        line = matching_lines(text.translate(_LOOKALIKES), wanted.translate(_LOOKALIKES))
        return f"it occurs with different quotes, dashes or punctuation (line {line})"
    line = _match_ignoring_whitespace(text, wanted)
    if line:
        return f"it occurs with different whitespace (line {line}); read it again"
    return _closest_lines(text, wanted)


def _match_ignoring_whitespace(text: str, wanted: str) -> int:
    """Return the line of a match that ignores whitespace; 0 if there is none."""
    bare = _WHITESPACE.sub("", wanted)
    if not bare:
        return 0
    at = _WHITESPACE.sub("", text).find(bare)
    if at < 0:
        return 0
    line, seen = 1, 0
    for char in text:  # the character that the find was of, counted again with the blanks
        if char == "\n":
            line += 1
        if not char.isspace():
            if seen == at:
                break
            seen += 1
    return line


def _closest_lines(text: str, wanted: str) -> str:
    lines = text.split("\n")[:_MAX_LINES]
    first = next((line.strip() for line in wanted.split("\n") if line.strip()), "")[
        :_COMPARED_CHARS
    ]
    if not first:
        return "there is no similar line; read the file again"
    exact = next((number for number, line in enumerate(lines, 1) if first in line), 0)
    if exact:
        return f"only its first line does (line {exact}); read the file again"
    best, number = _MIN_SIMILARITY, 0
    matcher = difflib.SequenceMatcher(b=first, autojunk=False)
    for at, line in enumerate(lines, 1):
        matcher.set_seq1(line.strip()[:_COMPARED_CHARS])
        if matcher.real_quick_ratio() > best and matcher.quick_ratio() > best:
            ratio = matcher.ratio()
            best, number = (ratio, at) if ratio > best else (best, number)
    if not number:
        return "there is no similar line; read the file again"
    return f"the nearest is line {number}: {lines[number - 1].strip()[:200]!r}"


MAX_WRITE_BYTES = 10 * 1024 * 1024
_PATH = AliasChoices("file_path", "path", "filename", "file")
_SNIPPET_LINES = 2

_edit_lock = threading.Lock()
"""Held between the check for concurrent changes and the replacement (TOCTOU)."""


class WriteArguments(Arguments):
    """Arguments of Write."""

    file_path: str = Field(
        validation_alias=_PATH, description="The file, from the working folder or in full."
    )
    content: str = Field(
        validation_alias=AliasChoices("content", "contents", "text", "data"),
        description="All that the file is to hold.",
        max_length=MAX_WRITE_BYTES,
    )


class WriteTool(TypedTool[WriteArguments]):
    """Write a whole file."""

    def __init__(self) -> None:
        description = (
            "Write a whole text file (UTF-8) in the workspace, new or replaced. "
            "Folders on the way are made. To change a part of a file use Edit."
        )
        super().__init__("Write", description, WriteArguments)

    def required_permissions(
        self, arguments: WriteArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request permission to write the resolved path."""
        target = resolve_path(arguments.file_path, context, self.spec.name, writes=True)
        summary = f"Write {len(arguments.content):,} characters to {target.display}"
        return (target.request(summary),)

    async def run(self, arguments: WriteArguments, context: ToolContext) -> ToolResult:
        """Write the file."""
        _reject_hidden(arguments.content, self.spec.name)
        target = resolve_path(arguments.file_path, context, self.spec.name, writes=True)
        data = arguments.content.encode()
        is_new = await anyio.to_thread.run_sync(write_file, target, data)
        done = "Created" if is_new else "Replaced"
        lines = arguments.content.count("\n") + (not arguments.content.endswith("\n"))
        size = f"{lines:,} lines, {len(data):,} bytes" if data else "empty"
        return ToolResult(text=f"{done} {target.display} ({size}).", touched=(target.path,))


def write_file(target: ResolvedPath, data: bytes, *, may_replace: bool = True) -> bool:
    """Write a whole file atomically, with missing parent directories; True if it is new.

    Raises:
        ToolFailedError: If it cannot be written, or is there and may not be replaced.
    """
    with open_parent(target, create=True) as parent:
        try:
            os.stat(target.path.name, dir_fd=parent, follow_symlinks=False)
            is_new = False
        except FileNotFoundError:
            is_new = True
        except OSError as error:
            raise target.error(error.strerror or str(error)) from error
        if not (is_new or may_replace):
            raise target.error("it is there already")
        _replace(target, parent, data)
    return is_new


def _replace(target: ResolvedPath, parent: int, data: bytes) -> None:
    """Replace a file atomically in the open directory, even if its path was swapped since."""
    directory = Path(f"/proc/self/fd/{parent}")
    # Without /proc the directory is reopened by its path: a race that cannot be closed there.
    destination = (directory if directory.is_dir() else target.path.parent) / target.path.name
    try:
        replace_bytes(destination, data)
    except StorageError as error:
        raise target.error(str(error.details["detail"])) from error


class EditArguments(Arguments):
    """Arguments of Edit."""

    file_path: str = Field(
        validation_alias=_PATH, description="The file, from the working folder or in full."
    )
    old_string: str = Field(
        validation_alias=AliasChoices("old_string", "old_text", "old"),
        description="The text to replace, exactly as it stands, without line numbers.",
        min_length=1,
    )
    new_string: str = Field(
        validation_alias=AliasChoices("new_string", "new_text", "new"),
        description="The text to put there.",
    )
    replace_all: bool = Field(default=False, description="Replace it everywhere, not just once.")


class EditTool(TypedTool[EditArguments]):
    """Replace a string in a file."""

    def __init__(self) -> None:
        description = (
            "Replace a text in a file of the workspace. It must stand there exactly so, and only "
            "once unless replace_all is true. Encoding and line ends stay as they are."
        )
        super().__init__("Edit", description, EditArguments)

    def required_permissions(
        self, arguments: EditArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request permission to edit the resolved path."""
        target = resolve_path(arguments.file_path, context, self.spec.name, writes=True)
        return (target.request(f"Edit {target.display}"),)

    async def run(self, arguments: EditArguments, context: ToolContext) -> ToolResult:
        """Replace the string."""
        if arguments.old_string == arguments.new_string:
            raise ToolInputError("'old_string' and 'new_string' are the same", name=self.spec.name)
        _reject_hidden(arguments.new_string, self.spec.name)
        target = resolve_path(arguments.file_path, context, self.spec.name, writes=True)
        text = await anyio.to_thread.run_sync(_edit, target, arguments)
        return ToolResult(text=text, touched=(target.path,))


def _reject_hidden(text: str, tool: str) -> None:
    """Refuse to write the stand-in of a credential, which would replace the credential itself."""
    if HIDDEN_CREDENTIAL in text:
        detail = (
            f"the text has '{HIDDEN_CREDENTIAL}', which stands for a key that you were not shown: "
            "leave those lines as they are"
        )
        raise ToolInputError(detail, name=tool)


def _edit(target: ResolvedPath, wanted: EditArguments) -> str:
    with open_parent(target) as parent:
        with open_target(target, parent) as file:
            seen = os.fstat(file.fileno())
            data = read_text(target, file)
        if len(data) > MAX_BYTES:
            raise target.error(f"it is larger than {MAX_BYTES:,} bytes")
        decoded = charset_detection.decode(data)
        old, new, count = _locate_old_string(target, decoded.text, wanted)
        text = decoded.text.replace(old, new)
        changed = _encoded(target, decoded, data, text)
        with _edit_lock:
            if not _is_unchanged(parent, target.path.name, seen):
                raise target.error("it changed meanwhile: read it again")
            _replace(target, parent, changed)
    return _edit_summary(target, decoded.text.find(old), text, new, count)


def _locate_old_string(
    target: ResolvedPath, text: str, wanted: EditArguments
) -> tuple[str, str, int]:
    """Find the old string with LF or CRLF: itself, its replacement, and the number of matches."""
    has_returns = "\r\n" in text
    is_all_returns = has_returns and text.count("\r\n") == text.count("\n")
    # Models write LF; a file with CRLF must keep it, so CRLF is tried first if all lines have it.
    ways: list[Callable[[str], str]] = [str]
    if has_returns:
        ways.insert(0 if is_all_returns else 1, to_crlf)
    for way in ways:
        old = way(wanted.old_string)
        count = text.count(old)
        if count > 1 and not wanted.replace_all:
            lines = matching_lines(text, old)
            detail = f"'old_string' occurs {count:,} times (lines {lines})"
            hint = "give more of the text around it, or set replace_all"
            raise ToolInputError(f"{detail}: {hint}", name=target.tool)
        if count:
            return old, way(wanted.new_string), count
    why = explain_mismatch(text, wanted.old_string)
    raise ToolInputError(f"'old_string' is not in {target.display}: {why}", name=target.tool)


def to_crlf(text: str) -> str:
    """Convert line endings to CRLF."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _encoded(
    target: ResolvedPath, decoded: charset_detection.DecodedText, data: bytes, text: str
) -> bytes:
    try:
        if decoded.encode(decoded.text) != data:
            raise target.error(f"it is not valid {decoded.label}: an edit would damage it")
        return decoded.encode(text)
    except UnicodeEncodeError as error:
        odd = ascii(error.object[error.start : error.end])
        detail = f"the file is written in {decoded.label or 'UTF-8'}, which has no {odd}"
        raise ToolInputError(detail, name=target.tool) from None


def _is_unchanged(parent: int, name: str, seen: os.stat_result) -> bool:
    try:
        now = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    marks = (stat.ST_INO, stat.ST_DEV, stat.ST_SIZE)
    return now.st_mtime_ns == seen.st_mtime_ns and all(now[at] == seen[at] for at in marks)


def _edit_summary(target: ResolvedPath, start: int, text: str, new: str, count: int) -> str:
    """Describe the edit, with the changed lines for the model."""
    line = text.count("\n", 0, start) + 1
    if count > 1:
        return f"Replaced {count:,} places in {target.display}, the first in line {line}."
    lines = text.split("\n")
    first = max(line - 1 - _SNIPPET_LINES, 0)
    last = min(line + new.count("\n") + _SNIPPET_LINES, len(lines), first + 20)
    shown = (f"{number + 1:>6}\t{lines[number].rstrip()[:200]}" for number in range(first, last))
    return "\n".join((f"Replaced 1 place in {target.display}, line {line}. It now reads:", *shown))
