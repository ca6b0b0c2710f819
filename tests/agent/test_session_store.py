"""Session store: sessions and turn records survive a restart."""

import sqlite3
import threading
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from apexbridge.agent.session import Session
from apexbridge.agent.session_store import SessionStore
from apexbridge.agent.turn import CallRecord, Candidate, TurnRecord
from apexbridge.errors import StorageError
from apexbridge.messages import (
    AssistantMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from apexbridge.models.base import Usage
from tests.agent.session_factory import new_session


@pytest.fixture
def store(tmp_path: Path) -> Generator[SessionStore]:
    store = SessionStore(tmp_path / "data/sessions.db")
    yield store
    store.close()


def _session(session_id: str = "s") -> Session:
    session = new_session(session_id)
    session.system, session.turns = "Be kind.", 2
    session.messages += [
        SystemMessage(text="x"),
        UserMessage(text="  列出\n文件 " + "长" * 100),
        UserMessage(text="y", kind="skill", skill="pdf"),
        AssistantMessage(text="z", tool_calls=(ToolCall(id="1", name="Glob", arguments="{"),)),
        ToolMessage(call_id="1", text="no JSON", is_error=True),
    ]
    session.announced = {"b", "a"}
    session.mark_applied("pdf", "y", "digest")
    session.readable.append(Path("/skills/pdf"))
    session.usage = Usage(input_tokens=3, output_tokens=4)
    return session


def _record(turn_id: str = "abc123", session_id: str = "s") -> TurnRecord:
    record = TurnRecord(id=turn_id, session_id=session_id, confidence=0.7)
    record.candidates.append(Candidate(name="pdf", score=0.9, fate="offered"))
    record.calls.append(
        CallRecord(tool="Glob", seconds=0.1, argument_chars=1, result_chars=7, code="x")
    )
    return record


def test_a_session_comes_back_as_it_was_left(store: SessionStore) -> None:
    session = _session()
    store.save(session, _record())
    back = new_session("s")
    assert store.load(back)
    assert back.messages == session.messages
    assert (back.system, back.turns) == ("Be kind.", 2)
    assert (back.announced, back.applied, back.readable) == (
        session.announced,
        session.applied,
        session.readable,
    )
    assert back.usage == session.usage
    assert not store.load(new_session("other"))


def test_a_shorter_conversation_replaces_the_longer_one(store: SessionStore) -> None:
    session = _session()
    store.save(session, _record())
    del session.messages[2:]
    store.save(session, _record("def"))
    back = new_session("s")
    assert store.load(back)
    assert len(back.messages) == 2


def _tamper(path: Path, text: str) -> None:
    """Change the first message behind the store's back, to see whether it is written again."""
    with sqlite3.connect(path) as connection:
        data = f'{{"text": "{text}"}}'
        connection.execute("UPDATE messages SET data = ? WHERE number = 0", (data,))
    connection.close()


def _texts(store: SessionStore, session_id: str = "s") -> list[str]:
    back = new_session(session_id)
    assert store.load(back)
    return [message.text for message in back.messages]


def test_of_a_conversation_that_grew_only_the_new_is_written(
    store: SessionStore, tmp_path: Path
) -> None:
    session = _session()
    store.save(session, _record())
    _tamper(tmp_path / "data/sessions.db", "old")
    session.messages.append(UserMessage(text="new"))
    store.save(session, _record("def"))
    texts = _texts(store)
    assert (texts[0], texts[-1], len(texts)) == ("old", "new", 6)


def test_a_conversation_that_was_taken_up_grows_too(store: SessionStore, tmp_path: Path) -> None:
    store.save(_session(), _record())
    store.close()
    again = SessionStore(tmp_path / "data/sessions.db")
    back = new_session("s")
    assert again.load(back)
    _tamper(tmp_path / "data/sessions.db", "old")
    back.messages.append(UserMessage(text="new"))
    again.save(back, _record("def"))
    texts = _texts(again)
    again.close()
    assert (texts[0], texts[-1], len(texts)) == ("old", "new", 6)


def test_a_conversation_that_was_shortened_is_written_anew(store: SessionStore) -> None:
    session = _session()
    store.save(session, _record())
    session.messages[:3] = [UserMessage(text="summary", kind="reminder")]
    session.messages += [UserMessage(text=str(number)) for number in range(5)]
    store.save(session, _record("def"))
    assert _texts(store) == [message.text for message in session.messages]


def test_what_another_process_wrote_meanwhile_is_written_over_whole(
    store: SessionStore, tmp_path: Path
) -> None:
    session = _session()
    store.save(session, _record())
    other, theirs = SessionStore(tmp_path / "data/sessions.db"), new_session("s")
    assert other.load(theirs)
    theirs.messages += [UserMessage(text="theirs"), UserMessage(text="more")]
    other.save(theirs, _record("def"))
    session.messages.append(UserMessage(text="ours"))
    store.save(session, _record("ghi"))
    assert _texts(other) == [message.text for message in session.messages]
    assert other.delete("s")
    other.close()
    store.save(session, _record("jkl"))
    assert _texts(store) == [message.text for message in session.messages]


def test_a_save_that_failed_is_made_up_for_by_the_next(store: SessionStore, tmp_path: Path) -> None:
    session = _session()
    store.save(session, _record())
    before = _texts(store)
    connection = sqlite3.connect(tmp_path / "data/sessions.db", isolation_level=None)
    full = "CREATE TRIGGER full BEFORE INSERT ON kept_turns BEGIN SELECT RAISE(ABORT, 'full'); END"
    connection.execute(full)
    session.messages.append(UserMessage(text="late"))
    with pytest.raises(StorageError, match="full"):
        store.save(session, _record("def"))
    with closing(SessionStore(tmp_path / "data/sessions.db")) as other:
        assert _texts(other) == before
    connection.execute("DROP TRIGGER full")
    connection.close()
    store.save(session, _record("def"))
    assert _texts(store) == [*before, "late"]


def test_only_the_latest_turns_are_kept(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "sessions.db", kept_turns=3)
    for number in range(6):
        store.save(_session(), _record(f"turn-{number}"))
    assert store.turn("turn-2") is None
    assert store.turn("turn-3") is not None
    store.close()


def test_the_latest_sessions_are_listed_by_what_was_asked_first(store: SessionStore) -> None:
    store.save(_session("one"), _record("1", "one"))
    store.save(_session("two"), _record("2", "two"))
    kept = store.latest()
    assert [entry.id for entry in kept] == ["two", "one"]
    assert kept[0].title.startswith("列出 文件 长")
    assert len(kept[0].title) == 80
    assert store.delete("one")
    assert not store.delete("one")
    assert [entry.id for entry in store.latest()] == ["two"]
    assert store.turn("1") is None


def test_a_turn_is_found_by_its_id_the_beginning_of_it_or_as_the_last(store: SessionStore) -> None:
    assert store.turn() is None
    store.save(_session(), _record("abc123"))
    store.save(_session(), _record("xyz789"))
    for wanted, found in (("", "xyz789"), ("abc", "abc123"), ("abc123", "abc123")):
        record = store.turn(wanted)
        assert record is not None
        assert record["id"] == found
        assert record["candidates"][0]["name"] == "pdf"
    assert store.turn("nothing") is None
    assert store.turn("%") is None


def test_turns_are_listed_page_by_page_and_for_their_owners(store: SessionStore) -> None:
    for number, session_id in enumerate(("k1:a", "k2:a", "k1:b", "k1:a")):
        store.save(_session(session_id), _record(f"turn-{number}", session_id))

    def ids(limit: int = 20, *, before: str = "", session: str = "", prefix: str = "") -> list[str]:
        found = store.turns(limit, before=before, session=session, prefix=prefix)
        return [turn.id for turn in found]

    assert ids() == ["turn-3", "turn-2", "turn-1", "turn-0"]
    assert ids(2, before="turn-3") == ["turn-2", "turn-1"]
    assert ids(before="nothing") == []
    assert ids(prefix="k1:") == ["turn-3", "turn-2", "turn-0"]
    assert ids(prefix="k1:", session="k2:a") == []
    assert ids(session="k1:a") == ["turn-3", "turn-0"]
    assert ids(prefix="%") == []
    assert [kept.id for kept in store.latest(prefix="k1:")] == ["k1:a", "k1:b"]
    last = store.find_turn(prefix="k2:")
    assert last is not None
    assert (last.id, last.session, last.record["confidence"]) == ("turn-1", "k2:a", 0.7)
    assert store.find_turn("turn-1", prefix="k1:") is None
    assert store.find_turn("turn-") is None


def test_a_session_can_be_looked_at_without_taking_it_up(
    store: SessionStore, tmp_path: Path
) -> None:
    session = _session()
    store.save(session, _record())
    seen = store.get("s")
    assert seen is not None
    assert seen.messages == tuple(session.messages)
    assert (seen.turns, seen.skills, seen.usage) == (2, ("pdf",), session.usage)
    assert store.get("other") is None
    with sqlite3.connect(tmp_path / "data/sessions.db") as connection:
        connection.execute("UPDATE sessions SET state = '{}'")
    connection.close()
    assert store.get("s") is None


def test_a_session_that_makes_no_sense_is_none(store: SessionStore, tmp_path: Path) -> None:
    store.save(_session(), _record())
    with sqlite3.connect(tmp_path / "data/sessions.db") as connection:
        connection.execute("UPDATE messages SET data = '{}' WHERE number = 0")
    connection.close()
    assert not store.load(new_session("s"))


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "sessions.db").write_text("no database, but long enough to be read " * 20, "utf-8")
    store = SessionStore(tmp_path / "sessions.db")
    with pytest.raises(StorageError):
        store.latest()


def test_conversations_are_for_their_owner_only(store: SessionStore, tmp_path: Path) -> None:
    store.save(_session(), _record())
    assert (tmp_path / "data/sessions.db").stat().st_mode & 0o077 == 0


def test_threads_take_turns(store: SessionStore) -> None:
    def save(number: int) -> None:
        store.save(_session(str(number)), _record(str(number), str(number)))

    threads = [threading.Thread(target=save, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.latest(100)) == 20


def test_records_that_an_older_version_kept_are_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    with closing(sqlite3.connect(path)) as old, old:
        old.execute(
            "CREATE TABLE turns (id TEXT PRIMARY KEY, session TEXT NOT NULL, at REAL NOT NULL,"
            " record TEXT NOT NULL) WITHOUT ROWID"
        )
        old.executemany(
            "INSERT INTO turns VALUES (?, 's', ?, ?)",
            [("b", 1.0, '{"id": "b"}'), ("a", 2.0, '{"id": "a"}')],
        )
    for _ in range(2):
        store = SessionStore(path)
        assert [kept.id for kept in store.turns()] == ["a", "b"]
        assert store.turn("b") == {"id": "b"}
        store.close()
    with closing(sqlite3.connect(path)) as new:
        names = {row[0] for row in new.execute("SELECT name FROM sqlite_master")}
    assert "turns" not in names
