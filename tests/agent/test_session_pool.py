"""Conversations in memory come and go; on disk they stay, and so do records that were put aside."""

from pathlib import Path

import anyio
import pytest

from apexbridge.agent.session import Session
from apexbridge.agent.session_store import SessionStore
from apexbridge.agent.turn import TurnRecord
from apexbridge.catalog.path_activation import PathActivation
from apexbridge.hooks import HookCommand, HookRunner
from apexbridge.messages import UserMessage
from apexbridge.runtime.session_pool import SessionPool
from apexbridge.sandbox.base import ExecutionResult

pytestmark = pytest.mark.anyio


async def _runs_nothing(_: HookCommand) -> ExecutionResult:
    raise AssertionError


def _new(session_id: str) -> Session:
    place = Path("/project")
    return Session(
        id=session_id, cwd=place, waking=PathActivation(place), hooks=HookRunner(_runs_nothing)
    )


def _conversations(store: SessionStore, room: int) -> tuple[SessionPool, list[str]]:
    again = list[str]()
    made = SessionPool(store, _new, lambda session: again.append(session.id), room=room)
    return made, again


async def test_idle_conversations_are_let_go_of_and_read_again(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions.db")
    conversations, again = _conversations(store, room=2)
    for name in ("a", "b", "c", "d"):
        async with conversations.taken(name) as session:
            session.messages.append(UserMessage(text=f"I am {name}."))
            store.save(session, TurnRecord.new(name))
        assert len(conversations) <= 2
    assert again == []
    found = await conversations.get("a")
    assert [message.text for message in found.messages] == ["I am a."]
    assert again == ["a"]
    with pytest.raises(KeyError):
        conversations.at_work("c")
    store.close()


async def test_a_conversation_at_work_is_never_let_go_of(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions.db")
    conversations, _ = _conversations(store, room=1)
    async with conversations.taken("a") as first:
        async with conversations.taken("b"), conversations.taken("c"):
            assert conversations.at_work("a") is first
            assert len(conversations) == 3
        assert conversations.at_work("a") is first
    assert await conversations.get("a") is first
    store.close()


async def test_one_turn_at_a_time(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions.db")
    conversations, _ = _conversations(store, room=1)
    inside, most = 0, 0

    async def turn() -> None:
        nonlocal inside, most
        async with conversations.taken("a"):
            inside += 1
            most = max(most, inside)
            await anyio.lowlevel.checkpoint()
            inside -= 1

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(turn)
    assert most == 1
    store.close()


async def test_a_passing_conversation_is_found_while_it_passes(tmp_path: Path) -> None:
    conversations, _ = _conversations(SessionStore(tmp_path / "sessions.db"), room=1)
    with conversations.passing(_new("once")) as session:
        assert conversations.at_work("once") is session
    with pytest.raises(KeyError):
        conversations.at_work("once")


async def test_a_forgotten_conversation_begins_anew(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions.db")
    conversations, _ = _conversations(store, room=4)
    async with conversations.taken("a") as session:
        session.messages.append(UserMessage(text="x"))
        store.save(session, TurnRecord.new("a"))
    assert await conversations.forget("a")
    assert (await conversations.get("a")).messages == []
    assert not await conversations.forget("a")
    store.close()


async def test_a_record_put_aside_is_there_for_whoever_looks(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions.db")
    record = TurnRecord.new("key:once-1")
    record.finish = "stop"
    store.put(record)
    assert not (tmp_path / "sessions.db").exists()
    found = store.turn(record.id)
    assert found is not None
    assert (found["session_id"], found["finish"]) == ("key:once-1", "stop")
    assert store.latest() == ()
    store.close()


async def test_records_put_aside_are_written_at_the_end_at_the_latest(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions.db", kept_turns=3)
    records = [TurnRecord.new("k:1") for _ in range(5)]
    for record in records:
        record.refusals.append("half \ud800 a character")
        store.put(record)
    store.close()
    other = SessionStore(tmp_path / "sessions.db")
    assert [other.turn(record.id) is not None for record in records] == [
        False, False, True, True, True,
    ]  # fmt: skip
    other.close()
