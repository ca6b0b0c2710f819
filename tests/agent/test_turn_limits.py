"""Turn limits: rounds, tokens, time, loop detection, and Stop hooks."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from apexbridge.errors import ApexBridgeError, ModelUnavailableError
from apexbridge.events import TextDelta
from apexbridge.messages import AssistantMessage, ToolMessage, UserMessage
from apexbridge.models.base import ModelDelta, ModelRequest, Usage
from apexbridge.testing import StaticTool
from apexbridge.tools.base import ToolContext, ToolResult
from tests.agent.agent_fixture import FunctionModel, Reply, calls, open_agent, says
from tests.agent.fake_hooks import FakeHooks

pytestmark = pytest.mark.anyio


@pytest.mark.promise("G04")
async def test_at_the_last_round_the_model_answers_without_tools(home: Path) -> None:
    def reply(request: ModelRequest) -> Reply:
        number = len(request.messages)
        return calls(("Calculate", {"expression": f"{number}+1"}), text=f"round {number}")

    async with open_agent(home, agent__rounds=3) as at:
        model = FunctionModel(reply)
        at.use(model)
        end = await at.ask("Count")
        assert end.finish == "rounds"
        assert end.text.startswith("round")
        assert [bool(request.tools) for request in model.requests] == [True, True, False]
        last = (await at.session()).messages[-1]
        # A call that nobody answers would make the next request invalid.
        assert isinstance(last, AssistantMessage)
        assert last.tool_calls == ()
        assert "No more tools" in (await at.said("reminder"))[-1]


@pytest.mark.promise("G04")
async def test_when_the_tokens_are_spent_a_last_answer_is_given(home: Path) -> None:
    spent = ModelDelta(usage=Usage(input_tokens=900, output_tokens=200))
    async with open_agent(home, agent__tokens=1_000) as at:
        end = await at.ask("Go", [*calls(("Now", {})), spent], says("Enough."))
        assert (end.finish, end.text) == ("tokens", "Enough.")
        assert at.model.requests[-1].tools == ()
        assert at.record()["usage"] == {"input_tokens": 900, "output_tokens": 200}


class Slow:
    """A model that begins to answer and never ends."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncGenerator[ModelDelta]]:
        async def pieces() -> AsyncGenerator[ModelDelta]:
            yield ModelDelta(text="This much ")
            yield ModelDelta(text="is known.")
            await anyio.sleep_forever()

        yield pieces()


@pytest.mark.promise("G04")
async def test_when_the_time_is_up_what_was_said_so_far_is_the_answer(home: Path) -> None:
    async with open_agent(home, agent__seconds=3) as at:
        at.use(Slow())
        end = await at.ask("Go")
        assert (end.finish, end.text) == ("time", "This much is known.")
        assert "".join(event.text for event in at.of(TextDelta)) == end.text
        assert (await at.session()).messages[-1] == AssistantMessage(text=end.text)


@pytest.mark.promise("G04")
async def test_when_the_time_is_up_in_a_tool_the_words_before_it_are_the_answer(
    home: Path,
) -> None:
    class Stuck(StaticTool):
        async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
            await anyio.sleep_forever()
            return ToolResult(text="never")

    allowed = ["Stuck"]
    stuck = Stuck("Stuck")
    async with open_agent(home, tools=[stuck], agent__seconds=3, permissions__allow=allowed) as at:
        end = await at.ask("Go", calls(("Stuck", {}), text="Let me see."))
        assert (end.finish, end.text) == ("time", "Let me see.")
        last = (await at.session()).messages[-1]
        assert isinstance(last, ToolMessage)
        assert last.text.startswith("[cancelled]")


async def test_a_model_that_fails_leaves_a_record_and_a_session_that_goes_on(home: Path) -> None:
    class Down:
        @asynccontextmanager
        async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncGenerator[ModelDelta]]:
            raise ModelUnavailableError("down", name="m")
            yield  # pragma: no cover

    async with open_agent(home) as at:
        at.use(Down())
        with pytest.raises(ApexBridgeError, match="down"):
            await at.ask("Go")
        assert at.record()["finish"] == "error"
        end = await at.ask("Again", says("Here."))
        assert end.text == "Here."
        prompts = [m.text for m in (await at.session()).messages if isinstance(m, UserMessage)]
        assert prompts[-2:] == ["Go", "Again"]


async def test_an_empty_answer_is_no_message_that_a_provider_would_refuse(home: Path) -> None:
    async with open_agent(home) as at:
        end = await at.ask("Go", says(""))
        assert (end.finish, end.text) == ("stop", "")
        assert isinstance((await at.session()).messages[-1], UserMessage)


async def test_a_request_with_half_a_character_is_made_whole(home: Path) -> None:
    async with open_agent(home) as at:
        await at.ask("a\ud800b", says("."))
    async with open_agent(home) as at:
        prompts = [m.text for m in (await at.session()).messages if isinstance(m, UserMessage)]
        assert prompts[-1] == "a?b"


async def test_a_stop_hook_keeps_the_model_working_but_not_for_ever(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = FakeHooks(monkeypatch, {"stop": '{"decision": "block", "reason": "Run the tests."}'})
    async with open_agent(home, hooks=hooks.settings(Stop="stop")) as at:
        end = await at.ask("Go", *[says(f"done {n}") for n in range(9)])
        assert end.text == "done 3"
        assert hooks.ran == ["stop"] * 4
        said = [text for text in await at.said("reminder") if "Run the tests." in text]
        assert len(said) == 3


async def test_a_stop_hook_that_wants_no_more_ends_the_turn(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = '{"continue": false, "decision": "block", "reason": "x", "stopReason": "Enough."}'
    hooks = FakeHooks(monkeypatch, {"stop": answer})
    async with open_agent(home, hooks=hooks.settings(Stop="stop")) as at:
        end = await at.ask("Go", says("done"), says("never"))
        assert (end.finish, end.text) == ("stop", "done")


@pytest.mark.parametrize(
    ("event", "call_runs"),
    [("PreToolUse", False), ("PostToolUse", True), ("UserPromptSubmit", False),
     ("SessionStart", False)],
)  # fmt: skip
async def test_a_hook_that_says_not_to_continue_ends_the_turn(
    home: Path, monkeypatch: pytest.MonkeyPatch, event: str, call_runs: bool
) -> None:
    hooks = FakeHooks(
        monkeypatch, {"end": '{"continue": false, "stopReason": "Enough for today."}'}
    )
    tool = StaticTool("Static")
    settings = hooks.settings(**{event: "end"})
    async with open_agent(home, tools=[tool], hooks=settings, permissions__allow=["Static"]) as at:
        end = await at.ask("Go", calls(("Static", {})), says("never said"))
        assert (end.finish, end.text) == ("blocked", "Enough for today.")
    assert bool(tool.calls) is call_runs
    assert hooks.ran == ["end"]


async def test_hooks_are_told_once_that_a_session_began_or_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = FakeHooks(monkeypatch, {"hello": "The branch is main. </reminder>"})
    for source in ("startup", "resume"):
        async with open_agent(home, hooks=hooks.settings(SessionStart="hello")) as at:
            await at.ask("One", says("."))
            await at.ask("Two", says("."))
            assert hooks.payloads[-1]["source"] == source
            said = [text for text in await at.said("reminder") if "The branch is main." in text]
            assert len(said) == len(hooks.ran)
            assert said[-1].count("</reminder>") == 1
    assert hooks.ran == ["hello"] * 2


async def test_a_hook_may_refuse_a_request_and_the_model_is_not_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = FakeHooks(monkeypatch, {"no": '{"decision": "block", "reason": "Not here."}'})
    async with open_agent(home, hooks=hooks.settings(UserPromptSubmit="no")) as at:
        end = await at.ask("Go", says("never"))
        assert (end.finish, end.text, at.model.requests) == ("blocked", "Not here.", [])
