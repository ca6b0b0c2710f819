"""Session pool: idle sessions are evicted and loaded again; queued turn records are flushed."""

from pathlib import Path

import anyio
import pytest

from apexbridge.agent.session import Session
from apexbridge.agent.session_pool import SessionFactory, SessionPool
from apexbridge.agent.session_store import SessionStore
from apexbridge.agent.turn import TurnRecord
from apexbridge.catalog.catalog import Catalog, CatalogRules
from apexbridge.catalog.trust import TrustStore
from apexbridge.hooks.commands import HookCommand
from apexbridge.messages import UserMessage
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.sources.base import SkillSource
from apexbridge.sources.directory_scanner import NestedDiscovery, NestedRoot
from apexbridge.testing import EventLog

pytestmark = pytest.mark.anyio


async def _run_no_hook(_: HookCommand) -> ExecutionResult:
    raise AssertionError


class _Factory(SessionFactory):
    """Creates sessions without hooks, and notes whose hooks were restored."""

    def __init__(self) -> None:
        rules = CatalogRules(
            precedence=(),
            trust=TrustStore(Path("/nowhere")),
            nesting=NestedDiscovery(Path("/project"), ()),
            nested=_no_source,
        )
        super().__init__(Path("/project"), Catalog((), rules, EventLog()), run_hook=_run_no_hook)
        self.restored = list[str]()

    def restore_hooks(self, session: Session) -> None:
        self.restored.append(session.id)


def _no_source(_: NestedRoot) -> SkillSource:
    raise AssertionError


def _pool(store: SessionStore, max_idle: int) -> tuple[SessionPool, list[str]]:
    factory = _Factory()
    return SessionPool(store, factory, max_idle=max_idle), factory.restored


async def test_idle_pool_are_let_go_of_and_read_again(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions.db")
    pool, restored = _pool(store, max_idle=2)
    for name in ("a", "b", "c", "d"):
        async with pool.acquire(name) as session:
            session.messages.append(UserMessage(text=f"I am {name}."))
            store.save(session, TurnRecord.new(name))
        assert len(pool) <= 2
    assert restored == []
    found = await pool.get("a")
    assert [message.text for message in found.messages] == ["I am a."]
    assert restored == ["a"]
    with pytest.raises(KeyError):
        pool.running("c")
    store.close()


async def test_a_conversation_at_work_is_never_let_go_of(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions.db")
    pool, _ = _pool(store, max_idle=1)
    async with pool.acquire("a") as first:
        async with pool.acquire("b"), pool.acquire("c"):
            assert pool.running("a") is first
            assert len(pool) == 3
        assert pool.running("a") is first
    assert await pool.get("a") is first
    store.close()


async def test_one_turn_at_a_time(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions.db")
    pool, _ = _pool(store, max_idle=1)
    inside, most = 0, 0

    async def turn() -> None:
        nonlocal inside, most
        async with pool.acquire("a"):
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
    pool, _ = _pool(SessionStore(tmp_path / "sessions.db"), max_idle=1)
    with pool.ephemeral(pool.create_ephemeral("once")) as session:
        assert pool.running("once") is session
    with pytest.raises(KeyError):
        pool.running("once")


async def test_a_forgotten_conversation_begins_anew(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions.db")
    pool, _ = _pool(store, max_idle=4)
    async with pool.acquire("a") as session:
        session.messages.append(UserMessage(text="x"))
        store.save(session, TurnRecord.new("a"))
    assert await pool.delete("a")
    assert (await pool.get("a")).messages == []
    assert not await pool.delete("a")
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
