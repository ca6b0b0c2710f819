"""The bytes of a zip, read at any place and never past its end; and how it is refused."""

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
    """The refusal of what no program could read."""
    return ArchiveLayoutError(detail, code="zip_invalid")


def ambiguous_zip(detail: str) -> ArchiveError:
    """The refusal of what two programs could read differently."""
    return ArchiveUnsafeError(detail, code="zip_ambiguous")


def unsupported_zip(detail: str) -> ArchiveError:
    """The refusal of what is allowed in zips but not read here."""
    return ArchiveUnsafeError(detail, code="zip_unsupported")


def printable_name(name: str | bytes) -> str:
    """Write a name so that nothing in it is invisible, and not at any length."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    cut = text if len(text) <= _MAX_PRINTED else f"{text[:_MAX_PRINTED]}…"
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
            raise malformed_zip("it is cut off")
        data = b""
        while len(data) < length:
            try:
                more = self._read(length - len(data), offset + len(data))
            except OSError as error:
                raise malformed_zip(error.strerror or str(error)) from error
            if not more:
                raise malformed_zip("it is cut off")
            data += more
        return data


def zip_from_bytes(data: bytes) -> ZipSource:
    """Bytes in memory."""
    return ZipSource(len(data), lambda length, offset: data[offset : offset + length])


@contextmanager
def open_zip(path: Path, limits: ArchiveLimits) -> Generator[ZipSource]:
    """A file, open while it is used: another file put in its place meanwhile is not seen.

    Raises:
        ArchiveError: If it is no plain file, or too large.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        raise malformed_zip("it is no plain file") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise malformed_zip("it is no plain file")
        if status.st_size > limits.packed_bytes:
            raise limit_exceeded(f"more than {limits.packed_bytes} bytes")
        yield ZipSource(status.st_size, lambda length, offset: os.pread(descriptor, length, offset))
    finally:
        os.close(descriptor)


ABSENT = 0xFFFFFFFF
"""The number that says: look into the extra field."""

_ZIP64 = 0x0001
_UNICODE_PATH = 0x7075
_UNIQUE_FIELDS = {_ZIP64, _UNICODE_PATH}
_ABSENT_DISK = 0xFFFF
_EXTRA_HEADER = Struct("<HH")
_NAME_HEAD = Struct("<BL")
_NAME_VERSION = 1
_TWO_SIZES = Struct("<QQ")


class EntrySizes(NamedTuple):
    """How large a file is unpacked and packed, and where it and its header lie."""

    size: int
    packed: int
    offset: int = 0
    disk: int = 0


def parse_extra_fields(extra: bytes) -> dict[int, bytes]:
    """Take the extra field apart.

    Raises:
        ArchiveError: If it does not come out even, or says twice what can be said once.
    """
    found, place = dict[int, bytes](), 0
    while place < len(extra):
        if len(extra) - place < _EXTRA_HEADER.size:
            raise malformed_zip("an extra field is cut off")
        kind, length = _EXTRA_HEADER.unpack_from(extra, place)
        place += _EXTRA_HEADER.size
        if length > len(extra) - place:
            raise malformed_zip("an extra field is cut off")
        if kind in found and kind in _UNIQUE_FIELDS:
            raise ambiguous_zip("an extra field stands twice")
        found[kind] = extra[place : place + length]
        place += length
    return found


def central_sizes(written: EntrySizes, fields: dict[int, bytes]) -> EntrySizes:
    """The true sizes of an entry of the list: the field holds those, and only those, that lack."""
    data = fields.get(_ZIP64, b"")
    absent = [value == ABSENT for value in written[:3]]
    lacks_disk = written.disk == _ABSENT_DISK
    if not any(absent) and not lacks_disk:
        return written
    if len(data) != 8 * sum(absent) + 4 * lacks_disk:
        raise malformed_zip("the true sizes of an entry are missing")
    values, place = list[int](), 0
    for value, is_absent in zip(written[:3], absent, strict=True):
        values.append(_read_uint(data[place : place + 8]) if is_absent else value)
        place += 8 * is_absent
    disk = _read_uint(data[place:]) if lacks_disk else written.disk
    return EntrySizes(values[0], values[1], values[2], disk)


def local_sizes(written: EntrySizes, fields: dict[int, bytes]) -> EntrySizes:
    """The true sizes in a file's own header: if one lacks, the field holds both."""
    if ABSENT not in {written.size, written.packed}:
        return written
    data = fields.get(_ZIP64, b"")
    if len(data) != _TWO_SIZES.size:
        raise malformed_zip("the true sizes of an entry are missing")
    true = EntrySizes(*_TWO_SIZES.unpack(data))
    for value, wide in zip(written[:2], true[:2], strict=True):
        if value not in {ABSENT, wide}:
            raise ambiguous_zip("an entry has two sizes")
    return true


def _read_uint(data: bytes) -> int:
    return int.from_bytes(data, "little")


def unicode_path(name: bytes, fields: dict[int, bytes]) -> bytes | None:
    """The name in UTF-8 that an extra field gives; one made for another name counts for nothing.

    Raises:
        ArchiveError: If the field is too short.
    """
    data = fields.get(_UNICODE_PATH)
    if data is None:
        return None
    if len(data) < _NAME_HEAD.size:
        raise malformed_zip("an extra field is cut off")
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
    list_disk: int
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
    list_disk: int
    entries_here: int
    entries: int
    size: int
    offset: int


_EOCD_STRUCT = Struct("<4s4H2LH")
_LOCATOR_STRUCT = Struct("<4sLQL")
_EOCD64_STRUCT = Struct("<4sQ2H2L4Q")
_EOCD64_REST = _EOCD64_STRUCT.size - 12
"""What the record counts as its own length: without its signature and this number."""


class CentralDirectory(NamedTuple):
    """Where the list of files lies, and how many it has."""

    offset: int
    size: int
    entries: int


def find_central_directory(source: ZipSource, limits: ArchiveLimits) -> CentralDirectory:
    """Find the list of files, and refuse too long a one before any of it is read.

    Raises:
        ArchiveError: If there is no end, more than one, or anything around it.
    """
    place, end = _find_eocd(source)
    if (end.disk, end.list_disk) != (0, 0) or end.entries_here != end.entries:
        raise unsupported_zip("it is split over several files")
    found, list_end = CentralDirectory(end.offset, end.size, end.entries), place
    locator = _find_eocd64_locator(source, place)
    if locator is not None:
        list_end = place - _LOCATOR_STRUCT.size - _EOCD64_STRUCT.size
        found = _read_eocd64(source, list_end, locator, end)
    elif end.entries == _ABSENT_16 or _ABSENT_32 in {end.size, end.offset}:
        raise malformed_zip("it lacks the record of its true sizes")
    if found.entries > limits.entries:
        raise limit_exceeded(f"more than {limits.entries} entries")
    if found.offset + found.size != list_end:
        raise ambiguous_zip("there is data before it, after it or between its parts")
    if found.size > _MAX_DIRECTORY_BYTES:
        raise limit_exceeded(f"its list of files has more than {_MAX_DIRECTORY_BYTES} bytes")
    return found


def _find_eocd(source: ZipSource) -> tuple[int, _Eocd]:
    length = min(source.size, _EOCD_STRUCT.size + _MAX_COMMENT)
    start = source.size - length
    tail = source.read(start, length)
    last = tail.rfind(_EOCD_SIGNATURE)
    if last < 0:
        raise malformed_zip("it is no zip, or cut off")
    if length - last < _EOCD_STRUCT.size:
        raise malformed_zip("it is cut off")
    end = _Eocd(*_EOCD_STRUCT.unpack_from(tail, last))
    behind = length - last - _EOCD_STRUCT.size
    if end.comment > behind:
        raise malformed_zip("it is cut off")
    if end.comment < behind:
        raise ambiguous_zip("there is data after its end")
    if _has_second_eocd(tail, last):
        raise ambiguous_zip("it has two ends")
    return start + last, end


def _has_second_eocd(tail: bytes, last: int) -> bool:
    """Whether an earlier end would do as well, with all that follows as its comment.

    The end of an archive that is kept inside is none: its comment stops before.
    """
    place = tail.rfind(_EOCD_SIGNATURE, 0, last)
    while place >= 0:
        end = _Eocd(*_EOCD_STRUCT.unpack_from(tail, place))
        if place + _EOCD_STRUCT.size + end.comment == len(tail):
            return True
        place = tail.rfind(_EOCD_SIGNATURE, 0, place)
    return False


def _find_eocd64_locator(source: ZipSource, end_place: int) -> _Eocd64Locator | None:
    if end_place < _LOCATOR_STRUCT.size:
        return None
    data = source.read(end_place - _LOCATOR_STRUCT.size, _LOCATOR_STRUCT.size)
    locator = _Eocd64Locator(*_LOCATOR_STRUCT.unpack(data))
    return locator if locator.signature == _LOCATOR_SIGNATURE else None


def _read_eocd64(
    source: ZipSource, place: int, locator: _Eocd64Locator, end: _Eocd
) -> CentralDirectory:
    """Read the second kind of end, which has room for large numbers; both must say the same."""
    if locator.disk != 0 or locator.disks > 1:
        raise unsupported_zip("it is split over several files")
    if place < 0 or locator.offset != place:
        raise ambiguous_zip("its two ends do not fit together")
    wide = _Eocd64(*_EOCD64_STRUCT.unpack(source.read(place, _EOCD64_STRUCT.size)))
    if wide.signature != _EOCD64_SIGNATURE or wide.rest != _EOCD64_REST:
        raise ambiguous_zip("its two ends do not fit together")
    if (wide.disk, wide.list_disk) != (0, 0) or wide.entries_here != wide.entries:
        raise unsupported_zip("it is split over several files")
    agree = (
        end.entries in {_ABSENT_16, wide.entries}
        and end.size in {_ABSENT_32, wide.size}
        and end.offset in {_ABSENT_32, wide.offset}
    )
    if not agree:
        raise ambiguous_zip("its two ends do not say the same")
    return CentralDirectory(wide.offset, wide.size, wide.entries)
