"""Server with the chat routes in front of a scripted model server, and clients for it."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import orjson
from openai import AsyncOpenAI

from apexbridge.api_keys import Scope
from apexbridge.messages import ToolCall
from apexbridge.models.base import ModelDelta, Usage
from apexbridge.models.openai import OpenAiModel
from apexbridge.models.retry import Timeouts
from apexbridge.server.chat import completions
from apexbridge.settings import Config, load
from apexbridge.testing.model_server import ScriptedReply, ScriptedServer
from tests.server.live_server import LiveServer, live_server

MODEL = "scripted"
_SHORT_TIMEOUTS = Timeouts(retry_seconds=0.1, first_byte_seconds=10, idle_seconds=10)
USAGE = Usage(input_tokens=10, output_tokens=5)


def text_reply(*texts: str) -> list[ModelDelta]:
    """Scripted text reply."""
    return [*(ModelDelta(text=text) for text in texts), ModelDelta(usage=USAGE)]


def tool_reply(*wanted: tuple[str, str], text: str = "") -> list[ModelDelta]:
    """Scripted reply with tool calls."""
    made = [ToolCall(id=f"call_{at}", name=n, arguments=a) for at, (n, a) in enumerate(wanted)]
    return [ModelDelta(text=text, tool_calls=made, usage=USAGE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatServer:
    """Running server, its scripted model, and an HTTP client."""

    serving: LiveServer
    script: ScriptedServer
    http: httpx.AsyncClient

    def client(self, *scopes: Scope, **more: Any) -> AsyncOpenAI:
        """OpenAI's SDK, with an API key for all scopes, or for these."""
        key = self.serving.key_for(*scopes) if scopes else self.serving.key
        url = f"{self.serving.url}/v1"
        return AsyncOpenAI(api_key=key, base_url=url, max_retries=0, **more)

    async def post(
        self,
        text: str = "Go",
        *replies: ScriptedReply,
        key: str = "",
        headers: dict[str, str] | None = None,
        **body: Any,
    ) -> httpx.Response:
        """POST a chat completion."""
        self.script.play(*replies)
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **body}
        sent_headers = {**self.serving.headers, **(headers or {})}
        if key:
            sent_headers["Authorization"] = f"Bearer {key}"
        with anyio.fail_after(60):
            return await self.http.post("/v1/chat/completions", json=body, headers=sent_headers)

    def asked(self, at: int = -1) -> dict[str, Any]:
        """Request that the model server received."""
        return self.script.requests[at]

    def forget(self) -> None:
        """Forget the requests that the model server received."""
        del self.script.requests[:]

    def offered(self, at: int = -1) -> list[str]:
        """Names of the tools in the model request."""
        return [tool["function"]["name"] for tool in self.asked(at).get("tools", [])]

    def said(self, role: str, at: int = -1) -> list[Any]:
        """Contents of the messages of a role in the model request."""
        return [m["content"] for m in self.asked(at)["messages"] if m["role"] == role]


def parse_chunks(body: str) -> list[dict[str, Any]]:
    """Parse the chunks of an SSE stream."""
    lines = [line.removeprefix("data: ") for line in body.split("\n\n") if line[:6] == "data: "]
    assert lines[-1] == "[DONE]"
    return [orjson.loads(line) for line in lines[:-1]]


def join_text(chunks: Sequence[dict[str, Any]]) -> str:
    """Join the text deltas of a stream."""
    deltas = [c["choices"][0]["delta"] for c in chunks if c.get("choices")]
    return "".join(delta.get("content") or "" for delta in deltas)


def make_config(home: Path, **settings: dict[str, Any]) -> Config:
    """Load the settings of an isolated project."""
    project = home / "project"
    project.mkdir(parents=True, exist_ok=True)
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    return load(project=project, environment=environment, flags=settings)


@asynccontextmanager
async def chat_server(
    home: Path,
    *,
    has_model: bool = True,
    timeouts: Timeouts = _SHORT_TIMEOUTS,
    **settings: dict[str, Any],
) -> AsyncGenerator[ChatServer]:
    """Serve the chat routes for the duration of the block, with short model timeouts."""
    async with ScriptedServer() as script:
        if has_model:
            settings["model"] = {"base_url": script.base_url, "name": MODEL, "tools": "native"}
        async with live_server(make_config(home, **settings), completions.router.routes) as served:
            chatting = served.state.runtime.chat_service
            model = OpenAiModel(script.base_url, timeouts=timeouts)
            if has_model:
                chatting.model = replace(chatting.model, client=model)
            try:
                async with httpx.AsyncClient(base_url=served.url, timeout=60) as http:
                    yield ChatServer(serving=served, script=script, http=http)
            finally:
                await model.close()
