"""Subagents of forked skills: isolation, limits and recursion."""

from pathlib import Path

import pytest

from apexbridge.events import SkillActivated, SkillRefused, TextDelta, ToolFinished
from apexbridge.messages import UserMessage
from apexbridge.models.base import ModelDelta, ModelRequest, Usage
from apexbridge.testing import FixedApprover, StaticTool, make_skill
from tests.agent.agent_fixture import FunctionModel, Reply, calls, invokes, open_agent, says

pytestmark = pytest.mark.anyio


async def test_a_forked_skill_works_in_a_session_of_its_own_and_gives_its_last_words(
    home: Path,
) -> None:
    make_skill(home / ".claude/skills", "task", context="fork", body="Count to $0.")
    spent = ModelDelta(usage=Usage(input_tokens=10, output_tokens=1))
    async with open_agent(home, approver=FixedApprover("once")) as at:
        end = await at.ask(
            "My secret history",
            invokes("task", "three"),
            [*calls(("Calculate", {"expression": "1+2"})), spent],
            says("It is 3."),
            says("The child says 3."),
        )
        assert end.text == "The child says 3."
        (result,) = await at.results()  # the child's own calls are not in here
        child = at.model.requests[1]
        assert not any("secret history" in message.text for message in child.messages)
        prompts = [m for m in child.messages if isinstance(m, UserMessage) and m.kind == "prompt"]
        assert "Count to three." in prompts[0].text
        ids = [event.session_id for event in at.of(ToolFinished)]
        assert ids[0].startswith("s.")
        assert result == f"It is 3.\n\n(by the subagent {ids[0]}, general-purpose)"
        assert ids[1] == "s"
        assert {event.session_id for event in at.of(TextDelta)} == {ids[0], "s"}
        assert [kept.id for kept in at.runtime.chat_service.store.latest()] == ["s"]
        assert (await at.session(ids[0])).messages == []  # they are released
        record = at.record()
        assert [call["session_id"] for call in record["calls"]] == ids
        assert record["usage"]["input_tokens"] == 10
        assert all("task" not in m.text for m in child.messages if isinstance(m, UserMessage)
                   and m.kind == "reminder")  # fmt: skip  # it is not offered to itself


async def test_a_person_may_fork_a_skill_and_its_words_are_the_answer(home: Path) -> None:
    make_skill(home / ".claude/skills", "task", context="fork")
    async with open_agent(home) as at:
        end = await at.ask("/task now", says("Done by the child."))
        assert (end.finish, end.text) == ("skill", "Done by the child.")
        assert len(at.model.requests) == 1
        (activated,) = at.of(SkillActivated)
        assert (activated.mode, activated.trigger) == ("fork", "user")
        texts = [m.text for m in (await at.session()).messages]
        assert texts[-2:] == ["/task now", "Done by the child."]


@pytest.mark.promise("G05")
@pytest.mark.parametrize("others", [("a",), ("a", "b")], ids=["itself", "each other"])
async def test_a_skill_that_forks_itself_or_its_caller_is_refused(
    home: Path, others: tuple[str, ...]
) -> None:
    for name in others:
        make_skill(home / ".claude/skills", name, context="fork", body=f"I am {name}.")

    def reply(request: ModelRequest) -> Reply:
        """Every session calls the next skill in the ring, once."""
        texts = [m.text for m in request.messages]
        if any(text.startswith("[fork_recursion]") or "nothing more" in text for text in texts):
            return says("nothing more")
        inside = next((n for n in others if f"I am {n}." in texts[-1]), None)
        if inside is None:
            return invokes(others[0])
        return invokes(others[(others.index(inside) + 1) % len(others)])

    async with open_agent(home, permissions__allow=["Skill"]) as at:
        model = FunctionModel(reply)
        at.use(model)
        end = await at.ask("Go")
        assert end.text == "nothing more"
        assert [event.code for event in at.of(SkillRefused)] == ["fork_recursion"]
        assert len(model.requests) == 2 * (len(others) + 1)


@pytest.mark.promise("G05")
async def test_children_are_bounded_in_depth_and_in_number_over_all_depths(home: Path) -> None:
    for number in range(12):
        body = f"I am number {number}."
        make_skill(home / ".claude/skills", f"n{number}", context="fork", body=body)
    everything = [("Skill", {"skill": f"n{number}"}) for number in range(12)]

    def reply(request: ModelRequest) -> Reply:
        has_results = request.messages[-1].text.startswith(("[", "ok"))
        return says("ok") if has_results else calls(*everything)

    async with open_agent(
        home, permissions__allow=["Skill"], agent__depth=2, agent__children=5
    ) as at:
        model = FunctionModel(reply)
        at.use(model)
        end = await at.ask("Go")
        assert end.text == "ok"
        codes = [event.code for event in at.of(SkillRefused)]
        assert {"fork_too_deep", "fork_too_many", "fork_recursion"} == set(codes)
        sessions = {event.session_id for event in at.of(TextDelta)}
        assert len(sessions) == 1 + 5  # not five for each of the five
        assert max(name.count(".") for name in sessions) == 2


@pytest.mark.parametrize("profile", ["explore", "Plan"])
async def test_a_child_has_no_tools_beyond_its_profile_listed_or_called(
    home: Path, profile: str
) -> None:
    make_skill(home / ".claude/skills", "look", context="fork", agent=profile)
    tool = StaticTool("Static")
    async with open_agent(
        home, tools=[tool], permissions__allow=["Skill", "Static", "Write"]
    ) as at:
        write = ("Write", {"file_path": "a", "content": "x"})
        await at.ask(
            "Go", invokes("look"), calls(write, ("FileWrite", {}), ("Static", {})), says("."),
            says("."),
        )  # fmt: skip
        listed = {spec.name for spec in at.model.requests[1].tools}
        assert "Read" in listed
        assert listed.isdisjoint({"Write", "Edit", "Bash", "Static", "Skill"})
        codes = [call["code"] for call in at.record()["calls"][:3]]
        assert codes == ["tool_not_found"] * 3
        assert list(at.project.iterdir()) == []
    assert tool.calls == []


async def test_a_child_that_says_nothing_is_told_as_such(home: Path) -> None:
    make_skill(home / ".claude/skills", "task", context="fork")
    async with open_agent(home, permissions__allow=["Skill"]) as at:
        await at.ask("Go", invokes("task"), says(""), says("."))
        assert (await at.results())[0].startswith("(no answer: stop)")


async def test_a_child_has_a_budget_of_its_own(home: Path) -> None:
    make_skill(home / ".claude/skills", "task", context="fork")
    async with open_agent(home, permissions__allow=["Skill"], agent__rounds=2) as at:
        at.script_replies(invokes("task"), calls(("Now", {})), says("child"), says("parent"))
        end = await at.ask("Go")
        assert end.text == "parent"
        assert [bool(request.tools) for request in at.model.requests] == [True, True, False, False]
