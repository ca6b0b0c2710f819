"""Head of the audit log: number and hash of its last record, in a file beside it.

Two slots are written in turn, each with a checksum: a write that a power failure tears leaves the
other slot, and costs one fsync, where a replaced file costs two.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from apexbridge.paths import fsync_dir

GENESIS_HASH = "0" * 64
_SLOT_BYTES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Number and hash of a record; 0 and zeros before the first one."""

    number: int
    hash: str


class AuditHead:
    """The file; its caller holds the lock of the log. Methods raise OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Head | None:
        """Return the newest valid slot; None if there is none."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        slots = (data[at : at + _SLOT_BYTES] for at in (0, _SLOT_BYTES))
        found = [head for slot in slots if (head := _parse_slot(slot))]
        return max(found, key=lambda head: head.number, default=None)

    def write(self, head: Head) -> None:
        """Write the slot that does not hold the head before this one, durably."""
        is_new = not self.path.exists()
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o600)
        try:
            os.pwrite(descriptor, _format_slot(head), head.number % 2 * _SLOT_BYTES)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            fsync_dir(self.path.parent)


def _format_slot(head: Head) -> bytes:
    text = f"{head.number} {head.hash}"
    return f"{text} {_checksum(text)}".ljust(_SLOT_BYTES - 1).encode("ascii") + b"\n"


def _parse_slot(slot: bytes) -> Head | None:
    try:
        number, stored, checksum = slot.decode("ascii").split()
        is_valid = _checksum(f"{number} {stored}") == checksum
        return Head(number=int(number), hash=stored) if is_valid else None
    except ValueError:  # also a UnicodeDecodeError
        return None


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
