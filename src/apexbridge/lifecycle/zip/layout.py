"""Layout of a skill archive: one root folder with a SKILL.md; OS metadata is dropped."""

import stat
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from apexbridge.errors import ArchiveLayoutError, ArchiveUnsafeError
from apexbridge.lifecycle.zip.central_directory import ZipEntry
from apexbridge.lifecycle.zip.entry_paths import (
    EntryPath,
    RawName,
    check_collisions,
    check_path_length,
    check_raw_length,
    decode_names,
    normalize_separators,
    safe_parts,
)
from apexbridge.lifecycle.zip.limits import ArchiveFile, ArchiveLimits, limit_exceeded
from apexbridge.lifecycle.zip.records import malformed_zip, printable_name
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Problem
from apexbridge.skills.parser import MAX_SKILL_MD_BYTES
from apexbridge.skills.tree import MARKER

_OS_METADATA = frozenset({"__macosx", ".ds_store", "thumbs.db", "desktop.ini"})
_IGNORED_NAMES = frozenset({MARKER, ".staging", ".git", ".hg", ".svn", ".bzr", "cvs"})
_BUILD_FOLDERS = frozenset({"node_modules", "__pycache__"})
_BUILD_SUFFIXES = frozenset({".pyc", ".pyo"})
_SCRIPTS = "scripts"
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutEntry:
    """An entry with its decoded path; `file` is None if it is not extracted."""

    entry: ZipEntry
    path: EntryPath
    file: ArchiveFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Root folder, entries and warnings of an archive."""

    folder: str
    items: tuple[LayoutEntry, ...]
    problems: tuple[Problem, ...]
    dropped: tuple[str, ...]


def read_entry_names(
    entries: Sequence[ZipEntry], limits: ArchiveLimits
) -> tuple[tuple[LayoutEntry, ...], str]:
    """Decode and check every path and file type; return them with the detected encoding.

    Raises:
        ArchiveError: If a path is unsafe, or an entry is a symlink or special file.
    """
    for entry in entries:
        check_raw_length(entry.raw, limits)
    written = [RawName(entry.raw, entry.is_utf8, entry.unicode_names) for entry in entries]
    names, encoding = decode_names(written)
    items = list[LayoutEntry]()
    for entry, name in zip(entries, normalize_separators(names), strict=True):
        path = EntryPath(safe_parts(name), name.endswith("/"))
        _check_file_type(entry, name, is_folder=path.is_folder)
        items.append(LayoutEntry(entry=entry, path=path))
    return tuple(items), encoding


def _check_file_type(entry: ZipEntry, name: str, *, is_folder: bool) -> None:
    kind = stat.S_IFMT(entry.mode)
    if kind == stat.S_IFLNK:
        raise ArchiveUnsafeError(code="zip_link_entry", name=printable_name(name))
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR} or (kind == stat.S_IFDIR and not is_folder):
        raise ArchiveUnsafeError(code="zip_special_entry", name=printable_name(name))
    if is_folder and entry.size:
        raise malformed_zip(f"the folder '{printable_name(name)}' has data")


def build_layout(
    entries: Sequence[ZipEntry], limits: ArchiveLimits, *, flat_folder: str = ""
) -> Layout:
    """Find the root folder and its SKILL.md, and map every entry to a file.

    With `flat_folder`, SKILL.md may be at the root of the archive, as in Agent Skills discovery;
    that is then the name of its folder.

    Raises:
        ArchiveError: If a path is unsafe, two collide, or there is no single folder with SKILL.md.
    """
    items, encoding = read_entry_names(entries, limits)
    if flat_folder and any(_is_flat_skill_md(item.path) for item in items):
        items = tuple(_below(flat_folder, item) for item in items)
    dropped = [item for item in items if _is_dropped(item.path)]
    kept = [item for item in items if not _is_dropped(item.path)]
    for item in kept:
        check_path_length(item.path.parts, limits)
    check_collisions(item.path for item in kept)
    files = [item for item in kept if not item.path.is_folder]
    if len(files) > limits.files:
        raise limit_exceeded(f"more than {limits.files} files")
    skill_md = _find_skill_md(kept, files)
    folder = _nfc(skill_md.path.parts[0])
    problems = (
        *_case_problems(skill_md),
        *_encoding_problems(folder, items, encoding),
        *_path_problems(
            folder, "zip_entries_dropped", (i.path for i in dropped if not _is_os_metadata(i.path))
        ),
        *_path_problems(
            folder, "zip_built_files", (i.path for i in files if _is_build_output(i.path))
        ),
    )
    return Layout(
        folder=folder,
        items=(
            *(_plan_file(item, is_skill_md=item is skill_md) for item in files),
            *(item for item in kept if item.path.is_folder),
            *dropped,
        ),
        problems=problems,
        dropped=tuple("/".join(item.path.parts) for item in dropped),
    )


def _is_flat_skill_md(path: EntryPath) -> bool:
    return len(path.parts) == 1 and path.parts[0].lower() == SKILL_MD.lower() and not path.is_folder


def _below(folder: str, item: LayoutEntry) -> LayoutEntry:
    return replace(item, path=EntryPath((folder, *item.path.parts), item.path.is_folder))


def _is_dropped(path: EntryPath) -> bool:
    return _is_os_metadata(path) or _has(path, _IGNORED_NAMES)


def _is_os_metadata(path: EntryPath) -> bool:
    return _has(path, _OS_METADATA) or path.parts[-1].startswith("._")


def _has(path: EntryPath, names: frozenset[str]) -> bool:
    return any(part.casefold() in names for part in path.parts)


def _is_build_output(path: EntryPath) -> bool:
    suffix = PurePosixPath(path.parts[-1]).suffix
    return _has(path, _BUILD_FOLDERS) or suffix.lower() in _BUILD_SUFFIXES


def _find_skill_md(kept: Sequence[LayoutEntry], files: Sequence[LayoutEntry]) -> LayoutEntry:
    if not files:
        raise malformed_zip("it is empty")
    if any(len(item.path.parts) == 1 for item in files):
        raise ArchiveLayoutError(code="zip_no_root_folder")
    roots = sorted({item.path.parts[0] for item in kept})
    if len(roots) > 1:
        names = ", ".join(map(printable_name, roots[:_MAX_NAMED]))
        raise ArchiveLayoutError(code="zip_multiple_roots", names=names)
    for item in files:
        _, *path = item.path.parts
        if len(path) == 1 and path[0].lower() == SKILL_MD.lower():
            if item.entry.size > MAX_SKILL_MD_BYTES:
                raise limit_exceeded(f"{SKILL_MD} has more than {MAX_SKILL_MD_BYTES} bytes")
            return item
    raise ArchiveLayoutError(code="zip_no_skill_md", name=printable_name(roots[0]))


def _plan_file(item: LayoutEntry, *, is_skill_md: bool) -> LayoutEntry:
    _, *parts = item.path.parts
    path = PurePosixPath(SKILL_MD) if is_skill_md else PurePosixPath(*map(_nfc, parts))
    executable = bool(item.entry.mode & stat.S_IXUSR)
    if not item.entry.mode:  # no Unix mode: decide by folder
        executable = len(parts) > 1 and parts[0] == _SCRIPTS
    file = ArchiveFile(path=path, size=item.entry.size, executable=executable)
    return LayoutEntry(entry=item.entry, path=item.path, file=file)


def _nfc(part: str) -> str:
    return unicodedata.normalize("NFC", part)


def _case_problems(skill_md: LayoutEntry) -> Iterator[Problem]:
    name = skill_md.path.parts[-1]
    if name != SKILL_MD:
        details: dict[str, object] = {"name": name}
        yield Problem(code="skill_md_case", where=name, severity="warning", details=details)


def _encoding_problems(
    folder: str, items: Sequence[LayoutEntry], encoding: str
) -> Iterator[Problem]:
    """Warn about names whose encoding was guessed; UTF-8 is the standard."""
    if encoding == "utf-8":
        return
    guessed = [i.path for i in items if not i.entry.is_utf8 and not i.entry.raw.isascii()]
    yield from _path_problems(folder, "zip_names_decoded", guessed, encoding=encoding.upper())


def _path_problems(
    folder: str, code: str, paths: Iterable[EntryPath], **details: object
) -> Iterator[Problem]:
    names = [printable_name("/".join(path.parts)) for path in paths]
    if names:
        more = f" (+{len(names) - _MAX_NAMED})" if len(names) > _MAX_NAMED else ""
        named = {"names": ", ".join(names[:_MAX_NAMED]) + more, **details}
        yield Problem(code=code, where=folder, severity="warning", details=named)
