"""A zip's list of files, read and held against the header of each file, before any is unpacked."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from apexbridge.errors import ArchiveUnsafeError
from apexbridge.lifecycle.plan import ArchiveLimits, too_large
from apexbridge.lifecycle.zip_end import find_list
from apexbridge.lifecycle.zip_fields import (
    Sizes,
    fields_of,
    header_sizes,
    listed_sizes,
    unicode_name,
)
from apexbridge.lifecycle.zip_source import ZipSource, ambiguous, broken, shown, unsupported

STORED = 0
DEFLATED = 8

_LISTED = b"PK\x01\x02"
_HEADER = b"PK\x03\x04"
_DESCRIPTOR = b"PK\x07\x08"
_AES = 99
_NEWEST = 63
"""The version of the format, in tenths, that the last published description has."""
_ENCRYPTED = 0x0001 | 0x0040 | 0x2000
_PATCH = 0x0020
_UTF8 = 0x0800
_SIZES_FOLLOW = 0x0008
_MUST_AGREE = _ENCRYPTED | _PATCH | _UTF8


class _Listed(NamedTuple):
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


class _Header(NamedTuple):
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


_LISTED_FORM = Struct("<4s6H3L5H2L")
_HEADER_FORM = Struct("<4s5H3L2H")
_TAIL_FORMS = {form.size: form for form in (Struct("<3L"), Struct("<L2Q"))}
"""What may follow a file: its checksum and sizes, after a signature or without one."""
_TOO_LONG_TAIL = len(_DESCRIPTOR) + max(_TAIL_FORMS) + 1


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
    found = find_list(source, limits)
    entries = list(_listed(source.read(found.offset, found.size), found.entries))
    if len({entry.raw for entry in entries}) < len(entries):
        raise ArchiveUnsafeError(code="zip_duplicate_entry", name=_first_twice(entries))
    _refuse_large(entries, limits)
    return tuple(_with_headers(source, entries, found.offset))


def _listed(data: bytes, count: int) -> Iterator[ZipEntry]:
    place = 0
    for _ in range(count):
        if len(data) - place < _LISTED_FORM.size:
            raise ambiguous("it has fewer files than it says")
        listed = _Listed(*_LISTED_FORM.unpack_from(data, place))
        if listed.signature != _LISTED:
            raise broken("its list of files is damaged")
        name_at = place + _LISTED_FORM.size
        extra_at = name_at + listed.name_length
        place = extra_at + listed.extra_length + listed.comment_length
        if place > len(data):
            raise broken("its list of files is damaged")
        if listed.comment_length:
            raise ambiguous("an entry has a comment")
        yield _entry(listed, data[name_at:extra_at], data[extra_at:place])
    if place != len(data):
        raise ambiguous("it has more files than it says")


def _entry(listed: _Listed, raw: bytes, extra: bytes) -> ZipEntry:
    fields = fields_of(extra)
    written = Sizes(listed.size, listed.packed, listed.offset, listed.disk)
    sizes = listed_sizes(written, fields)
    name = unicode_name(raw, fields)
    if sizes.disk:
        raise unsupported("it is split over several files")
    if listed.flags & _ENCRYPTED or listed.method == _AES:
        raise ArchiveUnsafeError(code="zip_encrypted")
    if listed.needed & 0xFF > _NEWEST:
        raise unsupported(f"'{shown(raw)}' needs a newer version of the format")
    if listed.flags & _PATCH or listed.method not in {STORED, DEFLATED}:
        raise unsupported(f"'{shown(raw)}' has packing method {listed.method}")
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


def _first_twice(entries: Sequence[ZipEntry]) -> str:
    return shown(Counter(entry.raw for entry in entries).most_common(1)[0][0])


def _refuse_large(entries: Sequence[ZipEntry], limits: ArchiveLimits) -> None:
    if sum(entry.size for entry in entries) > limits.unpacked_bytes:
        raise too_large(f"more than {limits.unpacked_bytes} bytes unpacked")
    for entry in entries:
        if entry.size > limits.file_bytes:
            raise too_large(f"{shown(entry.raw)} has more than {limits.file_bytes} bytes")
        if entry.size > max(limits.ratio_floor_bytes, limits.ratio * entry.packed):
            name = shown(entry.raw)
            raise too_large(f"{name} unpacks to more than {limits.ratio} times its packed size")


def _with_headers(source: ZipSource, entries: Sequence[ZipEntry], end: int) -> Iterator[ZipEntry]:
    """Walk from the first byte to the list of files and meet every entry once, and nothing else."""
    ordered = sorted(entries, key=lambda entry: entry.offset)
    starts = [*(entry.offset for entry in ordered), end]
    if starts[0] != 0:
        raise ambiguous("there is data before it, after it or between its parts")
    for entry, (_, following) in zip(ordered, pairwise(starts), strict=True):
        header, start, name = _header(source, entry)
        space = following - start - entry.packed
        if space < 0:
            raise ambiguous(f"'{shown(entry.raw)}' overlaps what follows it")
        if header.flags & _SIZES_FOLLOW:
            _compare_tail(source.read(following - space, min(space, _TOO_LONG_TAIL)), entry)
        elif space:
            raise ambiguous("there is data before it, after it or between its parts")
        names = entry.unicode_names if name is None else (*entry.unicode_names, name)
        yield replace(entry, start=start, unicode_names=names)


def _header(source: ZipSource, entry: ZipEntry) -> tuple[_Header, int, bytes | None]:
    """Read an entry's own header; where its bytes begin; and a second name, if it has one."""
    header = _Header(*_HEADER_FORM.unpack(source.read(entry.offset, _HEADER_FORM.size)))
    if header.signature != _HEADER:
        raise ambiguous(f"'{shown(entry.raw)}' is listed, but is not there")
    name_at = entry.offset + _HEADER_FORM.size
    rest = source.read(name_at, header.name_length + header.extra_length)
    raw, fields = rest[: header.name_length], fields_of(rest[header.name_length :])
    if raw != entry.raw:
        raise ambiguous(f"'{shown(entry.raw)}' is called '{shown(raw)}' in its own header")
    sizes = header_sizes(Sizes(header.size, header.packed), fields)
    if not _same(header, sizes, entry):
        raise ambiguous(f"the list and the header of '{shown(entry.raw)}' differ")
    return header, name_at + len(rest), unicode_name(raw, fields)


def _same(header: _Header, sizes: Sizes, entry: ZipEntry) -> bool:
    if (header.flags ^ entry.flags) & _MUST_AGREE or header.method != entry.method:
        return False
    said = (header.crc, sizes.packed, sizes.size)
    listed = (entry.crc, entry.packed, entry.size)
    if not header.flags & _SIZES_FOLLOW:
        # A list that announces what no header does would make some programs look for it.
        return said == listed and not entry.flags & _SIZES_FOLLOW
    return all(value in {0, true} for value, true in zip(said, listed, strict=True))


def _compare_tail(tail: bytes, entry: ZipEntry) -> None:
    """Hold what follows a file that was packed as a stream against the list."""
    expected = (entry.crc, entry.packed, entry.size)
    for skipped in (0, len(_DESCRIPTOR)):
        form = _TAIL_FORMS.get(len(tail) - skipped)
        has_signature = not skipped or tail.startswith(_DESCRIPTOR)
        if form is not None and has_signature and form.unpack_from(tail, skipped) == expected:
            return
    raise ambiguous(f"what follows '{shown(entry.raw)}' does not fit it")
