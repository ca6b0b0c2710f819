"""Every file below a folder, in bounded time: no link is followed, what git ignores is left out."""

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
from apexbridge.tools.base import ToolContext, ToolResult, ToolSpec
from apexbridge.tools.builtin.path_access import (
    DIRECTORY_FLAGS,
    NotRegularFileError,
    ResolvedPath,
    display_path,
    open_directory,
    open_entry,
    resolve_path,
)
from apexbridge.tools.truncation import truncate_text
from apexbridge.tools.typed import Arguments, TypedTool, arguments_schema

MAX_DEPTH = 64
_ALWAYS_SKIPPED = frozenset({".git", ".hg", ".svn", ".jj", "__pycache__"})
_IGNORE_FILE = ".gitignore"
_MAX_IGNORE_BYTES = 256 * 1024


class FoundFile(NamedTuple):
    """A plain file: its path from where the walk began, and the open folder that holds it."""

    path: str
    parent: int
    name: str


class IgnoreFile(NamedTuple):
    """What one ignore file says, and the folder it speaks of (empty, or with a slash)."""

    folder: str
    patterns: PathMatcher


@dataclass(slots=True, kw_only=True)
class FileWalk:
    """One walk, and what it left out."""

    deadline: float
    """Of `time.monotonic`."""
    most_entries: int = 200_000
    takes_ignored: bool = False
    ignored: int = 0
    unreadable: int = 0
    stopped: str = ""
    """Why it ended early."""
    _seen: int = field(default=0, init=False)

    def files(self, top: int) -> Iterator[FoundFile]:
        """Walk from an open folder. Each file's folder is open only until the next one is asked."""
        yield from self._folder(top, "", ())

    def _folder(self, held: int, prefix: str, rules: Sequence[IgnoreFile]) -> Iterator[FoundFile]:
        if not self.takes_ignored:
            rules = (*rules, *_load_ignore_file(held, prefix))
        try:
            with os.scandir(held) as entries:
                listed = sorted((e.name, e.is_dir(follow_symlinks=False)) for e in entries)
        except OSError:
            self.unreadable += 1
            return
        for name, is_folder in listed:
            if self._must_stop():
                return
            path = f"{prefix}{name}"
            if self._is_passed(f"{path}/" if is_folder else path, name, rules):
                continue
            if is_folder:
                yield from self._inner(held, name, f"{path}/", rules)
            else:
                yield FoundFile(path, held, name)

    def _inner(
        self, held: int, name: str, prefix: str, rules: Sequence[IgnoreFile]
    ) -> Iterator[FoundFile]:
        if prefix.count("/") > MAX_DEPTH:
            self.unreadable += 1
            return
        try:
            inner = os.open(name, DIRECTORY_FLAGS, dir_fd=held)
        except OSError:
            self.unreadable += 1
            return
        try:
            yield from self._folder(inner, prefix, rules)
        finally:
            os.close(inner)

    def _must_stop(self) -> bool:
        self._seen += 1
        if self._seen > self.most_entries:
            self.stopped = f"after {self.most_entries:,} entries"
        elif time.monotonic() > self.deadline:
            self.stopped = "because the time was up"
        return bool(self.stopped)

    def _is_passed(self, path: str, name: str, rules: Sequence[IgnoreFile]) -> bool:
        if self.takes_ignored:
            return False
        is_passed = name in _ALWAYS_SKIPPED
        for folder, patterns in reversed(rules):
            verdict = None if is_passed else patterns.verdict(path[len(folder) :])
            if verdict is not None:
                is_passed = verdict
                break
        self.ignored += is_passed
        return is_passed


def _load_ignore_file(held: int, prefix: str) -> Iterator[IgnoreFile]:
    try:
        with open_entry(held, _IGNORE_FILE) as file:
            text = file.read(_MAX_IGNORE_BYTES).decode("utf-8", "replace")
    except (OSError, NotRegularFileError):
        return
    yield IgnoreFile(prefix, parse_gitignore(text))


ReadFilter = Callable[[Path, ToolContext], bool]
"""Whether the rules let a file be found at all; asked for each file of a search."""

DEFAULT_TIMEOUT = 10.0
_MAGIC = frozenset("*?[{\\")


def allow_all(_path: Path, _context: ToolContext) -> bool:
    """Let every file be found."""
    return True


class GlobArguments(Arguments):
    """What to find."""

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
    """Finds files by the pattern of their paths."""

    def __init__(
        self, *, may_read: ReadFilter = allow_all, seconds: float = DEFAULT_TIMEOUT
    ) -> None:
        self._may_read = may_read
        self._seconds = seconds
        description = (
            "Find files of the workspace by a pattern; the newest come first. What .gitignore "
            "names is left out, links are not followed."
        )
        schema = arguments_schema(GlobArguments)
        super().__init__(
            ToolSpec(name="Glob", description=description, input_schema=schema, read_only=True),
            GlobArguments,
        )

    def asks(self, arguments: GlobArguments, context: ToolContext) -> Sequence[PermissionRequest]:
        """Looking inside the reach is harmless."""
        place, pattern = self._where(arguments, context)
        compile_glob(pattern, self.spec.name)
        summary = f"Find {pattern} in {place.shown}"
        return (
            PermissionRequest(
                tool="Glob",
                argument=str(place.path),
                path=place.path,
                summary=summary,
                harmless=True,
            ),
        )

    async def act(self, arguments: GlobArguments, context: ToolContext) -> ToolResult:
        """Find them."""
        place, pattern = self._where(arguments, context)
        patterns = compile_glob(pattern, self.spec.name)
        walk = FileWalk(
            deadline=time.monotonic() + self._seconds, takes_ignored=arguments.include_ignored
        )
        try:
            hits = await anyio.to_thread.run_sync(
                lambda: self._found(place, patterns, walk, context), abandon_on_cancel=True
            )
        finally:
            walk.deadline = 0  # a search that nobody waits for ends at its next step
        hits.sort(key=lambda hit: (-hit.time, hit.path))
        lines = [display_path(hit.path, place.cwd) for hit in hits[: arguments.limit]]
        told = _result_note(len(hits), arguments.limit, walk)
        hint = "use a narrower pattern"
        body = truncate_text("\n".join(map(printable, lines)), keeps="start", hint=hint)
        return ToolResult(text=f"{body}\n{told}" if lines else told)

    def _found(
        self, place: ResolvedPath, patterns: PathMatcher, walk: FileWalk, context: ToolContext
    ) -> list[_Hit]:
        hits = list[_Hit]()
        with open_directory(place) as top:
            for path, parent, name in walk.files(top):
                if not patterns.verdict(path):
                    continue
                try:
                    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
                except OSError:
                    continue
                whole = place.path / path
                if stat.S_ISREG(status.st_mode) and self._may_read(whole, context):
                    hits.append(_Hit(status.st_mtime_ns, whole))
        return hits

    def _where(self, arguments: GlobArguments, context: ToolContext) -> tuple[ResolvedPath, str]:
        """The folder and the pattern in it: a pattern may begin with its folder written out."""
        parts = PurePosixPath(arguments.pattern).parts
        if not arguments.pattern.startswith("/"):
            return resolve_path(arguments.path, context, self.spec.name), arguments.pattern
        plain = next((at for at, part in enumerate(parts) if _MAGIC & set(part)), len(parts) - 1)
        rest = "/".join(parts[plain:])
        rest = f"/{rest}" if "/" not in rest else rest
        return resolve_path(str(PurePosixPath(*parts[:plain])), context, self.spec.name), rest


def printable(path: str) -> str:
    """A path as text, also one whose bytes are none."""
    return path.encode("utf-8", "backslashreplace").decode()


def compile_glob(pattern: str, tool: str) -> PathMatcher:
    """Make a matcher.

    Raises:
        ToolInputError: If the pattern makes no sense.
    """
    try:
        return compile_patterns((pattern.removeprefix("./"),))
    except ValueError as error:
        raise ToolInputError(
            f"the pattern {pattern!r} cannot be used: {error}", name=tool
        ) from None


def skipped_summary(walk: FileWalk) -> list[str]:
    """What a walk passed over, in words."""
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
