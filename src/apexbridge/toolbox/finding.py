"""Glob: files by the pattern of their paths, the newest first."""

import os
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import anyio.to_thread
from pydantic import AliasChoices, Field

from apexbridge.errors import ToolInputError
from apexbridge.policy.rules import PermissionRequest
from apexbridge.skills.patterns import Patterns, compile_patterns
from apexbridge.toolbox.reaching import Place, locate, open_folder, show
from apexbridge.toolbox.walking import Walk
from apexbridge.tools.base import ToolContext, ToolResult, ToolSpec
from apexbridge.tools.capping import cap_text
from apexbridge.tools.typed import Arguments, TypedTool, schema_of

MayRead = Callable[[Path, ToolContext], bool]
"""Whether the rules let a file be found at all; asked for each file of a search."""

SECONDS = 10.0
_MAGIC = frozenset("*?[{\\")


def everything(_path: Path, _context: ToolContext) -> bool:
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

    def __init__(self, *, may_read: MayRead = everything, seconds: float = SECONDS) -> None:
        self._may_read = may_read
        self._seconds = seconds
        description = (
            "Find files of the workspace by a pattern; the newest come first. What .gitignore "
            "names is left out, links are not followed."
        )
        schema = schema_of(GlobArguments)
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
        walk = Walk(
            deadline=time.monotonic() + self._seconds, takes_ignored=arguments.include_ignored
        )
        try:
            hits = await anyio.to_thread.run_sync(
                lambda: self._found(place, patterns, walk, context), abandon_on_cancel=True
            )
        finally:
            walk.deadline = 0  # a search that nobody waits for ends at its next step
        hits.sort(key=lambda hit: (-hit.time, hit.path))
        lines = [show(hit.path, place.cwd) for hit in hits[: arguments.limit]]
        told = _told(len(hits), arguments.limit, walk)
        hint = "use a narrower pattern"
        body = cap_text("\n".join(map(printable, lines)), keeps="start", hint=hint)
        return ToolResult(text=f"{body}\n{told}" if lines else told)

    def _found(
        self, place: Place, patterns: Patterns, walk: Walk, context: ToolContext
    ) -> list[_Hit]:
        hits = list[_Hit]()
        with open_folder(place) as top:
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

    def _where(self, arguments: GlobArguments, context: ToolContext) -> tuple[Place, str]:
        """The folder and the pattern in it: a pattern may begin with its folder written out."""
        parts = PurePosixPath(arguments.pattern).parts
        if not arguments.pattern.startswith("/"):
            return locate(arguments.path, context, self.spec.name), arguments.pattern
        plain = next((at for at, part in enumerate(parts) if _MAGIC & set(part)), len(parts) - 1)
        rest = "/".join(parts[plain:])
        rest = f"/{rest}" if "/" not in rest else rest
        return locate(str(PurePosixPath(*parts[:plain])), context, self.spec.name), rest


def printable(path: str) -> str:
    """A path as text, also one whose bytes are none."""
    return path.encode("utf-8", "backslashreplace").decode()


def compile_glob(pattern: str, tool: str) -> Patterns:
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


def left_out(walk: Walk) -> list[str]:
    """What a walk passed over, in words."""
    notes = list[str]()
    if walk.stopped:
        notes.append(f"The search stopped {walk.stopped}: look in a smaller folder")
    if walk.ignored:
        notes.append(f"{walk.ignored:,} ignored entries left out (include_ignored)")
    if walk.unreadable:
        notes.append(f"{walk.unreadable:,} folders could not be read")
    return notes


def _told(count: int, limit: int, walk: Walk) -> str:
    notes = [f"{count:,} files" if count else "No file fits the pattern"]
    if count > limit:
        notes = [f"The newest {limit:,} of {count:,} files; use a narrower pattern"]
    return f"[{'. '.join((*notes, *left_out(walk)))}]"
