"""Scripted model server for tests: OpenAI-compatible, on a loopback socket."""

import json
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import anyio
from aiohttp import web

from apexbridge.messages import ToolCall
from apexbridge.models.base import ModelDelta, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class RawResponse:
    """Verbatim HTTP response: an error, or malformed bytes."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenStream:
    """Response that is cut off, reset or left hanging after its deltas.

    Without deltas this happens before the first byte.
    """

    deltas: Sequence[ModelDelta] = ()
    then: Literal["cut", "reset", "hang"] = "cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStream:
    """Complete response, sent a few bytes at a time with pauses."""

    deltas: Sequence[ModelDelta]
    bytes_at_once: int = 1
    pause_seconds: float = 0.0


ScriptedReply = Sequence[ModelDelta] | RawResponse | BrokenStream | SlowStream


def rate_limited(retry_after: str = "") -> RawResponse:
    """Build a 429 response with a `Retry-After` header."""
    headers = {"Retry-After": retry_after} if retry_after else {}
    return RawResponse(status=429, headers=headers, body=b'{"error": {"message": "slow down"}}')


def html_page(status: int = 502) -> RawResponse:
    """Build the HTML error page of a reverse proxy."""
    page = b"<!DOCTYPE html><html><body><h1>Bad Gateway</h1></body></html>"
    return RawResponse(status=status, headers={"Content-Type": "text/html"}, body=page)


class Dialect(Protocol):
    """Wire protocol of a server."""

    path: str
    prefix: str

    def begun(self, deltas: Sequence[ModelDelta]) -> Iterator[bytes]:
        """Yield the events of a streamed response, without its end."""
        ...

    def ended(self, deltas: Sequence[ModelDelta], asked: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield the final events."""
        ...

    def whole(self, deltas: Sequence[ModelDelta]) -> object:
        """Build a response that is not streamed."""
        ...


class ScriptedServer:
    """Speaks OpenAI's chat protocol on the loopback, and gives prepared replies in turn.

        async with ScriptedServer([[ModelDelta(text="hello")]]) as server:
            model = OpenAiModel(server.base_url)

    A reply is what `ScriptedModel` takes, streamed if the request asks for it, or a fault. Several
    calls in one delta come in turns, piece by piece. A usage is sent only where a delta carries
    one. With no reply left the request is refused. `requests` holds the JSON of each request,
    `headers` its headers.
    """

    def __init__(
        self,
        replies: Iterable[ScriptedReply] = (),
        *,
        can_stream: bool = True,
        dialect: Dialect | None = None,
    ) -> None:
        self._replies = list(replies)
        self._can_stream = can_stream
        self._dialect = dialect or OpenAiDialect()
        self._is_closing = anyio.Event()
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post(self._dialect.prefix + self._dialect.path, self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []

    @property
    def base_url(self) -> str:
        """Base URL of the server."""
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}{self._dialect.prefix}"

    def play(self, *replies: ScriptedReply) -> None:
        """Append replies to the script."""
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
        reply = self._replies.pop(0) if self._replies else _SCRIPT_EXHAUSTED
        match reply:
            case RawResponse(body=body, status=status, headers=headers):
                return web.Response(body=body, status=status, headers=headers)
            case BrokenStream():
                return await self._break(request, reply)
            case SlowStream():
                return await self._trickle(request, reply, asked)
            case _ if asked.get("stream") and self._can_stream:
                response = await _event_stream(request)
                for event in (*self._dialect.begun(reply), *self._dialect.ended(reply, asked)):
                    await response.write(event)
                return response
            case _:
                return web.json_response(self._dialect.whole(reply))

    async def _break(self, request: web.Request, reply: BrokenStream) -> web.StreamResponse:
        response = web.StreamResponse()
        if reply.deltas:
            response = await _event_stream(request)
            for event in self._dialect.begun(reply.deltas):
                await response.write(event)
        if reply.then == "hang":
            await self._is_closing.wait()
        if request.transport is not None:
            if reply.then == "reset":
                connection: socket.socket = request.transport.get_extra_info("socket")
                at_once = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            request.transport.close()
        return response

    async def _trickle(
        self, request: web.Request, reply: SlowStream, asked: Mapping[str, Any]
    ) -> web.StreamResponse:
        response = await _event_stream(request)
        deltas = reply.deltas
        said = b"".join((*self._dialect.begun(deltas), *self._dialect.ended(deltas, asked)))
        for at in range(0, len(said), reply.bytes_at_once):
            await response.write(said[at : at + reply.bytes_at_once])
            await anyio.sleep(reply.pause_seconds)
        return response


_SCRIPT_EXHAUSTED = RawResponse(
    status=400, body=b'{"error": {"message": "the script has no more replies"}}'
)


async def _event_stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    return response


def last_usage(deltas: Sequence[ModelDelta]) -> Usage | None:
    """Return the last usage in the script, if any."""
    return next((delta.usage for delta in reversed(deltas) if delta.usage is not None), None)


def finish_reason_of(deltas: Sequence[ModelDelta]) -> str:
    """Return the scripted finish reason, or derive it from the content."""
    reason = next((delta.finish_reason for delta in reversed(deltas) if delta.finish_reason), None)
    return reason or ("tool_calls" if any(delta.tool_calls for delta in deltas) else "stop")


def split_text(text: str) -> tuple[str, ...]:
    """Split a text in two, if it is long enough."""
    half = (len(text) + 1) // 2
    return tuple(filter(None, (text[:half], text[half:])))


class OpenAiDialect:
    """OpenAI chat completions protocol."""

    path = "/chat/completions"
    prefix = "/v1"

    def begun(self, deltas: Sequence[ModelDelta]) -> Iterator[bytes]:
        """Yield chunks: the name of a call first, its arguments in fragments."""
        number = 0
        for delta in deltas:
            if delta.reasoning:
                yield _event(_chunk({"role": "assistant", "reasoning_content": delta.reasoning}))
            if delta.text:
                yield _event(_chunk({"role": "assistant", "content": delta.text}))
            yield from _call_events(delta.tool_calls, number)
            number += len(delta.tool_calls)

    def ended(self, deltas: Sequence[ModelDelta], asked: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield finish reason, usage if requested, and `[DONE]`."""
        yield _event(_chunk({}, finish_reason_of(deltas)))
        usage = last_usage(deltas)
        options: dict[str, Any] = asked.get("stream_options") or {}
        if usage is not None and options.get("include_usage") is True:
            yield _event({"choices": [], "usage": _serialize_usage(usage)})
        yield b"data: [DONE]\n\n"

    def whole(self, deltas: Sequence[ModelDelta]) -> object:
        """Build one completion."""
        message: dict[str, object] = {
            "role": "assistant",
            "content": "".join(delta.text for delta in deltas) or None,
        }
        if thought := "".join(delta.reasoning for delta in deltas):
            message["reasoning_content"] = thought
        if calls := [call for delta in deltas for call in delta.tool_calls]:
            message["tool_calls"] = [_serialize_call(call, call.arguments) for call in calls]
        choice = {"index": 0, "message": message, "finish_reason": finish_reason_of(deltas)}
        usage = last_usage(deltas)
        optional = {} if usage is None else {"usage": _serialize_usage(usage)}
        return {"object": "chat.completion", "choices": [choice], **optional}


def _call_events(calls: Sequence[ToolCall], first: int) -> Iterator[bytes]:
    """Yield the names of all calls, then fragments of their arguments in turn."""
    for number, call in enumerate(calls, first):
        opening = {**_serialize_call(call, ""), "index": number}
        message = {"role": "assistant", "content": None, "tool_calls": [opening]}
        yield _event(_chunk(message))
    for turn in range(2):
        for number, call in enumerate(calls, first):
            for part in split_text(call.arguments)[turn : turn + 1]:
                more = {"index": number, "function": {"arguments": part}}
                yield _event(_chunk({"tool_calls": [more]}))


def _event(chunk: object) -> bytes:
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()


def _chunk(delta: Mapping[str, object], finish_reason: str | None = None) -> object:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"object": "chat.completion.chunk", "choices": [choice]}


def _serialize_call(call: ToolCall, arguments: str) -> dict[str, object]:
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _serialize_usage(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
