"""End-to-end turns against a scripted Anthropic server."""

from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from apexbridge.errors import ModelOutputError, ModelUnavailableError
from apexbridge.events import ReasoningDelta, SkillActivated, TextDelta
from apexbridge.messages import ToolCall
from apexbridge.models.base import ModelDelta, Usage
from apexbridge.testing import AnthropicServer, BrokenStream, RawResponse, html_page, overloaded
from tests.journeys.chat_client import (
    SALES,
    call,
    calling,
    end_of,
    pieces_of,
    saying,
    talk,
    tools_of,
    turns_running,
)

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("home"), pytest.mark.unmeasured]

CLAUDE = {"protocol": "anthropic"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "sales.csv").write_text(SALES, encoding="utf-8")
    (place / "notes.txt").write_text("buy 牛奶\n", encoding="utf-8")
    return place


def _results(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of tools that a request carries."""
    blocks = [m["content"] for m in request["messages"] if isinstance(m["content"], list)]
    return [block for of in blocks for block in of if block["type"] == "tool_result"]


@pytest.mark.needs("sandbox")
async def test_search_skill_script_and_answer(project: Path) -> None:
    script = call("SkillScript", skill="csv-report", arguments=["sales.csv"], files=["sales.csv"])
    replies = [
        calling(call("SkillSearch", "s", query="summarise a CSV file with numbers")),
        calling(call("Skill", "k", skill="csv-report", arguments="sales.csv")),
        calling(script),
        [*saying("平均值是", "3.50。"), ModelDelta(usage=Usage(input_tokens=9, output_tokens=4))],
    ]
    async with AnthropicServer(replies) as server, talk(server, project, **CLAUDE) as talking:
        events = await talking.ask("销售额的平均值是多少？")
        record = talking.runtime.chat_service.store.turn(end_of(events).turn_id)
    assert tools_of(events) == [("SkillSearch", False), ("Skill", False), ("SkillScript", False)]
    assert [e.skill for e in events if isinstance(e, SkillActivated)] == ["csv-report"]
    assert pieces_of(events) == ["平均值是", "3.50。"]
    assert (end_of(events).text, end_of(events).finish) == ("平均值是3.50。", "stop")
    results = _results(server.requests[3])
    assert [result["tool_use_id"] for result in results] == ["s", "k", "c1"]
    assert "| sales | 2 | 0 | 3 | 4 | 3.50 |" in talking.sent(3)
    assert server.headers[0]["x-api-key"] == "sk-scripted"
    assert record is not None
    assert record["usage"]["output_tokens"] >= 4


async def test_calls_of_one_reply_all_get_their_results_in_order(project: Path) -> None:
    both = calling(call("Read", "a", path="notes.txt"), call("Calculate", "b", expression="6*7"))
    replies = [both, saying("done")]
    async with AnthropicServer(replies) as server, talk(server, project, **CLAUDE) as talking:
        await talking.ask("Look around")
    results = _results(server.requests[1])
    assert [result["tool_use_id"] for result in results] == ["a", "b"]
    assert "牛奶" in str(results[0]["content"])
    assert "42" in str(results[1]["content"])


async def test_arguments_that_are_no_json_are_told_and_can_be_mended(project: Path) -> None:
    bad = calling(ToolCall(id="x", name="Read", arguments='{"path": notes.txt'))
    replies = [bad, calling(call("Read", "y", path="notes.txt")), saying("milk")]
    async with AnthropicServer(replies) as server, talk(server, project, **CLAUDE) as talking:
        events = await talking.ask("What do I buy?")
    assert tools_of(events) == [("Read", True), ("Read", False)]
    told = _results(server.requests[1])[0]
    assert (told["is_error"], "not JSON" in str(told["content"])) == (True, True)
    assert end_of(events).text == "milk"


@pytest.mark.parametrize("status", [429, 529])
async def test_a_busy_server_is_asked_again(project: Path, status: int) -> None:
    replies = [overloaded(status), saying("hello")]
    async with AnthropicServer(replies) as server, talk(server, project, **CLAUDE) as talking:
        assert end_of(await talking.ask("hi")).text == "hello"
    assert len(server.requests) == 2


async def test_a_reply_that_breaks_off_is_told_and_the_conversation_goes_on(project: Path) -> None:
    replies = [
        calling(call("Read", path="notes.txt")),
        BrokenStream(deltas=saying("half"), then="reset"),
        saying("whole"),
    ]
    async with AnthropicServer(replies) as server, talk(server, project, **CLAUDE) as talking:
        with pytest.raises(ModelUnavailableError):
            await talking.ask("first question")
        assert turns_running() == []
        assert end_of(await talking.ask("second question")).text == "whole"
    assert ("second question" in talking.sent(2), "half" in talking.sent(2)) == (True, False)
    assert "牛奶" in str(_results(server.requests[2]))


async def test_a_web_page_is_told_and_the_conversation_goes_on(project: Path) -> None:
    replies = [html_page(200), saying("well")]
    async with AnthropicServer(replies) as server, talk(server, project, **CLAUDE) as talking:
        with pytest.raises(ModelOutputError, match="a web page, not an answer"):
            await talking.ask("hi")
        assert end_of(await talking.ask("again")).text == "well"


async def test_a_model_without_tools_is_told_of_them_in_words(project: Path) -> None:
    replies = [
        saying('{"tool": "Calculate", "arguments": {"expression": "6*7"}}'),
        saying('{"answer": "42"}'),
    ]
    async with (
        AnthropicServer(replies) as server,
        talk(server, project, **CLAUDE, tools="text") as talking,
    ):
        events = await talking.ask("What is 6*7?")
    assert (tools_of(events), end_of(events).text) == ([("Calculate", False)], "42")
    assert all("tools" not in request for request in server.requests)


async def test_a_server_that_refuses_tools_is_asked_in_words(project: Path) -> None:
    said = b'{"type": "error", "error": {"message": "tools: unsupported for this model"}}'
    replies = [
        RawResponse(status=400, body=said),
        saying('{"tool": "Calculate", "arguments": {"expression": "6*7"}}'),
        saying('{"answer": "42"}'),
    ]
    async with AnthropicServer(replies) as server, talk(server, project, **CLAUDE) as talking:
        assert end_of(await talking.ask("What is 6*7?")).text == "42"
    assert ["tools" in request for request in server.requests] == [True, False, False]


async def test_thoughts_are_told_apart_and_go_back_with_the_calls(project: Path) -> None:
    thinking = [
        ModelDelta(reasoning="let me see"),
        ModelDelta(tool_calls=(call("Calculate", expression="6*7"),)),
    ]
    replies = [thinking, saying("42")]
    async with AnthropicServer(replies) as server, talk(server, project, **CLAUDE) as talking:
        events = await talking.ask("What is 6*7?")
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "let me see"
    assert end_of(events).text == "42"
    blocks = server.requests[1]["messages"][-2]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "tool_use"]
    assert blocks[0]["signature"] == "signed"


async def test_who_stops_reading_in_mid_reply_ends_the_turn(project: Path) -> None:
    replies = [BrokenStream(deltas=saying("begun"), then="hang"), saying("well")]
    async with AnthropicServer(replies) as server, talk(server, project, **CLAUDE) as talking:
        with anyio.fail_after(30):
            async with aclosing(talking.runtime.chat("first", session="talk")) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
        assert turns_running() == []
        assert end_of(await talking.ask("second")).text == "well"
