"""Central directory of a zip, verified against every local header before extraction."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from apexbridge.errors import ArchiveUnsafeError
from apexbridge.lifecycle.zip.limits import ArchiveLimits, limit_exceeded
from apexbridge.lifecycle.zip.records import (
    EntrySizes,
    ZipSource,
    ambiguous_zip,
    central_sizes,
    find_central_directory,
    local_sizes,
    malformed_zip,
    parse_extra_fields,
    printable_name,
    unicode_path,
    unsupported_zip,
)

STORED = 0
DEFLATED = 8

_CENTRAL_SIGNATURE = b"PK\x01\x02"
_LOCAL_SIGNATURE = b"PK\x03\x04"
_DESCRIPTOR_SIGNATURE = b"PK\x07\x08"
_AES = 99
_MAX_VERSION_NEEDED = 63
"""Highest `version needed` of the published format, times ten."""
_ENCRYPTED = 0x0001 | 0x0040 | 0x2000
_PATCH = 0x0020
_UTF8 = 0x0800
_HAS_DESCRIPTOR = 0x0008
_MUST_AGREE = _ENCRYPTED | _PATCH | _UTF8


class _CentralHeader(NamedTuple):
    signature: bytes
    made_by: int
    needed: int
    flags: int
    method: int
    time: int
    date: int
    crc: int
    packed: int
    size: int
    name_length: int
    extra_length: int
    comment_length: int
    disk: int
    internal: int
    external: int
    offset: int


class _LocalHeader(NamedTuple):
    signature: bytes
    needed: int
    flags: int
    method: int
    time: int
    date: int
    crc: int
    packed: int
    size: int
    name_length: int
    extra_length: int


_CENTRAL_STRUCT = Struct("<4s6H3L5H2L")
_LOCAL_STRUCT = Struct("<4s5H3L2H")
_DESCRIPTOR_STRUCTS = {form.size: form for form in (Struct("<3L"), Struct("<L2Q"))}
"""Data descriptors by size: CRC and sizes, in 32 or 64 bits, without the optional signature."""
_DESCRIPTOR_LIMIT = len(_DESCRIPTOR_SIGNATURE) + max(_DESCRIPTOR_STRUCTS) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipEntry:
    """An entry whose central and local header agree."""

    raw: bytes
    flags: int
    unicode_names: tuple[bytes, ...]
    mode: int
    """Unix mode; 0 if the archive was made on another system."""
    method: int
    crc: int
    packed: int
    size: int
    offset: int
    """Offset of the local header."""
    start: int = 0
    """Offset of the packed bytes."""

    @property
    def is_utf8(self) -> bool:
        """Say whether the UTF-8 flag of the name is set."""
        return bool(self.flags & _UTF8)


def read_entries(source: ZipSource, limits: ArchiveLimits) -> tuple[ZipEntry, ...]:
    """Parse the central directory and every local header.

    Each byte before the directory belongs to exactly one entry, both headers agree, and the
    declared sizes are within the limits. The packed bytes themselves are not checked yet.

    Raises:
        ArchiveError: If any of this does not hold.
    """
    found = find_central_directory(source, limits)
    entries = list(_parse_central_directory(source.read(found.offset, found.size), found.entries))
    if len({entry.raw for entry in entries}) < len(entries):
        raise ArchiveUnsafeError(code="zip_duplicate_entry", name=_first_duplicate(entries))
    _check_zip_bomb(entries, limits)
    return tuple(_check_local_headers(source, entries, found.offset))


def _parse_central_directory(data: bytes, count: int) -> Iterator[ZipEntry]:
    position = 0
    for _ in range(count):
        if len(data) - position < _CENTRAL_STRUCT.size:
            raise ambiguous_zip("fewer entries than announced")
        central_header = _CentralHeader(*_CENTRAL_STRUCT.unpack_from(data, position))
        if central_header.signature != _CENTRAL_SIGNATURE:
            raise malformed_zip("the central directory is damaged")
        name_at = position + _CENTRAL_STRUCT.size
        extra_at = name_at + central_header.name_length
        position = extra_at + central_header.extra_length + central_header.comment_length
        if position > len(data):
            raise malformed_zip("the central directory is damaged")
        # Some parsers search comments for signatures, and would see other entries.
        if central_header.comment_length:
            raise ambiguous_zip("an entry has a comment")
        yield _to_entry(central_header, data[name_at:extra_at], data[extra_at:position])
    if position != len(data):
        raise ambiguous_zip("more entries than announced")


def _to_entry(central_header: _CentralHeader, raw: bytes, extra: bytes) -> ZipEntry:
    fields = parse_extra_fields(extra)
    written = EntrySizes(
        central_header.size, central_header.packed, central_header.offset, central_header.disk
    )
    sizes = central_sizes(written, fields)
    name = unicode_path(raw, fields)
    if sizes.disk:
        raise unsupported_zip("split archives are not supported")
    if central_header.flags & _ENCRYPTED or central_header.method == _AES:
        raise ArchiveUnsafeError(code="zip_encrypted")
    if central_header.needed & 0xFF > _MAX_VERSION_NEEDED:
        raise unsupported_zip(f"'{printable_name(raw)}' needs a newer version of the format")
    if central_header.flags & _PATCH or central_header.method not in {STORED, DEFLATED}:
        raise unsupported_zip(
            f"'{printable_name(raw)}' has compression method {central_header.method}"
        )
    return ZipEntry(
        raw=raw,
        flags=central_header.flags,
        unicode_names=() if name is None else (name,),
        mode=central_header.external >> 16,
        method=central_header.method,
        crc=central_header.crc,
        packed=sizes.packed,
        size=sizes.size,
        offset=sizes.offset,
    )


def _first_duplicate(entries: Sequence[ZipEntry]) -> str:
    return printable_name(Counter(entry.raw for entry in entries).most_common(1)[0][0])


def _check_zip_bomb(entries: Sequence[ZipEntry], limits: ArchiveLimits) -> None:
    if sum(entry.size for entry in entries) > limits.unpacked_bytes:
        raise limit_exceeded(f"more than {limits.unpacked_bytes} bytes unpacked")
    for entry in entries:
        if entry.size > limits.file_bytes:
            raise limit_exceeded(
                f"{printable_name(entry.raw)} has more than {limits.file_bytes} bytes"
            )
        if entry.size > max(limits.ratio_floor_bytes, limits.ratio * entry.packed):
            name = printable_name(entry.raw)
            raise limit_exceeded(
                f"{name} unpacks to more than {limits.ratio} times its packed size"
            )


def _check_local_headers(
    source: ZipSource, entries: Sequence[ZipEntry], end: int
) -> Iterator[ZipEntry]:
    """Walk the archive from its first byte: entries must be contiguous and must not overlap."""
    ordered = sorted(entries, key=lambda entry: entry.offset)
    starts = [*(entry.offset for entry in ordered), end]
    if starts[0] != 0:
        raise ambiguous_zip("data before, after or between its records")
    for entry, (_, following) in zip(ordered, pairwise(starts), strict=True):
        header, start, name = _read_local_header(source, entry)
        space = following - start - entry.packed
        if space < 0:
            raise ambiguous_zip(f"'{printable_name(entry.raw)}' overlaps the next record")
        if header.flags & _HAS_DESCRIPTOR:
            _check_descriptor(source.read(following - space, min(space, _DESCRIPTOR_LIMIT)), entry)
        elif space:
            raise ambiguous_zip("data before, after or between its records")
        names = entry.unicode_names if name is None else (*entry.unicode_names, name)
        yield replace(entry, start=start, unicode_names=names)


def _read_local_header(
    source: ZipSource, entry: ZipEntry
) -> tuple[_LocalHeader, int, bytes | None]:
    """Parse a local header; return it, the offset of the data, and a Unicode path if present."""
    header = _LocalHeader(*_LOCAL_STRUCT.unpack(source.read(entry.offset, _LOCAL_STRUCT.size)))
    if header.signature != _LOCAL_SIGNATURE:
        raise ambiguous_zip(f"'{printable_name(entry.raw)}' has no local header")
    name_at = entry.offset + _LOCAL_STRUCT.size
    rest = source.read(name_at, header.name_length + header.extra_length)
    raw, fields = rest[: header.name_length], parse_extra_fields(rest[header.name_length :])
    if raw != entry.raw:
        raise ambiguous_zip(
            f"'{printable_name(entry.raw)}' is named '{printable_name(raw)}' in its local header"
        )
    sizes = local_sizes(EntrySizes(header.size, header.packed), fields)
    if not _headers_match(header, sizes, entry):
        raise ambiguous_zip(f"central and local header of '{printable_name(entry.raw)}' differ")
    return header, name_at + len(rest), unicode_path(raw, fields)


def _headers_match(header: _LocalHeader, sizes: EntrySizes, entry: ZipEntry) -> bool:
    if (header.flags ^ entry.flags) & _MUST_AGREE or header.method != entry.method:
        return False
    local = (header.crc, sizes.packed, sizes.size)
    central = (entry.crc, entry.packed, entry.size)
    if not header.flags & _HAS_DESCRIPTOR:
        # A descriptor flag in the central header alone makes some parsers look for one.
        return local == central and not entry.flags & _HAS_DESCRIPTOR
    return all(value in {0, true} for value, true in zip(local, central, strict=True))


def _check_descriptor(tail: bytes, entry: ZipEntry) -> None:
    """Compare the data descriptor of a streamed entry with the central header."""
    expected = (entry.crc, entry.packed, entry.size)
    for skipped in (0, len(_DESCRIPTOR_SIGNATURE)):
        form = _DESCRIPTOR_STRUCTS.get(len(tail) - skipped)
        has_signature = not skipped or tail.startswith(_DESCRIPTOR_SIGNATURE)
        if form is not None and has_signature and form.unpack_from(tail, skipped) == expected:
            return
    raise ambiguous_zip(f"the data descriptor of '{printable_name(entry.raw)}' does not match")
