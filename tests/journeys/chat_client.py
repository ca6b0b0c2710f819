"""Chat sessions with a scripted model server on a real socket."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from apexbridge import Extensions, Runtime
from apexbridge.events import Event, TextDelta, ToolFinished, TurnFinished
from apexbridge.messages import ToolCall
from apexbridge.models.base import ModelDelta
from apexbridge.permissions.engine import Approver
from apexbridge.settings import load
from apexbridge.testing import ScriptedServer

SALES = "month,sales\n2026-01,3\n2026-02,4\n"
MARK_SCRIPT = "echo begun; sleep {mark}"


def call(name: str, call_id: str = "c1", **arguments: object) -> ToolCall:
    """A call as a model makes it."""
    return ToolCall(id=call_id, name=name, arguments=json.dumps(arguments, ensure_ascii=False))


def calling(*calls: ToolCall) -> list[ModelDelta]:
    """A reply of nothing but calls."""
    return [ModelDelta(tool_calls=calls)]


def saying(*pieces: str) -> list[ModelDelta]:
    """A reply in pieces."""
    return [ModelDelta(text=piece) for piece in pieces]


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A runtime whose model is the server."""

    runtime: Runtime
    server: ScriptedServer

    async def ask(
        self, text: str, *, approver: Approver | None = None, skills: Sequence[str] = ()
    ) -> list[Event]:
        """Ask in the one conversation, and give all that happened."""
        events = list[Event]()
        with anyio.fail_after(60):
            async for event in self.runtime.chat(
                text, session="talk", approver=approver, skills=skills
            ):
                events.append(event)
        return events

    def sent(self, number: int) -> str:
        """What a request said, as text."""
        return json.dumps(self.server.requests[number]["messages"], ensure_ascii=False)


@asynccontextmanager
async def talk(
    server: ScriptedServer, project: Path, *extensions: object, **model: str
) -> AsyncGenerator[Talk]:
    """A conversation in a project; `model` are further settings of the model."""
    address = {"base_url": server.base_url, "name": "tiny", "api_key": "sk-scripted"}
    flags = {"index": {"embedder": "hash"}, "model": {**address, **model}}
    loaded, more = load(project=project, flags=flags), Extensions()
    for extension in extensions:
        more.add(extension)
    async with Runtime.open(loaded, extensions=more) as runtime:
        yield Talk(runtime=runtime, server=server)


def end_of(events: Sequence[Event]) -> TurnFinished:
    """The last event."""
    last = events[-1]
    assert isinstance(last, TurnFinished)
    return last


def pieces_of(events: Sequence[Event]) -> list[str]:
    """The reply as it came."""
    return [event.text for event in events if isinstance(event, TextDelta)]


def tools_of(events: Sequence[Event]) -> list[tuple[str, bool]]:
    """Return the tools that were called, and whether each failed."""
    return [(e.tool, e.is_error) for e in events if isinstance(e, ToolFinished)]


def turns_running() -> list[str]:
    """Return the names of tasks of running turns."""
    tasks = anyio.get_running_tasks()
    return [task.name or "" for task in tasks if "ChatService.stream" in (task.name or "")]


def processes_with(mark: str) -> list[str]:
    """Return the processes that have the mark among their arguments."""
    return [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if _has(path, mark)]


def _has(path: Path, mark: str) -> bool:
    try:
        return mark.encode() in path.read_bytes()
    except OSError:
        return False
