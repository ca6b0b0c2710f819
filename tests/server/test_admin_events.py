"""Event stream (SSE) for operators, without the content of conversations."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import anyio
import httpx
import orjson
import pytest

from apexbridge.events import (
    ApprovalAsked,
    ApprovalSettled,
    CatalogChanged,
    Event,
    FilesCreated,
    FilesSkipped,
    HookWarned,
    IndexSynced,
    ListingCut,
    ReasoningDelta,
    SkillActivated,
    SkillRefused,
    SlashUsedByModel,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from apexbridge.server.admin.events import EventSubscriber, to_sse
from apexbridge.testing import make_skill
from tests.server.admin_server import TIMEOUT_SECONDS, AdminServer, admin_server, tool_request

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def _listening(at: AdminServer) -> AsyncGenerator[AsyncGenerator[dict[str, Any]]]:
    """The events of a stream, from the moment on in which it is open."""
    url = "/v1/events"
    async with at.http.stream("GET", url, headers=at.serving.headers) as stream:
        assert stream.status_code == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.aiter_lines()
        with anyio.fail_after(TIMEOUT_SECONDS):
            assert await anext(lines) == ": listening"

        async def events() -> AsyncGenerator[dict[str, Any]]:
            name = ""
            async for line in lines:
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                if line.startswith("data: "):
                    event_data = orjson.loads(line.removeprefix("data: "))
                    assert event_data["event"] == name
                    yield event_data

        async with aclosing(events()) as found:
            yield found


async def _until(events: AsyncGenerator[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    seen = list[dict[str, Any]]()
    with anyio.fail_after(TIMEOUT_SECONDS):
        async for event in events:
            seen.append(event)
            if event["event"] == name:
                break
    return seen


async def test_a_subscriber_receives_turns_tools_approvals_and_changes(home: Path) -> None:
    settings = {"server": {"approval_seconds": 0.05}}
    async with admin_server(home, **settings) as at, _listening(at) as events:
        place = at.runtime.config.project / "secret-name"
        text = tool_request("Write", file_path=str(place), content="secret-content")
        reply = await at.ask(text, session="s", approvals="wait")
        synced, *seen = await _until(events, "turn_finished")
        assert (synced["event"], synced["kept"]) == ("index_synced", 0)  # by the first search
        names = [event["event"] for event in seen]
        assert names == ["approval_asked", "approval_settled", "tool_finished", "turn_finished"]
        asked, settled, tool, end = seen
        assert (asked["tool"], asked["seconds"]) == ("Write", 0.05)
        assert (settled["approval_id"], settled["answer"]) == (asked["approval_id"], "expired")
        assert (tool["tool"], tool["is_error"]) == ("Write", True)
        assert (end["turn_id"], end["finish"]) == (reply["turn"], "stop")
        assert all(event["session_id"].endswith(":s") for event in seen)
        assert all(isinstance(event["at"], float) for event in seen)
        assert b"secret" not in orjson.dumps(seen)
        make_skill(home / ".claude/skills", "new")
        await at.runtime.refresh()
        (change,) = await _until(events, "catalog_changed")
        assert (change["added"], change["cause"]) == (["new"], "refresh")


async def test_a_subscriber_that_disconnects_is_removed(home: Path) -> None:
    async with admin_server(home) as at:
        sinks: list[Any] = at.runtime.events._sinks  # pyright: ignore[reportPrivateUsage]
        before = len(sinks)
        async with _listening(at):
            assert len(sinks) == before + 1
        with anyio.fail_after(TIMEOUT_SECONDS):
            while len(sinks) > before:
                await anyio.sleep(0.01)


async def test_only_admin_may_listen(home: Path) -> None:
    async with admin_server(home) as at:
        headers = at.key_for("chat", "exec", "skills:read", "skills:write")
        assert await at.refused("/v1/events", headers) == (403, "scope_missing")


async def test_a_withdrawn_approval_is_streamed(home: Path) -> None:
    async with admin_server(home) as at, _listening(at) as events:
        text = tool_request("Write", file_path=str(at.runtime.config.project / "x"), content="")

        async def ask() -> None:
            async with httpx.AsyncClient(base_url=at.serving.url) as http:
                await AdminServer(serving=at.serving, http=http).ask(text, approvals="wait")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await _until(events, "approval_asked")
            tasks.cancel_scope.cancel()
        settled = (await _until(events, "approval_settled"))[-1]
        assert settled["answer"] == "withdrawn"


async def test_beyond_the_queue_limit_the_oldest_events_are_dropped_and_counted() -> None:
    listener = EventSubscriber(max_queued=3)
    for number in range(5):
        listener.on_event(CatalogChanged(added=(f"s{number}",), cause="disk"))
    async with aclosing(listener.stream(keep_alive=0.01)) as pieces:
        with anyio.fail_after(TIMEOUT_SECONDS):
            assert await anext(pieces) == b": listening\n\n"
            assert b'"event":"dropped"' in (dropped := await anext(pieces))
            assert b'"count":2' in dropped
            for number in range(2, 5):
                assert f'"s{number}"'.encode() in await anext(pieces)
            assert await anext(pieces) == b": still here\n\n"
            listener.on_event(CatalogChanged(added=("s5",), cause="disk"))
            assert b"s5" in await anext(pieces)


async def test_content_of_people_models_and_tools_is_not_streamed() -> None:
    listener = EventSubscriber()
    for event in (TextDelta(session_id="s", text="x"), ReasoningDelta(session_id="s", text="x")):
        listener.on_event(event)
    async with aclosing(listener.stream(keep_alive=0)) as pieces:
        assert [await anext(pieces), await anext(pieces)] == [
            b": listening\n\n",
            b": still here\n\n",
        ]
    asked = ApprovalAsked(
        session_id="s",
        approval_id="a",
        tool="Bash",
        argument="secret",
        argument_chars=6,
        reason="secret",
        seconds=1,
    )
    end = TurnFinished(session_id="s", turn_id="t", finish="stop", text="secret")
    warned = HookWarned(session_id="s", code="c", text="secret")
    for event, name in ((asked, "approval_asked"), (end, "turn_finished"), (warned, "hook_warned")):
        line = to_sse(event)
        assert line.startswith(f"event: {name}\ndata: ".encode())
        assert b"secret" not in line


def test_event_names_on_the_wire_are_stable() -> None:
    """The names derive from class names: renaming a class must not rename what clients match."""
    on_the_wire: dict[Any, str] = {
        TextDelta: "text_delta",
        ReasoningDelta: "reasoning_delta",
        ToolStarted: "tool_started",
        ToolFinished: "tool_finished",
        SkillActivated: "skill_activated",
        SkillRefused: "skill_refused",
        SlashUsedByModel: "slash_used_by_model",
        HookWarned: "hook_warned",
        ApprovalAsked: "approval_asked",
        ApprovalSettled: "approval_settled",
        TurnFinished: "turn_finished",
        CatalogChanged: "catalog_changed",
        ListingCut: "listing_cut",
        IndexSynced: "index_synced",
        FilesCreated: "files_created",
        FilesSkipped: "files_skipped",
    }
    assert set(on_the_wire) == set(get_args(Event))
    for kind, name in on_the_wire.items():
        event = kind(**{field.name: "" for field in fields(kind)})
        head, data = to_sse(event).decode().strip().split("\n")
        assert head == f"event: {name}"
        assert orjson.loads(data.removeprefix("data: "))["event"] == name
