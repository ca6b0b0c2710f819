"""The end of a zip: where its list of files lies, and that there is only one end."""

from struct import Struct
from typing import NamedTuple

from apexbridge.lifecycle.plan import ArchiveLimits, too_large
from apexbridge.lifecycle.zip_source import ZipSource, ambiguous, broken, unsupported

_END = b"PK\x05\x06"
_END64 = b"PK\x06\x06"
_LOCATOR = b"PK\x06\x07"
_LONGEST_COMMENT = 0xFFFF
_ABSENT_16 = 0xFFFF
_ABSENT_32 = 0xFFFFFFFF
_MAX_LIST_BYTES = 8 * 1024 * 1024


class _End(NamedTuple):
    signature: bytes
    disk: int
    list_disk: int
    entries_here: int
    entries: int
    size: int
    offset: int
    comment: int


class _Locator(NamedTuple):
    signature: bytes
    disk: int
    offset: int
    disks: int


class _End64(NamedTuple):
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


_END_FORM = Struct("<4s4H2LH")
_LOCATOR_FORM = Struct("<4sLQL")
_END64_FORM = Struct("<4sQ2H2L4Q")
_END64_REST = _END64_FORM.size - 12
"""What the record counts as its own length: without its signature and this number."""


class FileList(NamedTuple):
    """Where the list of files lies, and how many it has."""

    offset: int
    size: int
    entries: int


def find_list(source: ZipSource, limits: ArchiveLimits) -> FileList:
    """Find the list of files, and refuse too long a one before any of it is read.

    Raises:
        ArchiveError: If there is no end, more than one, or anything around it.
    """
    place, end = _find_end(source)
    if (end.disk, end.list_disk) != (0, 0) or end.entries_here != end.entries:
        raise unsupported("it is split over several files")
    found, list_end = FileList(end.offset, end.size, end.entries), place
    locator = _find_locator(source, place)
    if locator is not None:
        list_end = place - _LOCATOR_FORM.size - _END64_FORM.size
        found = _wide(source, list_end, locator, end)
    elif end.entries == _ABSENT_16 or _ABSENT_32 in {end.size, end.offset}:
        raise broken("it lacks the record of its true sizes")
    if found.entries > limits.entries:
        raise too_large(f"more than {limits.entries} entries")
    if found.offset + found.size != list_end:
        raise ambiguous("there is data before it, after it or between its parts")
    if found.size > _MAX_LIST_BYTES:
        raise too_large(f"its list of files has more than {_MAX_LIST_BYTES} bytes")
    return found


def _find_end(source: ZipSource) -> tuple[int, _End]:
    length = min(source.size, _END_FORM.size + _LONGEST_COMMENT)
    start = source.size - length
    tail = source.read(start, length)
    last = tail.rfind(_END)
    if last < 0:
        raise broken("it is no zip, or cut off")
    if length - last < _END_FORM.size:
        raise broken("it is cut off")
    end = _End(*_END_FORM.unpack_from(tail, last))
    behind = length - last - _END_FORM.size
    if end.comment > behind:
        raise broken("it is cut off")
    if end.comment < behind:
        raise ambiguous("there is data after its end")
    if _another_end(tail, last):
        raise ambiguous("it has two ends")
    return start + last, end


def _another_end(tail: bytes, last: int) -> bool:
    """Whether an earlier end would do as well, with all that follows as its comment.

    The end of an archive that is kept inside is none: its comment stops before.
    """
    place = tail.rfind(_END, 0, last)
    while place >= 0:
        end = _End(*_END_FORM.unpack_from(tail, place))
        if place + _END_FORM.size + end.comment == len(tail):
            return True
        place = tail.rfind(_END, 0, place)
    return False


def _find_locator(source: ZipSource, end_place: int) -> _Locator | None:
    if end_place < _LOCATOR_FORM.size:
        return None
    data = source.read(end_place - _LOCATOR_FORM.size, _LOCATOR_FORM.size)
    locator = _Locator(*_LOCATOR_FORM.unpack(data))
    return locator if locator.signature == _LOCATOR else None


def _wide(source: ZipSource, place: int, locator: _Locator, end: _End) -> FileList:
    """Read the second kind of end, which has room for large numbers; both must say the same."""
    if locator.disk != 0 or locator.disks > 1:
        raise unsupported("it is split over several files")
    if place < 0 or locator.offset != place:
        raise ambiguous("its two ends do not fit together")
    wide = _End64(*_END64_FORM.unpack(source.read(place, _END64_FORM.size)))
    if wide.signature != _END64 or wide.rest != _END64_REST:
        raise ambiguous("its two ends do not fit together")
    if (wide.disk, wide.list_disk) != (0, 0) or wide.entries_here != wide.entries:
        raise unsupported("it is split over several files")
    agree = (
        end.entries in {_ABSENT_16, wide.entries}
        and end.size in {_ABSENT_32, wide.size}
        and end.offset in {_ABSENT_32, wide.offset}
    )
    if not agree:
        raise ambiguous("its two ends do not say the same")
    return FileList(wide.offset, wide.size, wide.entries)
