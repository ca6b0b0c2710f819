"""End-to-end turns against a scripted OpenAI server."""

import json
import runpy
import uuid
from contextlib import aclosing
from pathlib import Path
from typing import Literal

import anyio
import pytest

from apexbridge.errors import ModelOutputError, ModelRejectedError, ModelUnavailableError
from apexbridge.events import ReasoningDelta, SkillActivated, TextDelta, ToolStarted
from apexbridge.messages import ToolCall
from apexbridge.models.base import ModelDelta, Usage
from apexbridge.testing import (
    BrokenStream,
    FixedApprover,
    RawResponse,
    ScriptedServer,
    SlowStream,
    html_page,
    make_skill,
    rate_limited,
)
from tests.journeys.chat_client import (
    MARK_SCRIPT,
    SALES,
    Talk,
    call,
    calling,
    end_of,
    pieces_of,
    processes_with,
    saying,
    talk,
    tools_of,
    turns_running,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("home"), pytest.mark.unmeasured]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "sales.csv").write_text(SALES, encoding="utf-8")
    (place / "notes.txt").write_text("buy 牛奶\n", encoding="utf-8")
    return place


SEED = [
    calling(call("SkillSearch", query="summarise a CSV file with numbers")),
    calling(call("Skill", skill="csv-report", arguments="sales.csv")),
    calling(call("SkillScript", skill="csv-report", arguments=["sales.csv"], files=["sales.csv"])),
    [*saying("The mean ", "is 3.50."), ModelDelta(usage=Usage(input_tokens=9, output_tokens=4))],
]


@pytest.mark.needs("sandbox")
async def test_search_skill_script_and_answer(project: Path) -> None:
    async with ScriptedServer(SEED) as server, talk(server, project) as talking:
        events = await talking.ask("What is the mean of my sales?")
        record = talking.runtime.chat_service.store.turn(end_of(events).turn_id)
    assert tools_of(events) == [("SkillSearch", False), ("Skill", False), ("SkillScript", False)]
    assert [e.skill for e in events if isinstance(e, SkillActivated)] == ["csv-report"]
    assert "".join(pieces_of(events)) == "The mean is 3.50."
    assert (end_of(events).text, end_of(events).finish) == ("The mean is 3.50.", "stop")
    roles = [message["role"] for message in server.requests[3]["messages"]]
    assert roles[:2] == ["system", "user"]
    assert [role for role in roles if role == "tool"] == ["tool"] * 3
    assert "csv-report" in server.requests[1]["messages"][-1]["content"]
    assert "| sales | 2 | 0 | 3 | 4 | 3.50 |" in talking.sent(3)
    assert server.headers[0]["Authorization"] == "Bearer sk-scripted"
    assert record is not None
    assert (record["rounds"], len(record["calls"])) == (4, 3)
    assert record["usage"] == {"input_tokens": 9, "output_tokens": 4}
    assert record["candidates"]


async def test_calls_of_one_reply_all_get_their_results_in_order(project: Path) -> None:
    three = calling(
        call("Read", "a", path="notes.txt"),
        call("Calculate", "b", expression="6*7"),
        call("Glob", "c", pattern="*.csv"),
    )
    async with ScriptedServer([three, saying("done")]) as server, talk(server, project) as talking:
        events = await talking.ask("Look around")
    results = [m for m in server.requests[1]["messages"] if m["role"] == "tool"]
    assert [result["tool_call_id"] for result in results] == ["a", "b", "c"]
    assert ["牛奶" in results[0]["content"], "42" in results[1]["content"]] == [True, True]
    assert "sales.csv" in results[2]["content"]
    assert end_of(events).text == "done"


async def test_arguments_that_are_no_json_are_told_and_can_be_mended(project: Path) -> None:
    bad = calling(ToolCall(id="x", name="Read", arguments='{"path": notes.txt'))
    good = calling(call("Read", "y", path="notes.txt"))
    replies = [bad, good, saying("milk")]
    async with ScriptedServer(replies) as server, talk(server, project) as talking:
        events = await talking.ask("What do I buy?")
    assert tools_of(events) == [("Read", True), ("Read", False)]
    assert "the arguments are not JSON" in server.requests[1]["messages"][-1]["content"]
    assert "牛奶" in server.requests[2]["messages"][-1]["content"]
    assert end_of(events).text == "milk"


async def test_a_busy_server_is_asked_again(project: Path) -> None:
    replies = [rate_limited("0"), saying("hello")]
    async with ScriptedServer(replies) as server, talk(server, project) as talking:
        assert end_of(await talking.ask("hi")).text == "hello"
    assert len(server.requests) == 2
    assert server.requests[0] == server.requests[1]


@pytest.mark.parametrize("ending", ["reset", "cut"])
async def test_a_reply_that_breaks_off_is_told_and_the_conversation_goes_on(
    project: Path, ending: Literal["reset", "cut"]
) -> None:
    broken = BrokenStream(deltas=saying("half"), then=ending)
    async with (
        ScriptedServer([broken, saying("whole")]) as server,
        talk(server, project) as talking,
    ):
        with pytest.raises(ModelUnavailableError):
            await talking.ask("first question")
        assert turns_running() == []
        events = await talking.ask("second question")
    assert end_of(events).text == "whole"
    assert "second question" in talking.sent(1)
    assert "half" not in talking.sent(1)


async def test_a_reply_that_breaks_off_after_tools_keeps_what_they_did(project: Path) -> None:
    reading = calling(call("Read", path="notes.txt"))
    broken = BrokenStream(deltas=saying("half"), then="reset")
    replies = [reading, broken, saying("whole")]
    async with ScriptedServer(replies) as server, talk(server, project) as talking:
        with pytest.raises(ModelUnavailableError):
            await talking.ask("What do I buy?")
        await talking.ask("And?")
    roles = [m["role"] for m in server.requests[2]["messages"]]
    assert roles[-3:] == ["assistant", "tool", "user"]
    assert "牛奶" in talking.sent(2)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (html_page(200), ModelOutputError, "a web page, not an answer"),
        (html_page(403), ModelRejectedError, "answered 403$"),
        (
            RawResponse(status=401, body=b'{"error": "bad key"}'),
            ModelRejectedError,
            "answered 401$",
        ),
    ],
    ids=["page", "forbidden-page", "key"],
)
async def test_what_is_no_answer_is_told_and_the_conversation_goes_on(
    project: Path, answer: RawResponse, kind: type[Exception], words: str
) -> None:
    async with ScriptedServer([answer, saying("well")]) as server, talk(server, project) as talking:
        with pytest.raises(kind, match=words) as caught:
            await talking.ask("hi")
        assert "sk-scripted" not in str(caught.value)
        assert end_of(await talking.ask("again")).text == "well"


async def test_a_model_without_tools_is_told_of_them_in_words(project: Path) -> None:
    replies = [
        saying('{"tool": "Calculate", ', '"arguments": {"expression": "6*7"}}'),
        saying('{"answer": "It is 42."}'),
    ]
    async with ScriptedServer(replies) as server, talk(server, project, tools="text") as talking:
        events = await talking.ask("What is 6*7?")
    assert tools_of(events) == [("Calculate", False)]
    assert (end_of(events).text, "".join(pieces_of(events))) == ("It is 42.", "It is 42.")
    assert all("tools" not in request for request in server.requests)
    assert "Calculate" in server.requests[0]["messages"][0]["content"]
    assert "42" in server.requests[1]["messages"][-1]["content"]


async def test_a_server_that_refuses_tools_is_asked_in_words_from_then_on(project: Path) -> None:
    refusal = RawResponse(status=400, body=b'{"error": {"message": "tools are not supported"}}')
    replies = [
        refusal,
        saying('{"tool": "Read", "arguments": {"path": "notes.txt"}}'),
        saying('{"answer": "milk"}'),
    ]
    async with ScriptedServer(replies) as server, talk(server, project) as talking:
        events = await talking.ask("What do I buy?")
    assert tools_of(events) == [("Read", False)]
    assert end_of(events).text == "milk"
    assert ["tools" in request for request in server.requests] == [True, False, False]


async def test_thoughts_are_told_apart_from_the_reply(project: Path) -> None:
    thinking = [ModelDelta(reasoning="let me "), ModelDelta(reasoning="see"), *saying("42")]
    async with ScriptedServer([thinking]) as server, talk(server, project) as talking:
        events = await talking.ask("What is the answer?")
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "let me see"
    assert (pieces_of(events), end_of(events).text) == (["42"], "42")


async def test_a_reply_comes_piece_by_piece_however_it_is_cut(project: Path) -> None:
    slow = SlowStream(deltas=saying("一个", "回答"), bytes_at_once=3)
    async with ScriptedServer([slow]) as server, talk(server, project) as talking:
        events = await talking.ask("你好")
    assert pieces_of(events) == ["一个", "回答"]


async def test_who_stops_reading_in_mid_reply_ends_the_turn(project: Path) -> None:
    hanging = BrokenStream(deltas=saying("begun"), then="hang")
    async with (
        ScriptedServer([hanging, saying("well")]) as server,
        talk(server, project) as talking,
    ):
        with anyio.fail_after(30):
            async with aclosing(talking.runtime.chat("first", session="talk")) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        assert len(turns_running()) == 1
                        break
        assert turns_running() == []
        assert end_of(await talking.ask("second")).text == "well"


async def test_a_task_that_is_cancelled_takes_its_turn_along(project: Path) -> None:
    hanging = BrokenStream(deltas=saying("begun"), then="hang")
    async with (
        ScriptedServer([hanging, saying("well")]) as server,
        talk(server, project) as talking,
    ):
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:

                async def read() -> None:
                    async for event in talking.runtime.chat("first", session="talk"):
                        if isinstance(event, TextDelta):
                            tasks.cancel_scope.cancel()

                tasks.start_soon(read)
        assert turns_running() == []
        assert end_of(await talking.ask("second")).text == "well"


async def _started(mark: str) -> None:
    while not processes_with(mark):  # a process tells nobody that it is there
        await anyio.sleep(0.01)


async def _break_off_in(talking: Talk, mark: str) -> None:
    with anyio.fail_after(30):
        async with aclosing(talking.runtime.chat("sleep", session="talk")) as events:
            async for event in events:
                if isinstance(event, ToolStarted):
                    await _started(mark)
                    break


@pytest.mark.needs("sandbox")
async def test_who_stops_reading_in_mid_tool_leaves_no_process(home: Path, project: Path) -> None:
    mark = f"{uuid.uuid4().int % 10**12:012}.5"  # a number of seconds that only this test waits
    script = MARK_SCRIPT.format(mark=mark)
    make_skill(home / ".claude/skills", "sleeper", files={"scripts/main.sh": script})
    replies = [calling(call("SkillScript", skill="sleeper")), saying("awake")]
    async with ScriptedServer(replies) as server, talk(server, project) as talking:
        await _break_off_in(talking, mark)
        assert (turns_running(), processes_with(mark)) == ([], [])
        assert end_of(await talking.ask("and now?")).text == "awake"
    results = [m for m in server.requests[1]["messages"] if m["role"] == "tool"]
    assert "cancelled" in results[0]["content"]
    assert [path for path in home.rglob("workspaces/*") if path.is_dir()] == []


@pytest.mark.needs("writable project")
async def test_a_command_runs_after_a_person_said_yes_and_not_without(project: Path) -> None:
    running = calling(call("Bash", command="echo made > made.txt && cat made.txt"))
    replies = [running, saying("no"), running, saying("yes")]
    async with ScriptedServer(replies) as server, talk(server, project) as talking:
        assert tools_of(await talking.ask("make it")) == [("Bash", True)]
        assert not (project / "made.txt").exists()
        person = FixedApprover("once")
        events = await talking.ask("make it, please", approver=person)
    assert tools_of(events) == [("Bash", False)]
    assert (project / "made.txt").read_text(encoding="utf-8") == "made\n"
    assert [request.tool for request in person.asked] == ["Bash"] * len(person.asked)
    assert "[nobody_allowed]" in talking.sent(1)


async def test_a_conversation_is_taken_up_again_by_another_runtime(project: Path) -> None:
    async with ScriptedServer([saying("hello Ann"), saying("Ann")]) as server:
        async with talk(server, project) as talking:
            await talking.ask("my name is Ann")
        async with talk(server, project) as talking:
            await talking.ask("what is my name?")
    assert [m["role"] for m in server.requests[1]["messages"]][-3:] == ["user", "assistant", "user"]
    assert "my name is Ann" in json.dumps(server.requests[1])


async def test_a_tool_of_an_extension_is_called_by_the_model(project: Path) -> None:
    shop = runpy.run_path(str(EXAMPLES / "custom_tool.py"))["Shop"]()
    replies = [
        calling(call("stock", "a", item="apples"), call("stock", "b", item="plums")),
        saying("Twelve."),
    ]
    async with ScriptedServer(replies) as server, talk(server, project, shop) as talking:
        events = await talking.ask("How many apples and plums are there?")
    assert sorted(tools_of(events)) == [("stock", False), ("stock", True)]
    results = [m["content"] for m in server.requests[1]["messages"] if m["role"] == "tool"]
    assert results[0] == "12 apples"
    assert "there are no plums; there are apples, pears" in results[1]
    offered = [tool["function"]["name"] for tool in server.requests[0]["tools"]]
    assert "stock" in offered


async def test_who_just_leaves_the_loop_ends_the_turn_too(project: Path) -> None:
    hanging = BrokenStream(deltas=saying("begun"), then="hang")
    async with (
        ScriptedServer([hanging, saying("well")]) as server,
        talk(server, project) as talking,
    ):
        with anyio.fail_after(30):
            async for event in talking.runtime.chat("first", session="talk"):
                if isinstance(event, TextDelta):
                    break
            while turns_running():
                await anyio.sleep(0.01)
        assert end_of(await talking.ask("second")).text == "well"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("x")])
async def test_an_error_beside_a_turn_leaves_the_runtime_as_it_is(
    project: Path, error: BaseException
) -> None:
    async with ScriptedServer() as server:
        with pytest.raises(type(error)) as caught:
            async with talk(server, project):
                raise error
    assert caught.value is error
