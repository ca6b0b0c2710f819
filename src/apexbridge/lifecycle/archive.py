"""Skill archives: pack a folder, and look into a zip without writing a byte of it.

Looking takes the archive's own list of names at its word for sizes and never unpacks more than
SKILL.md; it is enough to validate. Installing needs a stricter reading, and is not done here.
"""

import lzma
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath

from apexbridge.errors import ArchiveError, ArchiveLayoutError, ArchiveUnsafeError
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Problem
from apexbridge.skills.package import Package
from apexbridge.skills.reader import MAX_SKILL_MD_BYTES

_MIB = 1024 * 1024
_EPOCH = (1980, 1, 1, 0, 0, 0)
_EVALS = "evals"
_ENCRYPTED = 0x1
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, EOFError, OSError,
    RuntimeError, ValueError,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """The largest archive that is looked into."""

    packed_bytes: int = 30_000_000
    unpacked_bytes: int = 64 * _MIB
    file_bytes: int = 10_000_000
    files: int = 2_000


DEFAULT_LIMITS = ArchiveLimits()


def pack(root: Path, name: str, *, with_evals: bool = False) -> bytes:
    """Make a zip with one root folder called `name`; equal folders give equal bytes.

    Left out: caches, version control, litter of desktop systems, and `evals/` unless asked for.

    Raises:
        ArchiveUnsafeError: If there is a link or device in the folder, or more than an archive
            may hold.
    """
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for entry in contents(root, with_evals=with_evals):
            member = zipfile.ZipInfo(f"{name}/{entry.path}", _EPOCH)
            member.create_system = 3  # Unix, whatever this machine is
            member.compress_type = zipfile.ZIP_DEFLATED
            mode = 0o755 if entry.executable else 0o644
            member.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(member, (root / entry.path).read_bytes())
        _refuse_unsafe(archive.infolist(), DEFAULT_LIMITS)
    return buffer.getvalue()


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
    """Take a zip for validation.

    Raises:
        ArchiveError: If it is unreadable, unsafe, too large, or not one folder with a SKILL.md.
    """
    if not path.is_file():
        raise ArchiveLayoutError("it is no plain file", code="zip_invalid")
    if path.stat().st_size > limits.packed_bytes:
        raise _too_large(f"more than {limits.packed_bytes} bytes")
    try:
        with zipfile.ZipFile(path) as archive:
            members = [i for i in archive.infolist() if not _is_litter(i.filename)]
            _refuse_unsafe(members, limits)
            folder, skill_md = _layout(members)
            with archive.open(skill_md) as file:
                data = file.read(MAX_SKILL_MD_BYTES + 1)
    except _UNREADABLE as error:
        raise ArchiveLayoutError(str(error), code="zip_invalid") from None
    if len(data) > MAX_SKILL_MD_BYTES:
        raise _too_large(f"{SKILL_MD} has more than {MAX_SKILL_MD_BYTES} bytes")
    odd = PurePosixPath(skill_md.filename).name
    problems = () if odd == SKILL_MD else (_odd_case(odd),)
    files = frozenset(inner for info in members for inner in _with_parents(info.filename, folder))
    return Package(folder=folder, skill_md=data, files=files, problems=problems)


def _is_litter(name: str) -> bool:
    return tree.is_litter(PurePosixPath(name))


def _refuse_unsafe(members: list[zipfile.ZipInfo], limits: ArchiveLimits) -> None:
    if len(members) > limits.files:
        raise _too_large(f"more than {limits.files} files")
    if sum(info.file_size for info in members) > limits.unpacked_bytes:
        raise _too_large(f"more than {limits.unpacked_bytes} bytes unpacked")
    for info in members:
        _refuse_member(info, limits)
    names = Counter(info.filename.rstrip("/").casefold() for info in members)
    for name, count in names.items():
        if count > 1:
            raise ArchiveUnsafeError(code="zip_duplicate_entry", name=name)


def _refuse_member(info: zipfile.ZipInfo, limits: ArchiveLimits) -> None:
    name = info.filename
    if info.flag_bits & _ENCRYPTED:
        raise ArchiveUnsafeError(code="zip_encrypted")
    if name.startswith(("/", "\\")) or name[1:2] == ":":
        raise ArchiveUnsafeError(code="zip_absolute_path", name=name)
    if ".." in name.replace("\\", "/").split("/"):
        raise ArchiveUnsafeError(code="zip_path_traversal", name=name)
    if stat.S_ISLNK(info.external_attr >> 16):
        raise ArchiveUnsafeError(code="zip_link_entry", name=name)
    if info.file_size > limits.file_bytes:
        raise _too_large(f"{name} has more than {limits.file_bytes} bytes")


def _layout(members: list[zipfile.ZipInfo]) -> tuple[str, zipfile.ZipInfo]:
    """The root folder's name, and its SKILL.md."""
    files = [info for info in members if not info.is_dir()]
    if not files:
        raise ArchiveLayoutError("it is empty", code="zip_invalid")
    if any("/" not in info.filename for info in files):
        raise ArchiveLayoutError(code="zip_no_root_folder")
    roots = sorted({info.filename.split("/", 1)[0] for info in members})
    if len(roots) > 1:
        raise ArchiveLayoutError(code="zip_multiple_roots", names=", ".join(roots[:5]))
    wanted = f"{roots[0]}/{SKILL_MD}"
    variants = [info for info in files if info.filename.lower() == wanted.lower()]
    exact = [info for info in variants if info.filename == wanted]
    if not variants:
        raise ArchiveLayoutError(code="zip_no_skill_md", name=roots[0])
    return roots[0], (exact or variants)[0]


def _with_parents(name: str, folder: str) -> Iterable[PurePosixPath]:
    path = PurePosixPath(name).relative_to(folder)
    return (path, *path.parents)


def _odd_case(name: str) -> Problem:
    return Problem(code="skill_md_case", where=name, severity="warning", details={"name": name})


def _too_large(detail: str) -> ArchiveError:
    return ArchiveUnsafeError(detail, code="zip_too_large")
