"""Glob tool, and the directory walk shared with Grep: bounded, no symlinks, .gitignore."""

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import anyio.to_thread
from pydantic import AliasChoices, Field

from apexbridge.errors import ToolInputError
from apexbridge.path_patterns import PathMatcher, compile_patterns, parse_gitignore
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.regular_files import open_regular
from apexbridge.tools.base import ToolContext, ToolResult
from apexbridge.tools.builtin.path_access import (
    DIRECTORY_FLAGS,
    ResolvedPath,
    display_path,
    open_directory,
    resolve_path,
)
from apexbridge.tools.truncation import truncate_text
from apexbridge.tools.typed import Arguments, TypedTool

MAX_DEPTH = 64
_ALWAYS_SKIPPED = frozenset({".git", ".hg", ".svn", ".jj", "__pycache__"})
_IGNORE_FILE = ".gitignore"
_MAX_IGNORE_BYTES = 256 * 1024


class FoundFile(NamedTuple):
    """A directory entry: its relative path, and the open file descriptor of its directory."""

    path: str
    parent: int
    name: str


class IgnoreFile(NamedTuple):
    """A parsed .gitignore and the directory it applies to (empty, or with a trailing slash)."""

    folder: str
    patterns: PathMatcher


@dataclass(slots=True, kw_only=True)
class FileWalk:
    """One recursive walk, with counts of what it skipped."""

    deadline: float
    """On the clock of `time.monotonic`."""
    max_entries: int = 200_000
    include_ignored: bool = False
    ignored: int = 0
    unreadable: int = 0
    stopped: str = ""
    """The reason for an early end."""
    _seen: int = field(default=0, init=False)

    def files(self, top: int) -> Iterator[FoundFile]:
        """Yield files below an open directory; a file descriptor is valid until the next file."""
        yield from self._walk(top, "", ())

    def _walk(
        self, directory: int, prefix: str, rules: Sequence[IgnoreFile]
    ) -> Iterator[FoundFile]:
        if not self.include_ignored:
            rules = (*rules, *_load_ignore_file(directory, prefix))
        try:
            # Sorted: results must not depend on the order of the file system.
            with os.scandir(directory) as entries:
                listed = sorted((e.name, e.is_dir(follow_symlinks=False)) for e in entries)
        except OSError:
            self.unreadable += 1
            return
        for name, is_folder in listed:
            if self._must_stop():
                return
            path = f"{prefix}{name}"
            if self._is_ignored(f"{path}/" if is_folder else path, name, rules):
                continue
            if is_folder:
                yield from self._walk_child(directory, name, f"{path}/", rules)
            else:
                yield FoundFile(path, directory, name)

    def _walk_child(
        self, directory: int, name: str, prefix: str, rules: Sequence[IgnoreFile]
    ) -> Iterator[FoundFile]:
        if prefix.count("/") > MAX_DEPTH:
            self.unreadable += 1
            return
        try:
            # By file descriptor and O_NOFOLLOW: a swapped directory is not followed (TOCTOU).
            child = os.open(name, DIRECTORY_FLAGS, dir_fd=directory)
        except OSError:
            self.unreadable += 1
            return
        try:
            yield from self._walk(child, prefix, rules)
        finally:
            os.close(child)

    def _must_stop(self) -> bool:
        self._seen += 1
        if self._seen > self.max_entries:
            self.stopped = f"after {self.max_entries:,} entries"
        elif time.monotonic() > self.deadline:
            self.stopped = "because the time was up"
        return bool(self.stopped)

    def _is_ignored(self, path: str, name: str, rules: Sequence[IgnoreFile]) -> bool:
        if self.include_ignored:
            return False
        is_ignored = name in _ALWAYS_SKIPPED
        for folder, patterns in reversed(rules):
            verdict = None if is_ignored else patterns.verdict(path[len(folder) :])
            if verdict is not None:
                is_ignored = verdict
                break
        self.ignored += is_ignored
        return is_ignored


def _load_ignore_file(directory: int, prefix: str) -> Iterator[IgnoreFile]:
    try:
        with open_regular(_IGNORE_FILE, dir_fd=directory) as file:
            text = file.read(_MAX_IGNORE_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    yield IgnoreFile(prefix, parse_gitignore(text))


ReadFilter = Callable[[Path, ToolContext], bool]
"""Permission filter for each file that a search finds."""

DEFAULT_TIMEOUT = 10.0
_MAGIC = frozenset("*?[{\\")


def allow_all(_path: Path, _context: ToolContext) -> bool:
    """Let every file be found."""
    return True


class GlobArguments(Arguments):
    """Arguments of Glob."""

    pattern: str = Field(
        validation_alias=AliasChoices("pattern", "glob", "glob_pattern"),
        description="Such as '*.py' (in any folder), 'src/**/*.{ts,tsx}' or 'docs/*.md'.",
        min_length=1,
    )
    path: str = Field(
        default=".",
        validation_alias=AliasChoices("path", "folder", "directory"),
        description="The folder to look in.",
    )
    limit: int = Field(default=100, ge=1, le=1_000, description="How many files at most.")
    include_ignored: bool = Field(default=False, description="Also what .gitignore leaves out.")


@dataclass(frozen=True, slots=True)
class _Hit:
    time: int
    path: Path


class GlobTool(TypedTool[GlobArguments]):
    """Find files by a glob pattern."""

    def __init__(
        self, *, may_read: ReadFilter = allow_all, seconds: float = DEFAULT_TIMEOUT
    ) -> None:
        self._may_read = may_read
        self._seconds = seconds
        description = (
            "Find files of the workspace by a pattern; the newest come first. What .gitignore "
            "names is left out, links are not followed."
        )
        super().__init__("Glob", description, GlobArguments, read_only=True)

    def required_permissions(
        self, arguments: GlobArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request a harmless read of the directory."""
        target, pattern = self._split_pattern(arguments, context)
        compile_glob(pattern, self.spec.name)
        summary = f"Find {pattern} in {target.display}"
        return (target.request(summary, harmless=True),)

    async def run(self, arguments: GlobArguments, context: ToolContext) -> ToolResult:
        """Find the files, newest first."""
        target, pattern = self._split_pattern(arguments, context)
        patterns = compile_glob(pattern, self.spec.name)
        walk = FileWalk(
            deadline=time.monotonic() + self._seconds, include_ignored=arguments.include_ignored
        )
        try:
            hits = await anyio.to_thread.run_sync(
                lambda: self._find(target, patterns, walk, context), abandon_on_cancel=True
            )
        finally:
            walk.deadline = 0  # a cancelled search ends at its next check
        hits.sort(key=lambda hit: (-hit.time, hit.path))
        lines = [display_path(hit.path, target.cwd) for hit in hits[: arguments.limit]]
        note = _result_note(len(hits), arguments.limit, walk)
        hint = "use a narrower pattern"
        body = truncate_text("\n".join(map(printable, lines)), keeps="start", hint=hint)
        return ToolResult(text=f"{body}\n{note}" if lines else note)

    def _find(
        self, target: ResolvedPath, patterns: PathMatcher, walk: FileWalk, context: ToolContext
    ) -> list[_Hit]:
        hits = list[_Hit]()
        with open_directory(target) as top:
            for path, parent, name in walk.files(top):
                if not patterns.verdict(path):
                    continue
                try:
                    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                except OSError:
                    continue
                full_path = target.path / path
                if stat.S_ISREG(status.st_mode) and self._may_read(full_path, context):
                    hits.append(_Hit(status.st_mtime_ns, full_path))
        return hits

    def _split_pattern(
        self, arguments: GlobArguments, context: ToolContext
    ) -> tuple[ResolvedPath, str]:
        """Split an absolute pattern into its fixed directory and the rest."""
        parts = PurePosixPath(arguments.pattern).parts
        if not arguments.pattern.startswith("/"):
            return resolve_path(arguments.path, context, self.spec.name), arguments.pattern
        plain = next((at for at, part in enumerate(parts) if _MAGIC & set(part)), len(parts) - 1)
        rest = "/".join(parts[plain:])
        rest = f"/{rest}" if "/" not in rest else rest
        return resolve_path(str(PurePosixPath(*parts[:plain])), context, self.spec.name), rest


def printable(path: str) -> str:
    """Return a path as valid text, also if its bytes are not UTF-8."""
    return path.encode("utf-8", "backslashreplace").decode()


def compile_glob(pattern: str, tool: str) -> PathMatcher:
    """Compile a glob pattern.

    Raises:
        ToolInputError: If the pattern create no sense.
    """
    try:
        return compile_patterns((pattern.removeprefix("./"),))
    except ValueError as error:
        raise ToolInputError(f"invalid pattern {pattern!r}: {error}", name=tool) from None


def skipped_summary(walk: FileWalk) -> list[str]:
    """Describe what a walk skipped."""
    notes = list[str]()
    if walk.stopped:
        notes.append(f"The search stopped {walk.stopped}: look in a smaller folder")
    if walk.ignored:
        notes.append(f"{walk.ignored:,} ignored entries left out (include_ignored)")
    if walk.unreadable:
        notes.append(f"{walk.unreadable:,} folders could not be read")
    return notes


def _result_note(count: int, limit: int, walk: FileWalk) -> str:
    notes = [f"{count:,} files" if count else "No file fits the pattern"]
    if count > limit:
        notes = [f"The newest {limit:,} of {count:,} files; use a narrower pattern"]
    return f"[{'. '.join((*notes, *skipped_summary(walk)))}]"
