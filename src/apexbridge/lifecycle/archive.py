"""Skill archives: pack a folder, look into a zip without writing a byte of it, and unpack it.

Looking and unpacking are one reading, by our own code and not a library's: where programs differ
in what they see in a zip, it is refused.
"""

import shutil
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from apexbridge.errors import ArchiveUnsafeError
from apexbridge.lifecycle.plan import (
    DEFAULT_LIMITS,
    ArchiveLimits,
    Plan,
    PlannedFile,
    too_large,
)
from apexbridge.lifecycle.zip_content import unpacked
from apexbridge.lifecycle.zip_directory import read_entries
from apexbridge.lifecycle.zip_layout import Layout, lay_out, named
from apexbridge.lifecycle.zip_source import ZipSource, of_bytes, opened, shown
from apexbridge.lifecycle.zip_writing import Write, nowhere, writing
from apexbridge.paths import as_storage
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.package import Package

_EPOCH = (1980, 1, 1, 0, 0, 0)
_EVALS = "evals"
_SKILL_MD_PATH = PurePosixPath(SKILL_MD)


def pack(root: Path, name: str, *, with_evals: bool = False) -> bytes:
    """Make a zip with one root folder called `name`; equal folders give equal bytes.

    Left out: caches, version control, litter of desktop systems, and `evals/` unless asked for.
    What is packed here is also taken by `inspect`.

    Raises:
        ArchiveError: If there is a link or device in the folder, a name that other systems
            refuse, more than an archive may hold, or no SKILL.md.
    """
    taken = contents(root, with_evals=with_evals)
    _refuse_large(taken, DEFAULT_LIMITS)
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for entry in taken:
            data = (root / entry.path).read_bytes()
            member = zipfile.ZipInfo(_encodable(f"{name}/{entry.path}"), _EPOCH)
            member.create_system = 3  # Unix, whatever this machine is
            member.compress_type = _method(data, DEFAULT_LIMITS)
            mode = 0o755 if entry.executable else 0o644
            member.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(member, data)
    packed = buffer.getvalue()
    if len(packed) > DEFAULT_LIMITS.packed_bytes:
        raise too_large(f"more than {DEFAULT_LIMITS.packed_bytes} bytes")
    lay_out(read_entries(of_bytes(packed), DEFAULT_LIMITS), DEFAULT_LIMITS)
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
    with as_storage(target), zipfile.ZipFile(target, "x", zipfile.ZIP_STORED) as archive:
        for name, file in files:
            if name in seen:
                raise ArchiveUnsafeError(code="zip_duplicate_entry", name=shown(name))
            if "\0" in name or name.endswith("/") or not name:
                raise ArchiveUnsafeError("no file", code="zip_name_invalid", name=shown(name))
            seen.add(name)
            member = zipfile.ZipInfo(_encodable(name), _EPOCH)
            member.create_system = 3  # Unix, whatever this machine is
            _, *path = name.replace("\\", "/").split("/")
            mode = 0o755 if path[:1] == ["scripts"] and len(path) > 1 else 0o644
            member.external_attr = (stat.S_IFREG | mode) << 16
            with archive.open(member, "w") as entry:
                shutil.copyfileobj(file, entry)


def _refuse_large(taken: list[tree.Entry], limits: ArchiveLimits) -> None:
    """Before anything is read: a folder may hold anything."""
    if sum(entry.size for entry in taken) > limits.unpacked_bytes:
        raise too_large(f"more than {limits.unpacked_bytes} bytes unpacked")
    for entry in taken:
        if entry.size > limits.file_bytes:
            raise too_large(f"{shown(str(entry.path))} has more than {limits.file_bytes} bytes")


def _encodable(name: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        seen = name.encode("utf-8", "backslashreplace")
        raise ArchiveUnsafeError(code="zip_name_encoding", name=shown(seen)) from None
    return name


def _method(data: bytes, limits: ArchiveLimits) -> int:
    """What shrinks like a bomb is not packed, so that nobody takes it for one."""
    if len(data) <= limits.ratio_floor_bytes:
        return zipfile.ZIP_DEFLATED
    shrinks = len(data) > limits.ratio * len(zlib.compress(data, 9))
    return zipfile.ZIP_STORED if shrinks else zipfile.ZIP_DEFLATED


def contents(root: Path, *, with_evals: bool = False) -> list[tree.Entry]:
    """The files that packing takes.

    Raises:
        ArchiveUnsafeError: If there is a link or device among them.
    """
    taken = list[tree.Entry]()
    for entry in tree.entries(root):
        if tree.is_litter(entry.path) or (entry.path.parts[0] == _EVALS and not with_evals):
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
    plan = inspect(path, limits)
    paths = {step for file in plan.files for step in (file.path, *file.path.parents)}
    return Package(
        folder=plan.folder,
        skill_md=plan.skill_md,
        files=frozenset(paths),
        problems=plan.problems,
    )


def check_container(archive: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> tuple[str, ...]:
    """Judge a zip as a container, whatever it holds, by its headers alone; the names in it.

    Raises:
        ArchiveError: If programs could read it differently, or a name in it is unsafe.
    """
    with opened(archive, limits) as source:
        items, _ = named(read_entries(source, limits), limits)
    return tuple("/".join(item.place.parts) for item in items)


def inspect(archive: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> Plan:
    """Say what would be written, and write nothing; every byte is unpacked once and checked.

    Raises:
        ArchiveError: If it is unreadable, unsafe, too large, or not one folder with a SKILL.md.
    """
    with opened(archive, limits) as source:
        return _read_all(source, lay_out(read_entries(source, limits), limits), nowhere)


def extract(archive: Path, into: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> Plan:
    """Write the files of an archive into an empty folder, without the root folder's name.

    Names, kinds, sizes and layout are judged before the first byte is written, the bytes while
    they are. The folder must be nobody else's. On any error nothing stays in it.

    Raises:
        ArchiveError: As `inspect` does.
        StorageError: If the folder is not empty, or the disk refuses.
    """
    with opened(archive, limits) as source:
        layout = lay_out(read_entries(source, limits), limits)
        with writing(into) as files:
            return _read_all(source, layout, files.new_file)


def _read_all(
    source: ZipSource,
    layout: Layout,
    new_file: Callable[[PlannedFile], AbstractContextManager[Write]],
) -> Plan:
    """Unpack every entry, also one that is dropped: it is damaged or sound whoever looks."""
    skill_md = bytearray()
    for item in layout.items:
        with new_file(item.file) if item.file else nowhere() as write:
            for piece in unpacked(source, item.entry):
                write(piece)
                if item.file and item.file.path == _SKILL_MD_PATH:
                    skill_md += piece
    files = [item.file for item in layout.items if item.file]
    return Plan(
        folder=layout.folder,
        files=tuple(sorted(files, key=lambda file: file.path.as_posix())),
        size=sum(file.size for file in files),
        skill_md=bytes(skill_md),
        problems=layout.problems,
        dropped=layout.dropped,
    )
