"""Server with the chat and admin routes, and a model that calls the tool named in its prompt."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import httpx

from apexbridge.api_keys import Scope
from apexbridge.messages import ToolMessage, UserMessage
from apexbridge.models.base import ModelDelta, ModelRequest, Usage
from apexbridge.runtime import Runtime
from apexbridge.server.admin import events, history, operations
from apexbridge.server.chat import completions
from apexbridge.settings import Config, load
from tests.agent.agent_fixture import FunctionModel, calls
from tests.server.live_server import LiveServer, live_server

TIMEOUT_SECONDS = 60
USAGE = Usage(input_tokens=10, output_tokens=5)


def tool_request(tool: str, **arguments: Any) -> str:
    """Prompt that makes the model call a tool."""
    return json.dumps({"tool": tool, "arguments": arguments})


def _reply(request: ModelRequest) -> Sequence[ModelDelta]:
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return [ModelDelta(text=f"It said: {last.text}"), ModelDelta(usage=USAGE)]
    prompts = [
        m.text for m in request.messages if isinstance(m, UserMessage) and m.kind == "prompt"
    ]
    if prompts and prompts[-1].startswith("{"):
        wanted = json.loads(prompts[-1])
        made = calls((wanted["tool"], wanted["arguments"]))
        return [*made, ModelDelta(usage=USAGE)]
    return [ModelDelta(text="Hello"), ModelDelta(usage=USAGE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminServer:
    """Running server, and an HTTP client for it."""

    serving: LiveServer
    http: httpx.AsyncClient

    @property
    def runtime(self) -> Runtime:
        return self.serving.state.runtime

    def key_for(self, *scopes: Scope) -> dict[str, str]:
        """Headers with an API key for these scopes."""
        return {"Authorization": f"Bearer {self.serving.key_for(*scopes)}"}

    async def get(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> Any:
        """GET a path; it must succeed."""
        with anyio.fail_after(TIMEOUT_SECONDS):
            found = await self.http.get(path, params=query, headers=headers or self.serving.headers)
        assert found.status_code == 200, found.text
        return found.json()

    async def refused(self, path: str, headers: dict[str, str] | None = None, **query: Any) -> Any:
        """GET a path that fails: status and error code."""
        with anyio.fail_after(TIMEOUT_SECONDS):
            found = await self.http.get(path, params=query, headers=headers or self.serving.headers)
        return found.status_code, found.json()["error"]["code"]

    async def ask(
        self, text: str, *, session: str = "", headers: dict[str, str] | None = None, **ours: Any
    ) -> Any:
        """Run a turn: the `apexbridge` extension of the completion, and its text."""
        sent_headers = {**(headers or self.serving.headers)}
        if session:
            sent_headers["X-ApexBridge-Session"] = session
        body = {"messages": [{"role": "user", "content": text}], "model": "m", "apexbridge": ours}
        with anyio.fail_after(TIMEOUT_SECONDS):
            found = await self.http.post("/v1/chat/completions", json=body, headers=sent_headers)
        assert found.status_code == 200, found.text
        reply = found.json()
        return {**reply["apexbridge"], "text": reply["choices"][0]["message"]["content"]}


def make_config(home: Path, **settings: dict[str, Any]) -> Config:
    """Load the settings of an isolated project."""
    project = home / "project"
    project.mkdir(parents=True, exist_ok=True)
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    model = {"base_url": "http://127.0.0.1:9", "name": "m", "tools": "native"}
    return load(project=project, environment=environment, flags={"model": model, **settings})


@asynccontextmanager
async def admin_server(home: Path, **settings: dict[str, Any]) -> AsyncGenerator[AdminServer]:
    """Serve chat and admin routes for the duration of the block."""
    admin_routes = (*history.router.routes, *operations.router.routes, *events.router.routes)
    served_routes = (*completions.router.routes, *admin_routes)
    async with live_server(make_config(home, **settings), served_routes) as served:
        chatting = served.state.runtime.chat_service
        chatting.model = replace(chatting.model, client=FunctionModel(_reply))
        async with httpx.AsyncClient(base_url=served.url, timeout=60) as http:
            yield AdminServer(serving=served, http=http)
