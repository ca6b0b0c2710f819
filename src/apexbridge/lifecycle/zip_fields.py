"""The extra fields of a zip's headers: true sizes of large files, and names in UTF-8. Pure."""

import zlib
from struct import Struct
from typing import NamedTuple

from apexbridge.lifecycle.zip_source import ambiguous, broken

ABSENT = 0xFFFFFFFF
"""The number that says: look into the extra field."""

_SIZES = 0x0001
_UNICODE_NAME = 0x7075
_ONLY_ONCE = {_SIZES, _UNICODE_NAME}
_ABSENT_DISK = 0xFFFF
_HEAD = Struct("<HH")
_NAME_HEAD = Struct("<BL")
_NAME_VERSION = 1
_TWO_SIZES = Struct("<QQ")


class Sizes(NamedTuple):
    """How large a file is unpacked and packed, and where it and its header lie."""

    size: int
    packed: int
    offset: int = 0
    disk: int = 0


def fields_of(extra: bytes) -> dict[int, bytes]:
    """Take the extra field apart.

    Raises:
        ArchiveError: If it does not come out even, or says twice what can be said once.
    """
    found, place = dict[int, bytes](), 0
    while place < len(extra):
        if len(extra) - place < _HEAD.size:
            raise broken("an extra field is cut off")
        kind, length = _HEAD.unpack_from(extra, place)
        place += _HEAD.size
        if length > len(extra) - place:
            raise broken("an extra field is cut off")
        if kind in found and kind in _ONLY_ONCE:
            raise ambiguous("an extra field stands twice")
        found[kind] = extra[place : place + length]
        place += length
    return found


def listed_sizes(written: Sizes, fields: dict[int, bytes]) -> Sizes:
    """The true sizes of an entry of the list: the field holds those, and only those, that lack."""
    data = fields.get(_SIZES, b"")
    absent = [value == ABSENT for value in written[:3]]
    lacks_disk = written.disk == _ABSENT_DISK
    if not any(absent) and not lacks_disk:
        return written
    if len(data) != 8 * sum(absent) + 4 * lacks_disk:
        raise broken("the true sizes of an entry are missing")
    values, place = list[int](), 0
    for value, is_absent in zip(written[:3], absent, strict=True):
        values.append(_number(data[place : place + 8]) if is_absent else value)
        place += 8 * is_absent
    disk = _number(data[place:]) if lacks_disk else written.disk
    return Sizes(values[0], values[1], values[2], disk)


def header_sizes(written: Sizes, fields: dict[int, bytes]) -> Sizes:
    """The true sizes in a file's own header: if one lacks, the field holds both."""
    if ABSENT not in {written.size, written.packed}:
        return written
    data = fields.get(_SIZES, b"")
    if len(data) != _TWO_SIZES.size:
        raise broken("the true sizes of an entry are missing")
    true = Sizes(*_TWO_SIZES.unpack(data))
    for value, wide in zip(written[:2], true[:2], strict=True):
        if value not in {ABSENT, wide}:
            raise ambiguous("an entry has two sizes")
    return true


def _number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def unicode_name(name: bytes, fields: dict[int, bytes]) -> bytes | None:
    """The name in UTF-8 that an extra field gives; one made for another name counts for nothing.

    Raises:
        ArchiveError: If the field is too short.
    """
    data = fields.get(_UNICODE_NAME)
    if data is None:
        return None
    if len(data) < _NAME_HEAD.size:
        raise broken("an extra field is cut off")
    version, checksum = _NAME_HEAD.unpack_from(data)
    if version != _NAME_VERSION or checksum != zlib.crc32(name):
        return None
    return data[_NAME_HEAD.size :]
