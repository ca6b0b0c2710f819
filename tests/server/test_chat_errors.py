"""Errors before, during and after a chat completion, as a client receives them."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from apexbridge.models.base import ModelDelta
from apexbridge.models.openai import OpenAiModel
from apexbridge.models.retry import Timeouts
from apexbridge.server.chat import stream
from apexbridge.testing import BrokenStream, RawResponse, StaticTool, html_page, rate_limited
from apexbridge.testing.model_server import ScriptedReply
from apexbridge.tools.base import ToolContext, ToolResult
from tests.server.chat_server import (
    ChatServer,
    chat_server,
    join_text,
    parse_chunks,
    text_reply,
    tool_reply,
)

pytestmark = pytest.mark.anyio

_CHAT = "/v1/chat/completions"
_SHORT_TIMEOUTS = Timeouts(retry_seconds=0.3, first_byte_seconds=0.5, idle_seconds=0.5)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def talk(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ChatServer]:
    permissions = {"allow": ["Waits"]}
    home = tmp_path_factory.mktemp("faults")
    async with chat_server(home, timeouts=_SHORT_TIMEOUTS, permissions=permissions) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _anew(talk: ChatServer) -> None:
    talk.forget()


_MESSAGES = b'"messages": [{"role": "user", "content": "x"}]'


@pytest.mark.promise("S08")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"not json",
        b'{"messages": [}',
        b"{" + _MESSAGES + b', "temperature": NaN}',
        b"{" + _MESSAGES + b', "temperature": 1e999}',
        b"{" + _MESSAGES + b', "seed": ' + b"9" * 5_000 + b"}",
        b"{" + _MESSAGES + b', "model": "a", "model": "b"}',
        b"{" + _MESSAGES + b', "user": {"a": 1, "a": 2}}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
        b'{"messages": [{"role": "user", "content": "\xff"}]}',
        b'{"messages": ' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b"{" + _MESSAGES + b', "x": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001,
        b"[]",
        b"null",
        b'"text"',
    ],
    ids=[
        "nothing", "open", "words", "bracket", "nan", "infinite", "digits", "twice",
        "twice-inside", "half-a-character", "raw-half", "no-utf8", "deep-lists", "deep-objects",
        "list", "null", "string",
    ],
)  # fmt: skip
async def test_a_body_that_is_no_sound_json_is_refused_in_openais_shape(
    talk: ChatServer, body: bytes
) -> None:
    headers = {**talk.serving.headers, "Content-Type": "application/json"}
    reply = await talk.http.post(_CHAT, content=body, headers=headers)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["code"] == "request_invalid"
    assert error["message"]
    assert talk.script.requests == []


_WRONG: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "x"}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.tool_call_id"),
    ({"n": 2}, "n"),
    ({"n": 0}, "n"),
    ({"temperature": "hot"}, "temperature"),
    ({"stream": "yes"}, "stream"),
    ({"functions": []}, "functions"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
    ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools.0.type"),
    ({"tools": [{"function": {"name": "x"}}] * 2}, "tools"),
    ({"apexbridge": {"rounds": 0}}, "apexbridge.rounds"),
    ({"apexbridge": {"unheard": 1}}, "apexbridge.unheard"),
]


@pytest.mark.parametrize(
    ("wrong", "param"),
    _WRONG,
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_field_that_is_wrong_is_named(
    talk: ChatServer, wrong: dict[str, Any], param: str
) -> None:
    reply = await talk.post("Go", **wrong)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param
    assert talk.script.requests == []


async def test_an_error_uses_the_accept_language_header(talk: ChatServer) -> None:
    reply = await talk.post("Go", n=2, headers={"Accept-Language": "zh-CN"})
    error = reply.json()["error"]
    assert error["code"] == "request_invalid"
    assert not error["message"].isascii()


def _refused(status: int, said: str = "no") -> RawResponse:
    return RawResponse(status=status, body=b'{"error": {"message": "%s"}}' % said.encode())


@pytest.mark.promise("S10")
@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (rate_limited("7"), 429, "model_unavailable"),
        (_refused(500), 502, "model_unavailable"),
        (_refused(503), 503, "model_unavailable"),
        (_refused(400), 400, "model_rejected"),
        (_refused(401, "sk-secret is wrong"), 502, "model_rejected"),
        (_refused(404), 404, "model_rejected"),
        (_refused(413), 413, "model_rejected"),
        (html_page(), 502, "model_unavailable"),
        (html_page(200), 502, "model_output_invalid"),
        (RawResponse(body=b"data: {nonsense\n\n"), 502, "model_output_invalid"),
        (RawResponse(body=b""), 502, "model_output_invalid"),
        (BrokenStream(then="hang"), 504, "model_unavailable"),
        (BrokenStream(then="reset"), 503, "model_unavailable"),
    ],
    ids=[
        "429", "500", "503", "400", "401", "404", "413", "page-502", "page-200", "nonsense",
        "nothing", "hangs", "reset",
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_an_upstream_error_before_the_first_chunk_sets_the_status(
    talk: ChatServer, fault: ScriptedReply, status: int, code: str, stream: bool
) -> None:
    reply = await talk.post("Go", fault, fault, stream=stream)
    assert (reply.status_code, reply.json()["error"]["code"]) == (status, code)
    assert "sk-secret" not in reply.text
    assert reply.headers.get("retry-after") == ("7" if status == 429 else None)
    talk.script._replies.clear()  # pyright: ignore[reportPrivateUsage]  # what no second try took


@pytest.mark.promise("S10")
async def test_a_transient_error_is_retried_unnoticed(talk: ChatServer) -> None:
    async with _asking(talk, OpenAiModel(talk.script.base_url)):  # however busy the machine is
        reply = await talk.post("Go", _refused(500), text_reply("Well"))
    assert reply.json()["choices"][0]["message"]["content"] == "Well"
    assert len(talk.script.requests) == 2


@pytest.mark.promise("S10")
@pytest.mark.parametrize("then", ["cut", "reset", "hang"])
async def test_what_fails_in_the_middle_ends_the_stream_with_an_error(
    talk: ChatServer, then: Any
) -> None:
    broken = BrokenStream(deltas=[ModelDelta(text="Once upon")], then=then)
    reply = await talk.post("Go", broken, stream=True)
    assert reply.status_code == 200
    chunks = parse_chunks(reply.text)  # which ends with [DONE]
    assert join_text(chunks[:-1]) == "Once upon"
    assert chunks[-1]["error"]["code"] in {"model_unavailable", "model_output_invalid"}
    assert chunks[-1]["error"]["type"] == "server_error"
    whole = await talk.post("Go", broken, broken, broken)
    assert whole.status_code == (504 if then == "hang" else 502)
    talk.script._replies.clear()  # pyright: ignore[reportPrivateUsage]  # what no second try took


async def test_an_unreachable_model_server_is_reported(talk: ChatServer) -> None:
    async with _asking(talk, OpenAiModel("http://127.0.0.1:9", timeouts=_SHORT_TIMEOUTS)):
        reply = await talk.post("Go")
    assert reply.status_code == 503


@asynccontextmanager
async def _asking(talk: ChatServer, model: OpenAiModel) -> AsyncGenerator[None]:
    """Another model is asked for a while."""
    chatting = talk.serving.state.runtime.chat_service
    before, chatting.model = chatting.model, replace(chatting.model, client=model)
    try:
        yield
    finally:
        chatting.model = before
        await model.close()


async def test_silence_is_broken_by_comments_and_a_late_fault_ends_the_stream(
    talk: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "KEEP_ALIVE_SECONDS", 0.1)
    hangs = BrokenStream(then="hang")
    reply = await talk.post("Go", hangs, hangs, stream=True)
    assert reply.status_code == 200
    assert ": keep-alive\n\n" in reply.text
    chunks = parse_chunks(reply.text)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-1]["error"]["code"] == "model_unavailable"
    talk.script._replies.clear()  # pyright: ignore[reportPrivateUsage]


class _Waits(StaticTool):
    """A tool that works until somebody ends it."""

    def __init__(self) -> None:
        super().__init__("Waits")
        self.begun, self.ended = anyio.Event(), anyio.Event()

    async def call(self, arguments: Any, context: ToolContext) -> ToolResult:
        self.begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.ended.set()
        return await super().call(arguments, context)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_client_that_goes_away_ends_its_turn_and_the_tools_in_it(
    home: Path, stream: bool
) -> None:
    tool = _Waits()
    async with chat_server(home, permissions={"allow": ["Waits"]}) as talk:
        chatting = talk.serving.state.runtime.chat_service
        chatting.registry.add(tool)
        talk.script.play(tool_reply(("Waits", "{}"), text="I wait."))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: talk.post("Go", stream=stream))
            with anyio.fail_after(30):
                await tool.begun.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(30):
            await tool.ended.wait()
        await talk.post("Next", text_reply("Here"))  # the turn before was put down by then
        turns = await anyio.to_thread.run_sync(chatting.store.turns)
        assert [turn.record["finish"] for turn in turns] == ["stop", "cancelled"]
