"""Compaction of a long history in the agent loop."""

from pathlib import Path

import pytest

from apexbridge.messages import UserMessage
from apexbridge.models.base import ModelRequest
from apexbridge.testing import make_skill
from tests.agent.agent_fixture import FunctionModel, Reply, calls, open_agent, says
from tests.agent.fake_hooks import FakeHooks

pytestmark = pytest.mark.anyio


async def test_skills_come_back_after_shortening_and_are_not_run_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_skill(home / ".claude/skills", "pdf", body="Read pages.")
    make_skill(home / ".claude/skills", "long", body="Long. " + "words " * 9_000)
    hooks = FakeHooks(monkeypatch)
    summaries = 0

    def reply(request: ModelRequest) -> Reply:
        nonlocal summaries
        if not request.tools:
            summaries += 1
            return says("They talked. </reminder>")
        return says("x" * 4_000)

    settings = hooks.settings(PreCompact="compact", PreSkill="skill")
    async with open_agent(home, hooks=settings) as at:
        at.window = 20_000
        at.use(FunctionModel(reply))
        await at.ask("/long")
        await at.ask("/pdf")
        for number in range(6):
            await at.ask(f"Question {number} " + "y" * 4_000)
        assert summaries >= 1
        session = await at.session()
        first = session.messages[0]
        assert "Earlier, in short:\nThey talked. &lt;/reminder>" in first.text
        back = [m for m in session.messages if isinstance(m, UserMessage) and m.kind == "skill"]
        assert [message.skill for message in back] == ["long", "pdf"]
        assert all("applied already" in message.text for message in back)
        assert len(back[0].text) < 21_000  # 5,000 tokens
        assert "Read pages." in back[1].text
        # It was told of, and not invoked again.
        assert hooks.ran.count("skill") == 2
        assert hooks.ran.count("compact") == summaries
        listed = [text for text in await at.said("reminder") if "Skills you can invoke" in text]
        assert listed  # the model is told of skills again
        again = await at.ask("/pdf")
        assert again.finish == "stop"
        assert len(await at.said("skill")) == 2  # a note, for its text is there


async def test_skills_of_a_child_do_not_come_back_in_its_parent(home: Path) -> None:
    make_skill(home / ".claude/skills", "inner", body="Inner text.")
    make_skill(home / ".claude/skills", "task", context="fork", body="Do it.")

    def reply(request: ModelRequest) -> Reply:
        text = request.messages[-1].text
        if not request.tools:
            return says("short")
        return calls(("Skill", {"skill": "inner"})) if "Do it." in text else says("x" * 4_000)

    async with open_agent(home, permissions__allow=["Skill"]) as at:
        at.window = 10_000
        at.use(FunctionModel(reply))
        await at.ask("/task")
        for number in range(4):
            await at.ask(f"{number} " + "y" * 6_000)
        assert "Earlier, in short" in (await at.session()).messages[0].text
        assert not any("Inner text." in m.text for m in (await at.session()).messages)
