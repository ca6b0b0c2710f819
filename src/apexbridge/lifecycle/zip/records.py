"""Zip records: bounds-checked reads, extra fields (zip64, Unicode path), end of central directory.

Parsers disagree about unusual archives, which lets one file pass a scanner and another be
installed. Everything that two parsers could read differently is therefore refused.
"""

import os
import stat
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from apexbridge.errors import ArchiveError, ArchiveLayoutError, ArchiveUnsafeError
from apexbridge.lifecycle.zip.limits import ArchiveLimits, limit_exceeded

_MAX_PRINTED = 120


def malformed_zip(detail: str) -> ArchiveError:
    """Create the error for an archive that no parser could read."""
    return ArchiveLayoutError(detail, code="zip_invalid")


def ambiguous_zip(detail: str) -> ArchiveError:
    """Create the error for an archive that two parsers could read differently."""
    return ArchiveUnsafeError(detail, code="zip_ambiguous")


def unsupported_zip(detail: str) -> ArchiveError:
    """Create the error for a valid zip feature that is not supported."""
    return ArchiveUnsafeError(detail, code="zip_unsupported")


def printable_name(name: str | bytes) -> str:
    """Escape and truncate an untrusted name for messages."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    cut = text if len(text) <= _MAX_PRINTED else f"{text[:_MAX_PRINTED]}…"
    # Escapes terminal control sequences and bidirectional overrides as well.
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in cut)


@dataclass(frozen=True, slots=True)
class ZipSource:
    """Random access to the bytes of an archive."""

    size: int
    _read: Callable[[int, int], bytes]

    def read(self, offset: int, length: int) -> bytes:
        """Read exactly `length` bytes at an offset.

        Raises:
            ArchiveError: If the archive is truncated.
        """
        if offset < 0 or length > self.size - offset:
            raise malformed_zip("it is truncated")
        data = b""
        while len(data) < length:
            try:
                more = self._read(length - len(data), offset + len(data))
            except OSError as error:
                raise malformed_zip(error.strerror or str(error)) from error
            if not more:
                raise malformed_zip("it is truncated")
            data += more
        return data


def zip_from_bytes(data: bytes) -> ZipSource:
    """Access an archive in memory."""
    return ZipSource(len(data), lambda length, offset: data[offset : offset + length])


@contextmanager
def open_zip(path: Path, limits: ArchiveLimits) -> Generator[ZipSource]:
    """Open an archive once and keep the file descriptor: no TOCTOU race by replacing the path.

    Raises:
        ArchiveError: If it is not a regular file, or too large.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        raise malformed_zip("not a regular file") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise malformed_zip("not a regular file")
        if status.st_size > limits.packed_bytes:
            raise limit_exceeded(f"more than {limits.packed_bytes} bytes")
        yield ZipSource(status.st_size, lambda length, offset: os.pread(descriptor, length, offset))
    finally:
        os.close(descriptor)


ABSENT = 0xFFFFFFFF
"""Placeholder value: the number is in the zip64 extra field."""

_ZIP64 = 0x0001
_UNICODE_PATH = 0x7075
_UNIQUE_FIELDS = {_ZIP64, _UNICODE_PATH}
_ABSENT_DISK = 0xFFFF
_EXTRA_HEADER = Struct("<HH")
_NAME_HEAD = Struct("<BL")
_NAME_VERSION = 1
_TWO_SIZES = Struct("<QQ")


class EntrySizes(NamedTuple):
    """Unpacked and packed size of an entry, and the offset and disk of its header."""

    size: int
    packed: int
    offset: int = 0
    disk: int = 0


def parse_extra_fields(extra: bytes) -> dict[int, bytes]:
    """Parse an extra field into its blocks by id.

    Raises:
        ArchiveError: If a block is truncated, or a unique one is duplicated.
    """
    found, position = dict[int, bytes](), 0
    while position < len(extra):
        if len(extra) - position < _EXTRA_HEADER.size:
            raise malformed_zip("an extra field is truncated")
        kind, length = _EXTRA_HEADER.unpack_from(extra, position)
        position += _EXTRA_HEADER.size
        if length > len(extra) - position:
            raise malformed_zip("an extra field is truncated")
        if kind in found and kind in _UNIQUE_FIELDS:
            raise ambiguous_zip("duplicate extra field")
        found[kind] = extra[position : position + length]
        position += length
    return found


def central_sizes(written: EntrySizes, fields: dict[int, bytes]) -> EntrySizes:
    """Resolve zip64 sizes of a central header: the field has exactly the missing values."""
    data = fields.get(_ZIP64, b"")
    absent = [value == ABSENT for value in written[:3]]
    is_disk_absent = written.disk == _ABSENT_DISK
    if not any(absent) and not is_disk_absent:
        return written
    if len(data) != 8 * sum(absent) + 4 * is_disk_absent:
        raise malformed_zip("the zip64 sizes of an entry are missing")
    values, position = list[int](), 0
    for value, is_absent in zip(written[:3], absent, strict=True):
        values.append(_read_uint(data[position : position + 8]) if is_absent else value)
        position += 8 * is_absent
    disk = _read_uint(data[position:]) if is_disk_absent else written.disk
    return EntrySizes(values[0], values[1], values[2], disk)


def local_sizes(written: EntrySizes, fields: dict[int, bytes]) -> EntrySizes:
    """Resolve zip64 sizes of a local header: if one is missing, the field has both."""
    if ABSENT not in {written.size, written.packed}:
        return written
    data = fields.get(_ZIP64, b"")
    if len(data) != _TWO_SIZES.size:
        raise malformed_zip("the zip64 sizes of an entry are missing")
    true = EntrySizes(*_TWO_SIZES.unpack(data))
    for value, wide in zip(written[:2], true[:2], strict=True):
        if value not in {ABSENT, wide}:
            raise ambiguous_zip("an entry has two different sizes")
    return true


def _read_uint(data: bytes) -> int:
    return int.from_bytes(data, "little")


def unicode_path(name: bytes, fields: dict[int, bytes]) -> bytes | None:
    """Return the Info-ZIP Unicode path; one whose CRC is of another name is ignored.

    Raises:
        ArchiveError: If the field is truncated.
    """
    data = fields.get(_UNICODE_PATH)
    if data is None:
        return None
    if len(data) < _NAME_HEAD.size:
        raise malformed_zip("an extra field is truncated")
    version, checksum = _NAME_HEAD.unpack_from(data)
    if version != _NAME_VERSION or checksum != zlib.crc32(name):
        return None
    return data[_NAME_HEAD.size :]


_EOCD_SIGNATURE = b"PK\x05\x06"
_EOCD64_SIGNATURE = b"PK\x06\x06"
_LOCATOR_SIGNATURE = b"PK\x06\x07"
_MAX_COMMENT = 0xFFFF
_ABSENT_16 = 0xFFFF
_ABSENT_32 = 0xFFFFFFFF
_MAX_DIRECTORY_BYTES = 8 * 1024 * 1024


class _Eocd(NamedTuple):
    signature: bytes
    disk: int
    directory_disk: int
    entries_here: int
    entries: int
    size: int
    offset: int
    comment: int


class _Eocd64Locator(NamedTuple):
    signature: bytes
    disk: int
    offset: int
    disks: int


class _Eocd64(NamedTuple):
    signature: bytes
    rest: int
    made_by: int
    needed: int
    disk: int
    directory_disk: int
    entries_here: int
    entries: int
    size: int
    offset: int


_EOCD_STRUCT = Struct("<4s4H2LH")
_LOCATOR_STRUCT = Struct("<4sLQL")
_EOCD64_STRUCT = Struct("<4sQ2H2L4Q")
_EOCD64_REST = _EOCD64_STRUCT.size - 12
"""Size field of the record: without signature and the field itself."""


class CentralDirectory(NamedTuple):
    """Offset, size and number of entries of the central directory."""

    offset: int
    size: int
    entries: int


def find_central_directory(source: ZipSource, limits: ArchiveLimits) -> CentralDirectory:
    """Locate the central directory, and check its limits before reading it.

    Raises:
        ArchiveError: If there is no EOCD record, a second one, or data around it.
    """
    position, end = _find_eocd(source)
    if (end.disk, end.directory_disk) != (0, 0) or end.entries_here != end.entries:
        raise unsupported_zip("split archives are not supported")
    found, directory_end = CentralDirectory(end.offset, end.size, end.entries), position
    locator = _find_eocd64_locator(source, position)
    if locator is not None:
        directory_end = position - _LOCATOR_STRUCT.size - _EOCD64_STRUCT.size
        found = _read_eocd64(source, directory_end, locator, end)
    elif end.entries == _ABSENT_16 or _ABSENT_32 in {end.size, end.offset}:
        raise malformed_zip("the zip64 EOCD record is missing")
    if found.entries > limits.entries:
        raise limit_exceeded(f"more than {limits.entries} entries")
    if found.offset + found.size != directory_end:
        raise ambiguous_zip("data before, after or between its records")
    if found.size > _MAX_DIRECTORY_BYTES:
        raise limit_exceeded(f"a central directory of more than {_MAX_DIRECTORY_BYTES} bytes")
    return found


def _find_eocd(source: ZipSource) -> tuple[int, _Eocd]:
    # The EOCD record ends with a comment of at most 64 KiB, so it is in this tail.
    length = min(source.size, _EOCD_STRUCT.size + _MAX_COMMENT)
    start = source.size - length
    tail = source.read(start, length)
    last = tail.rfind(_EOCD_SIGNATURE)
    if last < 0:
        raise malformed_zip("not a zip archive, or truncated")
    if length - last < _EOCD_STRUCT.size:
        raise malformed_zip("it is truncated")
    end = _Eocd(*_EOCD_STRUCT.unpack_from(tail, last))
    trailing = length - last - _EOCD_STRUCT.size
    if end.comment > trailing:
        raise malformed_zip("it is truncated")
    if end.comment < trailing:
        raise ambiguous_zip("data after its EOCD record")
    if _has_second_eocd(tail, last):
        raise ambiguous_zip("it has two EOCD records")
    return start + last, end


def _has_second_eocd(tail: bytes, last: int) -> bool:
    """Say whether an earlier EOCD record is valid too, with everything after it as its comment.

    The EOCD record of a stored inner archive is not: its comment ends earlier.
    """
    position = tail.rfind(_EOCD_SIGNATURE, 0, last)
    while position >= 0:
        end = _Eocd(*_EOCD_STRUCT.unpack_from(tail, position))
        if position + _EOCD_STRUCT.size + end.comment == len(tail):
            return True
        position = tail.rfind(_EOCD_SIGNATURE, 0, position)
    return False


def _find_eocd64_locator(source: ZipSource, eocd_offset: int) -> _Eocd64Locator | None:
    if eocd_offset < _LOCATOR_STRUCT.size:
        return None
    data = source.read(eocd_offset - _LOCATOR_STRUCT.size, _LOCATOR_STRUCT.size)
    locator = _Eocd64Locator(*_LOCATOR_STRUCT.unpack(data))
    return locator if locator.signature == _LOCATOR_SIGNATURE else None


def _read_eocd64(
    source: ZipSource, position: int, locator: _Eocd64Locator, end: _Eocd
) -> CentralDirectory:
    """Parse the zip64 EOCD record, which must agree with the EOCD record."""
    if locator.disk != 0 or locator.disks > 1:
        raise unsupported_zip("split archives are not supported")
    if position < 0 or locator.offset != position:
        raise ambiguous_zip("its EOCD records do not match")
    wide = _Eocd64(*_EOCD64_STRUCT.unpack(source.read(position, _EOCD64_STRUCT.size)))
    if wide.signature != _EOCD64_SIGNATURE or wide.rest != _EOCD64_REST:
        raise ambiguous_zip("its EOCD records do not match")
    if (wide.disk, wide.directory_disk) != (0, 0) or wide.entries_here != wide.entries:
        raise unsupported_zip("split archives are not supported")
    agree = (
        end.entries in {_ABSENT_16, wide.entries}
        and end.size in {_ABSENT_32, wide.size}
        and end.offset in {_ABSENT_32, wide.offset}
    )
    if not agree:
        raise ambiguous_zip("its EOCD records differ")
    return CentralDirectory(wide.offset, wide.size, wide.entries)
