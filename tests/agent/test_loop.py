"""Agent loop: client tools, failing search, plain completions, reminders."""

from pathlib import Path

import anyio
import pytest

from apexbridge.agent.turn import TurnRequest, TurnResult
from apexbridge.errors import RetrievalError
from apexbridge.events import HookWarned, ReasoningDelta
from apexbridge.messages import ToolMessage, UserMessage
from apexbridge.models.base import ModelDelta
from apexbridge.retrieval.results import SearchResults
from apexbridge.testing import EventLog, StaticTool, make_skill
from apexbridge.tools.base import ToolSpec
from tests.agent.agent_fixture import AgentFixture, calls, open_agent, says
from tests.agent.fake_hooks import FakeHooks

pytestmark = pytest.mark.anyio

_THEIRS = (
    ToolSpec(name="Weather", description="d", input_schema={}),
    ToolSpec(name="Static", description="theirs", input_schema={}),
)


async def _turn(at: AgentFixture, request: TurnRequest) -> TurnResult:
    with anyio.fail_after(30):
        return await at.runtime.chat_service.turn("s", request, EventLog())


async def test_a_clients_tools_are_offered_and_never_run_by_us(home: Path) -> None:
    ours = StaticTool("Static")
    mixed = calls(("Calculate", {"expression": "1+1"}), ("Weather", {}), ("Static", {}))
    async with open_agent(home, tools=[ours], permissions__allow=["Static"]) as at:
        at.script_replies(mixed)
        end = await _turn(at, TurnRequest(text="Go", client_tools=_THEIRS))
        assert end.finish == "client_tools"
        assert [call.name for call in end.client_calls] == ["Weather", "Static"]
        told = [spec.description for spec in at.model.requests[0].tools if spec.name == "Static"]
        assert told == ["theirs"]  # a client's tool wins over ours with its name
        last = (await at.session()).messages[-1]
        assert isinstance(last, ToolMessage)
        assert last.call_id == "call-0"
    assert ours.calls == []


async def test_without_tools_none_of_ours_is_offered_or_run(home: Path) -> None:
    make_skill(home / ".claude/skills", "pdf")
    ours = StaticTool("Static")
    async with open_agent(home, tools=[ours], permissions__allow=["Static"]) as at:
        at.script_replies(calls(("Static", {})), says("A title"))
        end = await _turn(at, TurnRequest(text="/pdf is a name", uses_tools=False))
        assert end.text == "A title"
        assert at.model.requests[0].tools == ()
        assert (await at.results())[0].startswith("[tool_not_found]")
        assert await at.said("reminder") == []
        assert await at.said("skill") == []
    assert ours.calls == []


async def test_a_search_that_fails_costs_the_offers_and_not_the_turn(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **__: object) -> SearchResults:
        raise RetrievalError("no index")

    async with open_agent(home) as at:
        monkeypatch.setattr(at.runtime.index_service, "search", fails)
        end = await at.ask("Go", says("Done."))
        assert end.text == "Done."
        assert at.record()["refusals"] == ["retrieval_error"]
        assert "Skills you can invoke" in (await at.said("reminder"))[0]


async def test_what_the_model_thinks_is_told_and_is_no_part_of_the_answer(home: Path) -> None:
    async with open_agent(home) as at:
        end = await at.ask("Go", [ModelDelta(reasoning="Hm."), ModelDelta(text="Yes.")])
        assert [event.text for event in at.of(ReasoningDelta)] == ["Hm."]
        assert end.text == "Yes."


async def test_words_of_a_hook_stand_before_the_request_and_failures_are_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = FakeHooks(monkeypatch, {"more": "It is late.", "bad": '{"decision": 7}'})
    settings = hooks.settings(UserPromptSubmit="more", Stop="bad")
    async with open_agent(home, hooks=settings) as at:
        await at.ask("Go", says("."))
        *_, said, request, _answer = (await at.session()).messages
        assert "It is late." in said.text
        assert request == UserMessage(text="Go")
        assert [event.code for event in at.of(HookWarned)] == ["hook_failed_open"]


async def test_a_hook_may_end_the_turn_where_the_conversation_is_to_be_shortened(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = FakeHooks(monkeypatch, {"end": '{"continue": false, "stopReason": "Too long."}'})
    async with open_agent(home, hooks=hooks.settings(PreCompact="end")) as at:
        at.window = 2_000
        end = await at.ask("x" * 9_000, says("short"), says("never"))
        assert (end.finish, end.text) == ("blocked", "Too long.")


async def test_what_the_opener_of_a_session_says_stands_in_the_first_message(home: Path) -> None:
    async with open_agent(home) as at:
        await at.runtime.chat_service.session("s", system="  Speak like a pirate. ")
        await at.ask("Go", says("Arr."))
        assert at.model.requests[0].messages[0].text.endswith("\n\nSpeak like a pirate.")


async def test_a_skill_can_be_read_by_its_id_its_name_or_a_part_of_it(home: Path) -> None:
    make_skill(home / ".claude/skills", "pdf-report", body="Count pages. </skill>")
    async with open_agent(home) as at:
        await at.ask("Go", calls(("skills_load", {"name": "pdf-rep"})), says("."))
        (result,) = await at.results()
        assert "Name: pdf-report" in result
        assert "Count pages. &lt;/skill>" in result
        assert (await at.session()).applied == {}  # read, not invoked


async def test_a_long_request_is_searched_by_its_beginning(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[int]()
    async with open_agent(home) as at:
        found = await at.runtime.search("x")

        async def search(query: str, **_: object) -> SearchResults:
            seen.append(len(query))
            return found

        monkeypatch.setattr(at.runtime.index_service, "search", search)
        await at.ask("word " * 20_000, says("."))
    assert seen == [4_000]
