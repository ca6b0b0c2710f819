"""A whole house for tests of the agent: real parts, and a model that says what was written down."""

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
MOST_SECONDS = 60


def says(text: str) -> Reply:
    """A reply of words."""
    return [ModelDelta(text=text)]


def calls(*wanted: tuple[str, Mapping[str, Any] | str], text: str = "") -> Reply:
    """A reply that calls tools."""
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
class House:
    """A runtime, the model it asks, and everything that happened."""

    runtime: Runtime
    project: Path
    window: int = 128_000
    events: list[Event] = field(default_factory=list[Event])
    model: ScriptedModel = field(default_factory=lambda: ScriptedModel(()))

    def plays(self, *replies: Reply) -> None:
        """Let the model give these replies, the first first."""
        self.model = ScriptedModel(replies)
        self.use(self.model)

    def use(self, model: ModelClient) -> None:
        """Let another model answer."""
        opened = self.runtime.chat_service.model
        self.runtime.chat_service.model = replace(
            opened, client=model, name="m", window=self.window
        )

    async def ask(
        self, text: str, *replies: Reply, session: str = "s", **more: Any
    ) -> TurnFinished:
        """One turn; what was said is the last event."""
        if replies:
            self.plays(*replies)
        del self.events[:]
        with anyio.fail_after(MOST_SECONDS):
            async with aclosing(self.runtime.chat(text, session=session, **more)) as events:
                async for event in events:
                    self.events.append(event)
        last = self.events[-1]
        assert isinstance(last, TurnFinished)
        return last

    async def session(self, name: str = "s") -> Session:
        """The session as it is now."""
        return await self.runtime.chat_service.session(name)

    async def results(self, name: str = "s") -> list[str]:
        """What tools gave in a session."""
        messages = (await self.session(name)).messages
        return [message.text for message in messages if isinstance(message, ToolMessage)]

    async def said(self, kind: str, name: str = "s") -> list[str]:
        """What was said to the model on the side."""
        messages = (await self.session(name)).messages
        return [m.text for m in messages if isinstance(m, UserMessage) and m.kind == kind]

    def of(self, kind: type[Event]) -> list[Any]:
        """The events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def record(self) -> dict[str, Any]:
        """The record of the last turn."""
        found = self.runtime.chat_service.store.turn()
        assert found is not None
        return found


@asynccontextmanager
async def house(
    home: Path,
    *,
    tools: Sequence[Tool] = (),
    approver: Approver | None = None,
    **settings: object,
) -> AsyncGenerator[House]:
    """Open a house; settings as `agent__rounds=3`. Skills lie in `~/.claude/skills`."""
    project = home / "project"
    project.mkdir(exist_ok=True)
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    flags: dict[str, Any] = {}
    for key, value in settings.items():
        room, _, name = key.partition("__")
        if name:
            flags.setdefault(room, {})[name] = value
        else:
            flags[room] = value
    extensions = Extensions()
    extensions.add(_Tools(tools))
    loaded = load(project=project, environment=environment, flags=flags)
    async with Runtime.open(loaded, extensions=extensions) as runtime:
        runtime.chat_service.approver = approver
        made = House(runtime=runtime, project=project)
        made.plays()
        yield made


class ModelOf:
    """A model whose every reply is made from what it is asked."""

    def __init__(self, reply: Callable[[ModelRequest], Reply]) -> None:
        self._reply = reply
        self.requests: list[ModelRequest] = []

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncGenerator[ModelDelta]]:
        """Give the reply."""
        self.requests.append(request)
        pieces: Iterable[ModelDelta] = self._reply(request)

        async def given() -> AsyncGenerator[ModelDelta]:
            for piece in pieces:
                yield piece

        yield given()
