"""A zip's list of files, read and held against the header of each file, before any is unpacked."""

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
"""The version of the format, in tenths, that the last published description has."""
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
"""What may follow a file: its checksum and sizes, after a signature or without one."""
_DESCRIPTOR_LIMIT = len(_DESCRIPTOR_SIGNATURE) + max(_DESCRIPTOR_STRUCTS) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipEntry:
    """One entry, of which list and header say the same."""

    raw: bytes
    flags: int
    unicode_names: tuple[bytes, ...]
    mode: int
    """What Unix calls the mode; 0 where the archive comes from elsewhere."""
    method: int
    crc: int
    packed: int
    size: int
    offset: int
    """Where its header lies."""
    start: int = 0
    """Where its bytes lie."""

    @property
    def is_utf8(self) -> bool:
        """Whether the archive says that the name is UTF-8."""
        return bool(self.flags & _UTF8)


def read_entries(source: ZipSource, limits: ArchiveLimits) -> tuple[ZipEntry, ...]:
    """Read the list of files and every header.

    Each byte before the list belongs to exactly one entry; list and headers say the same; what
    they say of sizes keeps the limits. Whether it is true of the packed bytes is not known yet.

    Raises:
        ArchiveError: If not.
    """
    found = find_central_directory(source, limits)
    entries = list(_parse_central_directory(source.read(found.offset, found.size), found.entries))
    if len({entry.raw for entry in entries}) < len(entries):
        raise ArchiveUnsafeError(code="zip_duplicate_entry", name=_first_duplicate(entries))
    _check_zip_bomb(entries, limits)
    return tuple(_check_local_headers(source, entries, found.offset))


def _parse_central_directory(data: bytes, count: int) -> Iterator[ZipEntry]:
    place = 0
    for _ in range(count):
        if len(data) - place < _CENTRAL_STRUCT.size:
            raise ambiguous_zip("it has fewer files than it says")
        listed = _CentralHeader(*_CENTRAL_STRUCT.unpack_from(data, place))
        if listed.signature != _CENTRAL_SIGNATURE:
            raise malformed_zip("its list of files is damaged")
        name_at = place + _CENTRAL_STRUCT.size
        extra_at = name_at + listed.name_length
        place = extra_at + listed.extra_length + listed.comment_length
        if place > len(data):
            raise malformed_zip("its list of files is damaged")
        if listed.comment_length:
            raise ambiguous_zip("an entry has a comment")
        yield _to_entry(listed, data[name_at:extra_at], data[extra_at:place])
    if place != len(data):
        raise ambiguous_zip("it has more files than it says")


def _to_entry(listed: _CentralHeader, raw: bytes, extra: bytes) -> ZipEntry:
    fields = parse_extra_fields(extra)
    written = EntrySizes(listed.size, listed.packed, listed.offset, listed.disk)
    sizes = central_sizes(written, fields)
    name = unicode_path(raw, fields)
    if sizes.disk:
        raise unsupported_zip("it is split over several files")
    if listed.flags & _ENCRYPTED or listed.method == _AES:
        raise ArchiveUnsafeError(code="zip_encrypted")
    if listed.needed & 0xFF > _MAX_VERSION_NEEDED:
        raise unsupported_zip(f"'{printable_name(raw)}' needs a newer version of the format")
    if listed.flags & _PATCH or listed.method not in {STORED, DEFLATED}:
        raise unsupported_zip(f"'{printable_name(raw)}' has packing method {listed.method}")
    return ZipEntry(
        raw=raw,
        flags=listed.flags,
        unicode_names=() if name is None else (name,),
        mode=listed.external >> 16,
        method=listed.method,
        crc=listed.crc,
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
    """Walk from the first byte to the list of files and meet every entry once, and nothing else."""
    ordered = sorted(entries, key=lambda entry: entry.offset)
    starts = [*(entry.offset for entry in ordered), end]
    if starts[0] != 0:
        raise ambiguous_zip("there is data before it, after it or between its parts")
    for entry, (_, following) in zip(ordered, pairwise(starts), strict=True):
        header, start, name = _read_local_header(source, entry)
        space = following - start - entry.packed
        if space < 0:
            raise ambiguous_zip(f"'{printable_name(entry.raw)}' overlaps what follows it")
        if header.flags & _HAS_DESCRIPTOR:
            _check_descriptor(source.read(following - space, min(space, _DESCRIPTOR_LIMIT)), entry)
        elif space:
            raise ambiguous_zip("there is data before it, after it or between its parts")
        names = entry.unicode_names if name is None else (*entry.unicode_names, name)
        yield replace(entry, start=start, unicode_names=names)


def _read_local_header(
    source: ZipSource, entry: ZipEntry
) -> tuple[_LocalHeader, int, bytes | None]:
    """Read an entry's own header; where its bytes begin; and a second name, if it has one."""
    header = _LocalHeader(*_LOCAL_STRUCT.unpack(source.read(entry.offset, _LOCAL_STRUCT.size)))
    if header.signature != _LOCAL_SIGNATURE:
        raise ambiguous_zip(f"'{printable_name(entry.raw)}' is listed, but is not there")
    name_at = entry.offset + _LOCAL_STRUCT.size
    rest = source.read(name_at, header.name_length + header.extra_length)
    raw, fields = rest[: header.name_length], parse_extra_fields(rest[header.name_length :])
    if raw != entry.raw:
        raise ambiguous_zip(
            f"'{printable_name(entry.raw)}' is called '{printable_name(raw)}' in its own header"
        )
    sizes = local_sizes(EntrySizes(header.size, header.packed), fields)
    if not _headers_match(header, sizes, entry):
        raise ambiguous_zip(f"the list and the header of '{printable_name(entry.raw)}' differ")
    return header, name_at + len(rest), unicode_path(raw, fields)


def _headers_match(header: _LocalHeader, sizes: EntrySizes, entry: ZipEntry) -> bool:
    if (header.flags ^ entry.flags) & _MUST_AGREE or header.method != entry.method:
        return False
    said = (header.crc, sizes.packed, sizes.size)
    listed = (entry.crc, entry.packed, entry.size)
    if not header.flags & _HAS_DESCRIPTOR:
        # A list that announces what no header does would make some programs look for it.
        return said == listed and not entry.flags & _HAS_DESCRIPTOR
    return all(value in {0, true} for value, true in zip(said, listed, strict=True))


def _check_descriptor(tail: bytes, entry: ZipEntry) -> None:
    """Hold what follows a file that was packed as a stream against the list."""
    expected = (entry.crc, entry.packed, entry.size)
    for skipped in (0, len(_DESCRIPTOR_SIGNATURE)):
        form = _DESCRIPTOR_STRUCTS.get(len(tail) - skipped)
        has_signature = not skipped or tail.startswith(_DESCRIPTOR_SIGNATURE)
        if form is not None and has_signature and form.unpack_from(tail, skipped) == expected:
            return
    raise ambiguous_zip(f"what follows '{printable_name(entry.raw)}' does not fit it")
