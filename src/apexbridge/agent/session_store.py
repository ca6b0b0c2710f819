"""Session store: sessions, messages and turn records in one SQLite file."""

import json
import operator
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from apexbridge.agent.session import AppliedSkill, Session
from apexbridge.agent.turn import TurnRecord
from apexbridge.errors import StorageError
from apexbridge.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from apexbridge.models.base import Usage
from apexbridge.state_databases import database_errors, open_database

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
  id TEXT PRIMARY KEY, changed REAL NOT NULL, title TEXT NOT NULL, state TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS messages (
  session TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL,
  PRIMARY KEY (session, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS kept_turns (
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, session TEXT NOT NULL, at REAL NOT NULL,
  record TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS kept_turns_by_time ON kept_turns (at);
"""
_INSERT_TURNS = "INSERT OR REPLACE INTO kept_turns (id, session, at, record) VALUES "
"""Rows are keyed by insertion order: with the random id as key, a batch would touch every page."""
_FIND_OLD_TURNS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'turns'"
_COPY_OLD_TURNS = """
INSERT OR IGNORE INTO kept_turns (id, session, at, record)
SELECT id, session, at, record FROM turns ORDER BY at
"""
_MESSAGE_KINDS: Mapping[type[Message], str] = {
    SystemMessage: "system",
    UserMessage: "user",
    AssistantMessage: "assistant",
    ToolMessage: "tool",
}
_MESSAGE_ADAPTERS: Mapping[str, TypeAdapter[Message]] = {
    name: TypeAdapter(kind) for kind, name in _MESSAGE_KINDS.items()
}
_MAX_TITLE = 80
_BATCH_ROWS = 50
_MAX_TURNS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """Id, time and title of a stored session."""

    id: str
    changed: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """A stored turn record, with the time at which the turn ended."""

    id: str
    session: str
    at: float
    record: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession(SessionSummary):
    """A stored session with its messages, for display."""

    turns: int
    skills: tuple[str, ...]
    usage: Usage
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedState:
    """The messages of a session that are on disk, and the timestamp of that write."""

    changed: float
    messages: tuple[Message, ...]


class SessionStore:
    """SQLite store of sessions. Methods block, and raise StorageError; a mutex guards them."""

    def __init__(self, path: Path, *, kept_turns: int = _MAX_TURNS) -> None:
        self._path = path
        self._kept_turns = kept_turns
        self._mutex = threading.Lock()
        self._saved: dict[str, _SavedState] = {}
        self._queue = deque[tuple[float, TurnRecord]](maxlen=kept_turns)
        self._connection: sqlite3.Connection | None = None

    def save(self, session: Session, record: TurnRecord) -> None:
        """Save a session and the record of its turn in one transaction.

        If the message history has only grown, only the new messages are inserted.
        """
        messages, now = tuple(session.messages), time.time()
        with self._transaction() as connection:
            # Lock before the read, so that no other process writes in between.
            connection.execute("BEGIN IMMEDIATE")
            first = self._saved_messages(connection, session.id, messages)
            rows = [
                (session.id, number, _MESSAGE_KINDS[type(message)], encode_json(message))
                for number, message in enumerate(messages[first:], first)
            ]
            connection.execute(
                "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)",
                (session.id, now, _title(session), json.dumps(_persistent_state(session))),
            )
            if not first:
                connection.execute("DELETE FROM messages WHERE session = ?", (session.id,))
            connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?)", rows)
            self._insert_turns(connection, [(now, record)])
        self._saved[session.id] = _SavedState(changed=now, messages=messages)

    def put(self, record: TurnRecord) -> None:
        """Queue the record of a stateless turn; `flush` or the next read writes it."""
        self._queue.append((time.time(), record))

    def flush(self) -> None:
        """Write queued records.

        Raises:
            StorageError: If the disk refuses; the records are lost then.
        """
        with self._connection_lock():
            pass

    def _write_queued(self, connection: sqlite3.Connection) -> None:
        queued = list[tuple[float, TurnRecord]]()
        while self._queue:
            queued.append(self._queue.popleft())
        if queued:
            with connection:
                self._insert_turns(connection, queued)

    def _insert_turns(
        self, connection: sqlite3.Connection, records: Sequence[tuple[float, TurnRecord]]
    ) -> None:
        rows = [(record.id, record.session_id, at, encode_json(record)) for at, record in records]
        # Many rows a statement: each statement releases the GIL, and getting it back under load
        # costs more than the insert.
        for start in range(0, len(rows), _BATCH_ROWS):
            part = rows[start : start + _BATCH_ROWS]
            places = ", ".join(["(?, ?, ?, ?)"] * len(part))
            connection.execute(_INSERT_TURNS + places, list(chain.from_iterable(part)))
        connection.execute(
            "DELETE FROM kept_turns WHERE at <"
            " (SELECT at FROM kept_turns ORDER BY at DESC LIMIT 1 OFFSET ?)",
            (self._kept_turns - 1,),
        )

    def evict(self, session_id: str) -> None:
        """Drop the cached state of a session; its rows stay."""
        self._saved.pop(session_id, None)

    def _saved_messages(
        self, connection: sqlite3.Connection, session_id: str, messages: tuple[Message, ...]
    ) -> int:
        """Return the number of leading messages that are on disk; 0 to rewrite all."""
        last = self._saved.get(session_id)
        if last is None or not all(map(operator.is_, last.messages, messages)):
            return 0
        found = connection.execute("SELECT changed FROM sessions WHERE id = ?", (session_id,))
        is_ours = found.fetchone() == (last.changed,)  # else another process has saved it since
        return len(last.messages) if is_ours and len(last.messages) <= len(messages) else 0

    def load(self, session: Session) -> bool:
        """Restore the state of a stored session; False if there is none that can be read."""
        row, found = self._read_session(session.id)
        if row is None:
            return False
        try:
            messages = [_MESSAGE_ADAPTERS[kind].validate_json(data) for kind, data in found]
            _restore(session, json.loads(row[2]), messages)
        except (ValidationError, ValueError, KeyError, TypeError):
            return False
        self._saved[session.id] = _SavedState(changed=row[0], messages=tuple(session.messages))
        return True

    def _read_session(self, session_id: str) -> tuple[Any, list[Any]]:
        """Read the row (changed, title, state) and the messages (kind, data) of a session."""
        with self._connection_lock() as connection:
            row = connection.execute(
                "SELECT changed, title, state FROM sessions WHERE id = ?", (session_id,)
            ).fetchone()
            return row, connection.execute(
                "SELECT kind, data FROM messages WHERE session = ? ORDER BY number", (session_id,)
            ).fetchall()

    def latest(self, limit: int = 20, *, prefix: str = "") -> tuple[SessionSummary, ...]:
        """Return the latest sessions whose ids have a prefix, newest first."""
        with self._connection_lock() as connection:
            rows = connection.execute(
                "SELECT id, changed, title FROM sessions WHERE substr(id, 1, ?) = ?"
                " ORDER BY changed DESC LIMIT ?",
                (len(prefix), prefix, limit),
            ).fetchall()
        return tuple(SessionSummary(id=row[0], changed=row[1], title=row[2]) for row in rows)

    def turn(self, turn_id: str = "") -> dict[str, Any] | None:
        """Return a turn record by id or prefix of it; without one, the latest."""
        with self._connection_lock() as connection:
            row = connection.execute(
                "SELECT record FROM kept_turns WHERE substr(id, 1, ?) = ? ORDER BY at DESC LIMIT 1",
                (len(turn_id), turn_id),
            ).fetchone()
        return json.loads(row[0]) if row else None

    def find_turn(self, turn_id: str = "", *, prefix: str = "") -> StoredTurn | None:
        """Return a turn by its full id, among sessions with a prefix; without an id, the latest."""
        found = self.turns(1, prefix=prefix) if not turn_id else self._turn_of(turn_id, prefix)
        return found[0] if found else None

    def _turn_of(self, turn_id: str, prefix: str) -> tuple[StoredTurn, ...]:
        with self._connection_lock() as connection:
            rows = connection.execute(
                "SELECT id, session, at, record FROM kept_turns"
                " WHERE id = ? AND substr(session, 1, ?) = ?",
                (turn_id, len(prefix), prefix),
            ).fetchall()
        return tuple(map(_stored_turn, rows))

    def turns(
        self, limit: int = 20, *, before: str = "", session: str = "", prefix: str = ""
    ) -> tuple[StoredTurn, ...]:
        """Return turns of a session, or of sessions with an id prefix, newest first.

        `before` is the cursor of pagination: the id of a turn; an unknown one has no next page.
        """
        with self._connection_lock() as connection:
            rows = connection.execute(
                "SELECT id, session, at, record FROM kept_turns WHERE (:session = '' OR session ="
                " :session) AND substr(session, 1, :chars) = :prefix AND (:before = '' OR (at, id)"
                " < (SELECT at, id FROM kept_turns WHERE id = :before))"
                " ORDER BY at DESC, id DESC LIMIT :limit",
                {
                    "limit": limit,
                    "before": before,
                    "session": session,
                    "chars": len(prefix),
                    "prefix": prefix,
                },
            ).fetchall()
        return tuple(map(_stored_turn, rows))

    def get(self, session_id: str) -> StoredSession | None:
        """Return a stored session; None if there is none that can be read."""
        row, found = self._read_session(session_id)
        if row is None:
            return None
        try:
            state = json.loads(row[2])
            return StoredSession(
                id=session_id,
                changed=row[0],
                title=row[1],
                turns=state["turns"],
                skills=tuple(state["applied"]),
                usage=Usage(**state["spent"]),
                messages=tuple(_MESSAGE_ADAPTERS[kind].validate_json(data) for kind, data in found),
            )
        except (ValidationError, ValueError, KeyError, TypeError):
            return None

    def delete(self, session_id: str) -> bool:
        """Delete a session and its turn records; False if there was none."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM messages WHERE session = ?", (session_id,))
            connection.execute("DELETE FROM kept_turns WHERE session = ?", (session_id,))
            self._saved.pop(session_id, None)
            gone = connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
            return gone.rowcount > 0

    def close(self) -> None:
        """Write queued records, and close the connection."""
        with suppress(StorageError):
            if self._queue:
                self.flush()
        with self._mutex:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        with self._connection_lock() as connection, connection:
            yield connection

    @contextmanager
    def _connection_lock(self) -> Generator[sqlite3.Connection]:
        with self._mutex, database_errors(self._path):
            if self._connection is None:
                self._connection = self._open()
            if self._queue:
                self._write_queued(self._connection)
            yield self._connection

    def _open(self) -> sqlite3.Connection:
        connection = open_database(self._path, timeout=30, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_SCHEMA)
            _migrate_turns(connection)
            self._path.chmod(0o600)  # sessions are private
        except BaseException:
            connection.close()
            raise
        return connection


def _migrate_turns(connection: sqlite3.Connection) -> None:
    """Migrate turn records from the table layout of older versions."""
    if connection.execute(_FIND_OLD_TURNS).fetchone():
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            # Asked again under the lock: another process may have migrated meanwhile.
            if connection.execute(_FIND_OLD_TURNS).fetchone():
                connection.execute(_COPY_OLD_TURNS)
                connection.execute("DROP TABLE turns")


def encode_json(kept: Message | TurnRecord) -> str:
    """Serialize a message or turn record to JSON."""
    try:
        return orjson.dumps(kept).decode()
    except orjson.JSONEncodeError:  # a lone surrogate: json escapes it
        return json.dumps(asdict(kept))


def _stored_turn(row: tuple[str, str, float, str]) -> StoredTurn:
    return StoredTurn(id=row[0], session=row[1], at=row[2], record=json.loads(row[3]))


def _title(session: Session) -> str:
    prompts = (m for m in session.messages if isinstance(m, UserMessage) and m.kind == "prompt")
    first = next(prompts, None)
    return " ".join(first.text.split())[:_MAX_TITLE] if first else ""


def _persistent_state(session: Session) -> dict[str, Any]:
    """Return what is stored of a session. The keys are an on-disk format of older versions."""
    return {
        "cwd": str(session.cwd),
        "system": session.system,
        "turns": session.turns,
        "listed": sorted(session.announced),
        "hinted": sorted(session.hinted),
        "applied": {name: asdict(applied) for name, applied in session.applied.items()},
        "reach": [str(path) for path in session.readable],
        "spent": asdict(session.usage),
    }


def _restore(session: Session, state: dict[str, Any], messages: list[Message]) -> None:
    applied = {name: AppliedSkill(**applied) for name, applied in state["applied"].items()}
    readable, usage = [Path(path) for path in state["reach"]], Usage(**state["spent"])
    session.system, session.turns = state["system"], state["turns"]
    session.messages, session.applied = messages, applied
    session.announced, session.readable = set(state["listed"]), readable
    session.hinted = set(state.get("hinted", ()))  # earlier versions stored none
    session.usage = usage
