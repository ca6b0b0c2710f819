"""Completions that are not streamed: parsing and retries."""

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from apexbridge.errors import ModelOutputError, ModelUnavailableError
from apexbridge.messages import ToolCall, UserMessage
from apexbridge.models.base import ModelDelta, ModelRequest, Usage
from apexbridge.models.openai import OpenAiModel
from apexbridge.models.openai_response import ChatCompletion, fast_completion, fast_text
from apexbridge.models.retry import Timeouts
from apexbridge.models.upstream import Upstream
from apexbridge.models.upstream_errors import UpstreamFault
from apexbridge.testing import BrokenStream, RawResponse, ScriptedServer
from apexbridge.testing.model_server import ScriptedReply, html_page

pytestmark = pytest.mark.anyio

WHOLE = ModelRequest(model="tiny", messages=(UserMessage(text="hi"),), is_whole=True)
HELLO = [ModelDelta(text="hel"), ModelDelta(text="lo", usage=Usage(input_tokens=3))]
SOON = Timeouts(first_byte_seconds=0.2, retry_seconds=5)


async def _asked(*replies: ScriptedReply) -> tuple[list[ModelDelta], ScriptedServer]:
    async with ScriptedServer(replies) as server:
        model = OpenAiModel(server.base_url, timeouts=SOON)
        try:
            async with model.stream(WHOLE) as stream:
                return [piece async for piece in stream], server
        finally:
            await model.close()


async def test_a_buffered_completion_is_requested_and_returned() -> None:
    deltas, server = await _asked(HELLO)
    assert "".join(piece.text for piece in deltas) == "hello"
    assert deltas[-1].usage == Usage(input_tokens=3)
    assert "stream" not in server.requests[0]
    assert "stream_options" not in server.requests[0]


async def test_calls_of_one_piece_stay_apart() -> None:
    calls = [ToolCall(id="", name="one", arguments="{}"), ToolCall(id="", name="two", arguments="")]
    deltas, _ = await _asked([ModelDelta(tool_calls=calls)])
    assert [call.name for call in deltas[-1].tool_calls] == ["one", "two"]
    assert len({call.id for call in deltas[-1].tool_calls}) == 2


@pytest.mark.parametrize("then", ["cut", "reset"])
async def test_a_truncated_response_is_retried(then: str) -> None:
    broken = BrokenStream(deltas=HELLO, then="cut" if then == "cut" else "reset")
    deltas, server = await _asked(broken, HELLO)
    assert "".join(piece.text for piece in deltas) == "hello"
    assert len(server.requests) == 2


async def test_an_unrequested_stream_is_parsed() -> None:
    events = b'data: {"choices": [{"delta": {"content": "he"}}]}\n\ndata: {"choices": [{"delta": '
    events += b'{"content": "y"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    deltas, _ = await _asked(RawResponse(body=events))
    assert "".join(piece.text for piece in deltas) == "hey"


@pytest.mark.parametrize(
    ("replies", "error"),
    [
        ([html_page(200)], ModelOutputError),
        ([RawResponse(body=b"{}")], ModelOutputError),
        ([BrokenStream(then="hang")] * 6, ModelUnavailableError),
    ],
    ids=["a page", "nothing", "silence"],
)
async def test_a_malformed_response_is_an_error(
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
    assert fast_text(document.encode()) == text


def _answer(**others: Any) -> dict[str, Any]:
    """An ordinary answer, or one that differs from it; None leaves something out."""
    message = {"role": "assistant", "content": "Fine.", **others.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": "stop", **others.pop("choice", {})}
    usage = {"prompt_tokens": 3, "completion_tokens": 1}
    return {"id": "1", "choices": [choice], "usage": usage, **others}


ORDINARY = [
    _answer(),
    _answer(message={"content": ""}),
    _answer(message={"refusal": None, "tool_calls": [], "annotations": []}),
    _answer(choice={"finish_reason": "length", "logprobs": None}),
]
OTHERS = [
    _answer(message={"content": None}),
    _answer(message={"content": [{"type": "text", "text": "Fine."}]}),
    _answer(message={"refusal": "No."}),
    _answer(message={"reasoning_content": "Hm."}),
    _answer(message={"reasoning": "Hm."}),
    _answer(message={"tool_calls": [{"id": "a", "function": {"name": "one", "arguments": "{}"}}]}),
    _answer(choice={"finish_reason": None}),
    _answer(choice={"finish_reason": 7}),
    _answer(choice={"delta": {"content": "other"}}),
    _answer(choice={"usage": {"prompt_tokens": 9}}),
    _answer(choices=[]),
    _answer(choices=None),
    _answer(choices=[None]),
    _answer(choices=["text"]),
    _answer(usage=None),
    _answer(usage={}),
    _answer(usage={"prompt_tokens": -1, "completion_tokens": True}),
    _answer(usage={"prompt_tokens": "3", "completion_tokens": 1}),
    _answer(error={"message": "busy"}),
]


def _read(document: bytes, *, is_whole: bool) -> object:
    """Everything that is parsed from a document, or the fault."""
    response = ChatCompletion(Upstream("http://model"))
    try:
        delta = response.add_completion(document) if is_whole else response.add(document)
        last = response.finish(is_done=False)
    except UpstreamFault as fault:
        return (fault.kind, fault.detail, fault.status)
    calls = [(call.name, call.arguments) for call in last.tool_calls]
    return (delta, last.usage, last.finish_reason, calls, response.reasoning)


@pytest.mark.parametrize("answer", [*ORDINARY, *OTHERS])
def test_the_fast_path_equals_the_validated_one(answer: dict[str, Any]) -> None:
    document = orjson.dumps(answer)
    assert _read(document, is_whole=True) == _read(document, is_whole=False)


@pytest.mark.parametrize("answer", ORDINARY)
def test_plain_completions_take_the_fast_path(answer: dict[str, Any]) -> None:
    assert fast_completion(orjson.dumps(answer)) is not None


@pytest.mark.parametrize("answer", OTHERS)
def test_other_completions_are_validated(answer: dict[str, Any]) -> None:
    assert fast_completion(orjson.dumps(answer)) is None


@pytest.mark.parametrize("document", [b"", b"[]", b"7", b"{", b"null", b'"text"'])
def test_malformed_completions_are_validated(document: bytes) -> None:
    assert fast_completion(document) is None
