"""Grep tool: search file contents with a regular expression, in bounded time."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal

import anyio.to_thread
from pydantic import AliasChoices, Field, field_validator

from apexbridge.errors import ToolInputError
from apexbridge.path_patterns import PathMatcher
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.regular_files import open_regular
from apexbridge.tools.base import ToolContext, ToolResult
from apexbridge.tools.builtin import charset_detection
from apexbridge.tools.builtin.glob import (
    DEFAULT_TIMEOUT,
    FileWalk,
    ReadFilter,
    allow_all,
    compile_glob,
    printable,
    skipped_summary,
)
from apexbridge.tools.builtin.path_access import (
    ResolvedPath,
    display_path,
    is_directory,
    open_directory,
    open_parent,
    open_target,
    resolve_path,
)
from apexbridge.tools.builtin.read import split_lines
from apexbridge.tools.builtin.regex import LinePattern, SearchTimeoutError
from apexbridge.tools.truncation import truncate_text
from apexbridge.tools.typed import Arguments, TypedTool

MAX_BYTES = 10 * 1024 * 1024
MAX_LINE_CHARS = 300
"""Longer lines are truncated in the output."""

GrepMode = Literal["content", "files", "count"]


class GrepArguments(Arguments):
    """Arguments of Grep."""

    pattern: str = Field(
        validation_alias=AliasChoices("pattern", "regex", "query"),
        description="A regular expression, tried on each line. No lookaround, no backreferences.",
        min_length=1,
    )
    path: str = Field(
        default=".",
        validation_alias=AliasChoices("path", "file_path", "folder", "directory"),
        description="The folder or file to search.",
    )
    glob: str = Field(
        default="",
        validation_alias=AliasChoices("glob", "include"),
        description="Only files that fit this, such as '*.py'.",
    )
    mode: GrepMode = Field(
        default="content",
        validation_alias=AliasChoices("mode", "output_mode"),
        description="The lines, only the files that have any, or how many each has.",
    )
    ignore_case: bool = Field(
        default=False,
        validation_alias=AliasChoices("ignore_case", "-i"),
        description="Take capital and small letters for the same.",
    )
    before: int = Field(default=0, ge=0, le=20, validation_alias=AliasChoices("before", "-B"))
    after: int = Field(default=0, ge=0, le=20, validation_alias=AliasChoices("after", "-A"))
    context: int = Field(
        default=0,
        ge=0,
        le=20,
        validation_alias=AliasChoices("context", "-C"),
        description="Lines to show before and after each hit.",
    )
    limit: int = Field(
        default=100,
        ge=1,
        le=1_000,
        validation_alias=AliasChoices("limit", "head_limit", "max_results"),
        description="How many hits at most.",
    )
    include_ignored: bool = Field(default=False, description="Also what .gitignore leaves out.")

    @field_validator("mode", mode="before")
    @classmethod
    def _other_names(cls, value: object) -> object:
        return "files" if value == "files_with_matches" else value


@dataclass(slots=True)
class _Search:
    """State of one search: the pattern, and the results so far."""

    wanted: GrepArguments
    pattern: LinePattern
    walk: FileWalk
    lines: list[str] = field(default_factory=list[str])
    hits: int = 0
    files: list[Path] = field(default_factory=list[Path])
    too_large: int = 0

    @property
    def is_full(self) -> bool:
        found = self.hits if self.wanted.mode == "content" else len(self.files)
        return found >= self.wanted.limit

    def add_file(self, shown: str, path: Path, data: bytes) -> None:
        """Search one file's bytes.

        Raises:
            SearchTimeoutError: If the deadline passes.
        """
        if charset_detection.binary_kind(data):
            return
        decoded = charset_detection.decode(data)
        if decoded.encoding != "utf-8" or decoded.bom:
            data = decoded.text.encode("utf-8", "replace")
        found = self.pattern.matching_lines(data, self.walk.deadline)
        # The matches are a generator: islice ends the search of the file, not only its output.
        match self.wanted.mode:
            case "files":
                found = islice(found, 1)
            case "content":
                found = islice(found, self.wanted.limit - self.hits)
            case "count":
                pass
        numbers = list(found)
        if numbers:
            self._add_matches(shown, path, split_lines(decoded.text), numbers)

    def _add_matches(self, shown: str, path: Path, lines: list[str], numbers: list[int]) -> None:
        self.files.append(path)
        match self.wanted.mode:
            case "files":
                self.lines.append(shown)
            case "count":
                self.hits += len(numbers)
                self.lines.append(f"{shown}:{len(numbers)}")
            case "content":
                self.hits += len(numbers)
                self.lines += self._content(shown, lines, numbers)

    def _content(self, shown: str, lines: list[str], numbers: list[int]) -> Iterator[str]:
        before = max(self.wanted.before, self.wanted.context)
        after = max(self.wanted.after, self.wanted.context)
        hits, last = set(numbers), -1
        for number in numbers:
            first = max(number - before, last + 1, 0)
            if (before or after) and self.lines and first > last + 1:
                yield "--"
            for at in range(first, min(number + after + 1, len(lines))):
                mark = ":" if at in hits else "-"
                yield f"{shown}{mark}{at + 1}{mark}{_truncate_match(lines[at])}"
                last = at


def _truncate_match(line: str) -> str:
    return (
        line
        if len(line) <= MAX_LINE_CHARS
        else f"{line[:MAX_LINE_CHARS]} [{len(line):,} characters]"
    )


class GrepTool(TypedTool[GrepArguments]):
    """Search files for lines that match a regular expression."""

    def __init__(
        self, *, may_read: ReadFilter = allow_all, seconds: float = DEFAULT_TIMEOUT
    ) -> None:
        self._may_read = may_read
        self._seconds = seconds
        description = (
            "Search the text files of the workspace for lines that fit a regular expression. "
            "Gives path:line:text. What .gitignore names is left out, links are not followed."
        )
        super().__init__("Grep", description, GrepArguments, read_only=True)

    def required_permissions(
        self, arguments: GrepArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request a harmless read of the directory or file."""
        target = resolve_path(arguments.path, context, self.spec.name)
        summary = f"Search {target.display} for {arguments.pattern[:100]}"
        return (target.request(summary, harmless=True),)

    async def run(self, arguments: GrepArguments, context: ToolContext) -> ToolResult:
        """Search until the limit or the deadline."""
        target = resolve_path(arguments.path, context, self.spec.name)
        globs = compile_glob(arguments.glob, self.spec.name) if arguments.glob else None
        walk = FileWalk(
            deadline=time.monotonic() + self._seconds, include_ignored=arguments.include_ignored
        )
        search = self._prepare(arguments, walk)
        try:
            await anyio.to_thread.run_sync(
                lambda: self._search(target, globs, search, context), abandon_on_cancel=True
            )
        finally:
            walk.deadline = 0  # a cancelled search ends at its next check
        hint = "use a narrower pattern, a glob or a smaller limit"
        body = truncate_text("\n".join(search.lines), keeps="start", hint=hint)
        note = _result_note(search)
        touched = search.files[:50] if arguments.mode == "content" else ()
        return ToolResult(text=f"{body}\n{note}" if search.lines else note, touched=tuple(touched))

    def _prepare(self, arguments: GrepArguments, walk: FileWalk) -> _Search:
        try:
            pattern = LinePattern(arguments.pattern, ignore_case=arguments.ignore_case)
        except ValueError as error:
            detail = f"invalid 'pattern': {error}"
            raise ToolInputError(detail, name=self.spec.name) from None
        return _Search(arguments, pattern, walk)

    def _search(
        self, target: ResolvedPath, globs: PathMatcher | None, search: _Search, context: ToolContext
    ) -> None:
        try:
            if is_directory(target):
                self._search_directory(target, globs, search, context)
            else:
                with open_parent(target) as parent, open_target(target, parent) as file:
                    _search_file(search, file, target.path, target.cwd)
        except SearchTimeoutError:
            search.walk.stopped = "because the time was up"

    def _search_directory(
        self, target: ResolvedPath, globs: PathMatcher | None, search: _Search, context: ToolContext
    ) -> None:
        with open_directory(target) as top:
            for path, parent, name in search.walk.files(top):
                if search.is_full:
                    return
                full_path = target.path / path
                if globs is not None and not globs.verdict(path):
                    continue
                if not self._may_read(full_path, context):
                    continue
                try:
                    with open_regular(name, dir_fd=parent) as file:
                        _search_file(search, file, full_path, target.cwd)
                except OSError:
                    continue


def _search_file(search: _Search, file: BinaryIO, path: Path, cwd: Path) -> None:
    data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        search.too_large += 1
        return
    search.add_file(printable(display_path(path, cwd)), path, data)


def _result_note(search: _Search) -> str:
    count = f"{search.hits:,} lines in {len(search.files):,} files"
    if search.wanted.mode == "files":
        count = f"{len(search.files):,} files"
    notes = [count if search.files else "No line fits the pattern"]
    if not search.files and not search.wanted.ignore_case:
        notes.append("Capital letters counted; 'ignore_case' takes them for small ones")
    if search.is_full:
        notes = [f"{count}: the limit is reached, there may be more"]
    if search.too_large:
        notes.append(f"{search.too_large:,} files over {MAX_BYTES:,} bytes were not searched")
    return f"[{'. '.join((*notes, *skipped_summary(search.walk)))}]"
