"""Human-in-the-loop approvals: a turn waits for an answer until a deadline."""

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from apexbridge.events import ApprovalAsked, ApprovalSettled, Event
from apexbridge.permissions.engine import ApproverReply
from apexbridge.permissions.rules import Decision, PermissionRequest, Rule, ToolPattern
from apexbridge.server.approvals import (
    MAX_ARGUMENT_CHARS,
    MAX_EVENT_CHARS,
    ApprovalQueue,
    PendingApproval,
)
from tests.server.admin_server import TIMEOUT_SECONDS, AdminServer, admin_server, tool_request

pytestmark = pytest.mark.anyio
ASKS = {"ask": ["Bash(echo *)"]}
UNSETTLED = Decision(effect="ask", suggestions=(Rule(effect="allow", pattern=ToolPattern("X")),))


class _Turn:
    """A turn that goes on in the background."""

    def __init__(self) -> None:
        self.reply: dict[str, Any] = {}
        self.ended = anyio.Event()

    async def run(self, at: AdminServer, text: str, session: str) -> None:
        self.reply = await at.ask(text, session=session, approvals="wait")
        self.ended.set()

    async def end(self) -> dict[str, Any]:
        with anyio.fail_after(TIMEOUT_SECONDS):
            await self.ended.wait()
        return self.reply


async def _pending(at: AdminServer, count: int = 1) -> list[dict[str, Any]]:
    with anyio.fail_after(TIMEOUT_SECONDS):
        while True:
            found = (await at.get("/v1/approvals"))["data"]
            if len(found) == count:
                return found
            await anyio.sleep(0.01)


async def _answer(at: AdminServer, approval_id: str, answer: str) -> tuple[int, Any]:
    found = await at.http.post(
        f"/v1/approvals/{approval_id}", json={"answer": answer}, headers=at.serving.headers
    )
    return found.status_code, found.json()


@pytest.mark.needs("bubblewrap")
async def test_a_command_that_a_rule_asks_about_runs_after_a_yes(home: Path) -> None:
    async with admin_server(home, permissions=ASKS) as at, anyio.create_task_group() as tasks:
        turn = _Turn()
        tasks.start_soon(turn.run, at, tool_request("Bash", command="echo hi"), "s")
        (question,) = await _pending(at)
        assert (question["tool"], question["argument"]) == ("Bash", "echo hi")
        assert question["session"].endswith(":s")
        assert question["reason"] == "ask: Bash(echo *)"
        assert question["choices"] == ["once", "no"]
        assert question["deadline"] == question["asked"] + 120
        code, reply_json = await _answer(at, question["id"], "once")
        assert (code, reply_json) == (200, {"id": question["id"], "answer": "once"})
        assert "hi" in (await turn.end())["text"]
        assert await _pending(at, 0) == []
        code, reply_json = await _answer(at, question["id"], "no")
        assert (code, reply_json["error"]["code"]) == (409, "approval_settled")
        (record,) = at.runtime.audit.latest(1)
        assert (record.action, record.facts["answer"], record.facts["argument"]) == (
            "approval",
            "once",
            "echo hi",
        )


async def test_a_denial_reaches_the_model_and_nothing_is_written(home: Path) -> None:
    async with admin_server(home) as at, anyio.create_task_group() as tasks:
        turn = _Turn()
        place = at.runtime.config.project / "a.txt"
        tasks.start_soon(
            turn.run, at, tool_request("Write", file_path=str(place), content="x"), "s"
        )
        (question,) = await _pending(at)
        await _answer(at, question["id"], "no")
        assert "person_denied" in (await turn.end())["text"]
        assert not place.exists()


async def test_an_always_is_asked_no_second_time(home: Path) -> None:
    async with admin_server(home) as at, anyio.create_task_group() as tasks:
        place = at.runtime.config.project / "a.txt"
        text = tool_request("Write", file_path=str(place), content="x")
        first, second = _Turn(), _Turn()
        tasks.start_soon(first.run, at, text, "s")
        (question,) = await _pending(at)
        assert question["choices"] == ["once", "always", "no"]
        assert question["rule"].startswith("Write(")
        await _answer(at, question["id"], "always")
        await first.end()
        assert place.read_text("utf-8") == "x"
        place.unlink()
        tasks.start_soon(second.run, at, text, "other")
        await second.end()
        assert place.read_text("utf-8") == "x"


async def test_an_approval_without_an_answer_times_out_as_denied(home: Path) -> None:
    async with admin_server(home, server={"approval_seconds": 0.05}) as at:
        place = at.runtime.config.project / "a.txt"
        reply = await at.ask(
            tool_request("Write", file_path=str(place), content="x"), session="s", approvals="wait"
        )
        assert "approval_expired" in reply["text"]
        assert not place.exists()
        assert await _pending(at, 0) == []


async def test_questions_of_two_sessions_do_not_wait_for_each_other(home: Path) -> None:
    async with admin_server(home) as at, anyio.create_task_group() as tasks:
        turns = {name: _Turn() for name in ("one", "two")}
        for name, turn in turns.items():
            place = at.runtime.config.project / name
            text = tool_request("Write", file_path=str(place), content=name)
            tasks.start_soon(turn.run, at, text, name)
        found = await _pending(at, 2)
        by_session = {question["session"].partition(":")[2]: question for question in found}
        await _answer(at, by_session["two"]["id"], "once")
        await turns["two"].end()
        assert (at.runtime.config.project / "two").exists()
        assert [q["id"] for q in await _pending(at)] == [by_session["one"]["id"]]
        await _answer(at, by_session["one"]["id"], "no")
        await turns["one"].end()
        assert not (at.runtime.config.project / "one").exists()


async def test_a_disconnecting_client_withdraws_its_approval(home: Path) -> None:
    async with admin_server(home) as at:
        place = at.runtime.config.project / "a.txt"
        text, turn = tool_request("Write", file_path=str(place), content="x"), _Turn()
        question = dict[str, Any]()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn.run, at, text, "s")
            (question,) = await _pending(at)
            tasks.cancel_scope.cancel()
        assert await _pending(at, 0) == []
        code, reply_json = await _answer(at, question["id"], "once")
        assert (code, reply_json["error"]["code"]) == (409, "approval_settled")
        code, reply_json = await _answer(at, "approval_0", "once")
        assert (code, reply_json["error"]["code"]) == (404, "record_unknown")
        assert not place.exists()


async def test_invalid_answers_and_callers_without_scope_are_refused(home: Path) -> None:
    async with admin_server(home) as at:
        code, reply_json = await _answer(at, "x", "maybe")
        assert (code, reply_json["error"]["param"]) == (400, "answer")
        headers = at.key_for("chat", "exec", "skills:read", "skills:write")
        assert await at.refused("/v1/approvals", headers) == (403, "scope_missing")
        assert await at.refused("/v1/approvals", {"x": "y"}) == (401, "key_missing")


async def test_subscribers_receive_a_withdrawn_approval() -> None:
    approvals, events, mine = ApprovalQueue(60), list[Event](), list[Event]()
    asker = approvals.approver_for("k:s", mine.append)
    request = PermissionRequest(tool="Bash", argument="x" * (MAX_ARGUMENT_CHARS + 1))
    found = list[PendingApproval]()
    with approvals.subscribe(events.append):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(asker, request, UNSETTLED))
            await anyio.wait_all_tasks_blocked()
            found += approvals.pending()
            tasks.cancel_scope.cancel()
    (pending,) = found
    assert (len(pending.argument), pending.argument_chars) == (
        MAX_ARGUMENT_CHARS,
        MAX_ARGUMENT_CHARS + 1,
    )
    assert approvals.pending() == ()
    assert not approvals.answer(pending.id, "once")
    assert approvals.is_settled(pending.id)
    asked, settled = events
    assert isinstance(asked, ApprovalAsked)
    assert (len(asked.argument), asked.seconds) == (MAX_EVENT_CHARS, 60)
    assert settled == ApprovalSettled(session_id="k:s", approval_id=pending.id, answer="withdrawn")
    assert mine == events


@pytest.mark.parametrize(
    ("request_", "decision", "rule"),
    [
        (PermissionRequest(tool="Skill", argument="pdf", sha256="ab"), UNSETTLED, "Skill(pdf)"),
        (PermissionRequest(tool="Skill", argument="pdf"), UNSETTLED, ""),
        (PermissionRequest(tool="X", argument="y"), UNSETTLED, "X"),
        (PermissionRequest(tool="X", argument="y"), Decision(effect="ask"), ""),
    ],
    ids=["skill", "unknown state", "suggested", "nothing to keep"],
)
async def test_always_is_a_choice_only_where_it_can_be_kept(
    request_: PermissionRequest, decision: Decision, rule: str
) -> None:
    approvals, answers = ApprovalQueue(60), list[ApproverReply]()
    asker = approvals.approver_for("s", lambda _: None)

    async def ask() -> None:
        answers.append(await asker(request_, decision))

    found = list[PendingApproval]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        found += approvals.pending()
        approvals.answer(found[0].id, "once")
    (pending,) = found
    assert (pending.rule, "always" in pending.choices) == (rule, bool(rule))
    assert answers == ["once"]


async def test_a_failing_subscriber_does_not_block_the_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    approvals, events, answers = ApprovalQueue(60), list[Event](), list[ApproverReply]()

    def fail(event: Event) -> None:
        raise RuntimeError(type(event).__name__)

    asker = approvals.approver_for("s", events.append)

    async def ask() -> None:
        answers.append(await asker(PermissionRequest(tool="X"), UNSETTLED))

    with approvals.subscribe(fail):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            approvals.answer(approvals.pending()[0].id, "always")
    assert answers == ["always"]
    assert [type(event) for event in events] == [ApprovalAsked, ApprovalSettled]
    assert caplog.text.count("An event subscriber failed") == 2
