"""Hooks for every trigger of a skill, and what they may change."""

from pathlib import Path
from typing import Any

import pytest

from apexbridge.errors import PermissionDeniedError
from apexbridge.events import SkillActivated, SkillRefused
from apexbridge.permissions.hook_protocol import HookEvent
from apexbridge.testing import FixedApprover, StaticTool, make_skill
from tests.agent.agent_fixture import AgentFixture, calls, invokes, open_agent, says
from tests.agent.fake_hooks import FakeHooks

pytestmark = pytest.mark.anyio

_OWN = {"PreToolUse": [{"matcher": "Now", "command": ["own"]}]}


async def _by_user(at: AgentFixture) -> None:
    await at.ask("/worker x", calls(("Now", {})), says("."))


async def _by_model(at: AgentFixture) -> None:
    await at.ask("Go", invokes("worker", "x"), calls(("Now", {})), says("."))


async def _nested(at: AgentFixture) -> None:
    await at.ask("/outer", invokes("worker", "x"), calls(("Now", {})), says("."))


async def _in_a_child(at: AgentFixture) -> None:
    replies = (invokes("worker", "x"), calls(("Now", {})), says("."))
    await at.ask("/child", *replies)


async def _by_library(at: AgentFixture) -> None:
    await at.runtime.invoke_skill("worker", "x", session="s")
    await at.ask("Go", calls(("Now", {})), says("."))


_WAYS = {
    "user": _by_user,
    "model": _by_model,
    "nested": _nested,
    "fork": _in_a_child,
    "api": _by_library,
}


@pytest.mark.parametrize("way", list(_WAYS))
async def test_every_way_in_runs_the_same_hooks(
    home: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    skills = home / ".claude/skills"
    make_skill(skills, "worker", hooks=_OWN)
    make_skill(skills, "outer")
    make_skill(skills, "child", context="fork")
    hooks = FakeHooks(monkeypatch)
    settings = {
        "PreSkill": [{"matcher": "worker", "command": ["pre"]}],
        "PostSkill": [{"matcher": "worker", "command": ["post"]}],
        "PostToolUse": [{"matcher": "Now", "command": ["used"]}],
    }
    async with open_agent(home, hooks=settings, permissions__allow=["Skill"]) as at:
        await _WAYS[way](at)
        told = [p for p in hooks.payloads if p["hook_event_name"] == "PreSkill"]
        assert [(p["skill"], p["arguments"], p["trigger"]) for p in told] == [("worker", "x", way)]
    assert hooks.ran == ["pre", "post", "own", "used"]


@pytest.mark.parametrize("mode", ["inline", "fork"])
async def test_hooks_of_a_skill_stay_with_the_session_that_has_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    make_skill(home / ".claude/skills", "worker", hooks=_OWN, context=mode)
    hooks = FakeHooks(monkeypatch)
    async with open_agent(home) as at:
        now = calls(("Now", {}))
        await at.ask("/worker", now, says("."))
        assert hooks.ran == ["own"]  # a forked skill's in its child
        await at.ask("Later", now, says("."))
        assert hooks.ran == ["own"] * (2 if mode == "inline" else 1)
        await at.ask("/worker", says("."))  # the second time a note, and not a second hook
        await at.ask("Later", now, says("."))
        assert hooks.ran == ["own"] * (3 if mode == "inline" else 1)


async def test_a_session_that_is_taken_up_again_has_the_hooks_of_its_skills(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_skill(home / ".claude/skills", "worker", hooks=_OWN, body="Follow me.")
    hooks = FakeHooks(monkeypatch)
    async with open_agent(home) as at:
        await at.ask("/worker", says("."))
        spent = (await at.session()).turns
    async with open_agent(home) as at:
        await at.ask("Later", calls(("Now", {})), says("."))
        assert hooks.ran == ["own"]
        session = await at.session()
        assert session.turns == spent + 1
        assert "Follow me." in session.applied["worker"].text
        again = await at.ask("/worker", says("."))
        assert again.finish == "stop"
        assert len(await at.said("skill")) == 1  # its text stands there already


async def test_what_a_hook_changes_is_judged_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = '{"hookSpecificOutput": {"updatedInput": {"file_path": "secret", "content": "x"}}}'
    hooks = FakeHooks(monkeypatch, {"change": changed})
    rules: dict[str, Any] = {
        "permissions__allow": ["Write"],
        "permissions__deny": ["Write(secret)"],
    }
    async with open_agent(home, hooks=hooks.settings(PreToolUse="change"), **rules) as at:
        await at.ask("Go", calls(("Write", {"file_path": "fine", "content": "x"})), says("."))
        assert (await at.results())[0].startswith("[rule_denied]")
        assert list(at.project.iterdir()) == []


@pytest.mark.parametrize("tool", ["Static", "Skill"])
async def test_a_hook_that_asks_has_a_person_asked_where_rules_allow(
    home: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    make_skill(home / ".claude/skills", "pdf")
    hooks = FakeHooks(monkeypatch, {"ask": '{"decision": "ask", "reason": "Sure?"}'})
    approver = FixedApprover("no")
    async with open_agent(
        home,
        tools=[StaticTool("Static")],
        approver=approver,
        hooks=hooks.settings(PreToolUse="ask"),
        permissions__allow=["Static", "Skill"],
    ) as at:
        await at.ask("Go", calls((tool, {"skill": "pdf"})), says("."))
        assert (await at.results())[0].startswith("[person_denied]")
        assert [request.tool for request in approver.asked] == [tool]


@pytest.mark.parametrize("way", ["user", "model", "api"])
async def test_a_hook_may_refuse_a_skill_on_every_way_in(
    home: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    make_skill(home / ".claude/skills", "worker")
    hooks = FakeHooks(monkeypatch, {"no": '{"decision": "block", "reason": "Not today."}'})
    async with open_agent(home, hooks=hooks.settings(PreSkill="no")) as at:
        if way == "model":
            await _by_model(at)
            assert (await at.results())[0].startswith("[hook_blocked]")
            (refused,) = at.of(SkillRefused)
            assert refused.code == "hook_blocked"
        else:
            with pytest.raises(PermissionDeniedError, match="Not today"):
                await _WAYS[way](at)
        assert at.of(SkillActivated) == []
        assert (await at.session()).applied == {}


async def test_words_of_a_hook_before_a_skill_stand_with_its_text(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_skill(home / ".claude/skills", "worker", body="Work.")
    hooks = FakeHooks(monkeypatch, {"more": "Mind the gap.", "after": '{"reason": "Well done."}'})
    settings = hooks.settings(PreSkill="more", PostSkill="after")
    async with open_agent(home, hooks=settings) as at:
        await at.ask("Go", invokes("worker"), says("."))
        assert "Work.\n\nMind the gap.\n</skill>" in (await at.said("skill"))[0]


async def test_a_hook_before_a_skill_may_have_a_person_asked(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_skill(home / ".claude/skills", "worker")
    hooks = FakeHooks(monkeypatch, {"ask": '{"decision": "ask"}'})
    approver = FixedApprover("no")
    async with open_agent(home, hooks=hooks.settings(PreSkill="ask"), approver=approver) as at:
        with pytest.raises(PermissionDeniedError):
            await at.ask("/worker", says("."))
    assert [request.argument for request in approver.asked] == ["worker"]


async def test_a_hook_that_ends_the_turn_of_a_child_ends_its_parents_too(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_skill(home / ".claude/skills", "task", context="fork")
    answer = '{"continue": false, "stopReason": "All stop."}'
    FakeHooks(monkeypatch, {"end": answer})
    settings = {"PreToolUse": [{"matcher": "Now", "command": ["end"]}]}
    async with open_agent(home, hooks=settings, permissions__allow=["Skill"]) as at:
        end = await at.ask("Go", invokes("task"), calls(("Now", {})), says("never"))
        assert (end.finish, end.text) == ("blocked", "All stop.")
        assert len(at.model.requests) == 2
        session = await at.session()
        assert session.hooks.count(HookEvent.PRE_TOOL_USE) == 1
