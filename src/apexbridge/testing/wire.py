"""A model server for tests: a real one, on a real socket, that says what it is told to say."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

import anyio
from aiohttp import web

from apexbridge.messages import ToolCall
from apexbridge.models.base import ModelDelta, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAnswer:
    """Exactly these bytes: a refusal, a fault, or garbage."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenStream:
    """An answer that begins well, and then is cut off, or says nothing more for ever.

    Without deltas it is cut off, or hangs, before the first byte.
    """

    deltas: Sequence[ModelDelta] = ()
    then: Literal["cut", "hang"] = "cut"


ScriptedReply = Sequence[ModelDelta] | RawAnswer | BrokenStream


class ScriptedServer:
    """Speaks OpenAI's chat protocol on the loopback, and gives prepared replies in turn.

        async with ScriptedServer([[ModelDelta(text="hello")]]) as server:
            model = OpenAiModel(server.base_url)

    A reply is what `ScriptedModel` takes, streamed if the request asks for it, or a fault. A usage
    is sent only where a delta carries one. With no reply left the request is refused. `requests`
    holds the JSON of each request, `headers` its headers.
    """

    def __init__(self, replies: Iterable[ScriptedReply] = (), *, can_stream: bool = True) -> None:
        self._replies = list(replies)
        self._can_stream = can_stream
        self._is_closing = anyio.Event()
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []

    @property
    def base_url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    def play(self, *replies: ScriptedReply) -> None:
        """Add replies."""
        self._replies += replies

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closing.set()
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked: dict[str, Any] = await request.json()
        self.requests.append(asked)
        self.headers.append(request.headers)
        reply = self._replies.pop(0) if self._replies else _NOTHING_LEFT
        match reply:
            case RawAnswer(body=body, status=status, headers=headers):
                return web.Response(body=body, status=status, headers=headers)
            case BrokenStream(deltas=deltas, then=then):
                return await self._break(request, deltas, then)
            case _ if asked.get("stream") and self._can_stream:
                options: dict[str, Any] = asked.get("stream_options") or {}
                wants_usage = options.get("include_usage") is True
                return await _streamed(request, reply, wants_usage=wants_usage)
            case _:
                return web.json_response(_whole(reply))

    async def _break(
        self, request: web.Request, deltas: Sequence[ModelDelta], then: Literal["cut", "hang"]
    ) -> web.StreamResponse:
        response = _event_stream()
        if deltas:
            await response.prepare(request)
            for chunk in _chunks(deltas):
                await response.write(_event(chunk))
        if then == "hang":
            await self._is_closing.wait()
        if request.transport is not None:
            request.transport.close()
        return response


_NOTHING_LEFT = RawAnswer(
    status=400, body=b'{"error": {"message": "the script has no more replies"}}'
)


async def _streamed(
    request: web.Request, deltas: Sequence[ModelDelta], *, wants_usage: bool
) -> web.StreamResponse:
    response = _event_stream()
    await response.prepare(request)
    for chunk in _chunks(deltas):
        await response.write(_event(chunk))
    await response.write(_event(_chunk({}, _finish_reason(deltas))))
    usage = _usage(deltas)
    if usage is not None and wants_usage:
        await response.write(_event({"choices": [], "usage": _wire_usage(usage)}))
    await response.write(b"data: [DONE]\n\n")
    return response


def _event_stream() -> web.StreamResponse:
    return web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})


def _event(chunk: object) -> bytes:
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()


def _chunks(deltas: Sequence[ModelDelta]) -> Iterable[object]:
    """The deltas as OpenAI sends them: a call's name first, its arguments in pieces."""
    number = 0
    for delta in deltas:
        if delta.text:
            yield _chunk({"role": "assistant", "content": delta.text})
        for call in delta.tool_calls:
            opening = {**_wire_call(call, ""), "index": number}
            yield _chunk({"role": "assistant", "content": None, "tool_calls": [opening]})
            half = (len(call.arguments) + 1) // 2
            for part in filter(None, (call.arguments[:half], call.arguments[half:])):
                more = {"index": number, "function": {"arguments": part}}
                yield _chunk({"tool_calls": [more]})
            number += 1


def _chunk(delta: Mapping[str, object], finish_reason: str | None = None) -> object:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def _whole(deltas: Sequence[ModelDelta]) -> object:
    calls = [_wire_call(call, call.arguments) for delta in deltas for call in delta.tool_calls]
    message = {"role": "assistant", "content": "".join(delta.text for delta in deltas) or None}
    choice = {
        "index": 0,
        "message": {**message, "tool_calls": calls} if calls else message,
        "finish_reason": _finish_reason(deltas),
    }
    usage = _usage(deltas)
    told = {} if usage is None else {"usage": _wire_usage(usage)}
    return {"object": "chat.completion", "choices": [choice], **told}


def _wire_call(call: ToolCall, arguments: str) -> dict[str, object]:
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _finish_reason(deltas: Sequence[ModelDelta]) -> str:
    return "tool_calls" if any(delta.tool_calls for delta in deltas) else "stop"


def _usage(deltas: Sequence[ModelDelta]) -> Usage | None:
    return next((delta.usage for delta in reversed(deltas) if delta.usage is not None), None)


def _wire_usage(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
