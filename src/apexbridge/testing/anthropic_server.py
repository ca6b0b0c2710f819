"""Scripted model server for tests: Anthropic Messages API."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from apexbridge.messages import ToolCall
from apexbridge.models.base import ModelDelta, Usage
from apexbridge.testing.model_server import (
    RawResponse,
    ScriptedReply,
    ScriptedServer,
    finish_reason_of,
    last_usage,
    split_text,
)

_STOPS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class AnthropicServer(ScriptedServer):
    """A `ScriptedServer` that speaks Anthropic's protocol.

    async with AnthropicServer([[ModelDelta(text="hello")]]) as server:
        model = AnthropicModel(server.base_url)
    """

    def __init__(self, replies: Iterable[ScriptedReply] = (), *, can_stream: bool = True) -> None:
        super().__init__(replies, can_stream=can_stream, dialect=AnthropicDialect())


def overloaded(status: int = 529) -> RawResponse:
    """Build an overloaded error response."""
    return RawResponse(status=status, body=json.dumps(_OVERLOADED).encode())


def overloaded_event() -> RawResponse:
    """Build an overloaded error as an event of a stream."""
    return RawResponse(body=b"".join((_start(0), _event(_OVERLOADED))))


_OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


class AnthropicDialect:
    """Anthropic Messages protocol."""

    path = "/messages"
    prefix = "/v1"

    def begun(self, deltas: Sequence[ModelDelta]) -> Iterator[bytes]:
        """Yield a content block for each thinking, text and call; calls in fragments."""
        yield _start((last_usage(deltas) or Usage()).input_tokens)
        yield _event({"type": "ping"})
        for index, (opening, pieces) in enumerate(_blocks(deltas)):
            yield _event({"type": "content_block_start", "index": index, "content_block": opening})
            for piece in pieces:
                yield _event({"type": "content_block_delta", "index": index, "delta": piece})
            yield _event({"type": "content_block_stop", "index": index})

    def ended(self, deltas: Sequence[ModelDelta], asked: Mapping[str, Any]) -> Iterator[bytes]:
        """Yield stop reason, output tokens and the end."""
        usage = last_usage(deltas) or Usage()
        reason = {"stop_reason": _STOPS[finish_reason_of(deltas)], "stop_sequence": None}
        tokens = {"output_tokens": usage.output_tokens}
        yield _event({"type": "message_delta", "delta": reason, "usage": tokens})
        yield _event({"type": "message_stop"})

    def whole(self, deltas: Sequence[ModelDelta]) -> object:
        """Build one message."""
        content: list[dict[str, Any]] = []
        for delta in deltas:
            if delta.reasoning:
                content.append({"type": "thinking", "thinking": delta.reasoning, "signature": "s"})
            if delta.text:
                content.append({"type": "text", "text": delta.text})
            content += [
                {**_opening(call), "input": json.loads(call.arguments)} for call in delta.tool_calls
            ]
        usage = last_usage(deltas) or Usage()
        return _message(content, _STOPS[finish_reason_of(deltas)], usage)


_Block = tuple[Mapping[str, object], Sequence[Mapping[str, object]]]


def _blocks(deltas: Sequence[ModelDelta]) -> Iterator[_Block]:
    for delta in deltas:
        if delta.reasoning:
            thought = [
                {"type": "thinking_delta", "thinking": part} for part in split_text(delta.reasoning)
            ]
            signature = {"type": "signature_delta", "signature": "signed"}
            yield {"type": "thinking", "thinking": "", "signature": ""}, [*thought, signature]
        if delta.text:
            parts = [{"type": "text_delta", "text": delta.text}]
            yield {"type": "text", "text": ""}, parts
        for call in delta.tool_calls:
            pieces = ("", *split_text(call.arguments))
            written = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
            yield _opening(call), written


def _opening(call: ToolCall) -> dict[str, object]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}


def _start(input_tokens: int) -> bytes:
    message = _message((), None, Usage(input_tokens=input_tokens, output_tokens=1))
    return _event({"type": "message_start", "message": message})


def _message(content: object, stop_reason: str | None, usage: Usage) -> dict[str, object]:
    return {
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": stop_reason,
        "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
    }


def _event(event: Mapping[str, object]) -> bytes:
    written = json.dumps(event, ensure_ascii=False)
    return f"event: {event['type']}\ndata: {written}\n\n".encode()
