"""Contract of every model client, run over every implementation."""

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import anyio
import anyio.lowlevel
import pytest

from apexbridge.errors import ModelError, ModelRejectedError, ModelUnavailableError
from apexbridge.messages import (
    AssistantMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from apexbridge.models.anthropic import AnthropicModel
from apexbridge.models.base import ModelClient, ModelDelta, ModelRequest, Usage
from apexbridge.models.openai import OpenAiModel
from apexbridge.models.retry import Timeouts
from apexbridge.models.text_tool_calls.client import TextToolCallModel, ToolFallbackModel
from apexbridge.testing import BrokenStream, RawResponse, ScriptedModel, ScriptedServer
from apexbridge.testing.anthropic_server import AnthropicServer
from apexbridge.testing.model_server import ScriptedReply, SlowStream, html_page, rate_limited
from apexbridge.tools.base import ToolSpec

Replies = Sequence[Sequence[ModelDelta]]
pytestmark = pytest.mark.anyio

TOOLS = (
    ToolSpec(
        name="Read",
        description="Reads a file.",
        input_schema={"type": "object", "properties": {"path": {"type": "string"}}},
    ),
    ToolSpec(name="Now", description="Tells the time.", input_schema={"type": "object"}),
)
REQUEST = ModelRequest(model="m", messages=(UserMessage(text="hi"),))
WITH_TOOLS = replace(REQUEST, tools=TOOLS)
READ = ToolCall(id="1", name="Read", arguments='{"path": "猫"}')
SLOW = Timeouts(connect_seconds=5, first_byte_seconds=30, idle_seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A client, how its script is written, and whether calls are words to it."""

    client: ModelClient
    play: Callable[[Replies], None]
    server: ScriptedServer | None = None
    is_in_words: bool = False


NAMES = ["scripted", "openai", "anthropic", "react over openai", "react over scripted", "fallback"]
ON_A_WIRE = ["openai", "anthropic", "react over openai", "fallback"]


@pytest.fixture
async def made(request: pytest.FixtureRequest) -> AsyncGenerator[Made]:
    async with AsyncExitStack() as stack:
        if request.param in {"scripted", "react over scripted"}:
            replies: list[Sequence[ModelDelta]] = []
            scripted = ScriptedModel(_taken(replies))
            is_in_words = request.param != "scripted"
            client = TextToolCallModel(scripted) if is_in_words else scripted
            yield Made(client=client, play=replies.extend, is_in_words=is_in_words)
            return
        is_anthropic = request.param == "anthropic"
        server = AnthropicServer() if is_anthropic else ScriptedServer()
        await stack.enter_async_context(server)
        kind = AnthropicModel if is_anthropic else OpenAiModel
        inner = kind(server.base_url, api_key="key-0123456789", timeouts=SLOW)
        stack.push_async_callback(inner.close)
        wrapped = {
            "react over openai": TextToolCallModel(inner),
            "fallback": ToolFallbackModel(inner, base_url=server.base_url),
        }
        yield Made(
            client=wrapped.get(request.param, inner),
            play=lambda replies: server.play(*replies),
            server=server,
            is_in_words=request.param == "react over openai",
        )


def _taken(replies: list[Sequence[ModelDelta]]) -> Iterator[Sequence[ModelDelta]]:
    while replies:
        yield replies.pop(0)


every = pytest.mark.parametrize("made", NAMES, indirect=True)
on_a_wire = pytest.mark.parametrize("made", ON_A_WIRE, indirect=True)


def _calling(made: Made, *calls: ToolCall) -> list[ModelDelta]:
    """The script of a reply with calls; a model without them writes one out."""
    if not made.is_in_words:
        return [ModelDelta(tool_calls=calls)]
    written = f'{{"tool": "{calls[0].name}", "arguments": {calls[0].arguments}}}'
    return [ModelDelta(text=written)]


async def _pieces(made: Made, request: ModelRequest = REQUEST) -> list[ModelDelta]:
    with anyio.fail_after(30):
        async with made.client.stream(request) as stream:
            return [piece async for piece in stream]


def _text(pieces: Sequence[ModelDelta]) -> str:
    return "".join(piece.text for piece in pieces)


@every
async def test_the_pieces_come_in_order_and_the_last_carries_the_usage(made: Made) -> None:
    made.play([[ModelDelta(text="a"), ModelDelta(text="b")]])
    pieces = await _pieces(made)
    assert _text(pieces) == "ab"
    assert [piece.usage is not None for piece in pieces] == [False] * (len(pieces) - 1) + [True]


@every
async def test_a_usage_that_is_reported_is_passed_on(made: Made) -> None:
    usage = Usage(input_tokens=3, output_tokens=4)
    made.play([[ModelDelta(text="a", usage=usage)]])
    pieces = await _pieces(made, WITH_TOOLS)
    assert [piece.usage for piece in pieces if piece.usage is not None] == [usage]
    assert pieces[-1].usage == usage


@every
async def test_a_call_comes_whole_with_its_arguments_as_they_were_written(made: Made) -> None:
    made.play([_calling(made, READ)])
    pieces = await _pieces(made, WITH_TOOLS)
    assert _text(pieces) == ""
    (call,) = [call for piece in pieces for call in piece.tool_calls]
    assert (call.name, call.arguments) == (READ.name, READ.arguments)
    assert call.id


@pytest.mark.parametrize("made", ["scripted", "openai", "anthropic", "fallback"], indirect=True)
async def test_several_calls_keep_their_order_and_what_is_not_json_is_kept(made: Made) -> None:
    calls = (READ, ToolCall(id="2", name="Now", arguments="{}"))
    broken = ToolCall(id="3", name="Read", arguments='{"path": ')
    made.play([[ModelDelta(text="well", tool_calls=(*calls, broken))]])
    pieces = await _pieces(made, WITH_TOOLS)
    assert [call for piece in pieces for call in piece.tool_calls] == [*calls, broken]


@every
async def test_reasoning_is_separate_from_the_text(made: Made) -> None:
    made.play([[ModelDelta(reasoning="hm"), ModelDelta(text="so")]])
    pieces = await _pieces(made, WITH_TOOLS)
    assert _text(pieces) == "so"
    assert "".join(piece.reasoning for piece in pieces) == "hm"


@every
async def test_why_a_reply_was_cut_is_reported_at_the_end(made: Made) -> None:
    made.play([[ModelDelta(text="a", finish_reason="length")]])
    pieces = await _pieces(made, WITH_TOOLS)
    assert [piece.finish_reason for piece in pieces if piece.finish_reason] == ["length"]


@every
async def test_a_reply_that_is_left_early_is_closed(made: Made) -> None:
    made.play([[ModelDelta(text="a"), ModelDelta(text="b")], [ModelDelta(text="c")]])
    async with made.client.stream(REQUEST) as stream:
        assert (await anext(stream)).text in {"a", "ab"}  # what arrives together is one piece
    assert (await _pieces(made))[0].text == "c"


@every
async def test_a_model_that_cannot_answer_says_so(made: Made) -> None:
    with pytest.raises(ModelError):
        await _pieces(made)


HISTORIES = {
    "plain": (UserMessage(text="hi"),),
    "a whole turn": (
        SystemMessage(text="be kind"),
        UserMessage(text="read"),
        AssistantMessage(text="well", tool_calls=(READ,)),
        ToolMessage(call_id="1", text="a cat"),
        AssistantMessage(text="It is a cat."),
        UserMessage(text="and?"),
    ),
    "a result is missing": (
        UserMessage(text="read"),
        AssistantMessage(tool_calls=(READ, replace(READ, id="2"))),
        ToolMessage(call_id="2", text="", is_error=True),
        UserMessage(text="go on"),
    ),
    "nothing is in order": (
        AssistantMessage(text=" "),
        ToolMessage(call_id="9", text="unsolicited"),
        AssistantMessage(tool_calls=(replace(READ, arguments="{oh"),)),
        UserMessage(text="wait"),
        UserMessage(text=""),
        ToolMessage(call_id="1", text="a cat"),
        SystemMessage(text="late"),
    ),
    "no words": (),
}


@every
@pytest.mark.parametrize("history", HISTORIES)
async def test_any_history_can_be_reported(made: Made, history: str) -> None:
    made.play([[ModelDelta(text="a")]])
    request = replace(WITH_TOOLS, messages=HISTORIES[history])
    assert _text(await _pieces(made, request)) == "a"


@on_a_wire
async def test_a_server_gets_every_call_with_its_result_behind_it(made: Made) -> None:
    assert made.server is not None
    made.play([[ModelDelta(text="a")]])
    await _pieces(made, replace(WITH_TOOLS, messages=HISTORIES["a result is missing"]))
    written = json.dumps(made.server.requests[0], ensure_ascii=False)
    assert written.count("There is no result: the call was interrupted.") == 1


FAULTS: dict[str, ScriptedReply] = {
    "429": rate_limited(),
    "a page": html_page(502),
    "reset": BrokenStream(then="reset"),
    "cut": BrokenStream(),
}


@on_a_wire
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_before_the_first_delta_is_retried(made: Made, fault: str) -> None:
    assert made.server is not None
    made.server.play(FAULTS[fault], [ModelDelta(text="a")])
    assert _text(await _pieces(made, WITH_TOOLS)) == "a"
    assert len(made.server.requests) == 2


@on_a_wire
async def test_a_reset_after_the_first_delta_is_an_error_without_a_retry(made: Made) -> None:
    assert made.server is not None
    broken = BrokenStream(deltas=[ModelDelta(text="It")], then="reset")
    made.server.play(broken, [ModelDelta(text="a")])
    said: list[str] = []
    with pytest.raises(ModelUnavailableError):  # noqa: PT012  # what came before is kept
        async with made.client.stream(WITH_TOOLS) as stream:
            async for piece in stream:
                said += [piece.text]
    assert "".join(said) == "It"
    assert len(made.server.requests) == 1


@on_a_wire
async def test_a_rejection_is_not_retried(made: Made) -> None:
    assert made.server is not None
    made.server.play(RawResponse(status=403, body=b'{"error": {"message": "not you"}}'))
    with pytest.raises(ModelRejectedError, match="not you"):
        await _pieces(made, WITH_TOOLS)
    assert len(made.server.requests) == 1


@on_a_wire
async def test_bytes_may_come_one_by_one(made: Made) -> None:
    assert made.server is not None
    made.server.play(SlowStream(deltas=[ModelDelta(text="猫🐈"), *_calling(made, READ)]))
    pieces = await _pieces(made, WITH_TOOLS)
    assert _text(pieces) == "猫🐈"
    assert [call.arguments for piece in pieces for call in piece.tool_calls] == [READ.arguments]


@on_a_wire
@pytest.mark.parametrize("begun", [(), (ModelDelta(text="It is"),)], ids=["early", "late"])
async def test_a_stream_can_be_cancelled_at_any_time(
    made: Made, begun: Sequence[ModelDelta]
) -> None:
    assert made.server is not None
    made.server.play(BrokenStream(deltas=begun, then="hang"), [ModelDelta(text="a")])
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(_pieces, made, WITH_TOOLS)
            while not made.server.requests:
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
    assert _text(await _pieces(made, WITH_TOOLS)) == "a"


@on_a_wire
async def test_replies_may_come_side_by_side(made: Made) -> None:
    made.play([[ModelDelta(text="a"), ModelDelta(text="b")]] * 8)
    said: list[str] = []

    async def ask() -> None:
        said.append(_text(await _pieces(made, WITH_TOOLS)))

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(ask)
    assert said == ["ab"] * 8
