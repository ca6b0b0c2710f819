"""MCP tools: search, load and run skills, under the permission rules of the agent's tools."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import anyio
from pydantic import BaseModel

from apexbridge.activation.input_files import InputFiles
from apexbridge.activation.scripts import ScriptCall
from apexbridge.catalog.listing_budget import to_single_line
from apexbridge.errors import SkillNotFoundError, SkillNotInvocableError, ToolFailedError
from apexbridge.mcp_server.run_files import run_file_uri
from apexbridge.mcp_server.schemas import (
    LoadArguments,
    LoadedFile,
    LoadedSkill,
    OutputFile,
    RunArguments,
    RunResult,
    SearchHit,
    SearchResults,
)
from apexbridge.mcp_server.skill_files import ManifestCache, SkillFile, file_uri, serves_files
from apexbridge.paths import printable_path
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.runtime import Runtime
from apexbridge.runtime.watcher import background_tasks
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Skill
from apexbridge.tools.base import ToolContext, ToolResult
from apexbridge.tools.builtin.skill_script import script_result
from apexbridge.tools.builtin.skills import (
    MAX_SUMMARY_CHARS,
    SearchArguments,
    format_hit,
    format_hits,
    visible_hits,
)
from apexbridge.tools.truncation import MAX_CHARS, truncate_text
from apexbridge.tools.typed import TypedTool

ReportProgress = Callable[[float, str], Awaitable[None]]
"""Sends a progress notification: an increasing number, and a message."""
_PROGRESS_SECONDS = 0.5
_MAX_PROGRESS_CHARS = 200
_MAX_OUTPUT_FILES = 512


class VisibleSkills:
    """Skills that MCP clients can see."""

    def __init__(
        self, runtime: Runtime, manifests: ManifestCache, is_denied: Callable[[str], bool]
    ) -> None:
        self.runtime, self.manifests, self._is_denied = runtime, manifests, is_denied

    def skills(self) -> list[Skill]:
        """Return the skills that no permission rule denies."""
        return [skill for skill in self.runtime.catalog.skills if not self._is_denied(skill.name)]

    def find(self, name: str) -> Skill | None:
        """Return the skill of exactly this name."""
        skill = self.runtime.catalog.snapshot.winner(name)
        return None if skill is None or self._is_denied(skill.name) else skill

    def get(self, name: str) -> Skill:
        """Return a skill by name.

        Raises:
            SkillNotFoundError: With similar names.
        """
        try:
            skill = self.runtime.catalog.get(name)
        except SkillNotFoundError as error:
            near = [close for close in error.near if not self._is_denied(close)]
            raise SkillNotFoundError(error.name, near=near) from None
        if self._is_denied(skill.name):
            raise SkillNotFoundError(skill.name)
        return skill

    def get_for_model(self, name: str) -> Skill:
        """Return a skill that models may use, active or not: no MCP client activates by path.

        Raises:
            SkillNotFoundError: With similar names.
            SkillNotInvocableError: If only users may invoke it.
        """
        skill = self.get(name)
        if skill.manifest.disable_model_invocation:
            raise SkillNotInvocableError(code="skill_for_users_only", name=skill.name)
        return skill


def _to_data(output: BaseModel) -> dict[str, object]:
    return output.model_dump(mode="json")


class SearchTool(TypedTool[SearchArguments]):
    """Semantic search over skills."""

    def __init__(self, skills: VisibleSkills) -> None:
        description = (
            "Find skills that fit a task, by meaning, in English or Chinese. Then load the one "
            "that fits and follow it."
        )
        super().__init__("SkillSearch", description, SearchArguments, read_only=True)
        self._skills = skills

    def required_permissions(
        self, arguments: SearchArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request permission to search, which is harmless."""
        return (PermissionRequest(tool=self.spec.name, argument=arguments.query, harmless=True),)

    async def run(self, arguments: SearchArguments, context: ToolContext) -> ToolResult:
        """Search, without skills that models may not use."""
        threshold = self._skills.runtime.config.settings.index.threshold
        found = await self._skills.runtime.search(
            arguments.query, limit=arguments.limit, **arguments.wordings()
        )
        hits, lines = list[SearchHit](), list[str]()
        for hit in visible_hits(found, self._is_visible):
            skill = self._skills.find(hit.name)
            if skill is None:
                continue
            hits.append(
                SearchHit(
                    name=skill.name,
                    description=truncate_text(to_single_line(skill.summary), MAX_SUMMARY_CHARS),
                    score=round(hit.score, 4),
                    match=hit.match(threshold),
                    alike=list(hit.alike),
                    kind=hit.kind,
                    uri=file_uri(skill, SKILL_MD) if serves_files(skill) else "",
                )
            )
            lines.append(format_hit(hit, skill.summary, threshold))
        output = SearchResults(
            query=arguments.query,
            confidence=round(found.confidence, 4),
            searched=found.searched,
            hits=hits,
        )
        return ToolResult(text=format_hits(lines, found, threshold), data=_to_data(output))

    def _is_visible(self, name: str) -> bool:
        skill = self._skills.find(name)
        return skill is not None and not skill.manifest.disable_model_invocation


class LoadTool(TypedTool[LoadArguments]):
    """Loads a skill's instructions, or one of its files (progressive disclosure)."""

    def __init__(self, skills: VisibleSkills) -> None:
        description = (
            "Read a skill's instructions and see which files it has; or, with `file`, read one of "
            "these files."
        )
        super().__init__("skills_load", description, LoadArguments, read_only=True)
        self._skills = skills

    def required_permissions(
        self, arguments: LoadArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request permission as for invoking the skill."""
        name = self._skills.get_for_model(arguments.name).name
        return (PermissionRequest(tool="Skill", argument=name, harmless=True),)

    async def run(self, arguments: LoadArguments, context: ToolContext) -> ToolResult:
        """Read the skill through its source."""
        skills, skill = self._skills, self._skills.get_for_model(arguments.name)
        files: Mapping[str, SkillFile] = {}
        if serves_files(skill):
            files = (await skills.manifests.get(skill)).files
        if arguments.file:
            if arguments.file not in files:
                detail = f"{skill.name} has no file '{arguments.file[:_MAX_PROGRESS_CHARS]}'"
                raise ToolFailedError(detail, name=self.spec.name)
            data = await skills.manifests.read(skill, arguments.file)
            text = data.decode("utf-8", "replace")
        else:
            text = (await skills.runtime.catalog.content(skill)).body
        output = LoadedSkill(
            name=skill.name,
            description=skill.description,
            text=truncate_text(text, keeps="start"),
            truncated=len(text) > MAX_CHARS,
            is_cut=len(text) > MAX_CHARS,
            files=[
                LoadedFile(
                    path=file.path,
                    uri=file_uri(skill, file.path),
                    sha256=file.sha256,
                    size=file.size,
                )
                for file in files.values()
            ],
        )
        others = [file.path for file in output.files if file.path != SKILL_MD]
        listed = "\n\nFiles: " + ", ".join(others[:_MAX_PROGRESS_CHARS]) if others else ""
        return ToolResult(text=output.text + listed, data=_to_data(output))


class RunTool(TypedTool[RunArguments]):
    """Runs a skill's script in the sandbox, with progress notifications."""

    def __init__(self, skills: VisibleSkills, report: ReportProgress, owner: str) -> None:
        description = (
            "Run a script of a skill in a sandbox: no network, and no files but those in `files`. "
            "Gives what it printed; the files it made are resources."
        )
        super().__init__("SkillScript", description, RunArguments)
        self._skills, self._report, self._owner = skills, report, owner

    def required_permissions(
        self, arguments: RunArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request permission; approval is needed only without a sandbox."""
        name = self._skills.get_for_model(arguments.name).name
        command = " ".join(filter(None, (name, arguments.script)))
        is_isolated = not self._skills.runtime.config.settings.sandbox.allow_unsandboxed
        return (PermissionRequest(tool=self.spec.name, argument=command, harmless=is_isolated),)

    async def run(self, arguments: RunArguments, context: ToolContext) -> ToolResult:
        """Run the script; it is cancelled when the client disconnects."""
        executing, progress = self._skills.runtime.script_runner, _Progress(self._report)
        limits = executing.limits()
        if arguments.seconds is not None:
            limits = replace(limits, wall_seconds=min(arguments.seconds, limits.wall_seconds))
        skill = self._skills.get_for_model(arguments.name)
        call = ScriptCall(
            skill=skill,
            script=arguments.script,
            arguments=tuple(arguments.arguments),
            inputs=InputFiles.from_client(arguments.files).files,
            stdin=arguments.stdin.encode("utf-8", "replace"),
            limits=limits,
            owner=f"{self._owner}.mcp",  # no session has a name like this
            on_output=progress.note,
        )
        async with background_tasks(progress.report):
            result = await executing.execute(call)
        return replace(script_result(result), data=_to_data(_run_result(skill.name, result)))


class _Progress:
    """Reports the output of a script in progress notifications."""

    def __init__(self, report: ReportProgress) -> None:
        self._report, self._printed, self._last = report, 0, b""

    def note(self, stream: int, piece: bytes) -> None:
        """Record a chunk of output; called from another thread."""
        self._printed += len(piece)
        self._last = (self._last + piece)[-_MAX_PROGRESS_CHARS:]

    async def report(self) -> None:
        """Send notifications until cancelled, or until the client disconnects."""
        start, reported = time.monotonic(), -1
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                if self._printed > reported:
                    reported = self._printed
                    lines = self._last.decode("utf-8", "replace").split("\n")
                    message = next((line for line in reversed(lines) if line.strip()), "started")
                    await self._report(time.monotonic() - start, message.strip())
                await anyio.sleep(_PROGRESS_SECONDS)


def _run_result(name: str, result: ExecutionResult) -> RunResult:
    made = [
        OutputFile(
            name=printable_path(file),
            size=len(data),
            uri=run_file_uri(result.run_id, file) if result.folder else "",
        )
        for file, data in result.produced.items()
    ]
    return RunResult(
        name=name,
        outcome=result.outcome,
        exit_code=result.exit_code,
        stdout=truncate_text(result.stdout.decode("utf-8", "replace")),
        stderr=truncate_text(result.stderr.decode("utf-8", "replace"), 8_000),
        error=result.error or "",
        reason=result.explain(),
        seconds=round(result.duration, 3),
        isolation=result.isolation,
        truncated=result.truncated,
        files=made[:_MAX_OUTPUT_FILES],
        skipped_files={printable_path(file): why for file, why in result.not_taken.items()},
        id=result.run_id,
    )
