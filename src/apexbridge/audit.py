"""Audit log: tamper-evident JSON lines, each with the SHA-256 of the record before it.

A hash chain: no record can be changed, removed or inserted without breaking all that follow. Lines
are only appended, under an advisory lock (flock) between processes, and fsynced before the call
returns.

The end of a chain has nothing after it, so its number and hash are kept in a second file, the head
(`audit.head`), which is written after each line. A crash between both leaves a log that is longer
than its head says; a log that is shorter was cut.
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

from apexbridge.audit_head import GENESIS_HASH, AuditHead, Head
from apexbridge.errors import AuditBrokenError
from apexbridge.paths import fsync_dir, storage_errors

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
    """Append-only log file, and its head."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._head = AuditHead(path.with_suffix(".head"))

    def record(self, action: str, **facts: str | int | None) -> None:
        """Append a record.

        Raises:
            StorageError: If it cannot be written; the caller must not perform the action then.
        """
        with storage_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _locked(self._path) as descriptor:
                before, marks = self._end(descriptor)
                at = datetime.now(UTC).isoformat(timespec="milliseconds")
                cut = {k: v[:_MAX_TEXT] if isinstance(v, str) else v for k, v in facts.items()}
                number = before.number + 1
                fields = {"at": at, "action": action, "facts": cut, "before": before.hash}
                fields |= {"sequence": number, **marks}
                written = Head(number=number, hash=_hash(fields))
                line = json.dumps({**fields, "hash": written.hash}, ensure_ascii=True) + "\n"
                self._append(descriptor, line.encode("ascii"), written)

    def _append(self, descriptor: int, line: bytes, written: Head) -> None:
        size = os.fstat(descriptor).st_size
        _append(descriptor, line)
        try:
            if not size:
                fsync_dir(self._path.parent)  # the head must not outlive the file that it is of
            self._head.write(written)
        except OSError:
            # A head that was written, though not synced, keeps its line: else it would look cut.
            if self._head.read() != written:
                os.ftruncate(descriptor, size)
            raise

    def _end(self, descriptor: int) -> tuple[Head, dict[str, str]]:
        """Return what the next record follows, and fields that keep a removal of the head visible.

        If the log was cut it is what was there before: the chain stays broken at that place.
        """
        head, last = self._head.read(), _last_record(descriptor)
        if head is None:
            if last is not None and last.number:
                return last, {"head": "missing"}
            count = sum(1 for _ in self._lines())  # written by an earlier version, or new
            return Head(number=count, hash=last.hash if last else GENESIS_HASH), {}
        if last is None or last.hash == head.hash:
            return head, {}
        return self._newer(head) or head, {}

    def _newer(self, head: Head) -> Head | None:
        """Return the end of a log that is longer than its head says; None if it does not have it.

        A crash was between a line and its head, or an earlier version wrote lines without heads.
        """
        last = None
        for number, line in enumerate(self._lines(), start=1):
            stored = str((_parse_line(line) or {}).get("hash", ""))
            if stored and (last is not None or stored == head.hash):
                last = Head(number=number, hash=stored)
        return last

    def verify(self) -> int:
        """Verify the hash chain from the beginning to the head; return the number of records.

        Raises:
            AuditBrokenError: With the first line that breaks the chain; `audit_cut` if the last
                records are missing, `audit_head_missing` if the head is.
        """
        head, size = self._snapshot()
        before, number = Head(number=0, hash=GENESIS_HASH), 0
        is_head_found, has_numbers = False, False
        for number, line in enumerate(self._lines(size), start=1):
            fields = _parse_line(line)
            stored = fields.pop("hash", None) if fields else None
            if fields is None or fields.get("before") != before.hash or stored != _hash(fields):
                raise AuditBrokenError(path=self._path, line=number)
            if "head" in fields:
                raise AuditBrokenError(code="audit_head_missing", path=self._path, line=number)
            before, has_numbers = Head(number=number, hash=str(stored)), "sequence" in fields
            is_head_found = is_head_found or before == head
        if head is None and has_numbers:
            raise AuditBrokenError(code="audit_head_missing", path=self._path, line=number)
        if head is not None and not is_head_found:
            missing = max(1, head.number - number)
            raise AuditBrokenError(
                code="audit_cut", path=self._path, line=number + 1, missing=missing
            )
        return number

    def _snapshot(self) -> tuple[Head | None, int]:
        """Return the head and the size of the log, as they were between two records."""
        with storage_errors(self._path):
            try:
                descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                return self._head.read(), 0
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                return self._head.read(), os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)

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

    def _lines(self, size: int | None = None) -> Iterator[bytes]:
        """Yield the lines of the log, of its first `size` bytes if given."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            for line in file:
                if size is not None and (size := size - len(line)) < 0:
                    return
                yield line


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


def _last_record(descriptor: int) -> Head | None:
    """Return hash and number of the last record; a line that a crash cut off is terminated first.

    The number is 0 in records of earlier versions.
    """
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, _TAIL_BYTES, max(size - _TAIL_BYTES, 0))
    if tail and not tail.endswith(b"\n"):
        os.write(descriptor, b"\n")
    for line in reversed(tail.splitlines()):
        fields = _parse_line(line)
        if fields is not None and "hash" in fields:
            number = fields.get("sequence", 0)
            return Head(number=number if isinstance(number, int) else 0, hash=str(fields["hash"]))
    return None


def _parse_line(line: bytes) -> dict[str, object] | None:
    try:
        read = json.loads(line)
    except ValueError:
        return None
    return read if isinstance(read, dict) else None  # pyright: ignore[reportUnknownVariableType]


def _hash(fields: Mapping[str, object]) -> str:
    text = json.dumps(fields, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()
