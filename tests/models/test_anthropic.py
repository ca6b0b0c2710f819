"""Anthropic Messages API: requests, responses and errors."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from apexbridge.errors import ModelOutputError, ModelRejectedError, ModelUnavailableError
from apexbridge.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from apexbridge.models.anthropic import AnthropicModel
from apexbridge.models.base import ModelDelta, ModelRequest, Usage
from apexbridge.models.retry import RetryPolicy
from apexbridge.testing import RawResponse
from apexbridge.testing.anthropic_server import AnthropicServer, overloaded, overloaded_event
from apexbridge.testing.model_server import ScriptedReply
from apexbridge.tools.base import ToolSpec

pytestmark = pytest.mark.anyio

KEY = "sk-ant-0123456789"
REQUEST = ModelRequest(model="claude", messages=(UserMessage(text="hi"),))
HELLO = [ModelDelta(text="hello")]
READ = ToolCall(id="toolu_1", name="Read", arguments='{"path": "猫"}')


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The backoff before each retry, without the waiting."""
    taken: list[float] = []

    async def sleep(seconds: float) -> None:
        taken.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    # The upper end of the jitter, so that the backoff is exact.
    monkeypatch.setattr(RetryPolicy, "delay", _longest_delay)
    return taken


def _longest_delay(policy: RetryPolicy, retry: int, retry_after: float) -> float:
    return max(retry_after, policy.ceiling(retry))


@asynccontextmanager
async def _model(server: AnthropicServer, **settings: Any) -> AsyncGenerator[AnthropicModel]:
    model = AnthropicModel(server.base_url, api_key=KEY, **settings)
    try:
        yield model
    finally:
        await model.close()


async def _asked(
    *replies: ScriptedReply, request: ModelRequest = REQUEST, can_stream: bool = True
) -> tuple[list[ModelDelta], AnthropicServer]:
    async with (
        AnthropicServer(replies, can_stream=can_stream) as server,
        _model(server) as model,
        model.stream(request) as stream,
    ):
        return [piece async for piece in stream], server


def _events(*events: object) -> RawResponse:
    return RawResponse(body=b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events))


async def test_a_request_is_serialized_for_the_messages_api() -> None:
    other = ToolCall(id="functions.Read:0", name="Read", arguments="{oh")
    request = ModelRequest(
        model="claude",
        messages=(
            SystemMessage(text="be kind"),
            UserMessage(text="read"),
            AssistantMessage(text="well \n", tool_calls=(READ, other)),
            ToolMessage(call_id="functions.Read:0", text="", is_error=True),
            ToolMessage(call_id="toolu_1", text="a cat"),
            UserMessage(text="and?", kind="reminder"),
            AssistantMessage(text="A cat. "),
            SystemMessage(text="and brief"),
        ),
        tools=(ToolSpec(name="Read", description="Reads.", input_schema={"properties": {}}),),
        effort="low",
        max_output_tokens=7,
        temperature=0.5,
        seed=3,
        stop=("END",),
        response_format={"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
        extra={"top_k": 5},
    )
    _, server = await _asked(HELLO, request=request)
    unreadable = {"unreadable": "{oh"}
    tool = {"name": "Read", "description": "Reads."}
    assert server.requests == [
        {
            "model": "claude",
            "max_tokens": 7,
            "stream": True,
            "system": "be kind\n\nand brief",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "read"}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "well"},
                        {
                            "type": "tool_use",
                            "id": "toolu_1",
                            "name": "Read",
                            "input": {"path": "猫"},
                        },
                        {
                            "type": "tool_use",
                            "id": "functions_Read_0",
                            "name": "Read",
                            "input": unreadable,
                        },
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a cat"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "functions_Read_0",
                            "is_error": True,
                        },
                        {"type": "text", "text": "and?"},
                    ],
                },
                {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
            ],
            "tools": [{**tool, "input_schema": {"type": "object", "properties": {}}}],
            "temperature": 0.5,
            "stop_sequences": ["END"],
            "output_config": {
                "effort": "low",
                "format": {"type": "json_schema", "schema": {"type": "object"}},
            },
            "top_k": 5,
        }
    ]
    assert server.headers[0]["x-api-key"] == KEY
    assert server.headers[0]["anthropic-version"] == "2023-06-01"
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize("messages", [(), (AssistantMessage(text="and so"),)], ids=["none", "half"])
async def test_the_user_always_speaks_first_and_a_limit_is_always_asked_for(
    messages: tuple[Message, ...],
) -> None:
    _, server = await _asked(HELLO, request=ModelRequest(model="claude", messages=messages))
    assert server.requests[0]["messages"][0]["role"] == "user"
    assert server.requests[0]["max_tokens"] == 8192


async def test_an_unsupported_response_format_is_refused() -> None:
    request = ModelRequest(
        model="claude", messages=REQUEST.messages, response_format={"type": "json_object"}
    )
    with pytest.raises(ModelRejectedError, match="no response_format but json_schema"):
        await _asked(HELLO, request=request)
    plain = ModelRequest(model="claude", messages=(), response_format={"type": "text"})
    _, server = await _asked(HELLO, request=plain)
    assert "output_config" not in server.requests[0]


@pytest.mark.parametrize("can_stream", [True, False])
async def test_text_reasoning_calls_and_usage_are_returned(*, can_stream: bool) -> None:
    usage = Usage(input_tokens=5, output_tokens=9)
    send = ToolCall(id="toolu_2", name="Send", arguments="{}")
    reply = [
        ModelDelta(reasoning="hm"),
        ModelDelta(text="so", tool_calls=(READ, send)),
        ModelDelta(usage=usage),
    ]
    pieces, _ = await _asked(reply, can_stream=can_stream)
    assert "".join(piece.reasoning for piece in pieces) == "hm"
    assert "".join(piece.text for piece in pieces) == "so"
    assert pieces[-1] == ModelDelta(
        tool_calls=(READ, send), usage=usage, finish_reason="tool_calls"
    )


@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
async def test_the_finish_reason_is_mapped(reason: Any) -> None:
    pieces, _ = await _asked([ModelDelta(text="a", finish_reason=reason)])
    assert pieces[-1].finish_reason == reason


async def test_cached_tokens_count_and_unknown_events_are_ignored() -> None:
    start = {"input_tokens": 1, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 300}
    pieces, _ = await _asked(
        _events(
            {"type": "message_start", "message": {"usage": start}},
            {"type": "brand_new", "index": 7},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "server_thing"}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": None},
            {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 4}},
            {"type": "message_stop"},
        )
    )
    usage = Usage(input_tokens=321, output_tokens=4)
    assert pieces == [ModelDelta(usage=usage, finish_reason="stop")]


async def test_signed_thinking_blocks_are_sent_back_with_tool_results() -> None:
    thinking = [ModelDelta(reasoning="hm"), ModelDelta(tool_calls=(READ,))]
    after = (AssistantMessage(tool_calls=(READ,)), ToolMessage(call_id="toolu_1", text="a cat"))
    again = ModelRequest(model="claude", messages=(*REQUEST.messages, *after))
    async with AnthropicServer([thinking, HELLO]) as server, _model(server) as model:
        for request in (REQUEST, again):
            async with model.stream(request) as stream:
                assert [piece async for piece in stream]
    blocks = server.requests[1]["messages"][1]["content"]
    assert blocks[0] == {"type": "thinking", "thinking": "hm", "signature": "signed"}
    assert [block["type"] for block in blocks] == ["thinking", "tool_use"]


async def test_redacted_thinking_is_sent_back_unchanged() -> None:
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "猫"}}
    whole = {"type": "message", "content": [hidden, call], "stop_reason": "tool_use"}
    after = (AssistantMessage(tool_calls=(READ,)), ToolMessage(call_id="toolu_1", text="a cat"))
    again = ModelRequest(model="claude", messages=(*REQUEST.messages, *after))
    first = RawResponse(body=json.dumps(whole).encode())
    async with AnthropicServer([first, HELLO]) as server, _model(server) as model:
        for request in (REQUEST, again):
            async with model.stream(request) as stream:
                assert [piece async for piece in stream]
    assert server.requests[1]["messages"][1]["content"][0] == hidden


@pytest.mark.parametrize("reply", [overloaded(), overloaded_event(), overloaded(500)])
async def test_an_overloaded_server_is_retried(reply: RawResponse, pauses: list[float]) -> None:
    pieces, _ = await _asked(reply, HELLO)
    assert pieces[0].text == "hello"
    assert pauses == [1.0]
    with pytest.raises(ModelUnavailableError, match="Overloaded"):
        await _asked(*[reply] * 6, HELLO)


START = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}}


async def test_an_overload_after_the_first_delta_is_an_error(pauses: list[float]) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(ModelUnavailableError, match="gave up: Overloaded"):
        await _asked(_events(START, error), HELLO)
    assert pauses == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ({"type": "invalid_request_error", "message": "too long"}, "gave up: too long"),
        ({"type": "authentication_error", "message": f"bad {KEY}"}, "gave up$"),
    ],
)
async def test_an_error_event_about_the_request_is_a_rejection(
    error: dict[str, str], words: str
) -> None:
    with pytest.raises(ModelRejectedError, match=words):
        await _asked(_events({"type": "error", "error": error}), HELLO)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (_events(START), "ended before"),
        (RawResponse(), "ended before"),
        (RawResponse(body=b"<html>"), "a web page"),
        (RawResponse(body=b"data: {\n\n"), "not of the Messages API"),
        (
            _events({"type": "content_block_delta", "index": 3, "delta": {"text": "a"}}),
            "was not started",
        ),
        (
            _events(
                {"type": "content_block_start", "content_block": {"type": "tool_use"}},
                {"type": "message_stop"},
            ),
            "without a name",
        ),
        (_events(*[{**START, "index": at} for at in range(129)]), "more than 128 blocks"),
    ],
)
async def test_a_malformed_response_is_refused(answer: RawResponse, words: str) -> None:
    with pytest.raises(ModelOutputError, match=words):
        await _asked(answer)


async def test_a_reply_that_was_finished_needs_no_more() -> None:
    error = {"type": "error", "error": {"type": "api_error", "message": "late"}}
    pieces, _ = await _asked(_events(START, {"type": "message_stop"}, error))
    assert pieces[-1].finish_reason == "stop"


async def test_a_call_without_arguments_or_an_id_gets_both() -> None:
    block = {"type": "tool_use", "name": "Now", "input": None, "id": None, "text": None}
    start = {"type": "content_block_start", "index": 0, "content_block": block}
    pieces, _ = await _asked(_events(start, {"type": "message_stop"}))
    (call,) = pieces[-1].tool_calls
    assert (call.name, call.arguments) == ("Now", "{}")
    assert call.id.startswith("toolu_")
