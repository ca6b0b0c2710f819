"""Tracing spans of a turn and of its subagents."""

from pathlib import Path

import anyio
import pytest

from apexbridge.agent import turn
from apexbridge.agent.turn import TurnRecord
from apexbridge.events import SkillActivated
from apexbridge.models.base import ModelDelta, Usage
from apexbridge.testing import FixedApprover, StaticTool, make_skill
from tests.agent.agent_fixture import calls, invokes, open_agent, says
from tests.agent.fake_hooks import FakeHooks

pytestmark = pytest.mark.anyio
SPENT = ModelDelta(usage=Usage(input_tokens=10, output_tokens=1))


async def test_spans_of_a_child_lie_on_the_line_of_its_parents_turn(home: Path) -> None:
    make_skill(home / ".claude/skills", "task", context="fork")
    async with open_agent(home, approver=FixedApprover("once")) as at:
        await at.ask(
            "Go",
            [*invokes("task"), SPENT],
            [*calls(("Calculate", {"expression": "1+2"})), SPENT],
            [*says("3"), SPENT],
            [*says("Done"), SPENT],
        )
        record = at.record()
    spans = record["spans"]
    assert record["skills"] == ["task"]
    assert [(span["kind"], span["depth"]) for span in spans if span["kind"] != "search"] == [
        ("model", 0),
        ("approval", 0),
        ("model", 1),
        ("tool", 1),
        ("model", 1),
        ("fork", 0),
        ("tool", 0),
        ("model", 0),
    ]
    fork = next(span for span in spans if span["kind"] == "fork")
    assert (fork["name"], fork["input_tokens"], fork["output_tokens"]) == ("task", 20, 2)
    for span in spans:
        if span["depth"]:
            assert fork["start"] <= span["start"]
            assert span["start"] + span["seconds"] <= fork["start"] + fork["seconds"]
    assert all(not key.startswith("_") for key in record)


async def test_a_hook_that_ran_is_a_span_and_one_that_was_not_meant_is_none(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = FakeHooks(monkeypatch)
    settings = {
        "PreToolUse": [{"matcher": "Static", "hooks": [{"type": "command", "command": "seen"}]}],
        "PostToolUse": [{"matcher": "Other", "hooks": [{"type": "command", "command": "not"}]}],
    }
    async with open_agent(
        home, tools=[StaticTool("Static")], hooks=settings, permissions__allow=["Static"]
    ) as at:
        await at.ask("Go", calls(("Static", {})), says("Done"))
        spans = at.record()["spans"]
    assert hooks.ran == ["seen"]
    assert [span["name"] for span in spans if span["kind"] == "hook"] == ["PreToolUse"]


async def test_a_model_that_fails_leaves_its_span_too(home: Path) -> None:
    async with open_agent(home) as at:
        at.script_replies()  # nothing to say
        with pytest.raises(Exception):  # noqa: B017, PT011  # whatever a model fails with
            await at.ask("Go")
        (span,) = (span for span in at.record()["spans"] if span["kind"] == "model")
    assert span["is_error"]


def test_of_too_many_spans_the_first_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn, "MAX_SPANS", 2)
    record = TurnRecord.new("s")
    child = record.child("s.1")
    for name in ("a", "b", "c"):
        with child.span("tool", name * 300):
            pass
    with record.span("fork", "f"):
        record.merge(child)
    assert [(span.kind, len(span.name)) for span in record.spans] == [("tool", 200), ("tool", 200)]
    assert record.spans_dropped == 2


async def test_a_span_that_is_broken_off_is_kept_as_an_error() -> None:
    record = TurnRecord.new("s")
    with anyio.move_on_after(0), record.span("tool", "t"):
        await anyio.sleep_forever()
    (span,) = record.spans
    assert span.is_error


def test_a_skill_is_named_once_however_often_it_was_invoked() -> None:
    record, heard = TurnRecord.new("s"), list[object]()
    hear = record.wrap_sink(heard.append)
    event = SkillActivated(session_id="s", skill="pdf", mode="inline", trigger="model")
    hear(event)
    hear(event)
    assert record.skills == ["pdf"]
    assert heard == [event, event]
