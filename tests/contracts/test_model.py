"""What every model client promises, over every implementation."""

from collections.abc import AsyncGenerator, Callable, Sequence

import pytest

from apexbridge.errors import ModelError
from apexbridge.messages import ToolCall, UserMessage
from apexbridge.models.base import ModelClient, ModelDelta, ModelRequest, Usage
from apexbridge.models.openai_compat import OpenAiModel
from apexbridge.testing import ScriptedModel, ScriptedServer

Replies = Sequence[Sequence[ModelDelta]]
pytestmark = pytest.mark.anyio

REQUEST = ModelRequest(model="m", messages=(UserMessage(text="hi"),))


@pytest.fixture(params=["scripted", "openai"])
async def make(
    request: pytest.FixtureRequest,
) -> AsyncGenerator[Callable[[Replies], ModelClient]]:
    if request.param == "scripted":
        yield ScriptedModel
        return
    async with ScriptedServer() as server:
        model = OpenAiModel(server.base_url)

        def scripted(replies: Replies) -> ModelClient:
            server.play(*replies)
            return model

        yield scripted
        await model.close()


async def _pieces(model: ModelClient) -> list[ModelDelta]:
    async with model.stream(REQUEST) as stream:
        return [piece async for piece in stream]


async def test_the_pieces_come_in_order_and_the_last_carries_the_usage(
    make: Callable[[Replies], ModelClient],
) -> None:
    call = ToolCall(id="1", name="Read", arguments="{}")
    reply = [ModelDelta(text="a"), ModelDelta(text="b", tool_calls=(call,))]
    pieces = await _pieces(make([reply]))
    assert "".join(piece.text for piece in pieces) == "ab"
    assert [call for piece in pieces for call in piece.tool_calls] == [call]
    assert pieces[-1].usage is not None


async def test_a_usage_that_is_told_is_passed_on(make: Callable[[Replies], ModelClient]) -> None:
    usage = Usage(input_tokens=3, output_tokens=4)
    pieces = await _pieces(make([[ModelDelta(text="a", usage=usage)]]))
    assert [piece.usage for piece in pieces if piece.usage is not None] == [usage]
    assert pieces[-1].usage == usage


async def test_a_reply_that_is_left_early_is_closed(make: Callable[[Replies], ModelClient]) -> None:
    model = make([[ModelDelta(text="a"), ModelDelta(text="b")], [ModelDelta(text="c")]])
    async with model.stream(REQUEST) as stream:
        assert (await anext(stream)).text == "a"
    assert (await _pieces(model))[0].text == "c"


async def test_a_model_that_cannot_answer_says_so(make: Callable[[Replies], ModelClient]) -> None:
    with pytest.raises(ModelError):
        await _pieces(make([]))
