"""Zips written record by record, so that each record can be malformed."""

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from apexbridge.errors import ArchiveError
from apexbridge.lifecycle.zip.archive import DEFAULT_LIMITS, ArchiveLimits, inspect_archive
from apexbridge.testing import skill_md

FILE = 0o100644
FOLDER = 0o040755
NONE: Mapping[str, int] = {}


@dataclass(frozen=True, kw_only=True)
class Raw:
    """One entry; `header` and `listed` replace single numbers in its two records."""

    name: str | bytes
    data: bytes = b""
    deflated: bool = False
    packed: bytes | None = None
    flags: int = 0
    mode: int = FILE
    header: Mapping[str, int] = field(default_factory=dict[str, int])
    listed: Mapping[str, int] = field(default_factory=dict[str, int])
    header_name: bytes | None = None
    header_extra: bytes = b""
    listed_extra: bytes = b""
    comment: bytes = b""
    tail: bytes = b""

    @property
    def raw(self) -> bytes:
        return self.name if isinstance(self.name, bytes) else self.name.encode()

    @property
    def bytes(self) -> bytes:
        if self.packed is not None:
            return self.packed
        return deflate(self.data) if self.deflated else self.data

    def numbers(self) -> dict[str, int]:
        is_utf8 = isinstance(self.name, str) and not self.name.isascii()
        return {
            "needed": 20,
            "flags": self.flags | (0x800 if is_utf8 else 0),
            "method": 8 if self.deflated else 0,
            "time": 0,
            "date": 33,
            "crc": zlib.crc32(self.data),
            "packed": len(self.bytes),
            "size": len(self.data),
        }


def deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def _header(entry: Raw) -> bytes:
    name = entry.raw if entry.header_name is None else entry.header_name
    numbers = {**entry.numbers(), "name": len(name), "extra": len(entry.header_extra)}
    values = {**numbers, **entry.header}.values()
    return struct.pack("<4s5H3L2H", b"PK\3\4", *values) + name + entry.header_extra


def _listed(entry: Raw, offset: int) -> bytes:
    numbers = {
        "made_by": 0x0314,
        **entry.numbers(),
        "name": len(entry.raw),
        "extra": len(entry.listed_extra),
        "comment": len(entry.comment),
        "disk": 0,
        "internal": 0,
        "external": entry.mode << 16,
        "offset": offset,
    }
    values = {**numbers, **entry.listed}.values()
    record = struct.pack("<4s6H3L5H2L", b"PK\1\2", *values)
    return record + entry.raw + entry.listed_extra + entry.comment


def raw_zip(
    entries: Sequence[Raw],
    *,
    prefix: bytes = b"",
    comment: bytes = b"",
    end: Mapping[str, int] = NONE,
    wide: Mapping[str, int] | None = None,
    locator: Mapping[str, int] = NONE,
) -> bytes:
    """The bytes of a zip; with `wide`, it has the second kind of end as well."""
    body, offsets = prefix, list[int]()
    for entry in entries:
        offsets.append(len(body))
        body += _header(entry) + entry.bytes + entry.tail
    files = b"".join(map(_listed, entries, offsets))
    place = {"size": len(files), "offset": len(body)}
    counts = {"disk": 0, "list_disk": 0, "here": len(entries), "all": len(entries)}
    body += files
    if wide is not None:
        numbers = {"rest": 44, "made_by": 45, "needed": 45, **counts, **place, **wide}
        at = {"disk": 0, "offset": len(body), "disks": 1, **locator}
        body += struct.pack("<4sQ2H2L4Q", b"PK\6\6", *numbers.values())
        body += struct.pack("<4sLQL", b"PK\6\7", *at.values())
    last = {**counts, **place, "comment": len(comment), **end}
    return body + struct.pack("<4s4H2LH", b"PK\5\6", *last.values()) + comment


SKILL = Raw(name="pdf/SKILL.md", data=skill_md("pdf"))


def descriptor(entry: Raw, form: str = "<3L", *, signed: bool = True) -> bytes:
    """What a program that packs a stream writes after a file."""
    sizes = (zlib.crc32(entry.data), len(entry.bytes), len(entry.data))
    return (b"PK\7\x08" if signed else b"") + struct.pack(form, *sizes)


def refusal(path: Path, data: bytes, limits: ArchiveLimits = DEFAULT_LIMITS) -> str:
    """The code with which an archive of these bytes is refused."""
    path = path / "x.zip" if path.is_dir() else path
    path.write_bytes(data)
    with pytest.raises(ArchiveError) as caught:
        inspect_archive(path, limits)
    assert caught.value.message
    return caught.value.code
