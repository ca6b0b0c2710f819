"""Sessions and the records of their turns, kept in SQLite: a conversation can be taken up again."""

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
"""Records lie in the order in which they came: sorted by id, each would lie on a page of its own,
and to write a thousand would be to write all pages there are."""
_FIND_OLD_TURNS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'turns'"
_COPY_OLD_TURNS = """
INSERT OR IGNORE INTO kept_turns (id, session, at, record)
SELECT id, session, at, record FROM turns ORDER BY at
"""
_MESSAGE_ADAPTERS: Mapping[str, TypeAdapter[Message]] = {
    "system": TypeAdapter(SystemMessage),
    "user": TypeAdapter(UserMessage),
    "assistant": TypeAdapter(AssistantMessage),
    "tool": TypeAdapter(ToolMessage),
}
_MESSAGE_KINDS: Mapping[type[Message], str] = {
    SystemMessage: "system",
    UserMessage: "user",
    AssistantMessage: "assistant",
    ToolMessage: "tool",
}
_MAX_TITLE = 80
_BATCH_ROWS = 50
_MAX_TURNS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSummary:
    """A session that can be taken up again."""

    id: str
    changed: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTurn:
    """The record of a turn, and when the turn ended."""

    id: str
    session: str
    at: float
    record: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession(SessionSummary):
    """A session as it was left, to be looked at."""

    turns: int
    skills: tuple[str, ...]
    spent: Usage
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedState:
    """What of a session lies in the file, and when it was put there."""

    changed: float
    messages: tuple[Message, ...]


class SessionStore:
    """One file for all sessions. Every method blocks; threads take turns."""

    def __init__(self, path: Path, *, kept_turns: int = _MAX_TURNS) -> None:
        self._path = path
        self._kept_turns = kept_turns
        self._turn = threading.Lock()
        self._written: dict[str, _SavedState] = {}
        self._waiting = deque[tuple[float, TurnRecord]](maxlen=kept_turns)
        self._connection: sqlite3.Connection | None = None

    def save(self, session: Session, record: TurnRecord) -> None:
        """Keep a session as it is after a turn, and the turn's record; all of it or nothing.

        Of a conversation that only grew, only what is new is written.

        Raises:
            StorageError: If the disk refuses.
        """
        messages, now = tuple(session.messages), time.time()
        with self._writing() as connection:
            connection.execute("BEGIN IMMEDIATE")  # nobody writes between looking and writing
            first = self._kept_messages(connection, session.id, messages)
            rows = [
                (session.id, number, _MESSAGE_KINDS[type(message)], _to_json(message))
                for number, message in enumerate(messages[first:], first)
            ]
            connection.execute(
                "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)",
                (session.id, now, _title(session), json.dumps(_persistent_state(session))),
            )
            if not first:
                connection.execute("DELETE FROM messages WHERE session = ?", (session.id,))
            connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?)", rows)
            self._put_turns(connection, [(now, record)])
        self._written[session.id] = _SavedState(changed=now, messages=messages)

    def put(self, record: TurnRecord) -> None:
        """Keep the record of a turn whose conversation nobody keeps; waits for nothing.

        It is written by `flush`, or when somebody looks next.
        """
        self._waiting.append((time.time(), record))

    def flush(self) -> None:
        """Write the records that wait.

        Raises:
            StorageError: If the disk refuses; they are lost then.
        """
        with self._reading():
            pass

    def _put_waiting(self, connection: sqlite3.Connection) -> None:
        waiting = list[tuple[float, TurnRecord]]()
        while self._waiting:
            waiting.append(self._waiting.popleft())
        if waiting:
            with connection:
                self._put_turns(connection, waiting)

    def _put_turns(
        self, connection: sqlite3.Connection, records: Sequence[tuple[float, TurnRecord]]
    ) -> None:
        rows = [
            (record.id, record.session_id, at, record_to_json(record)) for at, record in records
        ]
        # Between any two statements everybody else may get a turn, and this thread waits for its
        # own again: many rows at once hold up neither.
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
        """Remember nothing of a session but what lies in the file."""
        self._written.pop(session_id, None)

    def _kept_messages(
        self, connection: sqlite3.Connection, session_id: str, messages: tuple[Message, ...]
    ) -> int:
        """How many messages, from the first on, lie in the file already; 0 for a new beginning."""
        last = self._written.get(session_id)
        if last is None or not all(map(operator.is_, last.messages, messages)):
            return 0
        found = connection.execute("SELECT changed FROM sessions WHERE id = ?", (session_id,))
        is_ours = found.fetchone() == (last.changed,)  # else another process has written since
        return len(last.messages) if is_ours and len(last.messages) <= len(messages) else 0

    def load(self, session: Session) -> bool:
        """Fill a new session with what one of its id was left with; False if there is nothing."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT state, changed FROM sessions WHERE id = ?", (session.id,)
            ).fetchone()
            found = connection.execute(
                "SELECT kind, data FROM messages WHERE session = ? ORDER BY number", (session.id,)
            ).fetchall()
        if row is None:
            return False
        try:
            messages = [_MESSAGE_ADAPTERS[kind].validate_json(data) for kind, data in found]
            _restore(session, json.loads(row[0]), messages)
        except (ValidationError, ValueError, KeyError, TypeError):
            return False
        self._written[session.id] = _SavedState(changed=row[1], messages=tuple(session.messages))
        return True

    def latest(self, limit: int = 20, *, prefix: str = "") -> tuple[SessionSummary, ...]:
        """The sessions that were used last, the latest first; those whose ids begin so."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT id, changed, title FROM sessions WHERE substr(id, 1, ?) = ?"
                " ORDER BY changed DESC LIMIT ?",
                (len(prefix), prefix, limit),
            ).fetchall()
        return tuple(SessionSummary(id=row[0], changed=row[1], title=row[2]) for row in rows)

    def turn(self, turn_id: str = "") -> dict[str, Any] | None:
        """The record of a turn, by its id or the beginning of it; without one, of the last."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT record FROM kept_turns WHERE substr(id, 1, ?) = ? ORDER BY at DESC LIMIT 1",
                (len(turn_id), turn_id),
            ).fetchone()
        return json.loads(row[0]) if row else None

    def find_turn(self, turn_id: str = "", *, prefix: str = "") -> StoredTurn | None:
        """A turn of the sessions whose ids begin so, by its whole id; without one, the last."""
        found = self.turns(1, prefix=prefix) if not turn_id else self._turn_of(turn_id, prefix)
        return found[0] if found else None

    def _turn_of(self, turn_id: str, prefix: str) -> tuple[StoredTurn, ...]:
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT id, session, at, record FROM kept_turns"
                " WHERE id = ? AND substr(session, 1, ?) = ?",
                (turn_id, len(prefix), prefix),
            ).fetchall()
        return tuple(map(_stored_turn, rows))

    def turns(
        self, limit: int = 20, *, before: str = "", session: str = "", prefix: str = ""
    ) -> tuple[StoredTurn, ...]:
        """Turns, the latest first: of one session, or of those whose ids begin so.

        `before` is the id of a turn: what is older than it comes. Nothing is older than a turn
        that is not kept.
        """
        with self._reading() as connection:
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
        """A session as it was left; None if there is none that can be read."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT changed, title, state FROM sessions WHERE id = ?", (session_id,)
            ).fetchone()
            found = connection.execute(
                "SELECT kind, data FROM messages WHERE session = ? ORDER BY number", (session_id,)
            ).fetchall()
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
                spent=Usage(**state["spent"]),
                messages=tuple(_MESSAGE_ADAPTERS[kind].validate_json(data) for kind, data in found),
            )
        except (ValidationError, ValueError, KeyError, TypeError):
            return None

    def delete(self, session_id: str) -> bool:
        """Remove a session and the records of its turns; False if there was none.

        Raises:
            StorageError: If the disk refuses.
        """
        with self._writing() as connection:
            connection.execute("DELETE FROM messages WHERE session = ?", (session_id,))
            connection.execute("DELETE FROM kept_turns WHERE session = ?", (session_id,))
            self._written.pop(session_id, None)
            gone = connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,))
            return gone.rowcount > 0

    def close(self) -> None:
        """Let go of the file."""
        with suppress(StorageError):
            if self._waiting:
                self.flush()
        with self._turn:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        with self._reading() as connection, connection:
            yield connection

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        with self._turn:
            try:
                if self._connection is None:
                    self._connection = self._open()
                if self._waiting:
                    self._put_waiting(self._connection)
                yield self._connection
            except (sqlite3.Error, OSError) as error:
                raise StorageError(str(error), path=self._path) from error

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        connection = sqlite3.connect(self._path, timeout=30, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(_SCHEMA)
            _migrate_turns(connection)
            self._path.chmod(0o600)  # conversations are private
        except BaseException:
            connection.close()
            raise
        return connection


def _migrate_turns(connection: sqlite3.Connection) -> None:
    """Bring records of turns over that an older version has left in its own order."""
    if connection.execute(_FIND_OLD_TURNS).fetchone():
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute(_FIND_OLD_TURNS).fetchone():  # nobody else did it meanwhile
                connection.execute(_COPY_OLD_TURNS)
                connection.execute("DROP TABLE turns")


def record_to_json(record: TurnRecord) -> str:
    """A record as it is kept: as JSON."""
    return _to_json(record)


def _to_json(kept: Message | TurnRecord) -> str:
    try:
        return orjson.dumps(kept).decode()
    except orjson.JSONEncodeError:  # half a character somewhere
        return json.dumps(asdict(kept))


def _stored_turn(row: tuple[str, str, float, str]) -> StoredTurn:
    return StoredTurn(id=row[0], session=row[1], at=row[2], record=json.loads(row[3]))


def _title(session: Session) -> str:
    prompts = (m for m in session.messages if isinstance(m, UserMessage) and m.kind == "prompt")
    first = next(prompts, None)
    return " ".join(first.text.split())[:_MAX_TITLE] if first else ""


def _persistent_state(session: Session) -> dict[str, Any]:
    """What of a session outlives its process; hooks and grants are lent anew by skills."""
    return {
        "cwd": str(session.cwd),
        "system": session.system,
        "turns": session.turns,
        "listed": sorted(session.announced),
        "applied": {name: asdict(applied) for name, applied in session.applied.items()},
        "reach": [str(path) for path in session.readable],
        "spent": asdict(session.usage),
    }


def _restore(session: Session, state: dict[str, Any], messages: list[Message]) -> None:
    applied = {name: AppliedSkill(**applied) for name, applied in state["applied"].items()}
    reach, spent = [Path(path) for path in state["reach"]], Usage(**state["spent"])
    session.system, session.turns = state["system"], state["turns"]
    session.messages, session.applied = messages, applied
    session.announced = set(state["listed"])
    session.readable, session.usage = reach, spent
