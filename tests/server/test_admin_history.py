"""Traces of turns and stored sessions over HTTP, visible to their owners."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from apexbridge.agent.turn import TurnRecord
from apexbridge.messages import (
    AssistantMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from apexbridge.server.admin.history import to_message_schemas
from apexbridge.testing import make_skill
from tests.server.admin_server import AdminServer, admin_server, tool_request

pytestmark = pytest.mark.anyio
PATH = "/v1/sessions/a%2Fb%3Fc"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def at(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[AdminServer]:
    home = tmp_path_factory.mktemp("home")
    make_skill(home / ".claude/skills", "greeting", description="Greets people kindly.")
    async with admin_server(home) as opened:
        yield opened


def _kinds(turn: dict[str, Any]) -> list[tuple[str, str]]:
    return [(span["kind"], span["name"]) for span in turn["spans"]]


async def test_a_turn_is_listed_and_shown_with_its_spans(at: AdminServer) -> None:
    reply = await at.ask(tool_request("Glob", pattern="*"), session="spans")
    (line,) = (await at.get("/v1/turns", limit=1))["data"]
    assert line["id"] == reply["turn"]
    assert line["session"].endswith(":spans")
    assert (line["finish"], line["rounds"], line["tools"]) == ("stop", 2, ["Glob"])
    assert (line["input_tokens"], line["output_tokens"]) == (20, 10)
    turn = await at.get(f"/v1/turns/{line['id']}")
    assert {key: turn[key] for key in line} == line
    assert _kinds(turn) == [
        ("search", "skills"),
        ("model", "m"),
        ("tool", "Glob"),
        ("model", "m"),
    ]
    search, first, tool, second = turn["spans"]
    assert search["start"] <= first["start"] <= tool["start"] <= second["start"]
    assert first["start"] + first["seconds"] <= tool["start"]
    assert second["start"] + second["seconds"] <= turn["seconds"] + 0.1
    assert [(span["input_tokens"], span["output_tokens"]) for span in turn["spans"]] == [
        (0, 0),
        (10, 5),
        (0, 0),
        (10, 5),
    ]
    assert [call["tool"] for call in turn["calls"]] == ["Glob"]
    assert "greeting" in turn["listed"]
    assert all(key in turn for key in ("candidates", "shortened", "dropped", "refusals"))
    assert await at.get(f"/v1/explain/{line['id']}") == turn
    assert await at.get("/v1/explain/last") == turn


async def test_a_trace_has_invoked_skills_and_failed_calls(at: AdminServer) -> None:
    reply = await at.ask(tool_request("Skill", skill="greeting"), session="skill")
    turn = await at.get(f"/v1/turns/{reply['turn']}")
    assert (turn["skills"], turn["tools"]) == (["greeting"], ["Skill"])
    reply = await at.ask(tool_request("Nothing"), session="skill")
    turn = await at.get(f"/v1/turns/{reply['turn']}")
    (span,) = (span for span in turn["spans"] if span["kind"] == "tool")
    assert span["is_error"]
    assert (turn["skills"], turn["calls"][0]["code"]) == ([], "tool_not_found")


async def test_an_approval_is_a_separate_span(at: AdminServer) -> None:
    text = tool_request("Write", file_path=str(at.runtime.config.project / "x"), content="")
    at.serving.state.approvals._timeout, kept = 0.02, at.serving.state.approvals._timeout  # pyright: ignore[reportPrivateUsage]
    try:
        reply = await at.ask(text, session="asked", approvals="wait")
    finally:
        at.serving.state.approvals._timeout = kept  # pyright: ignore[reportPrivateUsage]
    turn = await at.get(f"/v1/turns/{reply['turn']}")
    (asked,) = (span for span in turn["spans"] if span["kind"] == "approval")
    (tool,) = (span for span in turn["spans"] if span["kind"] == "tool")
    assert (asked["name"], asked["is_error"]) == ("Write", True)
    assert tool["start"] <= asked["start"]
    assert asked["seconds"] <= tool["seconds"]


async def test_turns_are_turned_page_by_page(at: AdminServer) -> None:
    ids = [(await at.ask("Hi", session="pages"))["turn"] for _ in range(5)]
    session = (await at.get("/v1/turns", limit=1))["data"][0]["session"]
    seen, before, page = list[str](), "", dict[str, Any]()
    for _ in range(3):
        page = await at.get("/v1/turns", limit=2, before=before, session=session)
        seen += [line["id"] for line in page["data"]]
        before = seen[-1]
    assert seen == ids[::-1]
    assert not page["has_more"]
    assert await at.refused("/v1/turns", before="nothing") == (404, "record_unknown")
    assert await at.refused("/v1/turns", limit=0) == (400, "request_invalid")
    assert await at.refused("/v1/turns", nonsense=1) == (400, "request_invalid")
    assert await at.refused("/v1/turns/nothing") == (404, "record_unknown")


async def test_a_caller_sees_its_own_turns_and_sessions_and_no_others(at: AdminServer) -> None:
    mine, theirs = at.key_for("chat"), at.key_for("chat")
    assert await at.refused("/v1/turns/last", mine) == (404, "record_unknown")
    first = await at.ask("Mine", session="same", headers=mine)
    second = await at.ask("Theirs", session="same", headers=theirs)
    once = await at.ask("Nobody keeps this", headers=mine)
    found = (await at.get("/v1/turns", mine))["data"]
    assert [line["id"] for line in found] == [once["turn"], first["turn"]]
    assert (await at.get("/v1/turns/last", theirs))["id"] == second["turn"]
    for path in (f"/v1/turns/{second['turn']}", f"/v1/explain/{second['turn']}"):
        assert await at.refused(path, mine) == (404, "record_unknown")
    other = (await at.get("/v1/turns", theirs))["data"][0]["session"]
    assert (await at.get("/v1/turns", mine, session=other))["data"] == []
    assert await at.refused("/v1/turns", mine, before=second["turn"]) == (404, "record_unknown")
    assert [one["title"] for one in (await at.get("/v1/sessions", mine))["data"]] == ["Mine"]
    assert (await at.get("/v1/sessions/same", mine))["title"] == "Mine"
    assert await at.refused(f"/v1/sessions/{other}", mine) == (404, "record_unknown")
    for_all = {line["id"] for line in (await at.get("/v1/turns", at.key_for("admin")))["data"]}
    assert {first["turn"], second["turn"], once["turn"]} <= for_all
    assert await at.refused("/v1/turns", at.key_for("exec")) == (403, "scope_missing")


async def test_a_session_is_shown_with_its_messages_and_can_be_forgotten(at: AdminServer) -> None:
    mine = at.key_for("chat")
    await at.ask(tool_request("Glob", pattern="*"), session="a/b?c", headers=mine)
    shown = await at.get(PATH, mine)
    roles = [(m["role"], m["kind"]) for m in shown["messages"] if m["kind"] != "reminder"]
    assert roles == [
        ("user", "prompt"),
        ("assistant", None),
        ("tool", None),
        ("assistant", None),
    ]
    call = next(m for m in shown["messages"] if m["tool_calls"])["tool_calls"][0]
    result = next(m for m in shown["messages"] if m["role"] == "tool")
    assert (call["name"], call["id"]) == ("Glob", result["call_id"])
    assert (shown["turns"], shown["input_tokens"], shown["output_tokens"]) == (1, 20, 10)
    gone = await at.http.delete(PATH, headers=mine)
    assert (gone.status_code, gone.json()) == (200, {"id": shown["id"], "deleted": True})
    assert (await at.http.delete(PATH, headers=mine)).status_code == 404
    assert (await at.get("/v1/turns", mine))["data"] == []
    await at.ask("Again", session="a/b?c", headers=mine)
    assert (await at.get(PATH, mine))["turns"] == 1


async def test_a_record_of_an_earlier_version_is_shown_all_the_same(at: AdminServer) -> None:
    reply = await at.ask("Hi", session="old")
    store = at.runtime.chat_service.store
    with store._transaction() as connection:  # pyright: ignore[reportPrivateUsage]
        for name in ("spans", "skills", "spans_dropped"):
            connection.execute(
                "UPDATE kept_turns SET record = json_remove(record, ?) WHERE id = ?",
                (f"$.{name}", reply["turn"]),
            )
    turn = await at.get(f"/v1/turns/{reply['turn']}")
    assert (turn["spans"], turn["skills"], turn["spans_dropped"]) == ([], [], 0)


async def test_half_a_character_in_a_record_does_no_harm(at: AdminServer) -> None:
    record = TurnRecord.new("x:y")
    record.refusals.append("\ud800")
    at.runtime.chat_service.store.put(record)
    assert (await at.get(f"/v1/turns/{record.id}"))["refusals"] == ["\ud800"]


def test_every_kind_of_message_has_a_plain_shape() -> None:
    call = ToolCall(id="1", name="Glob", arguments="{}")
    shapes = to_message_schemas(
        [
            SystemMessage(text="a"),
            UserMessage(text="b", kind="skill", skill="pdf"),
            AssistantMessage(text="c", tool_calls=(call,)),
            ToolMessage(call_id="1", text="d", is_error=True),
        ]
    )
    assert [(shape.role, shape.text) for shape in shapes] == [
        ("system", "a"),
        ("user", "b"),
        ("assistant", "c"),
        ("tool", "d"),
    ]
    assert (shapes[1].skill, shapes[2].tool_calls[0].name, shapes[3].is_error) == (
        "pdf",
        "Glob",
        True,
    )
