"""Chat completions over a socket: requests, responses and streams."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from apexbridge.messages import ToolCall
from apexbridge.models.base import ModelDelta, Usage
from apexbridge.testing import make_skill
from tests.server.chat_server import (
    MODEL,
    ChatServer,
    chat_server,
    join_text,
    parse_chunks,
    text_reply,
    tool_reply,
)

pytestmark = pytest.mark.anyio

_WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
        "strict": True,
    },
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def talk(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ChatServer]:
    home = tmp_path_factory.mktemp("chat")
    make_skill(home / ".claude/skills", "greet", description="Greets people warmly.")
    danger = "Say what !`echo here` gives."
    make_skill(home / ".claude/skills", "shelly", description="Shows a command.", body=danger)
    async with chat_server(home) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _anew(talk: ChatServer) -> None:
    talk.forget()


async def test_a_reply_has_what_every_client_reads_and_what_only_ours_do(talk: ChatServer) -> None:
    reply = (await talk.post("Hello?", text_reply("Hel", "lo."))).json()
    assert reply["object"] == "chat.completion"
    assert reply["model"] == MODEL
    assert reply["choices"][0]["message"] == {
        "role": "assistant",
        "content": "Hello.",
        "refusal": None,
    }
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert reply["usage"] == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    assert reply["id"] == f"chatcmpl-{reply['apexbridge']['turn']}"
    assert reply["apexbridge"]["finish"] == "stop"
    assert reply["apexbridge"]["session"] is None
    assert "explanation" not in reply["apexbridge"]


async def test_server_tools_and_skills_follow_the_clients_system_prompt(
    talk: ChatServer,
) -> None:
    said = [
        {"role": "developer", "content": "Speak like a pirate."},
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Aye"},
        {"role": "user", "content": [{"type": "text", "text": "Two"}]},
    ]
    await talk.post("", text_reply("."), messages=said)
    assert {"Calculate", "Skill", "Bash"} <= set(talk.offered())
    assert talk.said("system")[0].endswith("Speak like a pirate.")
    assert talk.said("assistant") == ["Aye"]
    first, last = talk.said("user")
    assert first == "One"
    assert last.startswith("<reminder>")
    assert "greet" in last
    assert last.endswith("Two")


async def test_known_parameters_are_forwarded_and_unknown_ones_too(talk: ChatServer) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    given: dict[str, Any] = {
        "temperature": 0.5,
        "seed": 7,
        "stop": "END",
        "response_format": form,
        "top_p": 0.9,
        "max_completion_tokens": 99,
        "reasoning_effort": "low",
        "brand_new": {"a": [1, None]},
    }
    await talk.post("Go", text_reply("{}"), **given)
    asked = talk.asked()
    assert asked["max_tokens"] == 99
    assert asked["stop"] == ["END"]
    for name in given.keys() - {"max_completion_tokens", "stop"}:
        assert asked[name] == given[name]
    assert "apexbridge" not in asked


@pytest.mark.parametrize("off", [{"tools": []}, {"tools": [_WEATHER], "tool_choice": "none"}])
async def test_a_client_can_switch_our_part_off(talk: ChatServer, off: dict[str, Any]) -> None:
    said = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "A title?"}]
    reply = await talk.post("", text_reply("Title"), messages=said, **off)
    assert reply.json()["choices"][0]["message"]["content"] == "Title"
    assert talk.offered() == ["weather"] * len(talk.offered())
    assert talk.asked()["messages"] == said
    assert talk.asked().get("tool_choice") == off.get("tool_choice")


async def test_pictures_reach_the_model_as_they_came(talk: ChatServer) -> None:
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}},
    ]
    await talk.post("", text_reply("A cat"), messages=[{"role": "user", "content": parts}])
    assert talk.said("user")[0][-2:] == parts


async def test_server_tool_calls_are_run_and_not_returned(talk: ChatServer) -> None:
    sums = tool_reply(("Calculate", '{"expression": "6*7"}'), text="I count.")
    body: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    whole = (await talk.post("Six times seven?", sums, text_reply("It is 42."))).json()
    chunks = parse_chunks(
        (await talk.post("Six times seven?", sums, text_reply("It is ", "42."), **body)).text
    )
    assert talk.said("tool") == ["6*7 = 42"]
    message = whole["choices"][0]["message"]
    assert message["content"] == "It is 42."
    assert "tool_calls" not in message
    assert whole["usage"]["total_tokens"] == 30
    assert join_text(chunks) == "I count.\n\nIt is 42."
    assert not any("tool_calls" in str(chunk) for chunk in chunks)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 30
    assert sum("usage" in chunk for chunk in chunks) == 1


async def test_a_clients_tool_wins_a_name_clash_and_a_mixed_turn_runs_ours_first(
    talk: ChatServer,
) -> None:
    theirs = [_WEATHER, {"type": "function", "function": {"name": "Now"}}]
    mixed = tool_reply(
        ("Calculate", '{"expression": "1+1"}'), ("weather", '{"place": "Rome"}'), ("Now", "{}")
    )
    reply = (await talk.post("Go", mixed, tools=theirs)).json()
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == [
        "weather",
        "Now",
    ]
    assert choice["message"]["content"] is None
    assert reply["apexbridge"]["finish"] == "client_tools"
    assert talk.offered().count("Now") == 1
    sent = {tool["function"]["name"]: tool["function"] for tool in talk.asked()["tools"]}
    assert sent["weather"] == _WEATHER["function"]
    assert sent["Now"]["description"] == ""


async def test_a_clients_calls_come_as_deltas_with_an_index_and_an_id_once(
    talk: ChatServer,
) -> None:
    mixed = tool_reply(
        ("weather", '{"place": "Rome"}'), ("weather", '{"place": "Oslo"}'), text="Let me"
    )
    body: dict[str, Any] = {"stream": True, "tools": [_WEATHER]}
    chunks = parse_chunks((await talk.post("Go", mixed, **body)).text)
    deltas = [d for c in chunks for d in c["choices"][0]["delta"].get("tool_calls", [])]
    assert [(d["index"], d["id"], d["function"]["arguments"]) for d in deltas] == [
        (0, "call_0", '{"place": "Rome"}'),
        (1, "call_1", '{"place": "Oslo"}'),
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_results_of_a_clients_tools_go_on_with_the_turn(talk: ChatServer) -> None:
    called = {
        "id": "call_0",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"place": "Rome"}'},
    }
    said = [
        {"role": "user", "content": "The weather?"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "call_0", "content": [{"type": "text", "text": "sun"}]},
    ]
    reply = await talk.post("", text_reply("Sunny."), messages=said, tools=[_WEATHER])
    assert reply.json()["choices"][0]["message"]["content"] == "Sunny."
    assert talk.asked()["messages"][1:] == [*said[:2], {**said[2], "content": "sun"}]


async def test_a_tool_that_must_be_called_is_the_clients(talk: ChatServer) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    reply = await talk.post(
        "Go", tool_reply(("weather", "{}")), tools=[_WEATHER], tool_choice=choice
    )
    assert reply.json()["choices"][0]["finish_reason"] == "tool_calls"
    assert talk.offered() == ["weather"]
    assert talk.asked()["tool_choice"] == choice


async def test_at_the_last_round_the_answer_comes_without_tools(talk: ChatServer) -> None:
    sums = tool_reply(("Calculate", '{"expression": "6*7"}'))
    limits = {"rounds": 2}
    reply = await talk.post(
        "Go", sums, text_reply("42"), apexbridge=limits, tools=[_WEATHER], tool_choice="auto"
    )
    assert reply.json()["choices"][0]["message"]["content"] == "42"
    assert reply.json()["choices"][0]["finish_reason"] == "stop"
    assert reply.json()["apexbridge"]["finish"] == "rounds"
    assert talk.asked(0)["tool_choice"] == "auto"
    assert "tools" not in talk.asked(1)
    assert "tool_choice" not in talk.asked(1)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_why_the_model_ended_is_passed_on(talk: ChatServer, reason: str) -> None:
    cut = [ModelDelta(text="Once"), ModelDelta(usage=Usage(), finish_reason=reason)]  # pyright: ignore[reportArgumentType]
    assert (await talk.post("Go", cut)).json()["choices"][0]["finish_reason"] == reason
    chunks = parse_chunks((await talk.post("Go", cut, stream=True)).text)
    assert chunks[-1]["choices"][0]["finish_reason"] == reason


async def test_reasoning_is_a_separate_field(talk: ChatServer) -> None:
    thought = [ModelDelta(reasoning="Hm"), ModelDelta(reasoning="m."), *text_reply("Yes")]
    message = (await talk.post("Go", thought)).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Hmm.", "Yes")
    chunks = parse_chunks((await talk.post("Go", thought, stream=True)).text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert [d["reasoning_content"] for d in deltas if "reasoning_content" in d] == ["Hm", "m."]
    assert join_text(chunks) == "Yes"


async def test_progress_events_are_valid_chunks_and_opt_in(talk: ChatServer) -> None:
    replies = (tool_reply(("Calculate", '{"expression": "6*7"}')), text_reply("42"))
    body: dict[str, Any] = {"stream": True, "apexbridge": {"progress": True, "skills": ["greet"]}}
    chunks = parse_chunks((await talk.post("Go", *replies, **body)).text)
    events = [c["apexbridge"] for c in chunks if "event" in c.get("apexbridge", {})]
    assert [e["event"] for e in events] == ["tool_started", "tool_finished", "turn_finished"]
    assert events[0]["arguments"] == '{"expression": "6*7"}'
    assert events[1]["result"] == "6*7 = 42"
    assert events[1]["is_error"] is False
    assert "text" not in events[2]
    for chunk in chunks:
        assert chunk["choices"][0]["delta"] is not None
    plain = (await talk.post("Go", *replies, stream=True)).text
    assert "apexbridge" not in plain
    key = talk.serving.key_for("chat")
    closed = parse_chunks((await talk.post("Go", *replies, key=key, **body)).text)
    sent = [c["apexbridge"] for c in closed if "event" in c.get("apexbridge", {})]
    assert [e["event"] for e in sent] == ["tool_started", "tool_finished", "turn_finished"]
    assert not any("arguments" in e or "result" in e for e in sent)


async def test_the_explanation_comes_when_it_is_asked_for(talk: ChatServer) -> None:
    reply = await talk.post("Greet me warmly", text_reply("Hi"), apexbridge={"explain": True})
    explained = reply.json()["apexbridge"]["explanation"]
    assert explained["finish"] == "stop"
    assert explained["candidates"][0]["parts"]["language"] == "en"
    runtime = talk.serving.state.runtime
    kept = await anyio.to_thread.run_sync(runtime.chat_service.store.turn, explained["id"])
    assert kept is not None
    assert explained == kept


async def test_skills_can_be_named_in_the_request_and_an_unknown_one_is_not_found(
    talk: ChatServer,
) -> None:
    await talk.post("Go", text_reply("."), apexbridge={"skills": ["greet"]})
    assert "The user wants these skills used: greet." in talk.said("user")[0]
    reply = await talk.post("Go", apexbridge={"skills": ["gret"]})
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "skill_not_found"


async def test_without_the_exec_scope_no_acting_tool_is_offered(talk: ChatServer) -> None:
    key = talk.serving.key_for("chat")
    tried = tool_reply(("Bash", '{"command": "id"}'), ("read_file", '{"path": "x"}'))
    skill = tool_reply(("Skill", '{"skill": "shelly"}'))
    reply = await talk.post("Go", tried, skill, text_reply("No"), key=key)
    assert reply.json()["choices"][0]["message"]["content"] == "No"
    assert set(talk.offered()) == {
        "Calculate",
        "Now",
        "Platform",
        "Skill",
        "SkillSearch",
        "skills_list",
        "skills_load",
    }
    results = talk.said("tool")
    assert [text.split("]")[0] for text in results] == [
        "[tool_not_found",
        "[tool_not_found",
        "[consent_missing",
    ]
    reply = await talk.post("/shelly", key=key)
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "rule_denied")


async def test_a_skill_that_was_used_is_named_in_the_reply(talk: ChatServer) -> None:
    reply = await talk.post("Go", tool_reply(("Skill", '{"skill": "greet"}')), text_reply("Hi"))
    assert reply.json()["apexbridge"]["skills"] == ["greet"]


async def test_the_same_call_twice_in_one_reply_keeps_ids_apart(talk: ChatServer) -> None:
    twice = [ModelDelta(tool_calls=[ToolCall(id="", name="weather", arguments="{}")] * 2)]
    reply = (await talk.post("Go", twice, tools=[_WEATHER])).json()
    ids = [call["id"] for call in reply["choices"][0]["message"]["tool_calls"]]
    assert len(set(ids)) == 2


async def test_models_are_listed_and_found_by_name(talk: ChatServer) -> None:
    headers = talk.serving.headers
    listed = (await talk.http.get("/v1/models", headers=headers)).json()
    assert [card["id"] for card in listed["data"]] == [MODEL, "apexbridge"]
    one = await talk.http.get("/v1/models/apexbridge", headers=headers)
    assert one.json()["object"] == "model"
    none = await talk.http.get("/v1/models/gpt/none", headers=headers)
    assert (none.status_code, none.json()["error"]["code"]) == (404, "model_unknown")


@pytest.mark.parametrize(("wanted", "upstream"), [("apexbridge", MODEL), ("other/x", "other/x")])
async def test_a_models_name_goes_upstream_but_for_ours(
    talk: ChatServer, wanted: str, upstream: str
) -> None:
    reply = await talk.post("Go", text_reply("."), model=wanted)
    assert talk.asked()["model"] == upstream
    assert reply.json()["model"] == wanted


async def test_without_a_model_server_an_unknown_model_is_not_found(home: Path) -> None:
    async with chat_server(home, has_model=False) as alone:
        none = await alone.post("What is 6 times 7?", model="gpt-none")
        assert (none.status_code, none.json()["error"]["code"]) == (404, "model_unknown")
        assert none.json()["error"]["param"] == "model"
        known = await alone.post("What is 6 times 7?", model="embedded")
        assert "42" in known.json()["choices"][0]["message"]["content"]
