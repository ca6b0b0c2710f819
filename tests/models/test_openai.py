"""OpenAI-compatible servers: requests, streams, quirks, retries and errors."""

import json
import socket
import sys
import traceback
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

import anyio
import pytest
from anyio.abc import SocketStream

from apexbridge.errors import (
    ModelError,
    ModelOutputError,
    ModelRejectedError,
    ModelUnavailableError,
)
from apexbridge.messages import (
    AssistantMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from apexbridge.models.base import ModelDelta, ModelRequest, Usage
from apexbridge.models.openai import OpenAiModel
from apexbridge.models.retry import RetryPolicy, Timeouts
from apexbridge.models.sse import MAX_LINE_BYTES, SseParser
from apexbridge.testing import BrokenStream, RawResponse, ScriptedServer
from apexbridge.testing.model_server import ScriptedReply, SlowStream, html_page, rate_limited
from apexbridge.tools.base import ToolSpec
from tests.models.raw_server import raw_server

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-0123456789"
REQUEST = ModelRequest(model="tiny", messages=(UserMessage(text="hi"),))
HELLO = [ModelDelta(text="hello")]
DONE = b"data: [DONE]\n\n"


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


async def _asked(
    *replies: ScriptedReply, request: ModelRequest = REQUEST, **settings: Any
) -> tuple[list[ModelDelta], ScriptedServer]:
    async with (
        ScriptedServer(replies) as server,
        _model(server.base_url, **settings) as model,
        model.stream(request) as stream,
    ):
        return [piece async for piece in stream], server


@asynccontextmanager
async def _model(base_url: str, **settings: Any) -> AsyncGenerator[OpenAiModel]:
    model = OpenAiModel(base_url, api_key=KEY, **settings)
    try:
        yield model
    finally:
        await model.close()


async def _said(*replies: ScriptedReply) -> str:
    pieces, _ = await _asked(*replies)
    return "".join(piece.text for piece in pieces)


async def _calls(*deltas: object) -> list[ToolCall]:
    pieces, _ = await _asked(_events(*deltas))
    return [call for piece in pieces for call in piece.tool_calls]


def _events(*deltas: object) -> RawResponse:
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return RawResponse(body=b"".join(map(_event, chunks)) + DONE)


def _event(chunk: object) -> bytes:
    return f"data: {json.dumps(chunk)}\n\n".encode()


def _finished(reason: str) -> bytes:
    return _event({"choices": [{"delta": None, "finish_reason": reason}]})


def _call(**fields: object) -> dict[str, object]:
    named = {"name": fields.pop("name", None), "arguments": fields.pop("arguments", None)}
    function = {name: value for name, value in named.items() if value is not None}
    return {"tool_calls": [{**fields, "function": function}]}


async def test_a_request_is_serialized_for_openai() -> None:
    call = ToolCall(id="c1", name="Read", arguments='{"path": "猫"}')
    request = ModelRequest(
        model="tiny",
        messages=(
            SystemMessage(text="be kind"),
            UserMessage(text="read\ud800", kind="reminder"),
            AssistantMessage(tool_calls=(call,)),
            ToolMessage(call_id="c1", text="gone", is_error=True),
            AssistantMessage(text="well"),
        ),
        tools=(ToolSpec(name="Read", description="Reads.", input_schema={"type": "object"}),),
        effort="low",
        max_output_tokens=7,
    )
    _, server = await _asked(HELLO, request=request)
    function = {"name": "Read", "description": "Reads.", "parameters": {"type": "object"}}
    sent_call = {"name": "Read", "arguments": '{"path": "猫"}'}
    assert server.requests == [
        {
            "model": "tiny",
            "messages": [
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": "read?"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c1", "type": "function", "function": sent_call}],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "gone"},
                {"role": "assistant", "content": "well"},
            ],
            "stream": True,
            "stream_options": {"include_usage": True},
            "tools": [{"type": "function", "function": function}],
            "reasoning_effort": "low",
            "max_tokens": 7,
        }
    ]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


async def test_one_slash_at_the_end_does_not_matter_and_no_key_sends_no_header() -> None:
    async with ScriptedServer([HELLO]) as server:
        model = OpenAiModel(f"{server.base_url}/")
        async with model.stream(REQUEST) as stream:
            assert (await anext(stream)).text == "hello"
        await model.close()
    assert "Authorization" not in server.headers[0]


EVENTS = (
    b"\xef\xbb\xbf: a comment\r\n\r\nevent: x\r\nid: 1\r\ndata: "
    + '{"a": "猫🐈"}'.encode()
    + b'\r\n\r\ndata:{"b": 1}\n\n\nretry: 5\n'
    + b'data: {"c": 2}\r\rdata\ndata:\n\ndata: [DONE]\n\ndata: {"d": 3}'
)
DOCUMENTS = ['{"a": "猫🐈"}'.encode(), b'{"b": 1}', b'{"c": 2}']


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, len(EVENTS)])
def test_events_may_be_cut_anywhere(size: int) -> None:
    parser = SseParser()
    documents: list[bytes] = []
    for at in range(0, len(EVENTS), size):
        documents += parser.feed(EVENTS[at : at + size])
    assert documents + parser.flush() == DOCUMENTS
    assert parser.is_done


def test_events_may_be_cut_once_at_every_place() -> None:
    for at in range(len(EVENTS)):
        parser = SseParser()
        documents = parser.feed(EVENTS[:at]) + parser.feed(EVENTS[at:]) + parser.flush()
        assert documents == DOCUMENTS


def test_the_last_line_needs_no_end() -> None:
    parser = SseParser()
    assert parser.feed(b'data: {"a": 1}\r') == []
    assert parser.flush() == [b'{"a": 1}']
    assert SseParser().flush() == []


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_a_line_without_an_end_is_refused(ending: bytes) -> None:
    with pytest.raises(ValueError, match="a line of more than"):
        SseParser().feed(b"data: " + b"x" * MAX_LINE_BYTES + ending)


async def test_an_overlong_line_is_a_malformed_response() -> None:
    with pytest.raises(ModelOutputError, match="a line of more than 1048576 bytes"):
        await _asked(RawResponse(body=b"data: " + b"x" * (MAX_LINE_BYTES + 1)))


async def test_a_server_that_cannot_stream_is_taken_in_one_piece() -> None:
    call = ToolCall(id="c", name="Read", arguments="{}")
    usage = Usage(input_tokens=1, output_tokens=2)
    reply = [
        ModelDelta(text="a", reasoning="hm"),
        ModelDelta(text="b", tool_calls=(call,), usage=usage),
    ]
    async with (
        ScriptedServer([reply], can_stream=False) as server,
        _model(server.base_url) as model,
        model.stream(REQUEST) as stream,
    ):
        pieces = [piece async for piece in stream]
    assert pieces == [
        ModelDelta(text="ab", reasoning="hm"),
        ModelDelta(tool_calls=(call,), usage=usage, finish_reason="tool_calls"),
    ]


async def test_a_json_answer_may_be_spread_over_lines_and_called_anything() -> None:
    body = json.dumps({"choices": [{"message": {"content": "hello"}}]}, indent=2)
    assert await _said(RawResponse(body=f"\n {body}\n".encode())) == "hello"


async def test_reasoning_is_separate_and_nulls_are_ignored() -> None:
    answer = _events(
        {"role": "assistant", "content": None, "reasoning_content": "h"},
        {"reasoning": "m", "content": ""},
        {"reasoning": {"effort": 1}, "reasoning_content": None},
        {"content": "he", "tool_calls": None},
        {"content": [{"type": "thinking", "thinking": ""}, {"type": "text", "text": "llo"}]},
        {"content": "", "refusal": "!"},
        {},
    )
    pieces, _ = await _asked(answer)
    assert "".join(piece.text for piece in pieces) == "hello!"
    assert "".join(piece.reasoning for piece in pieces) == "hm"


@pytest.mark.parametrize(
    ("fields", "usage"),
    [
        ({}, Usage()),
        ({"usage": None}, Usage()),
        ({"usage": {}}, Usage()),
        ({"usage": {"prompt_tokens": 5, "completion_tokens": None}}, Usage(input_tokens=5)),
        ({"choices": [{"usage": {"prompt_tokens": 7}}]}, Usage(input_tokens=7)),
        ({"usage": {"prompt_tokens": -5, "completion_tokens": 6}}, Usage(output_tokens=6)),
    ],
)
async def test_the_last_delta_has_a_usage_even_if_the_server_sent_none(
    fields: dict[str, object], usage: Usage
) -> None:
    answer = RawResponse(body=_event({"choices": [], **fields}) + _event({"choices": None}) + DONE)
    pieces, _ = await _asked(answer)
    assert pieces == [ModelDelta(usage=usage)]


READ = ToolCall(id="a", name="Read", arguments='{"x": 1}')
SEND = ToolCall(id="b", name="Send", arguments='{"y": 2}')
WHOLE_READ = {"id": "a", "name": "Read", "arguments": '{"x": 1}'}
WHOLE_SEND = {"id": "b", "name": "Send", "arguments": '{"y": 2}'}


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param(
            [
                _call(index=0, id="a", name="Read", arguments=""),
                _call(index=1, id="b", name="Send"),
                _call(index=0, arguments='{"x"'),
                _call(index=1, arguments='{"y": 2}'),
                _call(index=0, arguments=": 1}"),
            ],
            id="in turns",
        ),
        pytest.param(
            [
                _call(index=0, id="a", name="Read", arguments='{"x"'),
                _call(index=0, id="a", name="Read", arguments=": 1}"),
                _call(index=1, id="b", name="Send", arguments='{"y": 2}'),
            ],
            id="repeated",
        ),
        pytest.param([_call(index=0, **WHOLE_READ), _call(index=0, **WHOLE_SEND)], id="all are 0"),
        pytest.param(
            [
                _call(id="a", name="Read", arguments='{"x"'),
                {"tool_calls": [{"function": None}]},
                _call(arguments=": 1}"),
                _call(**WHOLE_SEND),
            ],
            id="unnumbered",
        ),
        pytest.param(
            [
                _call(index=0, id="a", name="Read", arguments={"x": 1}),
                _call(index=1, id="b", name="Send", arguments={"y": 2}),
            ],
            id="objects",
        ),
    ],
)
async def test_tool_calls_may_be_put_in_many_ways(deltas: Sequence[object]) -> None:
    assert await _calls(*deltas) == [READ, SEND]


async def test_arguments_that_are_not_json_are_passed_on_and_none_are_an_empty_object() -> None:
    calls = await _calls(
        _call(index=0, id="a", name="Read", arguments="{path: 猫"),
        _call(index=1, id="b", name="Now", arguments=""),
    )
    assert [call.arguments for call in calls] == ["{path: 猫", "{}"]


async def test_calls_without_an_id_get_one_each() -> None:
    calls = await _calls(_call(index=0, name="Read"), _call(index=1, id="", name="Read"))
    assert len({call.id for call in calls} - {""}) == 2


@pytest.mark.parametrize(
    ("deltas", "words"),
    [
        ([_call(index=0, id="a", arguments="{}")], "without a name"),
        ([_call(index=at, id=str(at), name="Read") for at in range(129)], "more than 128"),
    ],
)
async def test_tool_calls_that_make_no_sense_are_refused(
    deltas: Sequence[object], words: str
) -> None:
    with pytest.raises(ModelOutputError, match=words):
        await _calls(*deltas)


BEGUN = _event({"choices": [{"delta": {"content": "hel"}}]})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b"<html>Log in</html>", "a web page, not an answer", id="HTML"),
        pytest.param(b"[]", "is not a chat completion", id="a list"),
        pytest.param(b"{}", "ended before", id="an empty object"),
        pytest.param(b"", "ended before", id="nothing"),
        pytest.param(b"\xff\xfe\0", "ended before", id="not even text"),
        pytest.param(b"what?\n" * 1000, "ended before", id="other words"),
        pytest.param(BEGUN, "ended before", id="no end"),
        pytest.param(BEGUN + b"data: {\n\n" + DONE, "is not a chat completion", id="half JSON"),
        pytest.param(b"data: \xff\n\n", "is not a chat completion", id="not UTF-8"),
        pytest.param(
            b"data: " + b"[" * 100_000 + b"\n\n", "is not a chat completion", id="endlessly deep"
        ),
        pytest.param(b'data: {"choices": 5}\n\n', "is not a chat completion", id="wrong type"),
    ],
)
async def test_a_malformed_response_is_an_error_without_a_retry(
    body: bytes, words: str, pauses: list[float]
) -> None:
    with pytest.raises(ModelOutputError, match=words) as caught:
        await _asked(RawResponse(body=body))
    assert "tiny" in caught.value.message
    assert pauses == []


ERRORS = [
    pytest.param(
        b'data: {"error": {"message": "out of\\nmemory"}}\n\n',
        "its server gave up: out of memory",
        id="an error",
    ),
    pytest.param(b'data: {"error": 5}\n\n', r"its server gave up$", id="an odd error"),
    pytest.param(b'{"error": "overloaded"}', "gave up: overloaded", id="an error as JSON"),
    pytest.param(
        f'data: {{"error": "bad key {KEY}"}}\n\n'.encode(), r"gave up$", id="with the key"
    ),
    pytest.param(
        _finished("network_error"),
        "gave up: network_error",
        id="an end",
    ),
]


@pytest.mark.parametrize(("body", "words"), ERRORS)
async def test_an_error_inside_a_response_is_retried_before_the_first_delta(
    body: bytes, words: str, pauses: list[float]
) -> None:
    assert await _said(RawResponse(body=body), HELLO) == "hello"
    assert pauses == [1.0]
    with pytest.raises(ModelUnavailableError, match=words):
        await _asked(*[RawResponse(body=body)] * 6, HELLO)
    assert len(pauses) == 6


async def test_an_error_after_the_first_delta_is_not_retried(pauses: list[float]) -> None:
    broken = RawResponse(body=BEGUN + b'data: {"error": {"message": "out of memory"}}\n\n' + DONE)
    with pytest.raises(ModelUnavailableError, match="gave up: out of memory"):
        await _asked(broken, HELLO)
    assert pauses == []


async def test_a_rejection_inside_a_response_is_one() -> None:
    said = {"error": {"message": "no credit", "code": 402}}
    with pytest.raises(ModelRejectedError, match="gave up: no credit"):
        await _asked(RawResponse(body=_event(said)), HELLO)


@pytest.mark.parametrize("then", ["cut", "reset"])
async def test_a_truncated_stream_yields_its_deltas_and_an_error(
    pauses: list[float], then: Literal["cut", "reset"]
) -> None:
    async with (
        ScriptedServer([BrokenStream(deltas=HELLO, then=then)]) as server,
        _model(server.base_url) as model,
        model.stream(REQUEST) as stream,
    ):
        assert (await anext(stream)).text == "hello"
        with pytest.raises(ModelUnavailableError, match="its answer was cut off"):
            await anext(stream)
    assert pauses == []
    assert len(server.requests) == 1


async def test_an_endless_response_is_cut_off() -> None:
    body = _event({"choices": [{"delta": {"content": "x" * 1_000_000}}]}) * 34
    with pytest.raises(ModelOutputError, match="more than 33554432 bytes"):
        await _asked(RawResponse(body=body))


FINISHED = _event({"choices": [{"delta": {"content": "hello"}, "finish_reason": "stop"}]})


async def test_a_reply_that_was_finished_needs_no_more() -> None:
    assert await _said(RawResponse(body=FINISHED)) == "hello"

    async def cut(stream: SocketStream) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"
        await stream.receive()
        await stream.send(head + FINISHED)

    async with (
        raw_server(cut) as address,
        _model(address) as model,
        model.stream(REQUEST) as stream,
    ):
        assert [piece.text async for piece in stream] == ["hello", ""]


@pytest.mark.parametrize(
    ("first", "pause"),
    [
        (RawResponse(status=429, headers={"Retry-After": "3"}), 3),
        (rate_limited("1.5"), 1.5),
        (rate_limited("tomorrow"), 1.0),
        (rate_limited("Wed, 21 Oct 2015 07:28:00 GMT"), 1.0),
        (rate_limited("Wed, 21 Oct 2015 07:28:00"), 1.0),
        (html_page(503), 1.0),
        (RawResponse(status=500), 1.0),
        (BrokenStream(), 1.0),
        (BrokenStream(then="reset"), 1.0),
        (BrokenStream(deltas=[ModelDelta()], then="reset"), 1.0),
    ],
)
async def test_a_busy_server_or_a_closed_connection_is_retried(
    first: ScriptedReply, pause: float, pauses: list[float]
) -> None:
    assert await _said(first, HELLO) == "hello"
    assert pauses == [pause]


async def test_an_overloaded_server_is_retried_five_times(pauses: list[float]) -> None:
    full = RawResponse(status=429, body=b'{"error": {"message": "quota used up"}}')
    with pytest.raises(ModelUnavailableError, match=r"127\.0\.0\.1 answered 429: quota used up$"):
        await _asked(*[full] * 6, HELLO)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0]


async def test_a_retry_after_beyond_the_deadline_is_reported(
    pauses: list[float],
) -> None:
    with pytest.raises(ModelUnavailableError, match="slow down; Retry-After is 31 s"):
        await _asked(rate_limited("31"), HELLO)
    with pytest.raises(ModelUnavailableError, match=r"slow down$"):
        await _asked(rate_limited(), HELLO, timeouts=Timeouts(retry_seconds=0))
    assert pauses == []


async def test_a_hanging_server_is_retried_before_the_first_byte_only(
    pauses: list[float],
) -> None:
    hang = BrokenStream(then="hang")
    with pytest.raises(ModelUnavailableError, match=r"no answer within 0\.1 s"):
        await _asked(hang, hang, hang, HELLO, timeout_seconds=0.1)
    assert pauses == [1.0, 2.0]
    with pytest.raises(ModelUnavailableError, match=r"no answer within 0\.1 s"):
        await _asked(BrokenStream(deltas=HELLO, then="hang"), HELLO, timeout_seconds=0.1)
    assert pauses == [1.0, 2.0]


async def test_an_unreachable_server_is_named(pauses: list[float]) -> None:
    async with ScriptedServer() as server:
        address = server.base_url
    with pytest.raises(ModelUnavailableError, match=r"127\.0\.0\.1 cannot be reached"):
        async with _model(address) as model, model.stream(REQUEST):
            pass
    assert len(pauses) == 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "no such model"}}', r"answered 404: no such model$"),
        (b'{"error": "no such model"}', r"answered 404: no such model$"),
        (b'[{"error": {"message": "no such model"}}]', r"answered 404: no such model$"),
        (b'{"object": "error", "message": "no such model"}', r"answered 404: no such model$"),
        (b'{"detail": "Not Found"}', r"answered 404: Not Found$"),
        (b'{"detail": [{"loc": ["body"]}]}', r'answered 404: \[\{"loc": \["body"\]\}\]$'),
        (b'{"error": {"message": "\\u001b[31m\\u202ered"}}', r"answered 404:  \[31m red$"),
        (json.dumps({"error": "x" * 100_000}).encode(), r"answered 404: x{200}$"),
        (b"<html>", r"answered 404: a web page, not an answer: is the base URL right\?$"),
        (b"[" * 60_000, r"answered 404$"),
    ],
)
async def test_a_rejection_quotes_the_server(body: bytes, words: str, pauses: list[float]) -> None:
    with pytest.raises(ModelRejectedError, match=words):
        await _asked(RawResponse(status=404, body=body))
    assert pauses == []


async def test_a_redirect_is_not_followed() -> None:
    away = RawResponse(status=307, headers={"Location": "/v1/chat/completions"})
    with pytest.raises(ModelRejectedError, match="answered 307: redirects are not followed"):
        await _asked(away, HELLO)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
@pytest.mark.parametrize("echo", [KEY, KEY[-8:], f"Bearer {KEY}", f"{KEY[:4]}****{KEY[-4:]}"])
async def test_the_api_key_is_in_no_error_message(
    pauses: list[float], status: int, echo: str, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = RawResponse(
        status=status, body=json.dumps({"error": {"message": f"bad key {echo}"}}).encode()
    )
    async with ScriptedServer([refusal] * 6) as server, _model(server.base_url) as model:
        with pytest.raises(ModelError) as caught:
            async with model.stream(REQUEST):
                pass
        written = "".join(traceback.format_exception(caught.value))
        texts = [caught.value.message, repr(caught.value), str(caught.value.details), written]
        assert str(status) in caught.value.message
        for words in (*texts, repr(model), str(vars(model)), caplog.text):
            assert KEY[:4] not in words
            assert KEY[-4:] not in words


async def test_the_key_is_not_in_anything_that_an_error_carries(pauses: list[float]) -> None:
    async def babble(stream: SocketStream) -> None:
        await stream.receive()
        await stream.send(b"HTTP/1.1 what?\r\n\r\n")  # aiohttp's error shows the headers

    errors: list[BaseException | None] = []
    async with raw_server(babble) as address, _model(address) as model:
        with pytest.raises(ModelUnavailableError) as caught:
            async with model.stream(REQUEST):
                pass
        errors.append(caught.value)
    for error in errors:
        if error is not None:
            assert KEY not in repr(error) + str(error) + str(vars(error))
            errors += [error.__cause__, error.__context__]
    assert len(pauses) == 2


async def test_leaving_early_closes_the_connection() -> None:
    is_closed = anyio.Event()

    async def talk(stream: SocketStream) -> None:
        await stream.receive()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999\r\n\r\n"
        await stream.send(head + BEGUN)
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            await stream.receive()
        is_closed.set()

    async with raw_server(talk) as address, _model(address) as model:
        async with model.stream(REQUEST) as stream:
            assert (await anext(stream)).text == "hel"
        with anyio.fail_after(5):
            await is_closed.wait()


@pytest.mark.parametrize("begun", [b"", BEGUN], ids=["early", "late"])
async def test_closing_early_closes_the_connection(begun: bytes) -> None:
    is_asked, is_closed = anyio.Event(), anyio.Event()

    async def talk(stream: SocketStream) -> None:
        await stream.receive()
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"
        await stream.send(head + begun)
        is_asked.set()
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                await stream.receive()
        is_closed.set()

    async with raw_server(talk) as address, _model(address) as model:

        async def ask() -> None:
            async with model.stream(REQUEST) as stream:
                assert [piece async for piece in stream] == []

        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                await is_asked.wait()
                group.cancel_scope.cancel()
            await is_closed.wait()


async def test_a_connection_is_reused_after_a_complete_response() -> None:
    opened: list[int] = []
    said = FINISHED + DONE

    async def talk(stream: SocketStream) -> None:
        opened.append(1)
        while True:
            asked = b""
            while not asked.endswith(b"}"):
                asked += await stream.receive()
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            await stream.send(head + b"%x\r\n%b\r\n" % (len(said), said))
            await stream.send(b"0\r\n\r\n")

    async def patient(stream: SocketStream) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            await talk(stream)

    async with raw_server(patient) as address, _model(address) as model:
        for _ in range(3):
            with anyio.fail_after(10):
                async with model.stream(REQUEST) as stream:
                    assert [piece.text async for piece in stream] == ["hello", ""]
        assert len(opened) == 1


async def test_a_hanging_stream_can_be_cancelled() -> None:
    hang = BrokenStream(deltas=HELLO, then="hang")
    async with ScriptedServer([hang, HELLO]) as server, _model(server.base_url) as model:
        with anyio.move_on_after(0.05) as scope:
            async with model.stream(REQUEST) as stream:
                assert [piece async for piece in stream] == []
        assert scope.cancelled_caught
        async with model.stream(REQUEST) as stream:
            assert (await anext(stream)).text == "hello"


async def test_max_completion_tokens_is_sent_to_a_server_that_wants_it() -> None:
    said = b"""{"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with
        this model. Use 'max_completion_tokens' instead."}}""".replace(b"\n", b" ")
    request = ModelRequest(model="tiny", messages=REQUEST.messages, max_output_tokens=7)
    replies = [RawResponse(status=400, body=said), HELLO, HELLO]
    async with ScriptedServer(replies) as server, _model(server.base_url) as model:
        for _ in range(2):
            async with model.stream(request) as stream:
                assert (await anext(stream)).text == "hello"
    fields = [sent.keys() & {"max_tokens", "max_completion_tokens"} for sent in server.requests]
    assert fields == [{"max_tokens"}, {"max_completion_tokens"}, {"max_completion_tokens"}]


async def test_stream_options_are_left_out_for_a_server_without_them() -> None:
    said = b'{"detail": [{"loc": ["body", "stream_options"], "msg": "extra fields"}]}'
    refusal = RawResponse(status=422, body=said)
    _, server = await _asked(refusal, HELLO)
    assert "stream_options" not in server.requests[1]
    with pytest.raises(ModelRejectedError, match="stream_options"):
        await _asked(refusal, refusal, HELLO)


@pytest.mark.parametrize(
    ("address", "key", "words"),
    [
        ("models.example/v1", KEY, "the base URL is not"),
        ("file:///etc/passwd", KEY, "the base URL is not"),
        ("http://[::1", KEY, "the base URL is not"),
        ("http://models.example:99999", KEY, "the base URL is not"),
        ("http://..", KEY, "the base URL is not"),
        ("http://me:word@127.0.0.1:1", KEY, "its address has a user in it"),
        ("http://127.0.0.1:1", "bad\nkey", "its key has characters"),
    ],
)
async def test_invalid_settings_are_reported(address: str, key: str, words: str) -> None:
    model = OpenAiModel(address, api_key=key)
    with pytest.raises(ModelRejectedError, match=words) as caught:
        async with model.stream(REQUEST):
            pass
    await model.close()
    assert key not in caught.value.message
    assert "word" not in caught.value.message.replace("password", "")


async def test_a_model_that_was_closed_opens_again() -> None:
    async with ScriptedServer([HELLO, HELLO]) as server, _model(server.base_url) as model:
        for _ in range(2):
            async with model.stream(REQUEST) as stream:
                assert (await anext(stream)).text == "hello"
            await model.close()
            await model.close()


@pytest.mark.parametrize(
    ("server_reason", "reason"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("sensitive", "content_filter"),
    ],
)
async def test_the_finish_reason_is_mapped(server_reason: str, reason: str) -> None:
    pieces, _ = await _asked(RawResponse(body=_finished(server_reason) + DONE))
    assert pieces[-1].finish_reason == reason


async def test_calls_are_the_reason_even_where_the_server_says_stop() -> None:
    call = _call(index=0, id="a", name="Read")
    chunk = {"choices": [{"delta": call, "finish_reason": "stop"}]}
    pieces, _ = await _asked(RawResponse(body=_event(chunk) + DONE))
    assert pieces[-1].finish_reason == "tool_calls"
    chunk = {"choices": [{"delta": call, "finish_reason": "length"}]}
    pieces, _ = await _asked(RawResponse(body=_event(chunk) + DONE))
    assert pieces[-1].finish_reason == "length"


async def test_two_calls_with_one_id_get_distinct_ids() -> None:
    calls = await _calls(
        _call(index=0, id="0", name="Read"), _call(index=1, id="0", name="Send", arguments="{}")
    )
    assert [call.name for call in calls] == ["Read", "Send"]
    assert calls[0].id == "0"
    assert calls[1].id not in {"", "0"}


async def test_all_parameters_are_sent_and_extra_fields_override() -> None:
    request = ModelRequest(
        model="tiny",
        messages=REQUEST.messages,
        temperature=0,
        seed=7,
        stop=("END",),
        response_format={"type": "json_object"},
        extra={"top_p": 0.5, "seed": 8, "stream_options": None},
    )
    _, server = await _asked(HELLO, request=request)
    assert server.requests == [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "stream_options": None,
            "temperature": 0,
            "seed": 8,
            "stop": ["END"],
            "response_format": {"type": "json_object"},
            "top_p": 0.5,
        }
    ]


async def test_arguments_that_cannot_be_read_go_back_as_an_object() -> None:
    calls = [
        ToolCall(id="a", name="Read", arguments="{path: x"),
        ToolCall(id="b", name="Read", arguments="[1]"),
        ToolCall(id="c", name="Read", arguments="[" * 100_000),
    ]
    request = ModelRequest(
        model="tiny", messages=(*REQUEST.messages, AssistantMessage(tool_calls=tuple(calls)))
    )
    _, server = await _asked(HELLO, request=request)
    sent = server.requests[0]["messages"][1]["tool_calls"]
    assert [json.loads(call["function"]["arguments"]) for call in sent] == [
        {"unreadable": call.arguments} for call in calls
    ]
    assert len(server.requests[0]["messages"]) == 5


@pytest.mark.parametrize("field", ["temperature", "seed", "reasoning_effort"])
async def test_a_field_that_a_model_does_not_take_is_left_out_for_it_from_then_on(
    field: str,
) -> None:
    said = json.dumps({"error": {"message": f"Unsupported parameter: '{field}'"}}).encode()
    refusal = RawResponse(status=400, body=said)
    request = ModelRequest(
        model="tiny", messages=REQUEST.messages, temperature=0.5, seed=1, effort="low"
    )
    other = ModelRequest(
        model="other", messages=REQUEST.messages, temperature=0.5, seed=1, effort="low"
    )
    replies = [refusal, HELLO, HELLO, HELLO]
    async with ScriptedServer(replies) as server, _model(server.base_url) as model:
        for asked in (request, request, other):
            async with model.stream(asked) as stream:
                assert (await anext(stream)).text == "hello"
    assert [field in sent for sent in server.requests] == [True, False, False, True]


async def test_a_quirk_that_did_not_help_is_not_cached() -> None:
    refusal = RawResponse(status=400, body=b'{"error": "no model temperature-7b"}')
    request = ModelRequest(model="tiny", messages=REQUEST.messages, temperature=0.5)
    replies = [refusal, refusal, HELLO]
    async with ScriptedServer(replies) as server, _model(server.base_url) as model:
        with pytest.raises(ModelRejectedError, match="temperature-7b"):
            async with model.stream(request):
                pass
        async with model.stream(request) as stream:
            assert (await anext(stream)).text == "hello"
    assert ["temperature" in sent for sent in server.requests] == [True, False, True]


TWO_CALLS = ModelRequest(
    model="tiny",
    messages=(
        UserMessage(text="read both"),
        AssistantMessage(text="well", tool_calls=(READ, SEND)),
        ToolMessage(call_id="a", text="1"),
        ToolMessage(call_id="b", text="2"),
        AssistantMessage(text="and"),
    ),
)


async def test_parallel_calls_are_serialized_for_a_server_without_them() -> None:
    said = b'{"error": "This model only supports single tool-calls at once!"}'
    _, server = await _asked(RawResponse(status=400, body=said), HELLO, request=TWO_CALLS)
    roles = [message["role"] for message in server.requests[1]["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    calls = server.requests[1]["messages"][1:5]
    assert [call["content"] for call in calls] == ["well", "1", None, "2"]
    assert [len(call.get("tool_calls", [])) for call in calls] == [1, 0, 1, 0]


async def test_reasoning_before_calls_is_sent_back() -> None:
    thinking = [ModelDelta(reasoning="hm, "), ModelDelta(reasoning="so", tool_calls=(READ,))]
    asked = (SystemMessage(text="one"), UserMessage(text="hi"))
    after = (AssistantMessage(tool_calls=(READ,)), ToolMessage(call_id="a", text="1"))
    async with ScriptedServer([thinking, HELLO, HELLO]) as server, _model(server.base_url) as model:
        for messages in (
            asked,
            (SystemMessage(text="two"), UserMessage(text="hi"), *after),
            (UserMessage(text="another talk"), *after),
        ):
            async with model.stream(ModelRequest(model="tiny", messages=messages)) as stream:
                assert [piece async for piece in stream]
    sent = [request["messages"] for request in server.requests]
    assert sent[1][2]["reasoning_content"] == "hm, so"
    assert "reasoning_content" not in sent[2][1]


@pytest.mark.parametrize(
    ("said", "thoughts"),
    [
        (b'{"error": "The `reasoning_content` must be passed back"}', [None, "(not kept)"]),
        (b'{"error": "thinking is on but reasoning_content is missing"}', [None, "(not kept)"]),
    ],
)
async def test_missing_reasoning_is_replaced_by_a_placeholder(
    said: bytes, thoughts: list[str | None]
) -> None:
    _, server = await _asked(RawResponse(status=400, body=said), HELLO, request=TWO_CALLS)
    sent_back = [sent["messages"][1].get("reasoning_content") for sent in server.requests]
    assert sent_back == thoughts


async def test_reasoning_is_left_out_for_a_server_that_refuses_it() -> None:
    thinking = [ModelDelta(reasoning="hm", tool_calls=(READ,))]
    refusal = RawResponse(status=400, body=b'{"error": "unknown field reasoning_content"}')
    after = (AssistantMessage(tool_calls=(READ,)), ToolMessage(call_id="a", text="1"))
    again = ModelRequest(model="tiny", messages=(*REQUEST.messages, *after))
    replies = [thinking, refusal, HELLO]
    async with ScriptedServer(replies) as server, _model(server.base_url) as model:
        for request in (REQUEST, again):
            async with model.stream(request) as stream:
                assert [piece async for piece in stream]
    sent_back = ["reasoning_content" in sent["messages"][-2] for sent in server.requests[1:]]
    assert sent_back == [True, False]


async def test_a_slow_stream_does_not_time_out_while_bytes_arrive() -> None:
    deltas = [ModelDelta(text="猫"), ModelDelta(tool_calls=(READ, SEND))]
    pieces, _ = await _asked(SlowStream(deltas=deltas))
    assert "".join(piece.text for piece in pieces) == "猫"
    assert pieces[-1].tool_calls == (READ, SEND)


async def test_each_phase_has_its_own_timeout(pauses: list[float]) -> None:
    hang = BrokenStream(then="hang")
    timeouts = Timeouts(first_byte_seconds=0.1, idle_seconds=60, retry_seconds=0)
    with pytest.raises(ModelUnavailableError, match=r"no answer within 0\.1 s"):
        await _asked(hang, timeouts=timeouts)
    with pytest.raises(ModelUnavailableError, match=r"no answer within 0\.1 s"):
        await _asked(BrokenStream(deltas=[ModelDelta()], then="hang"), timeouts=timeouts)
    timeouts = Timeouts(first_byte_seconds=60, idle_seconds=0.1)
    with pytest.raises(ModelUnavailableError, match=r"no answer within 0\.1 s"):
        await _asked(BrokenStream(deltas=HELLO, then="hang"), timeouts=timeouts)
    assert pauses == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full queue takes one more")
async def test_a_connect_timeout_is_reported() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(address)
            timeouts = Timeouts(connect_seconds=0.1, retry_seconds=0)
            async with _model(f"http://127.0.0.1:{address[1]}", timeouts=timeouts) as model:
                with pytest.raises(
                    ModelUnavailableError, match=r"no connection to 127\.0\.0\.1 within 0\.1 s"
                ):
                    async with model.stream(REQUEST):
                        pass
        finally:
            for one in waiting:
                one.close()
