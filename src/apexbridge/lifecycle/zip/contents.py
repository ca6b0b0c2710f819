"""Read the files of a skill archive in memory: a zip, or a tar.gz under the same rules."""

import io
import tarfile
import zipfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager

from apexbridge.errors import ArchiveUnsafeError
from apexbridge.lifecycle.zip.archive import FLAT_FOLDER, Write, read_layout
from apexbridge.lifecycle.zip.central_directory import read_entries
from apexbridge.lifecycle.zip.layout import build_layout
from apexbridge.lifecycle.zip.limits import (
    DEFAULT_LIMITS,
    ArchiveFile,
    ArchiveLimits,
    limit_exceeded,
)
from apexbridge.lifecycle.zip.records import malformed_zip, printable_name, zip_from_bytes

_GZIP = b"\x1f\x8b"
_GZIP_STREAM = 16 + zlib.MAX_WBITS
_BLOCK = 512
_HEADER_BLOCKS = 8
"""Blocks of headers that a tar entry may have, long names included."""
_CREATED_ON_UNIX = 3


def read_skill_archive(data: bytes, limits: ArchiveLimits = DEFAULT_LIMITS) -> dict[str, bytes]:
    """Read all files of a skill's archive by path; SKILL.md is at its root or in its one folder.

    Nothing is written. The checks are those of an installation.

    Raises:
        ArchiveError: If it is malformed, unsafe, too large, or not one skill.
    """
    if len(data) > limits.packed_bytes:
        raise limit_exceeded(f"more than {limits.packed_bytes} bytes")
    source = zip_from_bytes(zip_from_tar(data, limits) if data.startswith(_GZIP) else data)
    layout = build_layout(read_entries(source, limits), limits, flat_folder=FLAT_FOLDER)
    files = dict[str, bytes]()

    @contextmanager
    def collect(file: ArchiveFile) -> Generator[Write]:
        content = bytearray()
        yield content.extend
        files[file.path.as_posix()] = bytes(content)

    read_layout(source, layout, collect)
    return files


def zip_from_tar(data: bytes, limits: ArchiveLimits = DEFAULT_LIMITS) -> bytes:
    """Repack a tar.gz as an uncompressed zip, whose reader has every rule about paths and sizes.

    Raises:
        ArchiveError: If it is malformed or too large, or has a link, device or sparse file.
    """
    tar = _decompress(data, limits)
    buffer = io.BytesIO()
    try:
        with (
            tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive,
            zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as repacked,
        ):
            for count, member in enumerate(archive):
                if count >= limits.entries:
                    raise limit_exceeded(f"more than {limits.entries} entries")
                _repack(archive, member, repacked)
            # tarfile stops in silence at a header that it cannot read; other readers may go on.
            if tar[archive.offset :].strip(b"\0"):
                raise malformed_zip("there is data behind the end of the tar archive")
    except (tarfile.TarError, EOFError, UnicodeError, ValueError) as error:
        raise malformed_zip(str(error)) from None
    return buffer.getvalue()


def _decompress(data: bytes, limits: ArchiveLimits) -> bytes:
    """Decompress one gzip stream, never beyond the limits (decompression bomb guard)."""
    most = limits.unpacked_bytes + _HEADER_BLOCKS * _BLOCK * limits.entries
    stream = zlib.decompressobj(_GZIP_STREAM)
    try:
        tar = stream.decompress(data, most)
    except zlib.error as error:
        raise malformed_zip(str(error)) from None
    if stream.unconsumed_tail or len(tar) >= most:
        raise limit_exceeded(f"more than {limits.unpacked_bytes} bytes unpacked")
    if not stream.eof:
        raise malformed_zip("the gzip stream is truncated")
    if stream.unused_data.strip(b"\0"):
        # Readers differ in whether they go on with a second stream.
        raise malformed_zip("there is data behind the gzip stream")
    return tar


def _repack(archive: tarfile.TarFile, member: tarfile.TarInfo, repacked: zipfile.ZipFile) -> None:
    name = member.name.removeprefix("./").rstrip("/")
    if member.isdir() and name in {"", "."}:
        return  # `tar -C folder .` writes the folder itself
    if member.issym() or member.islnk():
        raise ArchiveUnsafeError(code="zip_link_entry", name=printable_name(name))
    if not (member.isdir() or (member.isreg() and not member.issparse())):
        raise ArchiveUnsafeError(code="zip_special_entry", name=printable_name(name))
    if "\0" in name or "\\" in name or not _is_encodable(name):
        raise ArchiveUnsafeError(code="zip_name_encoding", name=printable_name(ascii(name)))
    file = None if member.isdir() else archive.extractfile(member)
    item = zipfile.ZipInfo(f"{name}/" if member.isdir() else name)
    if item.filename in repacked.NameToInfo:
        raise ArchiveUnsafeError(code="zip_duplicate_entry", name=printable_name(name))
    item.create_system = _CREATED_ON_UNIX
    kind = 0o040000 if member.isdir() else 0o100000
    item.external_attr = (kind | (member.mode & 0o777)) << 16
    content = b"" if file is None else file.read()
    if len(content) != member.size and file is not None:
        raise malformed_zip(f"'{printable_name(name)}' is truncated")
    repacked.writestr(item, content)


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # bytes that are not UTF-8
        return False
    return True
