"""Test doubles: in-memory implementations of every protocol, without processes or network."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from apexbridge.errors import ModelOutputError, SkillNotFoundError, SourceError
from apexbridge.events import Event
from apexbridge.models.base import ModelDelta, ModelRequest, Usage
from apexbridge.permissions.engine import Answer
from apexbridge.permissions.rules import Decision, PermissionRequest
from apexbridge.sandbox.base import ExecRequest, ExecutionResult
from apexbridge.skills.model import Origin, Provenance, Skill, SkillContent, SkillResource
from apexbridge.skills.parser import parse_document, parse_skill
from apexbridge.sources.base import Scan
from apexbridge.sources.folders import TRUSTED_ORIGINS
from apexbridge.tools.base import ToolContext, ToolResult, ToolSpec


class EventLog:
    """Event sink that records every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        """Record one event."""
        self.events.append(event)


class FixedApprover:
    """Approver with a fixed answer that records every request."""

    def __init__(self, answer: Answer = "no") -> None:
        self._answer: Answer = answer
        self.asked: list[PermissionRequest] = []

    async def __call__(self, request: PermissionRequest, decision: Decision) -> Answer:
        """Return the fixed answer."""
        self.asked.append(request)
        return self._answer


class MemorySource:
    """Source of in-memory skills: each is a mapping of paths to file contents."""

    def __init__(
        self, skills: Mapping[str, Mapping[str, bytes]], origin: Origin = Origin.USER
    ) -> None:
        self._skills = skills
        self._provenance = Provenance(
            origin=origin, source_id=f"{origin}:memory", needs_trust=origin not in TRUSTED_ORIGINS
        )

    @property
    def id(self) -> str:
        """Return the source id."""
        return self._provenance.source_id

    @property
    def roots(self) -> tuple[Path, ...]:
        """Return no directory to watch."""
        return ()

    async def close(self) -> None:
        """Close nothing."""

    async def scan(self) -> Scan:
        """Parse every skill."""
        readings = [
            parse_skill(files["SKILL.md"], folder=folder, provenance=self._provenance)
            for folder, files in self._skills.items()
        ]
        return Scan(
            skills=tuple(reading.skill for reading in readings if reading.skill),
            problems=tuple(problem for reading in readings for problem in reading.problems),
        )

    async def content(self, skill: Skill, arguments: str = "") -> SkillContent:
        """Return the body of SKILL.md."""
        opened = parse_document(self._files(skill)["SKILL.md"])
        if not isinstance(opened, tuple):
            raise SourceError(opened.message, source=self.id)
        return SkillContent(skill=skill, body=opened[0].body)

    async def resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        """Return the content of a file."""
        files = self._files(skill)
        if str(path) not in files:
            raise SourceError(f"there is no {path}", source=self.id)
        return SkillResource(skill=skill, path=path, data=files[str(path)])

    def _files(self, skill: Skill) -> Mapping[str, bytes]:
        if skill.name not in self._skills:
            raise SkillNotFoundError(skill.name, near=())
        return self._skills[skill.name]


class RecordingSandbox:
    """Sandbox that runs nothing: records requests and returns a fixed result."""

    name = "recording"

    def __init__(self, result: ExecutionResult | None = None) -> None:
        self._result = result or ExecutionResult(outcome="ok", exit_code=0)
        self.requests: list[ExecRequest] = []

    async def run(self, request: ExecRequest) -> ExecutionResult:
        """Record the request."""
        self.requests.append(request)
        return self._result


class ScriptedModel:
    """Model client that returns prepared replies in order and records requests."""

    def __init__(self, replies: Iterable[Sequence[ModelDelta]]) -> None:
        self._replies = iter(replies)
        self.requests: list[ModelRequest] = []

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelDelta]]:
        """Stream the next reply; the last delta has a usage, as the protocol requires."""
        self.requests.append(request)
        reply = next(self._replies, None)
        if reply is None:
            raise ModelOutputError("the script has no more replies", name=request.model)

        async def pieces() -> AsyncIterator[ModelDelta]:
            for delta in reply:
                yield delta
            if not any(delta.usage for delta in reply):
                yield ModelDelta(usage=Usage())

        yield pieces()


class StaticTool:
    """Tool with a fixed result that records its arguments."""

    def __init__(self, name: str = "Static", result: ToolResult | None = None) -> None:
        self.spec = ToolSpec(
            name=name, description="Gives what was prepared.", input_schema={"type": "object"}
        )
        self._result = result or ToolResult(text="done")
        self.calls: list[Mapping[str, Any]] = []

    def permissions(
        self, arguments: Mapping[str, Any], context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request permission for the tool itself."""
        return (PermissionRequest(tool=self.spec.name),)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Return the fixed result."""
        self.calls.append(arguments)
        return self._result
