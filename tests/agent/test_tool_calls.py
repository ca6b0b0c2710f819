"""Tool calls of one reply: concurrency, order, and one result each."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from apexbridge.events import ToolStarted
from apexbridge.messages import AssistantMessage, ToolCall, ToolMessage
from apexbridge.models.base import ModelDelta
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.testing import make_skill
from apexbridge.tools.base import ToolContext, ToolResult, ToolSpec
from tests.agent.agent_fixture import calls, invokes, open_agent, says

pytestmark = pytest.mark.anyio


class Meeting:
    """A tool whose calls wait until so many of them are there."""

    def __init__(self, name: str, *, read_only: bool, together: int = 1) -> None:
        self.spec = ToolSpec(name=name, description="d", input_schema={}, read_only=read_only)
        self._together = together
        self._all_there = anyio.Event()
        self.order = list[int]()
        self.inside = self.most = 0

    def permissions(
        self, arguments: Mapping[str, Any], context: ToolContext
    ) -> Sequence[PermissionRequest]:
        return (PermissionRequest(tool=self.spec.name, harmless=True),)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        self.order.append(arguments["n"])
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            if self.inside == self._together:
                self._all_there.set()
            await self._all_there.wait()
        finally:
            self.inside -= 1
        return ToolResult(text=f"result {arguments['n']}")


def _numbered(name: str, count: int) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, {"n": number}) for number in range(count)]


async def test_calls_that_only_read_really_run_side_by_side_and_results_keep_their_order(
    home: Path,
) -> None:
    tool = Meeting("Look", read_only=True, together=8)  # nobody leaves before all eight are in
    async with open_agent(home, tools=[tool]) as at:
        await at.ask("Go", calls(*_numbered("Look", 8)), says("."))
        assert await at.results() == [f"result {n}" for n in range(8)]
    assert tool.most == 8


async def test_no_more_calls_run_at_once_than_allowed(home: Path) -> None:
    tool = Meeting("Look", read_only=True, together=8)
    async with open_agent(home, tools=[tool]) as at:
        await at.ask("Go", calls(*_numbered("Look", 20)), says("."))
        assert await at.results() == [f"result {n}" for n in range(20)]
    assert tool.most == 8


async def test_calls_that_change_something_go_one_by_one_in_order(home: Path) -> None:
    tool = Meeting("Change", read_only=False)
    async with open_agent(home, tools=[tool]) as at:
        await at.ask("Go", calls(*_numbered("Change", 6)), says("."))
    assert tool.order == list(range(6))
    assert tool.most == 1


async def test_two_calls_with_one_id_both_have_their_result(home: Path) -> None:
    tool = Meeting("Change", read_only=False)
    same = [ToolCall(id="same", name="Change", arguments=f'{{"n": {n}}}') for n in range(2)]
    async with open_agent(home, tools=[tool]) as at:
        await at.ask("Go", [ModelDelta(tool_calls=same)], says("."))
        assert await at.results() == ["result 0", "result 1"]


async def test_a_turn_that_is_broken_off_leaves_a_result_for_every_call(home: Path) -> None:
    stuck = Meeting("Change", read_only=False, together=99)
    quick = Meeting("Look", read_only=True)
    wanted = [("Look", {"n": 0}), ("Change", {"n": 1}), ("Look", {"n": 2})]
    async with open_agent(home, tools=[stuck, quick]) as at:
        at.script_replies(calls(*wanted))
        with anyio.fail_after(30):
            async with aclosing(at.runtime.chat("Go", session="s")) as events:
                async for event in events:
                    if isinstance(event, ToolStarted) and event.tool == "Change":
                        break
        assert stuck.inside == 0  # nothing is left running
        session = await at.session()
        first, *results = session.messages[-4:]
        assert isinstance(first, AssistantMessage)
        told = [m.text for m in results if isinstance(m, ToolMessage)]
        assert told[0] == "result 0"
        assert [text.startswith("[cancelled]") for text in told] == [False, True, True]
        assert at.record()["finish"] == "cancelled"
        end = await at.ask("Go on", says("Gladly."))  # and the conversation goes on
        assert end.text == "Gladly."


async def test_the_same_skill_twice_in_one_reply_adds_one_copy(home: Path) -> None:
    make_skill(home / ".claude/skills", "pdf")
    twice = calls(("Skill", {"skill": "pdf"}), ("Skill", {"skill": "/pdf"}))
    async with open_agent(home) as at:
        await at.ask("Go", twice, says("."))
        assert len(await at.said("skill")) == 1
        assert "is above" in (await at.results())[1]
        # Results of one reply stand together, what they add comes behind them.
        kinds = [type(m).__name__ for m in (await at.session()).messages[-5:]]
        assert kinds == [
            "AssistantMessage", "ToolMessage", "ToolMessage", "UserMessage", "AssistantMessage",
        ]  # fmt: skip


async def test_what_a_skill_forbids_is_refused_from_the_next_call_on_until_the_turn_ends(
    home: Path,
) -> None:
    make_skill(home / ".claude/skills", "careful", disallowed_tools=["Look", "Bash"])
    tool = Meeting("Look", read_only=True)
    wanted = calls(("Look", {"n": 0}), ("Skill", {"skill": "careful"}), ("Look", {"n": 1}))
    async with open_agent(home, tools=[tool], permissions__allow=["Skill(careful)"]) as at:
        await at.ask("Go", wanted, calls(("Look", {"n": 2})), says("."))
        results = await at.results()
        assert [text[:13] for text in results] == [
            "result 0", "The skill 'ca", "[rule_denied]", "[rule_denied]",
        ]  # fmt: skip
        await at.ask("Go", calls(("Look", {"n": 3})), says("."))
        assert (await at.results())[-1] == "result 3"


async def test_a_child_cannot_do_what_a_skill_forbids_its_parent(home: Path) -> None:
    make_skill(home / ".claude/skills", "careful", disallowed_tools=["Look"])
    make_skill(home / ".claude/skills", "task", context="fork")
    tool = Meeting("Look", read_only=True)
    async with open_agent(home, tools=[tool], permissions__allow=["Skill"]) as at:
        await at.ask(
            "Go",
            invokes("careful"),
            invokes("task"),
            calls(("Look", {"n": 0})),  # the child
            says("child done"),
            says("."),
        )
        assert at.record()["calls"][1]["code"] == "rule_denied"
    assert tool.order == []
