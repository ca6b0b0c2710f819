"""The bytes of a zip's entries, unpacked in pieces and held to what was said of them."""

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
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.validator import Package

_CHUNK_BYTES = 64 * 1024


def read_entry(source: ZipSource, entry: ZipEntry) -> Iterator[bytes]:
    """Give an entry's bytes in pieces, never more than it says it has.

    What came is only known to be right when no more comes: a caller keeps nothing of it before.

    Raises:
        ArchiveError: If size or checksum are not as said, or the packed bytes make no sense.
    """
    size, crc = 0, 0
    inflate = _read_stored if entry.method == STORED else _read_deflated
    for piece in inflate(source, entry):
        size += len(piece)
        if size > entry.size:
            raise malformed_zip(f"'{printable_name(entry.raw)}' is larger than it says")
        crc = zlib.crc32(piece, crc)
        yield piece
    if size != entry.size:
        raise malformed_zip(f"'{printable_name(entry.raw)}' is smaller than it says")
    if crc != entry.crc:
        raise malformed_zip(f"'{printable_name(entry.raw)}' is damaged: its checksum is wrong")


def _read_stored(source: ZipSource, entry: ZipEntry) -> Iterator[bytes]:
    for offset in range(0, entry.packed, _CHUNK_BYTES):
        yield source.read(entry.start + offset, min(_CHUNK_BYTES, entry.packed - offset))


def _read_deflated(source: ZipSource, entry: ZipEntry) -> Iterator[bytes]:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    for packed in _read_stored(source, entry):
        waiting = packed
        while waiting:
            if stream.eof:
                raise malformed_zip(f"'{printable_name(entry.raw)}' holds more than one stream")
            try:
                piece = stream.decompress(waiting, _CHUNK_BYTES)
            except zlib.error as error:
                raise malformed_zip(f"'{printable_name(entry.raw)}' is damaged: {error}") from None
            yield piece
            waiting = stream.unconsumed_tail or stream.unused_data
    while not stream.eof:
        # All was taken in, but not all given out: only as much as fits one piece at a time.
        piece = stream.decompress(b"", _CHUNK_BYTES)
        if not piece and not stream.eof:
            raise malformed_zip(f"'{printable_name(entry.raw)}' is cut off")
        yield piece


Write = Callable[[bytes], object]

_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ExtractedFiles:
    """Makes files and the folders they need, each anew, and can take all of them back."""

    def __init__(self, into: Path) -> None:
        self._into = into
        self._folders = dict[Path, None]()
        self._files = list[Path]()

    @contextmanager
    def new_file(self, file: ArchiveFile) -> Generator[Write]:
        """Open a new file; what is at its place already is an error and stays as it is."""
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

    def _make_folder(self, path: Path) -> None:
        if path not in self._folders:
            path.mkdir(stat.S_IRWXU)
            self._folders[path] = None
            path.chmod(0o755)

    def take_back(self) -> None:
        """Remove what was made, and nothing else."""
        for path in self._files:
            with contextlib.suppress(OSError):
                path.unlink()
        for path in reversed(self._folders):
            with contextlib.suppress(OSError):
                path.rmdir()


@contextmanager
def atomic_extraction(into: Path) -> Generator[ExtractedFiles]:
    """Lend a writer to an empty folder; if anything goes wrong, the folder is empty afterwards.

    Raises:
        StorageError: If it is no empty folder, or the disk refuses.
    """
    try:
        if not stat.S_ISDIR(into.lstat().st_mode):
            raise StorageError("it is no folder", path=into)
        if any(into.iterdir()):
            raise StorageError("it is not empty", path=into)
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=into) from error
    files = ExtractedFiles(into)
    try:
        yield files
    except BaseException:
        files.take_back()
        raise


@contextmanager
def discard(file: ArchiveFile | None = None) -> Generator[Write]:
    """Take bytes and keep none."""
    yield len


_EPOCH = (1980, 1, 1, 0, 0, 0)
_EVALS = "evals"
_SKILL_MD_PATH = PurePosixPath(SKILL_MD)


def pack_skill(root: Path, name: str, *, with_evals: bool = False) -> bytes:
    """Make a zip with one root folder called `name`; equal folders give equal bytes.

    Left out: caches, version control, litter of desktop systems, and `evals/` unless asked for.
    What is packed here is also taken by `inspect`.

    Raises:
        ArchiveError: If there is a link or device in the folder, a name that other systems
            refuse, more than an archive may hold, or no SKILL.md.
    """
    taken = files_to_pack(root, with_evals=with_evals)
    _check_pack_limits(taken, DEFAULT_LIMITS)
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for entry in taken:
            data = (root / entry.path).read_bytes()
            member = zipfile.ZipInfo(_encodable(f"{name}/{entry.path}"), _EPOCH)
            member.create_system = 3  # Unix, whatever this machine is
            member.compress_type = _compression_method(data, DEFAULT_LIMITS)
            mode = 0o755 if entry.executable else 0o644
            member.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(member, data)
    packed = buffer.getvalue()
    if len(packed) > DEFAULT_LIMITS.packed_bytes:
        raise limit_exceeded(f"more than {DEFAULT_LIMITS.packed_bytes} bytes")
    build_layout(read_entries(zip_from_bytes(packed), DEFAULT_LIMITS), DEFAULT_LIMITS)
    return packed


def pack_files(files: Iterable[tuple[str, BinaryIO]], target: Path) -> None:
    """Make a zip of files under the names they came with, whatever these are.

    Nothing is judged here but what a zip could not say truly: reading it judges the rest. Who has
    no folder cannot say what may run, so what lies in `scripts/` may.

    Raises:
        ArchiveUnsafeError: If a name stands there twice, or cannot be written down.
        StorageError: If the disk refuses.
    """
    seen = set[str]()
    with storage_errors(target), zipfile.ZipFile(target, "x", zipfile.ZIP_STORED) as archive:
        for name, file in files:
            if name in seen:
                raise ArchiveUnsafeError(code="zip_duplicate_entry", name=printable_name(name))
            if "\0" in name or name.endswith("/") or not name:
                raise ArchiveUnsafeError(
                    "no file", code="zip_name_invalid", name=printable_name(name)
                )
            seen.add(name)
            member = zipfile.ZipInfo(_encodable(name), _EPOCH)
            member.create_system = 3  # Unix, whatever this machine is
            _, *path = name.replace("\\", "/").split("/")
            mode = 0o755 if path[:1] == ["scripts"] and len(path) > 1 else 0o644
            member.external_attr = (stat.S_IFREG | mode) << 16
            with archive.open(member, "w") as entry:
                shutil.copyfileobj(file, entry)


def _check_pack_limits(taken: list[tree.TreeEntry], limits: ArchiveLimits) -> None:
    """Before anything is read: a folder may hold anything."""
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
        seen = name.encode("utf-8", "backslashreplace")
        raise ArchiveUnsafeError(code="zip_name_encoding", name=printable_name(seen)) from None
    return name


def _compression_method(data: bytes, limits: ArchiveLimits) -> int:
    """What shrinks like a bomb is not packed, so that nobody takes it for one."""
    if len(data) <= limits.ratio_floor_bytes:
        return zipfile.ZIP_DEFLATED
    shrinks = len(data) > limits.ratio * len(zlib.compress(data, 9))
    return zipfile.ZIP_STORED if shrinks else zipfile.ZIP_DEFLATED


def files_to_pack(root: Path, *, with_evals: bool = False) -> list[tree.TreeEntry]:
    """The files that packing takes.

    Raises:
        ArchiveUnsafeError: If there is a link or device among them.
    """
    taken = list[tree.TreeEntry]()
    for entry in tree.entries(root):
        if tree.is_junk(entry.path) or (entry.path.parts[0] == _EVALS and not with_evals):
            continue
        if entry.kind in {"link", "device"}:
            raise ArchiveUnsafeError(code="zip_link_entry", name=entry.path)
        if entry.kind == "file":
            taken.append(entry)
    return sorted(taken, key=lambda entry: entry.path.as_posix())


def open_archive(path: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> Package:
    """Take a zip for validation; what is refused here is refused by an install, and no more.

    Raises:
        ArchiveError: If it is unreadable, unsafe, too large, or not one folder with a SKILL.md.
    """
    plan = inspect_archive(path, limits)
    paths = {step for file in plan.files for step in (file.path, *file.path.parents)}
    return Package(
        folder=plan.folder,
        skill_md=plan.skill_md,
        files=frozenset(paths),
        problems=plan.problems,
    )


def check_zip(archive: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> tuple[str, ...]:
    """Judge a zip as a container, whatever it holds, by its headers alone; the names in it.

    Raises:
        ArchiveError: If programs could read it differently, or a name in it is unsafe.
    """
    with open_zip(archive, limits) as source:
        items, _ = read_entry_names(read_entries(source, limits), limits)
    return tuple("/".join(item.place.parts) for item in items)


def inspect_archive(archive: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> ExtractionPlan:
    """Say what would be written, and write nothing; every byte is unpacked once and checked.

    Raises:
        ArchiveError: If it is unreadable, unsafe, too large, or not one folder with a SKILL.md.
    """
    with open_zip(archive, limits) as source:
        return _read_all(source, build_layout(read_entries(source, limits), limits), discard)


def extract_archive(
    archive: Path, into: Path, limits: ArchiveLimits = DEFAULT_LIMITS
) -> ExtractionPlan:
    """Write the files of an archive into an empty folder, without the root folder's name.

    Names, kinds, sizes and layout are judged before the first byte is written, the bytes while
    they are. The folder must be nobody else's. On any error nothing stays in it.

    Raises:
        ArchiveError: As `inspect` does.
        StorageError: If the folder is not empty, or the disk refuses.
    """
    with open_zip(archive, limits) as source:
        layout = build_layout(read_entries(source, limits), limits)
        with atomic_extraction(into) as files:
            return _read_all(source, layout, files.new_file)


def _read_all(
    source: ZipSource,
    layout: Layout,
    new_file: Callable[[ArchiveFile], AbstractContextManager[Write]],
) -> ExtractionPlan:
    """Unpack every entry, also one that is dropped: it is damaged or sound whoever looks."""
    skill_md = bytearray()
    for item in layout.items:
        with new_file(item.file) if item.file else discard() as write:
            for piece in read_entry(source, item.entry):
                write(piece)
                if item.file and item.file.path == _SKILL_MD_PATH:
                    skill_md += piece
    files = [item.file for item in layout.items if item.file]
    return ExtractionPlan(
        folder=layout.folder,
        files=tuple(sorted(files, key=lambda file: file.path.as_posix())),
        size=sum(file.size for file in files),
        skill_md=bytes(skill_md),
        problems=layout.problems,
        dropped=layout.dropped,
    )
