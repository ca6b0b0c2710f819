"""The audit log: what was attempted, by whom and with what result, in a chain that shows tampering.

One JSON line a record. Each carries the hash of the one before it, so that none can be changed,
removed or put in between without the rest of the chain telling. Lines are only ever appended, under
a lock that several processes share, and are on disk before the call returns.
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

from apexbridge.errors import AuditBrokenError, StorageError

_GENESIS_HASH = "0" * 64
_TAIL_BYTES = 64 * 1024
"""No record is longer: what goes in is cut."""
_MAX_TEXT = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """What was attempted, and when."""

    at: str
    action: str
    facts: Mapping[str, str]


class AuditLog:
    """Appends to one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def record(self, action: str, **facts: str | int | None) -> None:
        """Append a record.

        Raises:
            StorageError: If it cannot be written; what was to be recorded should not happen then.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self._path) as descriptor:
                before = _last_hash(descriptor)
                at = datetime.now(UTC).isoformat(timespec="milliseconds")
                cut = {k: v[:_MAX_TEXT] if isinstance(v, str) else v for k, v in facts.items()}
                fields = {"at": at, "action": action, "facts": cut, "before": before}
                line = json.dumps({**fields, "hash": _hash(fields)}, ensure_ascii=True) + "\n"
                _append(descriptor, line.encode("ascii"))
        except OSError as error:
            raise StorageError(error.strerror or str(error), path=self._path) from error

    def verify(self) -> int:
        """Follow the chain from its beginning; how many records it has.

        Raises:
            AuditBrokenError: With the first line that does not fit.
        """
        before, number = _GENESIS_HASH, 0
        for number, line in enumerate(self._lines(), start=1):
            fields = _parse_line(line)
            told = fields.pop("hash", None) if fields else None
            if fields is None or fields.get("before") != before or told != _hash(fields):
                raise AuditBrokenError(path=self._path, line=number)
            before = str(told)
        return number

    def latest(self, limit: int) -> tuple[AuditRecord, ...]:
        """The last records, the newest last; lines that make no sense are left to `verify`."""
        last = deque[AuditRecord](maxlen=limit)
        for line in self._lines():
            fields = _parse_line(line) or {}
            facts = fields.get("facts")
            if isinstance(facts, dict):
                told = {str(key): str(value) for key, value in facts.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                at, action = str(fields.get("at", "")), str(fields.get("action", ""))
                last.append(AuditRecord(at=at, action=action, facts=told))
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
    """Write a line that stays, or nothing: half a line would break the chain."""
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
    """The hash of the last record. One that was cut off by a crash is closed, and will be told."""
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
