"""Agent fixture: a real runtime with a scripted model."""

import json
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio

from apexbridge.agent.session import Session
from apexbridge.events import Event, TurnFinished
from apexbridge.extensions import Extensions, hook
from apexbridge.messages import ToolCall, ToolMessage, UserMessage
from apexbridge.models.base import ModelClient, ModelDelta, ModelRequest
from apexbridge.permissions.engine import Approver
from apexbridge.runtime import Runtime
from apexbridge.settings import load
from apexbridge.testing import ScriptedModel
from apexbridge.tools.base import Tool

Reply = Sequence[ModelDelta]
TIMEOUT_SECONDS = 60


def says(text: str) -> Reply:
    """A text reply."""
    return [ModelDelta(text=text)]


def calls(*wanted: tuple[str, Mapping[str, Any] | str], text: str = "") -> Reply:
    """A reply with tool calls."""
    made = [
        ToolCall(
            id=f"call-{at}",
            name=name,
            arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
        )
        for at, (name, arguments) in enumerate(wanted)
    ]
    return [ModelDelta(text=text, tool_calls=made)]


def invokes(name: str, arguments: str = "") -> Reply:
    """A reply that invokes a skill."""
    return calls(("Skill", {"skill": name, "arguments": arguments}))


class _Tools:
    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = tools

    @hook
    def apexbridge_tools(self, project: Path) -> Sequence[Tool]:
        return self._tools


@dataclass(slots=True, kw_only=True)
class AgentFixture:
    """A runtime, its scripted model, and the events of the latest turn."""

    runtime: Runtime
    project: Path
    window: int = 128_000
    events: list[Event] = field(default_factory=list[Event])
    model: ScriptedModel = field(default_factory=lambda: ScriptedModel(()))

    def script_replies(self, *replies: Reply) -> None:
        """Prepare the replies of the model, in order."""
        self.model = ScriptedModel(replies)
        self.use(self.model)

    def use(self, model: ModelClient) -> None:
        """Replace the model client."""
        opened = self.runtime.chat_service.model
        self.runtime.chat_service.model = replace(
            opened, client=model, name="m", window=self.window
        )

    async def ask(
        self, text: str, *replies: Reply, session: str = "s", **more: Any
    ) -> TurnFinished:
        """Run one turn; return its last event."""
        if replies:
            self.script_replies(*replies)
        del self.events[:]
        with anyio.fail_after(TIMEOUT_SECONDS):
            async with aclosing(self.runtime.chat(text, session=session, **more)) as events:
                async for event in events:
                    self.events.append(event)
        last = self.events[-1]
        assert isinstance(last, TurnFinished)
        return last

    async def session(self, name: str = "s") -> Session:
        """Return the session."""
        return await self.runtime.chat_service.session(name)

    async def results(self, name: str = "s") -> list[str]:
        """Return the tool results of a session."""
        messages = (await self.session(name)).messages
        return [message.text for message in messages if isinstance(message, ToolMessage)]

    async def said(self, kind: str, name: str = "s") -> list[str]:
        """Return the user messages of a kind: reminders or skill texts."""
        messages = (await self.session(name)).messages
        return [m.text for m in messages if isinstance(m, UserMessage) and m.kind == kind]

    def of(self, kind: type[Event]) -> list[Any]:
        """Return the events of a type."""
        return [event for event in self.events if isinstance(event, kind)]

    def record(self) -> dict[str, Any]:
        """Return the stored record of the last turn."""
        found = self.runtime.chat_service.store.turn()
        assert found is not None
        return found


@asynccontextmanager
async def open_agent(
    home: Path,
    *,
    tools: Sequence[Tool] = (),
    approver: Approver | None = None,
    **settings: object,
) -> AsyncGenerator[AgentFixture]:
    """Open a runtime; settings as `agent__rounds=3`. Skills lie in `~/.claude/skills`."""
    project = home / "project"
    project.mkdir(exist_ok=True)
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    flags: dict[str, Any] = {}
    for key, value in settings.items():
        section, _, name = key.partition("__")
        if name:
            flags.setdefault(section, {})[name] = value
        else:
            flags[section] = value
    extensions = Extensions()
    extensions.add(_Tools(tools))
    loaded = load(project=project, environment=environment, flags=flags)
    async with Runtime.open(loaded, extensions=extensions) as runtime:
        runtime.chat_service.approver = approver
        fixture = AgentFixture(runtime=runtime, project=project)
        fixture.script_replies()
        yield fixture


class FunctionModel:
    """Model client that computes each reply from the request."""

    def __init__(self, reply: Callable[[ModelRequest], Reply]) -> None:
        self._reply = reply
        self.requests: list[ModelRequest] = []

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncGenerator[ModelDelta]]:
        """Stream the reply."""
        self.requests.append(request)
        pieces: Iterable[ModelDelta] = self._reply(request)

        async def given() -> AsyncGenerator[ModelDelta]:
            for piece in pieces:
                yield piece

        yield given()
