"""Answers in one piece: asked for as such, tried again while nobody has heard of them."""

from collections.abc import Sequence

import pytest

from apexbridge.errors import ModelOutputError, ModelUnavailableError
from apexbridge.messages import ToolCall, UserMessage
from apexbridge.models.base import ModelDelta, ModelRequest, Usage
from apexbridge.models.openai_compat import OpenAiModel
from apexbridge.models.openai_reply import plain_text
from apexbridge.models.trying import Patience
from apexbridge.testing import BrokenStream, RawAnswer, ScriptedServer
from apexbridge.testing.wire import ScriptedReply, web_page

pytestmark = pytest.mark.anyio

WHOLE = ModelRequest(model="tiny", messages=(UserMessage(text="hi"),), is_whole=True)
HELLO = [ModelDelta(text="hel"), ModelDelta(text="lo", usage=Usage(input_tokens=3))]
SOON = Patience(first_seconds=0.2, retry_seconds=5)


async def _asked(*replies: ScriptedReply) -> tuple[list[ModelDelta], ScriptedServer]:
    async with ScriptedServer(replies) as server:
        model = OpenAiModel(server.base_url, patience=SOON)
        try:
            async with model.stream(WHOLE) as stream:
                return [piece async for piece in stream], server
        finally:
            await model.close()


async def test_an_answer_in_one_piece_is_asked_for_and_told() -> None:
    told, server = await _asked(HELLO)
    assert "".join(piece.text for piece in told) == "hello"
    assert told[-1].usage == Usage(input_tokens=3)
    assert "stream" not in server.requests[0]
    assert "stream_options" not in server.requests[0]


async def test_calls_of_one_piece_stay_apart() -> None:
    calls = [ToolCall(id="", name="one", arguments="{}"), ToolCall(id="", name="two", arguments="")]
    told, _ = await _asked([ModelDelta(tool_calls=calls)])
    assert [call.name for call in told[-1].tool_calls] == ["one", "two"]
    assert len({call.id for call in told[-1].tool_calls}) == 2


@pytest.mark.parametrize("then", ["cut", "reset"])
async def test_what_breaks_off_is_asked_for_again(then: str) -> None:
    broken = BrokenStream(deltas=HELLO, then="cut" if then == "cut" else "reset")
    told, server = await _asked(broken, HELLO)
    assert "".join(piece.text for piece in told) == "hello"
    assert len(server.requests) == 2


async def test_a_stream_that_comes_all_the_same_is_understood() -> None:
    events = b'data: {"choices": [{"delta": {"content": "he"}}]}\n\ndata: {"choices": [{"delta": '
    events += b'{"content": "y"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    told, _ = await _asked(RawAnswer(body=events))
    assert "".join(piece.text for piece in told) == "hey"


@pytest.mark.parametrize(
    ("replies", "error"),
    [
        ([web_page(200)], ModelOutputError),
        ([RawAnswer(body=b"{}")], ModelOutputError),
        ([BrokenStream(then="hang")] * 6, ModelUnavailableError),
    ],
    ids=["a page", "nothing", "silence"],
)
async def test_what_is_no_answer_is_an_error(
    replies: Sequence[ScriptedReply], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await _asked(*replies)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ('{"choices": [{"delta": {"content": "a"}}]}', "a"),
        ('{"choices": [{"delta": {"role": "assistant", "content": ""}}], "usage": null}', ""),
        ('{"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}', "a"),
        ('{"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}', None),
        ('{"choices": [{"delta": {"content": "a", "refusal": "b"}}]}', None),
        ('{"choices": [{"delta": {"content": "a"}}], "usage": {"prompt_tokens": 1}}', None),
        ('{"choices": [{"delta": {"content": "a"}}], "error": "no"}', None),
        ('{"choices": [{"delta": {"content": ["a"]}}]}', None),
        ('{"choices": [{"delta": {"content": "a"}}, {"delta": {"content": "b"}}]}', None),
        ('{"choices": []}', None),
        ('{"choices": [{"delta": {"content": "\\ud800"}}]}', None),
        ("nonsense", None),
    ],
)
def test_only_a_piece_of_text_and_nothing_else_is_plain(document: str, text: str | None) -> None:
    assert plain_text(document.encode()) == text
