"""Stored and temporary sessions, their owners, and approvals in a stream."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from apexbridge.events import ApprovalAsked, ApprovalSettled, Event
from apexbridge.testing import StaticTool
from tests.server.chat_server import ChatServer, chat_server, parse_chunks, text_reply, tool_reply

pytestmark = pytest.mark.anyio

_WEATHER = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def talk(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ChatServer]:
    async with chat_server(tmp_path_factory.mktemp("sessions")) as opened:
        opened.serving.state.runtime.chat_service.registry.add(StaticTool("Static"))
        yield opened


@pytest.fixture(autouse=True)
def _anew(talk: ChatServer) -> None:
    talk.forget()


@pytest.mark.parametrize(
    ("name", "headers", "body"),
    [
        ("by-header", {"X-ApexBridge-Session": "by-header"}, {}),
        ("by-word", {}, {"conversation": "by-word"}),
        ("by-object", {}, {"conversation": {"id": "by-object"}}),
        ("by-ours", {}, {"apexbridge": {"session": "by-ours"}}),
    ],
)
async def test_a_named_conversation_goes_on(
    talk: ChatServer, name: str, headers: dict[str, str], body: dict[str, Any]
) -> None:
    await talk.post("I am Ann.", text_reply("Hello, Ann."), headers=headers, **body)
    reply = await talk.post("Who am I?", text_reply("Ann."), headers=headers, **body)
    assert reply.json()["apexbridge"]["session"] == name
    assert talk.said("assistant") == ["Hello, Ann."]
    assert [text.splitlines()[-1] for text in talk.said("user")] == ["I am Ann.", "Who am I?"]


async def test_of_a_kept_conversation_only_what_is_new_is_read(talk: ChatServer) -> None:
    headers = {"X-ApexBridge-Session": "grown"}
    await talk.post("One", text_reply("First"), headers=headers)
    whole = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Not what was said"},
        {"role": "assistant", "content": "Nor this"},
        {"role": "user", "content": "Two"},
        {"role": "user", "content": "Three"},
    ]
    await talk.post("", text_reply("Second"), headers=headers, messages=whole)
    assert talk.said("assistant") == ["First"]
    assert "Not what was said" not in str(talk.asked())
    assert talk.said("user")[-1].split("\n\n")[-2:] == ["Two", "Three"]
    assert talk.said("system")[0].endswith("Be kind.")
    await talk.post("Four", text_reply("Third"), headers=headers)
    assert talk.said("system")[0].endswith("Be kind.")


async def test_what_ours_found_out_stays_while_the_clients_tools_are_at_work(
    talk: ChatServer,
) -> None:
    headers = {"X-ApexBridge-Session": "mixed"}
    mixed = tool_reply(("Calculate", '{"expression": "6*7"}'), ("weather", "{}"))
    first = await talk.post("Go", mixed, headers=headers, tools=[_WEATHER])
    (theirs,) = first.json()["choices"][0]["message"]["tool_calls"]
    back = [
        {"role": "assistant", "tool_calls": [theirs]},
        {"role": "tool", "tool_call_id": theirs["id"], "content": "sun"},
    ]
    await talk.post("", text_reply("Done"), headers=headers, tools=[_WEATHER], messages=back)
    assert talk.said("tool") == ["6*7 = 42", "sun"]
    assert str(talk.asked()).count("<reminder>") == str(talk.asked(0)).count("<reminder>")


async def test_a_conversation_with_nothing_new_is_refused(talk: ChatServer) -> None:
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    reply = await talk.post("", headers={"X-ApexBridge-Session": "still"}, messages=said)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "messages"


@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 129])
async def test_a_name_that_cannot_be_one_is_refused(talk: ChatServer, name: str) -> None:
    for more in ({"headers": {"X-ApexBridge-Session": name}}, {"conversation": name}):
        reply = await talk.post("Go", **more)  # pyright: ignore[reportArgumentType]
        assert reply.status_code == 400
        assert reply.json()["error"]["code"] == "request_invalid"


async def test_a_session_of_another_caller_cannot_be_continued(talk: ChatServer) -> None:
    headers = {"X-ApexBridge-Session": "secret"}
    await talk.post("The word is plum.", text_reply("Noted."), headers=headers)
    other = talk.serving.key_for("chat", "exec", "admin")
    await talk.post("What is the word?", text_reply("?"), headers=headers, key=other)
    assert "plum" not in str(talk.asked())


async def test_of_a_conversation_without_a_name_only_the_record_is_kept(talk: ChatServer) -> None:
    chatting = talk.serving.state.runtime.chat_service
    before = len(chatting.sessions)
    known = {kept.id for kept in chatting.store.latest(1_000)}
    reply = await talk.post("Go", text_reply("Gone"))
    turn = await anyio.to_thread.run_sync(chatting.store.turn, reply.json()["apexbridge"]["turn"])
    assert turn is not None
    assert turn["finish"] == "stop"
    owner, _, name = turn["session_id"].partition(":")
    assert owner in {key.id for key in talk.serving.state.keys.all()}
    assert name.startswith("once-")
    assert {kept.id for kept in chatting.store.latest(1_000)} == known
    assert len(chatting.sessions) == before


async def test_turns_of_one_conversation_wait_for_each_other(talk: ChatServer) -> None:
    headers = {"X-ApexBridge-Session": "both"}
    async with anyio.create_task_group() as tasks:
        for text in ("One", "Two", "Three"):
            tasks.start_soon(lambda text=text: talk.post(text, text_reply("Yes"), headers=headers))
    assert talk.said("assistant") == ["Yes", "Yes"]
    said = [text.splitlines()[-1] for text in talk.said("user")]
    assert sorted(said) == ["One", "Three", "Two"]


async def test_without_waiting_what_must_be_asked_is_refused(talk: ChatServer) -> None:
    await talk.post("Go", tool_reply(("Static", "{}")), text_reply("No"))
    assert talk.said("tool")[0].startswith("[nobody_allowed]")


@pytest.mark.parametrize(("answer", "starts"), [("once", "done"), ("no", "[person_denied]")])
async def test_a_waiting_turn_receives_the_answer(
    talk: ChatServer, answer: Any, starts: str
) -> None:
    approvals = talk.serving.state.approvals
    body: dict[str, Any] = {"stream": True, "apexbridge": {"approvals": "wait", "progress": True}}
    replies = list[httpx.Response]()

    async def ask() -> None:
        replies.append(
            await talk.post("Go", tool_reply(("Static", "{}")), text_reply("Ok"), **body)
        )

    asked, settled = anyio.Event(), list[Event]()

    def on_event(event: Event) -> None:
        if isinstance(event, ApprovalAsked):
            asked.set()
        if isinstance(event, ApprovalSettled):
            settled.append(event)

    with approvals.subscribe(on_event):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            with anyio.fail_after(30):
                await asked.wait()
            (question,) = approvals.pending()
            assert question.tool == "Static"
            assert approvals.answer(question.id, answer)
    assert len(settled) == 1
    assert talk.said("tool")[0].startswith(starts)
    names = [
        c["apexbridge"].get("event") for c in parse_chunks(replies[0].text) if "apexbridge" in c
    ]
    assert names[:2] == ["approval_asked", "approval_settled"]
