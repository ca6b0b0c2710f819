"""The tools about skills: search, load, run. Each is judged as its like in a conversation is."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import anyio
from pydantic import BaseModel

from apexbridge.activation.scripts import ScriptCall
from apexbridge.catalog.listing_budget import to_single_line
from apexbridge.errors import SkillNotFoundError, SkillNotInvocableError, ToolFailedError
from apexbridge.mcp_server.schemas import (
    LoadArguments,
    LoadedFile,
    LoadedSkill,
    OutputFile,
    RunArguments,
    RunResult,
    SearchArguments,
    SearchHit,
    SearchResults,
)
from apexbridge.mcp_server.skill_files import ManifestCache, SkillFile, file_uri, serves_files
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.runtime import Runtime
from apexbridge.runtime.watcher import background_tasks
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Skill
from apexbridge.tools.base import ToolContext, ToolResult
from apexbridge.tools.builtin.skill_script import script_result
from apexbridge.tools.truncation import MAX_CHARS, truncate_text
from apexbridge.tools.typed import TypedTool

ReportProgress = Callable[[float, str], Awaitable[None]]
"""Tells a client how far a call is: a number that grows, and words."""
_PROGRESS_SECONDS = 0.5
_MAX_PROGRESS_CHARS = 200
_MAX_OUTPUT_FILES = 512


class VisibleSkills:
    """The skills as a client's model may see them."""

    def __init__(
        self, runtime: Runtime, entries: ManifestCache, denied: Callable[[str], bool]
    ) -> None:
        self.runtime, self.entries, self._denied = runtime, entries, denied

    def skills(self) -> list[Skill]:
        """Those that no rule forbids."""
        return [skill for skill in self.runtime.catalog.skills if not self._denied(skill.name)]

    def find(self, name: str) -> Skill | None:
        """The skill of exactly this name."""
        skill = self.runtime.catalog.snapshot.winner(name)
        return None if skill is None or self._denied(skill.name) else skill

    def get(self, name: str) -> Skill:
        """A skill by its name.

        Raises:
            SkillNotFoundError: With the names that come near.
        """
        try:
            skill = self.runtime.catalog.get(name)
        except SkillNotFoundError as error:
            near = [close for close in error.near if not self._denied(close)]
            raise SkillNotFoundError(error.name, near=near) from None
        if self._denied(skill.name):
            raise SkillNotFoundError(skill.name)
        return skill

    def get_for_model(self, name: str) -> Skill:
        """A skill that a model may use. One that sleeps may be: no client can wake it.

        Raises:
            SkillNotFoundError: With the names that come near.
            SkillNotInvocableError: If it is for users alone.
        """
        skill = self.get(name)
        if skill.manifest.disable_model_invocation:
            raise SkillNotInvocableError(code="skill_for_users_only", name=skill.name)
        return skill


def _to_data(shape: BaseModel) -> dict[str, object]:
    return shape.model_dump(mode="json")


class SearchTool(TypedTool[SearchArguments]):
    """Finds skills by meaning."""

    def __init__(self, shelf: VisibleSkills) -> None:
        description = (
            "Find skills that fit a task, by meaning, in English or Chinese. Then load the one "
            "that fits and follow it."
        )
        super().__init__("SkillSearch", description, SearchArguments, read_only=True)
        self._shelf = shelf

    def required_permissions(
        self, arguments: SearchArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Looking is harmless."""
        return (PermissionRequest(tool=self.spec.name, argument=arguments.query, harmless=True),)

    async def run(self, arguments: SearchArguments, context: ToolContext) -> ToolResult:
        """Search, and leave out what a model may not use."""
        found = await self._shelf.runtime.search(arguments.query, limit=arguments.limit)
        hits = list[SearchHit]()
        for hit in found.hits:
            skill = self._shelf.find(hit.name)
            if skill is None or skill.manifest.disable_model_invocation:
                continue
            uri = file_uri(skill, SKILL_MD) if serves_files(skill) else ""
            text = truncate_text(to_single_line(skill.summary), 600)
            score = round(hit.score, 4)
            hits.append(SearchHit(name=skill.name, description=text, score=score, uri=uri))
        shape = SearchResults(
            query=arguments.query,
            confidence=round(found.confidence, 4),
            searched=found.searched,
            hits=hits,
        )
        lines = [f"- {hit.name} ({hit.score:.2f}): {hit.description}" for hit in hits]
        head = f"Confidence that any of them fits: {found.confidence:.2f}"
        text = "\n".join((head, *lines)) if lines else "No skill fits."
        return ToolResult(text=text, data=_to_data(shape))


class LoadTool(TypedTool[LoadArguments]):
    """Reads a skill's instructions, or a file of it."""

    def __init__(self, shelf: VisibleSkills) -> None:
        description = (
            "Read a skill's instructions and see which files it has; or, with `file`, read one of "
            "these files."
        )
        super().__init__("skills_load", description, LoadArguments, read_only=True)
        self._shelf = shelf

    def required_permissions(
        self, arguments: LoadArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """To read a skill is to use it: the same rules count."""
        name = self._shelf.get_for_model(arguments.name).name
        return (PermissionRequest(tool="Skill", argument=name, harmless=True),)

    async def run(self, arguments: LoadArguments, context: ToolContext) -> ToolResult:
        """Read it through its source."""
        shelf, skill = self._shelf, self._shelf.get_for_model(arguments.name)
        files: Mapping[str, SkillFile] = {}
        if serves_files(skill):
            files = (await shelf.entries.of(skill)).files
        if arguments.file:
            if arguments.file not in files:
                detail = f"{skill.name} has no file '{arguments.file[:_MAX_PROGRESS_CHARS]}'"
                raise ToolFailedError(detail, name=self.spec.name)
            data = await shelf.entries.read(skill, arguments.file)
            text = data.decode("utf-8", "replace")
        else:
            text = (await shelf.runtime.catalog.content(skill)).body
        shape = LoadedSkill(
            name=skill.name,
            description=skill.description,
            text=truncate_text(text, keeps="start"),
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
        others = [file.path for file in shape.files if file.path != SKILL_MD]
        listed = "\n\nFiles: " + ", ".join(others[:_MAX_PROGRESS_CHARS]) if others else ""
        return ToolResult(text=shape.text + listed, data=_to_data(shape))


class RunTool(TypedTool[RunArguments]):
    """Runs a skill's script in the sandbox, and tells of it as it goes."""

    def __init__(self, shelf: VisibleSkills, report: ReportProgress) -> None:
        description = (
            "Run a script of a skill in a sandbox: no network, none of your files. Gives what it "
            "printed and the names of the files it made."
        )
        super().__init__("SkillScript", description, RunArguments)
        self._shelf, self._report = shelf, report

    def required_permissions(
        self, arguments: RunArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """In a sandbox a script can harm nothing; without one a person has to agree."""
        name = self._shelf.get_for_model(arguments.name).name
        words = " ".join(filter(None, (name, arguments.script)))
        is_isolated = not self._shelf.runtime.config.settings.sandbox.allow_unsandboxed
        return (PermissionRequest(tool=self.spec.name, argument=words, harmless=is_isolated),)

    async def run(self, arguments: RunArguments, context: ToolContext) -> ToolResult:
        """Run it to its end, or until the client goes away."""
        executing, progress = self._shelf.runtime.script_runner, _Progress(self._report)
        limits = executing.limits()
        if arguments.seconds is not None:
            limits = replace(limits, wall_seconds=min(arguments.seconds, limits.wall_seconds))
        skill = self._shelf.get_for_model(arguments.name)
        call = ScriptCall(
            skill=skill,
            script=arguments.script,
            arguments=tuple(arguments.arguments),
            stdin=arguments.stdin.encode("utf-8", "replace"),
            limits=limits,
            on_output=progress.note,
        )
        async with background_tasks(progress.tell):
            result = await executing.execute(call)
        told = script_result(result)
        return replace(told, data=_to_data(_run_result(skill.name, result)))


class _Progress:
    """How much a script has printed, and the end of it, told from time to time."""

    def __init__(self, report: ReportProgress) -> None:
        self._report, self._printed, self._last = report, 0, b""

    def note(self, stream: int, piece: bytes) -> None:
        """Take a piece of output; called from another thread."""
        self._printed += len(piece)
        self._last = (self._last + piece)[-_MAX_PROGRESS_CHARS:]

    async def tell(self) -> None:
        """Tell until cancelled; a client that does not listen any more is told nothing."""
        start, told = time.monotonic(), -1
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            while True:
                if self._printed > told:
                    told, lines = self._printed, self._last.decode("utf-8", "replace").split("\n")
                    words = next((line for line in reversed(lines) if line.strip()), "started")
                    await self._report(time.monotonic() - start, words.strip())
                await anyio.sleep(_PROGRESS_SECONDS)


def _run_result(name: str, result: ExecutionResult) -> RunResult:
    made = [OutputFile(name=file, size=len(data)) for file, data in result.produced.items()]
    return RunResult(
        name=name,
        outcome=result.outcome,
        exit_code=result.exit_code,
        stdout=truncate_text(result.stdout.decode("utf-8", "replace")),
        stderr=truncate_text(result.stderr.decode("utf-8", "replace"), 8_000),
        seconds=round(result.duration, 3),
        isolation=result.isolation,
        truncated=result.truncated,
        files=made[:_MAX_OUTPUT_FILES],
    )
