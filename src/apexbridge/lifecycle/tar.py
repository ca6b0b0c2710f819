"""Tar archives, also compressed with gzip, with the checks of zips: extracted all or nothing.

Read twice: every header is checked before the first file is written. Symlinks of a repository that
stay inside it are made after all files, so that nothing is ever written through one.
"""

import gzip
import tarfile
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from apexbridge.errors import ArchiveError, ArchiveLayoutError, ArchiveUnsafeError, StorageError
from apexbridge.lifecycle.zip.archive import ExtractedFiles, atomic_extraction
from apexbridge.lifecycle.zip.entry_paths import (
    EntryPath,
    RawName,
    check_path_length,
    check_raw_length,
    decode_names,
    find_collisions,
    safe_parts,
)
from apexbridge.lifecycle.zip.entry_paths import normalize_separators as check_traversal
from apexbridge.lifecycle.zip.limits import ArchiveFile, ArchiveLimits, limit_exceeded
from apexbridge.lifecycle.zip.records import printable_name

_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 64 * 1024
_MAX_HEADER_BYTES = 1024 * 1024
"""Long names and PAX records are read as a whole by `tarfile`: a header is never larger."""
_MAX_HEADERS_BYTES = 64 * 1024 * 1024
_DROPPABLE = frozenset({"zip_reserved_name", "zip_name_invalid", "zip_path_too_long"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TarResult:
    """What an extraction left out, by path, each with the error that it would have been."""

    dropped: Mapping[PurePosixPath, ArchiveError] = field(
        default_factory=dict[PurePosixPath, ArchiveError]
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    member: tarfile.TarInfo
    path: EntryPath


def extract_tar(
    archive: Path, into: Path, limits: ArchiveLimits, *, is_repository: bool = False
) -> TarResult:
    """Extract a tar or tar.gz into an empty folder; on any error it is empty again.

    Of a repository, symlinks that stay inside are kept, and an entry that is not portable or leads
    out is left out and returned; otherwise each of them refuses the archive.

    Raises:
        ArchiveError: If it is malformed, unsafe or too large.
        StorageError: If the folder is not empty, or the disk refuses.
    """
    if archive.stat().st_size > limits.packed_bytes:
        raise limit_exceeded(f"more than {limits.packed_bytes} bytes")
    plan = _Planner(limits, is_repository=is_repository)
    with _open(archive, limits) as opened:
        plan.read(opened.members())
    size = sum(file.size for file in plan.files.values())
    if size > max(limits.ratio_floor_bytes, limits.ratio * archive.stat().st_size):
        raise limit_exceeded(f"a compression ratio of more than {limits.ratio}")
    with atomic_extraction(into) as files, _open(archive, limits) as opened:
        _write(opened, plan, files)
        for path, target in plan.links.items():
            _link(into / path, target, files)
    return TarResult(dropped=plan.dropped)


def is_gzip(path: Path) -> bool:
    """Return whether a file is compressed with gzip."""
    with path.open("rb") as file:
        return file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC


class _Planner:
    """Checks all headers: types, names, sizes, collisions, and where links lead."""

    def __init__(self, limits: ArchiveLimits, *, is_repository: bool) -> None:
        self._limits = limits
        self._is_repository = is_repository
        self.files: dict[int, ArchiveFile] = {}
        """By position of the entry in the archive."""
        self.links: dict[PurePosixPath, str] = {}
        self.dropped: dict[PurePosixPath, ArchiveError] = {}

    def read(self, members: Iterator[tarfile.TarInfo]) -> None:
        """Check every header.

        Raises:
            ArchiveError: On the first one that refuses the archive.
        """
        found, size = list[tarfile.TarInfo](), 0
        for member in members:
            size += member.size
            self._check_size(member, size, len(found))
            found.append(member)
        if not found:
            raise malformed_tar("it is empty")
        entries = [entry for entry in self._entries(found) if entry is not None]
        entries = list(self._without_collisions(entries))
        places = {PurePosixPath(*entry.path.parts): entry for entry in entries}
        folders = {parent for path in places for parent in path.parents} | {
            path for path, entry in places.items() if entry.member.isdir()
        }
        positions = {id(member): at for at, member in enumerate(found)}
        for path, entry in places.items():
            member = entry.member
            if member.issym():
                self._plan_link(path, member.linkname, places, folders)
            elif member.isreg():
                executable = bool(member.mode & 0o100)
                self.files[positions[id(member)]] = ArchiveFile(
                    path=path, size=member.size, executable=executable
                )

    def _without_collisions(self, entries: Sequence[_Entry]) -> Iterator[_Entry]:
        """Leave out what is the same file only where case is ignored; repositories have such."""
        colliding = dict[EntryPath, ArchiveError]()
        for collision in find_collisions(entry.path for entry in entries):
            if collision.is_exact or not self._is_repository:
                raise collision.error
            colliding[collision.path] = collision.error
        for entry in entries:
            if entry.path not in colliding:
                yield entry
            elif not entry.path.is_folder:
                self.dropped[PurePosixPath(*entry.path.parts)] = colliding[entry.path]

    def _check_size(self, member: tarfile.TarInfo, size: int, count: int) -> None:
        limits = self._limits
        if count >= limits.entries:
            raise limit_exceeded(f"more than {limits.entries} entries")
        if member.isreg() and member.size > limits.file_bytes:
            name = printable_name(member.name)
            raise limit_exceeded(f"'{name}' has more than {limits.file_bytes} bytes")
        if size > limits.unpacked_bytes:
            raise limit_exceeded(f"more than {limits.unpacked_bytes} bytes unpacked")

    def _entries(self, members: Sequence[tarfile.TarInfo]) -> Iterator[_Entry | None]:
        raw = [_raw_name(member) for member in members]
        for name in raw:
            check_raw_length(name, self._limits)
        names, _ = decode_names([RawName(name) for name in raw])
        for member, name in zip(members, names, strict=True):
            self._check_type(member, name)
            yield self._entry(member, name)

    def _check_type(self, member: tarfile.TarInfo, name: str) -> None:
        if member.issym() and self._is_repository:
            return
        if member.issym() or member.islnk():
            raise ArchiveUnsafeError(code="zip_link_entry", name=printable_name(name))
        is_plain = member.type in {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE}
        if not is_plain or member.issparse():
            raise ArchiveUnsafeError(code="zip_special_entry", name=printable_name(name))

    def _entry(self, member: tarfile.TarInfo, name: str) -> _Entry | None:
        if not name:  # the root itself, `./`
            return None
        try:
            (checked,) = check_traversal([name])
            parts = safe_parts(checked)
            check_path_length(parts, self._limits)
        except ArchiveError as error:
            if self._is_repository and error.code in _DROPPABLE:
                self.dropped[PurePosixPath(name)] = error
                return None
            raise
        return _Entry(member, EntryPath(parts, member.isdir()))

    def _plan_link(
        self,
        path: PurePosixPath,
        target: str,
        places: Mapping[PurePosixPath, _Entry],
        folders: set[PurePosixPath],
    ) -> None:
        """Keep a symlink whose every step is a real folder of the archive."""
        at, steps = path.parent, PurePosixPath(target).parts
        for number, step in enumerate(steps):
            if step == "..":
                is_inside = at != PurePosixPath()
                at = at.parent
            else:
                at /= step
                entry = places.get(at)
                is_file = entry is not None and entry.member.isreg()
                is_inside = at in folders or (is_file and number == len(steps) - 1)
            if not is_inside or target.startswith("/") or "\0" in target:
                break
        else:
            if steps:
                self.links[path] = target
                return
        error = ArchiveUnsafeError(code="zip_link_entry", name=printable_name(str(path)))
        self.dropped[path] = error


def _raw_name(member: tarfile.TarInfo) -> bytes:
    """Return the name as bytes, without the `./` that `tar` writes before each."""
    name = member.name
    while name.startswith("./"):
        name = name[2:].lstrip("/") or "."
    return ("" if name == "." else name).encode("utf-8", "surrogateescape")


def _write(opened: "_TarReader", plan: _Planner, files: ExtractedFiles) -> None:
    for at, member in enumerate(opened.members()):
        file = plan.files.get(at)
        if file is None:
            continue
        if member.size != file.size:
            raise malformed_tar("it changed while it was read")
        with files.new_file(file) as write:
            for chunk in opened.content(member):
                write(chunk)


def _link(path: Path, target: str, files: ExtractedFiles) -> None:
    try:
        files.new_link(path, target)
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=path) from error


class _BoundedReader:
    """Forward-only reader of at most a number of bytes, for `tarfile`, which reads headers only."""

    def __init__(self, file: BinaryIO | gzip.GzipFile, limit: int) -> None:
        self._file = file
        self._limit = limit
        self._headers = 0
        self._at = 0
        self.last_header = b""

    def read(self, size: int = -1) -> bytes:
        """Read a header; one that is larger than any honest one is refused."""
        self._headers += size
        if not 0 <= size <= _MAX_HEADER_BYTES or self._headers > _MAX_HEADERS_BYTES:
            raise limit_exceeded("its headers are too long")
        self.last_header = self.read_data(size)
        return self.last_header

    def read_data(self, size: int) -> bytes:
        """Read up to `size` bytes of a file."""
        data = self._file.read(size)
        self._at += len(data)
        if self._at > self._limit:
            raise limit_exceeded(f"more than {self._limit} bytes unpacked")
        return data

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def seek(self, position: int, whence: int = 0) -> int:
        """Skip forward; there is no way back in a compressed stream."""
        if whence or position < self._at:
            raise tarfile.StreamError("seeking backwards is not allowed")
        while self._at < position and self.read_data(min(position - self._at, _CHUNK_BYTES)):
            pass
        return self._at


@contextmanager
def _open(archive: Path, limits: ArchiveLimits) -> Generator["_TarReader"]:
    """Open a tar for one pass over its entries, whatever it is compressed with."""
    try:
        with ExitStack() as stack:
            raw = stack.enter_context(archive.open("rb"))
            file = stack.enter_context(gzip.GzipFile(fileobj=raw)) if is_gzip(archive) else raw
            limit = limits.unpacked_bytes + 2 * _MAX_HEADERS_BYTES
            yield _TarReader(_BoundedReader(file, limit))
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError) as error:
        raise malformed_tar(str(error) or type(error).__name__) from None


class _TarReader:
    """One pass over the entries of a tar, and the content of the present one."""

    def __init__(self, reader: _BoundedReader) -> None:
        self._reader = reader

    def members(self) -> Iterator[tarfile.TarInfo]:
        """Yield the entries; what follows the end of the archive must be empty."""
        with tarfile.TarFile(
            fileobj=self._reader,  # pyright: ignore[reportArgumentType]
            encoding="utf-8",
            errors="surrogateescape",
        ) as opened:
            while (member := opened.next()) is not None:
                yield member
        if self._reader.last_header != bytes(tarfile.BLOCKSIZE):
            raise malformed_tar("it is truncated")
        while chunk := self._reader.read_data(_CHUNK_BYTES):
            if chunk.strip(b"\0"):
                raise malformed_tar("there is data behind its end")

    def content(self, member: tarfile.TarInfo) -> Iterator[bytes]:
        """Yield the content of the entry that was yielded last."""
        left = member.size
        while left:
            chunk = self._reader.read_data(min(left, _CHUNK_BYTES))
            if not chunk:
                raise malformed_tar(f"'{printable_name(member.name)}' is truncated")
            left -= len(chunk)
            yield chunk


def malformed_tar(detail: str) -> ArchiveError:
    """Create the error for a damaged or ambiguous tar."""
    return ArchiveLayoutError(detail, code="zip_invalid")
