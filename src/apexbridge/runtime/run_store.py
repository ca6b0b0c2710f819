"""Run history in SQLite: the latest script runs, with the tail of stdout and stderr.

A single worker thread owns the connection, so that no run waits for the disk. If the store cannot
be written, that is logged and no run fails.
"""

import json
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from apexbridge.activation.scripts import ScriptCall, find_script
from apexbridge.errors import ApexBridgeError
from apexbridge.runtime.file_store import new_id
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.state_databases import database_errors, open_database

log = logging.getLogger(__name__)

MAX_RUNS = 1_000
TAIL_BYTES = 64 * 1024
"""Bytes stored of each of stdout and stderr: the tail."""
_MAX_FILES = 1_000
_MAX_ERROR = 2_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
  number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, run TEXT NOT NULL
);
"""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRun:
    """One run of a script, stored as JSON; of its arguments only the lengths are stored."""

    id: str
    at: float
    skill: str
    script: str
    sha256: str
    isolation: str
    outcome: str
    """Outcome by the sandbox, or `cancelled` where the caller disconnected."""
    exit_code: int | None
    seconds: float
    argument_chars: tuple[int, ...]
    limits: dict[str, float]
    stdout: str
    stderr: str
    files: tuple[str, ...]
    truncated: bool
    error: str


class RunStore:
    """SQLite store of script runs, bounded to the latest `kept`; reads raise StorageError."""

    def __init__(self, path: Path, *, kept: int = MAX_RUNS) -> None:
        self._path, self._kept = path, kept
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None
        self._is_logged = False
        self.listener: Callable[[str], None] | None = None
        """Called with the outcome of each run, for metrics."""

    def put(
        self, call: ScriptCall, result: ExecutionResult | None, *, began: float, run_id: str = ""
    ) -> None:
        """Queue a run for writing; the result is None if it was cancelled."""
        if self.listener is not None:
            self.listener("left" if result is None else result.outcome)
        run = partial(_to_script_run, call, result, began, run_id or new_id("run"))
        self._submit(partial(self._write, run, time.time() - began))

    def latest(self, limit: int = 20, *, before: str = "") -> tuple[ScriptRun, ...]:
        """Return runs, newest first, older than the run with the id `before`. Blocks."""
        query = (
            "SELECT run FROM runs WHERE ?1 = '' OR number < (SELECT number FROM runs WHERE id = ?1)"
            " ORDER BY number DESC LIMIT ?2"
        )
        return self._submit(partial(self._read, query, (before, limit))).result()

    def find(self, run_id: str) -> ScriptRun | None:
        """Return a run by its id. Blocks."""
        query = "SELECT run FROM runs WHERE id = ?"
        return next(iter(self._submit(partial(self._read, query, (run_id,))).result()), None)

    def close(self) -> None:
        """Write queued runs, and close the connection."""
        if self._thread is not None:
            self._submit(self._disconnect)
            self._thread.shutdown()
            self._thread = None

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="runs")
        return self._thread.submit(work)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self, describe: Callable[[float], ScriptRun], seconds: float) -> None:
        try:
            run = describe(seconds)
            text = json.dumps(asdict(run))
            with self._open() as connection:
                connection.execute("INSERT INTO runs (id, run) VALUES (?, ?)", (run.id, text))
                oldest = "SELECT max(number) - ? FROM runs"
                connection.execute(f"DELETE FROM runs WHERE number <= ({oldest})", (self._kept,))  # noqa: S608  # a constant
        except (sqlite3.Error, OSError) as error:
            level = logging.DEBUG if self._is_logged else logging.WARNING  # once a process
            log.log(level, "Cannot store a script run: %s", error)
            self._is_logged = True

    def _read(self, query: str, values: tuple[object, ...]) -> tuple[ScriptRun, ...]:
        if self._connection is None and not self._path.exists():
            return ()  # reading must not create the file
        with database_errors(self._path):
            found = self._open().execute(query, values).fetchall()
        return tuple(_run_from_json(json.loads(text)) for (text,) in found)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = open_database(self._path, timeout=30)
            try:
                self._path.chmod(0o600)  # output of scripts is private
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.executescript(_SCHEMA)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection


def _to_script_run(
    call: ScriptCall, result: ExecutionResult | None, began: float, run_id: str, seconds: float
) -> ScriptRun:
    skill = call.skill
    done = result or ExecutionResult(outcome="killed", exit_code=None, duration=seconds)
    is_cut = max(len(done.stdout), len(done.stderr)) > TAIL_BYTES
    return ScriptRun(
        id=run_id,
        at=began,
        skill=skill.name,
        script=_script_path(call),
        sha256=skill.fingerprint.sha256 if skill.fingerprint else "",
        isolation=done.isolation if result else "",
        outcome=done.outcome if result else "cancelled",
        exit_code=done.exit_code,
        seconds=done.duration or seconds,
        argument_chars=tuple(map(len, call.arguments)),
        limits=asdict(call.limits),
        stdout=_tail(done.stdout),
        stderr=_tail(done.stderr),
        files=tuple(_replace_surrogates(name) for name in sorted(done.produced)[:_MAX_FILES]),
        truncated=done.truncated or is_cut,
        error=_replace_surrogates(done.error or "")[:_MAX_ERROR],
    )


def _run_from_json(row: dict[str, Any]) -> ScriptRun:
    row["argument_chars"], row["files"] = tuple(row["argument_chars"]), tuple(row["files"])
    return ScriptRun(**row)


def _script_path(call: ScriptCall) -> str:
    """Return the path of the script, also where the default one was run."""
    try:
        root = (call.skill.root or Path()).resolve()
        return _replace_surrogates(find_script(call).relative_to(root).as_posix())
    except (OSError, ValueError, ApexBridgeError):  # removed or changed meanwhile
        return _replace_surrogates(call.script)


def _tail(data: bytes) -> str:
    return data[-TAIL_BYTES:].decode("utf-8", "replace")


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON in UTF-8 cannot carry."""
    return text.encode("utf-8", "replace").decode()
