"""Skill archives: pack a folder, inspect a zip without writing, extract it all or nothing."""

import contextlib
import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from anyio import from_thread

from apexbridge.errors import ArchiveUnsafeError, StorageError
from apexbridge.lifecycle.zip.central_directory import STORED, ZipEntry, read_entries
from apexbridge.lifecycle.zip.layout import Layout, build_layout, read_entry_names
from apexbridge.lifecycle.zip.limits import (
    DEFAULT_LIMITS,
    ArchiveFile,
    ArchiveLimits,
    ExtractionPlan,
    limit_exceeded,
)
from apexbridge.lifecycle.zip.records import (
    ZipSource,
    malformed_zip,
    open_zip,
    printable_name,
    zip_from_bytes,
)
from apexbridge.paths import storage_errors
from apexbridge.regular_files import read_regular
from apexbridge.skills import links, tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.validator import Package

_CHUNK_BYTES = 64 * 1024


def read_entry(source: ZipSource, entry: ZipEntry) -> Iterator[bytes]:
    """Decompress an entry in chunks, never beyond its declared size (zip bomb guard).

    Size and CRC are known to be right only at the end: callers discard earlier chunks on error.

    Raises:
        ArchiveError: If size or CRC differ from the header, or the stream is invalid.
    """
    size, crc = 0, 0
    inflate = _read_stored if entry.method == STORED else _read_deflated
    for chunk in inflate(source, entry):
        _check_cancelled()
        size += len(chunk)
        if size > entry.size:
            raise malformed_zip(f"'{printable_name(entry.raw)}' is larger than declared")
        crc = zlib.crc32(chunk, crc)
        yield chunk
    if size != entry.size:
        raise malformed_zip(f"'{printable_name(entry.raw)}' is smaller than declared")
    if crc != entry.crc:
        raise malformed_zip(f"'{printable_name(entry.raw)}' is damaged: CRC mismatch")


def _check_cancelled() -> None:
    """End a worker thread's work when the task that waits for it was cancelled."""
    try:
        from_thread.check_cancelled()
    except RuntimeError:  # not in a worker thread: the command line has nothing to cancel
        return


def _read_stored(source: ZipSource, entry: ZipEntry) -> Iterator[bytes]:
    for offset in range(0, entry.packed, _CHUNK_BYTES):
        yield source.read(entry.start + offset, min(_CHUNK_BYTES, entry.packed - offset))


def _read_deflated(source: ZipSource, entry: ZipEntry) -> Iterator[bytes]:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    for packed in _read_stored(source, entry):
        pending = packed
        while pending:
            if stream.eof:
                raise malformed_zip(
                    f"'{printable_name(entry.raw)}' has more than one deflate stream"
                )
            try:
                chunk = stream.decompress(pending, _CHUNK_BYTES)
            except zlib.error as error:
                raise malformed_zip(f"'{printable_name(entry.raw)}' is damaged: {error}") from None
            yield chunk
            pending = stream.unconsumed_tail or stream.unused_data
    while not stream.eof:
        # Input is exhausted but output is not: zlib returns at most one chunk a call.
        chunk = stream.decompress(b"", _CHUNK_BYTES)
        if not chunk and not stream.eof:
            raise malformed_zip(f"'{printable_name(entry.raw)}' is truncated")
        yield chunk


Write = Callable[[bytes], object]

_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ExtractedFiles:
    """Creates files and their folders below a root, and can roll all of them back."""

    def __init__(self, into: Path) -> None:
        self._into = into
        self._folders = dict[Path, None]()
        self._files = list[Path]()

    @contextmanager
    def new_file(self, file: ArchiveFile) -> Generator[Write]:
        """Create a file with O_EXCL and O_NOFOLLOW; an existing path is an error."""
        path = self._into / file.path
        try:
            for parent in reversed(path.relative_to(self._into).parents[:-1]):
                self._make_folder(self._into / parent)
            descriptor = os.open(path, _CREATE_FLAGS, stat.S_IRUSR | stat.S_IWUSR)
            self._files.append(path)
            with os.fdopen(descriptor, "wb") as new:
                yield new.write
                os.fchmod(new.fileno(), 0o755 if file.executable else 0o644)
        except OSError as error:
            raise StorageError(error.strerror or str(error), path=path) from error

    def new_link(self, path: Path, target: str) -> None:
        """Create a symlink whose target the caller has checked."""
        for parent in reversed(path.relative_to(self._into).parents[:-1]):
            self._make_folder(self._into / parent)
        path.symlink_to(target)
        self._files.append(path)

    def _make_folder(self, path: Path) -> None:
        if path not in self._folders:
            path.mkdir(stat.S_IRWXU)
            self._folders[path] = None
            path.chmod(0o755)  # the mode of mkdir is subject to the umask

    def roll_back(self) -> None:
        """Remove the created files and folders, and nothing else."""
        for path in self._files:
            with contextlib.suppress(OSError):
                path.unlink()
        for path in reversed(self._folders):
            with contextlib.suppress(OSError):
                path.rmdir()


@contextmanager
def atomic_extraction(into: Path) -> Generator[ExtractedFiles]:
    """Extract into an empty folder; on any error it is empty again.

    Raises:
        StorageError: If it is not an empty folder, or the disk refuses.
    """
    try:
        if not stat.S_ISDIR(into.lstat().st_mode):
            raise StorageError("not a folder", path=into)
        if any(into.iterdir()):
            raise StorageError("not empty", path=into)
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=into) from error
    files = ExtractedFiles(into)
    try:
        yield files
    except BaseException:
        files.roll_back()
        raise


@contextmanager
def discard(file: ArchiveFile | None = None) -> Generator[Write]:
    """Discard the bytes of an entry."""
    yield len


_EPOCH = (1980, 1, 1, 0, 0, 0)
_EVALS = "evals"
_SKILL_MD_PATH = PurePosixPath(SKILL_MD)
FLAT_FOLDER = "skill"
"""Folder of an archive that has SKILL.md at its root, in messages and limits."""


def pack_skill(root: Path, name: str, *, with_evals: bool = False) -> bytes:
    """Pack a folder as a reproducible zip with the root folder `name`.

    An empty `name` packs the files at the root of the archive, as Agent Skills discovery has them.
    Caches, version control, OS metadata and, by default, `evals/` are excluded. The result passes
    `inspect_archive`.

    Raises:
        ArchiveError: If there is a symlink or device, a name that is not portable, no SKILL.md, or
            a limit is exceeded.
    """
    entries = files_to_pack(root, with_evals=with_evals)
    _check_pack_limits(entries, DEFAULT_LIMITS)
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for entry in entries:
            data = read_regular(root / entry.path)
            path = f"{name}/{entry.path}" if name else str(entry.path)
            member = zipfile.ZipInfo(_encodable(path), _EPOCH)
            member.create_system = 3  # Unix, for reproducible bytes
            member.compress_type = _compression_method(data, DEFAULT_LIMITS)
            mode = 0o755 if entry.executable else 0o644
            member.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(member, data)
    packed = buffer.getvalue()
    if len(packed) > DEFAULT_LIMITS.packed_bytes:
        raise limit_exceeded(f"more than {DEFAULT_LIMITS.packed_bytes} bytes")
    written = read_entries(zip_from_bytes(packed), DEFAULT_LIMITS)
    build_layout(written, DEFAULT_LIMITS, flat_folder="" if name else FLAT_FOLDER)
    return packed


def pack_files(files: Iterable[tuple[str, BinaryIO]], target: Path) -> None:
    """Pack uploaded files under their given names, which are checked when the zip is read.

    Only what a zip cannot express is refused here. An upload has no file modes, so files in
    `scripts/` become executable.

    Raises:
        ArchiveUnsafeError: If a name is duplicated, or cannot be encoded.
        StorageError: If the disk refuses.
    """
    seen = set[str]()
    with storage_errors(target), zipfile.ZipFile(target, "x", zipfile.ZIP_STORED) as archive:
        for name, file in files:
            if name in seen:
                raise ArchiveUnsafeError(code="zip_duplicate_entry", name=printable_name(name))
            if "\0" in name or name.endswith("/") or not name:
                detail, printed = "not a file name", printable_name(name)
                raise ArchiveUnsafeError(detail, code="zip_name_invalid", name=printed)
            seen.add(name)
            member = zipfile.ZipInfo(_encodable(name), _EPOCH)
            member.create_system = 3  # Unix, for reproducible bytes
            _, *path = name.replace("\\", "/").split("/")
            mode = 0o755 if path[:1] == ["scripts"] and len(path) > 1 else 0o644
            member.external_attr = (stat.S_IFREG | mode) << 16
            with archive.open(member, "w") as entry:
                shutil.copyfileobj(file, entry)


def _check_pack_limits(taken: list[tree.TreeEntry], limits: ArchiveLimits) -> None:
    """Check sizes before reading any file into memory."""
    if sum(entry.size for entry in taken) > limits.unpacked_bytes:
        raise limit_exceeded(f"more than {limits.unpacked_bytes} bytes unpacked")
    for entry in taken:
        if entry.size > limits.file_bytes:
            raise limit_exceeded(
                f"{printable_name(str(entry.path))} has more than {limits.file_bytes} bytes"
            )


def _encodable(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        escaped = name.encode("utf-8", "backslashreplace")
        raise ArchiveUnsafeError(code="zip_name_encoding", name=printable_name(escaped)) from None
    return name


def _compression_method(data: bytes, limits: ArchiveLimits) -> int:
    """Store files that would exceed the zip bomb ratio, so that the archive can be installed."""
    if len(data) <= limits.ratio_floor_bytes:
        return zipfile.ZIP_DEFLATED
    is_bomb = len(data) > limits.ratio * len(zlib.compress(data, 9))
    return zipfile.ZIP_STORED if is_bomb else zipfile.ZIP_DEFLATED


def files_to_pack(root: Path, *, with_evals: bool = False) -> list[tree.TreeEntry]:
    """Return the files to pack, sorted by path.

    Raises:
        ArchiveUnsafeError: If there is a device among them, or a symlink that leads out.
    """
    taken = list[tree.TreeEntry]()
    for entry in links.copied_entries(root):
        if entry.path.parts[0] == _EVALS and not with_evals:
            continue
        if entry.kind == "link":
            target = links.link_target(root, entry)
            raise ArchiveUnsafeError(code="link_not_copied", name=entry.path, target=target)
        if entry.kind == "device":
            raise ArchiveUnsafeError(code="zip_special_entry", name=entry.path)
        if entry.kind == "file":
            taken.append(entry)
    return sorted(taken, key=lambda entry: entry.path.as_posix())


def open_archive(path: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> Package:
    """Open a zip for validation, with exactly the checks of an install.

    Raises:
        ArchiveError: If it is malformed, unsafe, too large, or not one folder with a SKILL.md.
    """
    plan = inspect_archive(path, limits)
    paths = {step for file in plan.files for step in (file.path, *file.path.parents)}
    return Package(
        folder=plan.folder, skill_md=plan.skill_md, files=frozenset(paths), problems=plan.problems
    )


def check_zip(archive: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> tuple[str, ...]:
    """Check the headers of any zip, skill or not, and return its entry names.

    Raises:
        ArchiveError: If it is ambiguous, or a path in it is unsafe.
    """
    with open_zip(archive, limits) as source:
        items, _ = read_entry_names(read_entries(source, limits), limits)
    return tuple("/".join(item.path.parts) for item in items)


def inspect_archive(archive: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> ExtractionPlan:
    """Dry run of an extraction: decompress and check every byte, write nothing.

    Raises:
        ArchiveError: If it is malformed, unsafe, too large, or not one folder with a SKILL.md.
    """
    with open_zip(archive, limits) as source:
        return read_layout(source, build_layout(read_entries(source, limits), limits), discard)


def extract_archive(
    archive: Path, into: Path, limits: ArchiveLimits = DEFAULT_LIMITS
) -> ExtractionPlan:
    """Extract an archive into an empty folder, without its root folder; all or nothing.

    Paths, file types, sizes and layout are checked before the first write, contents during it. No
    other process may use the folder.

    Raises:
        ArchiveError: As `inspect_archive` does.
        StorageError: If the folder is not empty, or the disk refuses.
    """
    with open_zip(archive, limits) as source:
        layout = build_layout(read_entries(source, limits), limits)
        with atomic_extraction(into) as files:
            return read_layout(source, layout, files.new_file)


def read_layout(
    source: ZipSource,
    layout: Layout,
    new_file: Callable[[ArchiveFile], AbstractContextManager[Write]],
) -> ExtractionPlan:
    """Decompress every entry, dropped ones too, so that damage is found independent of layout."""
    skill_md = bytearray()
    for item in layout.items:
        with new_file(item.file) if item.file else discard() as write:
            for chunk in read_entry(source, item.entry):
                write(chunk)
                if item.file and item.file.path == _SKILL_MD_PATH:
                    skill_md += chunk
    files = [item.file for item in layout.items if item.file]
    return ExtractionPlan(
        folder=layout.folder,
        files=tuple(sorted(files, key=lambda file: file.path.as_posix())),
        size=sum(file.size for file in files),
        skill_md=bytes(skill_md),
        problems=layout.problems,
        dropped=layout.dropped,
    )
