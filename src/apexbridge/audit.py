"""Audit log: tamper-evident JSON lines, each with the SHA-256 of the record before it.

A hash chain: no record can be changed, removed or inserted without breaking all that follow. Lines
are only appended, under an advisory lock (flock) between processes, and fsynced before the call
returns.
"""

import errno
import fcntl
import hashlib
import json
import os
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from apexbridge.errors import AuditBrokenError
from apexbridge.paths import storage_errors

_GENESIS_HASH = "0" * 64
_TAIL_BYTES = 64 * 1024
"""Upper bound of a record's length: values are truncated."""
_MAX_TEXT = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One audited action, its time and facts."""

    at: str
    action: str
    facts: Mapping[str, str]


class AuditLog:
    """Append-only log file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def record(self, action: str, **facts: str | int | None) -> None:
        """Append a record.

        Raises:
            StorageError: If it cannot be written; the caller must not perform the action then.
        """
        with storage_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self._path) as descriptor:
                before = _last_hash(descriptor)
                at = datetime.now(UTC).isoformat(timespec="milliseconds")
                cut = {k: v[:_MAX_TEXT] if isinstance(v, str) else v for k, v in facts.items()}
                fields = {"at": at, "action": action, "facts": cut, "before": before}
                line = json.dumps({**fields, "hash": _hash(fields)}, ensure_ascii=True) + "\n"
                _append(descriptor, line.encode("ascii"))

    def verify(self) -> int:
        """Verify the hash chain from the beginning; return the number of records.

        Raises:
            AuditBrokenError: With the first line that breaks the chain.
        """
        before, number = _GENESIS_HASH, 0
        for number, line in enumerate(self._lines(), start=1):
            fields = _parse_line(line)
            stored = fields.pop("hash", None) if fields else None
            if fields is None or fields.get("before") != before or stored != _hash(fields):
                raise AuditBrokenError(path=self._path, line=number)
            before = str(stored)
        return number

    def latest(self, limit: int) -> tuple[AuditRecord, ...]:
        """Return the latest records, newest last; malformed lines are skipped (see `verify`)."""
        last = deque[AuditRecord](maxlen=limit)
        for line in self._lines():
            fields = _parse_line(line) or {}
            facts = fields.get("facts")
            if isinstance(facts, dict):
                texts = {str(key): str(value) for key, value in facts.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                at, action = str(fields.get("at", "")), str(fields.get("action", ""))
                last.append(AuditRecord(at=at, action=action, facts=texts))
        return tuple(last)

    def _lines(self) -> Iterator[bytes]:
        if self._path.exists():
            with self._path.open("rb") as file:
                yield from file


@contextmanager
def _locked(path: Path) -> Generator[int]:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _append(descriptor: int, line: bytes) -> None:
    """Append a line durably or not at all: a partial line would break the chain."""
    size = os.fstat(descriptor).st_size
    try:
        is_whole = os.write(descriptor, line) == len(line)
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise
    if not is_whole:
        os.ftruncate(descriptor, size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _last_hash(descriptor: int) -> str:
    """Return the hash of the last record; a line that a crash cut off is terminated first."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, _TAIL_BYTES, max(size - _TAIL_BYTES, 0))
    if tail and not tail.endswith(b"\n"):
        os.write(descriptor, b"\n")
    for line in reversed(tail.splitlines()):
        fields = _parse_line(line)
        if fields is not None and "hash" in fields:
            return str(fields["hash"])
    return _GENESIS_HASH


def _parse_line(line: bytes) -> dict[str, object] | None:
    try:
        read = json.loads(line)
    except ValueError:
        return None
    return read if isinstance(read, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _hash(fields: Mapping[str, object]) -> str:
    text = json.dumps(fields, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
