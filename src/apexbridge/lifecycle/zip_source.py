"""The bytes of a zip, read at any place and never past its end; and how it is refused."""

import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from apexbridge.errors import ArchiveError, ArchiveLayoutError, ArchiveUnsafeError
from apexbridge.lifecycle.plan import ArchiveLimits, too_large

_LONGEST_SHOWN = 120


def broken(detail: str) -> ArchiveError:
    """The refusal of what no program could read."""
    return ArchiveLayoutError(detail, code="zip_invalid")


def ambiguous(detail: str) -> ArchiveError:
    """The refusal of what two programs could read differently."""
    return ArchiveUnsafeError(detail, code="zip_ambiguous")


def unsupported(detail: str) -> ArchiveError:
    """The refusal of what is allowed in zips but not read here."""
    return ArchiveUnsafeError(detail, code="zip_unsupported")


def shown(name: str | bytes) -> str:
    """Write a name so that nothing in it is invisible, and not at any length."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    cut = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    return "".join(
        char if char.isprintable() else ascii(char)[1:-1] for char in cut
    )  # also what would turn the terminal's line around


@dataclass(frozen=True, slots=True)
class ZipSource:
    """Some bytes and their number."""

    size: int
    _read: Callable[[int, int], bytes]

    def read(self, offset: int, length: int) -> bytes:
        """Exactly so many bytes from there.

        Raises:
            ArchiveError: If there are not so many.
        """
        if offset < 0 or length > self.size - offset:
            raise broken("it is cut off")
        data = b""
        while len(data) < length:
            try:
                more = self._read(length - len(data), offset + len(data))
            except OSError as error:
                raise broken(error.strerror or str(error)) from error
            if not more:
                raise broken("it is cut off")
            data += more
        return data


def of_bytes(data: bytes) -> ZipSource:
    """Bytes in memory."""
    return ZipSource(len(data), lambda length, offset: data[offset : offset + length])


@contextmanager
def opened(path: Path, limits: ArchiveLimits) -> Generator[ZipSource]:
    """A file, open while it is used: another file put in its place meanwhile is not seen.

    Raises:
        ArchiveError: If it is no plain file, or too large.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        raise broken("it is no plain file") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise broken("it is no plain file")
        if status.st_size > limits.packed_bytes:
            raise too_large(f"more than {limits.packed_bytes} bytes")
        yield ZipSource(status.st_size, lambda length, offset: os.pread(descriptor, length, offset))
    finally:
        os.close(descriptor)
