"""A real server, a real model server that says what was written down, and clients of both."""

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
from tests.server.live_server import Serving, serving

MODEL = "scripted"
_SHORT_TIMEOUTS = Timeouts(retry_seconds=0.1, first_byte_seconds=10, idle_seconds=10)
USAGE = Usage(input_tokens=10, output_tokens=5)


def says(*texts: str) -> list[ModelDelta]:
    """A reply of words."""
    return [*(ModelDelta(text=text) for text in texts), ModelDelta(usage=USAGE)]


def calls(*wanted: tuple[str, str], text: str = "") -> list[ModelDelta]:
    """A reply that calls tools."""
    made = [ToolCall(id=f"call_{at}", name=n, arguments=a) for at, (n, a) in enumerate(wanted)]
    return [ModelDelta(text=text, tool_calls=made, usage=USAGE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A server, what is behind it, and how it is asked."""

    serving: Serving
    script: ScriptedServer
    http: httpx.AsyncClient

    def client(self, *scopes: Scope, **more: Any) -> AsyncOpenAI:
        """OpenAI's own client, with a key that may everything or just this."""
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
        """Ask in plain HTTP."""
        self.script.play(*replies)
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **body}
        told = {**self.serving.headers, **(headers or {})}
        if key:
            told["Authorization"] = f"Bearer {key}"
        with anyio.fail_after(60):
            return await self.http.post("/v1/chat/completions", json=body, headers=told)

    def asked(self, at: int = -1) -> dict[str, Any]:
        """What the model server was asked."""
        return self.script.requests[at]

    def forget(self) -> None:
        """Begin anew: nothing asked, nothing left to say."""
        del self.script.requests[:]

    def offered(self, at: int = -1) -> list[str]:
        """The tools that the model was told of."""
        return [tool["function"]["name"] for tool in self.asked(at).get("tools", [])]

    def said(self, role: str, at: int = -1) -> list[Any]:
        """What the model was told in a role."""
        return [m["content"] for m in self.asked(at)["messages"] if m["role"] == role]


def chunks_of(body: str) -> list[dict[str, Any]]:
    """The chunks of a stream, up to its end."""
    lines = [line.removeprefix("data: ") for line in body.split("\n\n") if line[:6] == "data: "]
    assert lines[-1] == "[DONE]"
    return [orjson.loads(line) for line in lines[:-1]]


def text_of(chunks: Sequence[dict[str, Any]]) -> str:
    """What a stream says."""
    deltas = [c["choices"][0]["delta"] for c in chunks if c.get("choices")]
    return "".join(delta.get("content") or "" for delta in deltas)


def loaded_for(home: Path, **settings: dict[str, Any]) -> Config:
    """Settings of a project in a home of its own."""
    project = home / "project"
    project.mkdir(parents=True, exist_ok=True)
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    return load(project=project, environment=environment, flags=settings)


@asynccontextmanager
async def talking(
    home: Path,
    *,
    has_model: bool = True,
    timeouts: Timeouts = _SHORT_TIMEOUTS,
    **settings: dict[str, Any],
) -> AsyncGenerator[Talk]:
    """Serve chat for the length of the block; the model server has no time to waste."""
    async with ScriptedServer() as script:
        if has_model:
            settings["model"] = {"base_url": script.base_url, "name": MODEL, "tools": "native"}
        async with serving(loaded_for(home, **settings), completions.ROUTES) as served:
            chatting = served.house.runtime.chat_service
            model = OpenAiModel(script.base_url, timeouts=timeouts)
            if has_model:
                chatting.model = replace(chatting.model, client=model)
            try:
                async with httpx.AsyncClient(base_url=served.url, timeout=60) as http:
                    yield Talk(serving=served, script=script, http=http)
            finally:
                await model.close()
