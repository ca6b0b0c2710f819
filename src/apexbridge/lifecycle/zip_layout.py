"""From the entries of an archive to the files of one skill. Pure."""

import stat
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from apexbridge.errors import ArchiveLayoutError, ArchiveUnsafeError
from apexbridge.lifecycle.plan import ArchiveLimits, PlannedFile, too_large
from apexbridge.lifecycle.zip_directory import ZipEntry
from apexbridge.lifecycle.zip_names import (
    Place,
    RawName,
    parts_of,
    read_names,
    refuse_collisions,
    refuse_hopeless,
    refuse_long,
    with_slashes,
)
from apexbridge.lifecycle.zip_source import broken, shown
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Problem
from apexbridge.skills.reader import MAX_SKILL_MD_BYTES
from apexbridge.skills.tree import MARKER

_LITTER = frozenset({"__macosx", ".ds_store", "thumbs.db", "desktop.ini"})
_NOT_TAKEN = frozenset({MARKER, ".staging", ".git", ".hg", ".svn", ".bzr", "cvs"})
_BUILT_FOLDERS = frozenset({"node_modules", "__pycache__"})
_BUILT_SUFFIXES = frozenset({".pyc", ".pyo"})
_SCRIPTS = "scripts"
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An entry with its name read; `file` is where its bytes go, none if they go nowhere."""

    entry: ZipEntry
    place: Place
    file: PlannedFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A skill's folder, every entry, and what is odd about them."""

    folder: str
    items: tuple[Item, ...]
    problems: tuple[Problem, ...]
    dropped: tuple[str, ...]


def named(entries: Sequence[ZipEntry], limits: ArchiveLimits) -> tuple[tuple[Item, ...], str]:
    """Read every name and what kind of thing it is; also the encoding that was found.

    Raises:
        ArchiveError: If a name is unsafe, or a thing neither file nor folder.
    """
    for entry in entries:
        refuse_hopeless(entry.raw, limits)
    written = [RawName(entry.raw, entry.is_utf8, entry.unicode_names) for entry in entries]
    names, encoding = read_names(written)
    items = list[Item]()
    for entry, name in zip(entries, with_slashes(names), strict=True):
        place = Place(parts_of(name), name.endswith("/"))
        _refuse_special(entry, name, is_folder=place.is_folder)
        items.append(Item(entry=entry, place=place))
    return tuple(items), encoding


def _refuse_special(entry: ZipEntry, name: str, *, is_folder: bool) -> None:
    kind = stat.S_IFMT(entry.mode)
    if kind == stat.S_IFLNK:
        raise ArchiveUnsafeError(code="zip_link_entry", name=shown(name))
    if kind not in {0, stat.S_IFREG, stat.S_IFDIR} or (kind == stat.S_IFDIR and not is_folder):
        raise ArchiveUnsafeError(code="zip_special_entry", name=shown(name))
    if is_folder and entry.size:
        raise broken(f"the folder '{shown(name)}' has bytes of its own")


def lay_out(entries: Sequence[ZipEntry], limits: ArchiveLimits) -> Layout:
    """Find the one root folder and its SKILL.md, and say where every entry goes.

    Raises:
        ArchiveError: If a name is unsafe, two collide, or it is not one folder with a SKILL.md.
    """
    items, encoding = named(entries, limits)
    dropped = [item for item in items if _is_dropped(item.place)]
    kept = [item for item in items if not _is_dropped(item.place)]
    for item in kept:
        refuse_long(item.place.parts, limits)
    refuse_collisions(item.place for item in kept)
    files = [item for item in kept if not item.place.is_folder]
    if len(files) > limits.files:
        raise too_large(f"more than {limits.files} files")
    skill_md = _find_skill_md(kept, files)
    folder = _nfc(skill_md.place.parts[0])
    problems = (
        *_odd_case(skill_md),
        *_decoded(folder, items, encoding),
        *_told(folder, "zip_entries_dropped", (i.place for i in dropped if _is_told(i.place))),
        *_told(folder, "zip_built_files", (i.place for i in files if _is_built(i.place))),
    )
    return Layout(
        folder=folder,
        items=(
            *(_planned(item, is_skill_md=item is skill_md) for item in files),
            *(item for item in kept if item.place.is_folder),
            *dropped,
        ),
        problems=problems,
        dropped=tuple("/".join(item.place.parts) for item in dropped),
    )


def _is_dropped(place: Place) -> bool:
    return _is_litter(place) or _has(place, _NOT_TAKEN)


def _is_told(place: Place) -> bool:
    """What a desktop system adds is nobody's wish, and needs no word when it goes."""
    return not _is_litter(place)


def _is_litter(place: Place) -> bool:
    return _has(place, _LITTER) or place.parts[-1].startswith("._")


def _has(place: Place, names: frozenset[str]) -> bool:
    return any(part.casefold() in names for part in place.parts)


def _is_built(place: Place) -> bool:
    suffix = PurePosixPath(place.parts[-1]).suffix
    return _has(place, _BUILT_FOLDERS) or suffix.lower() in _BUILT_SUFFIXES


def _find_skill_md(kept: Sequence[Item], files: Sequence[Item]) -> Item:
    if not files:
        raise broken("it is empty")
    if any(len(item.place.parts) == 1 for item in files):
        raise ArchiveLayoutError(code="zip_no_root_folder")
    roots = sorted({item.place.parts[0] for item in kept})
    if len(roots) > 1:
        names = ", ".join(map(shown, roots[:_MOST_NAMED]))
        raise ArchiveLayoutError(code="zip_multiple_roots", names=names)
    for item in files:
        _, *path = item.place.parts
        if len(path) == 1 and path[0].lower() == SKILL_MD.lower():
            if item.entry.size > MAX_SKILL_MD_BYTES:
                raise too_large(f"{SKILL_MD} has more than {MAX_SKILL_MD_BYTES} bytes")
            return item
    raise ArchiveLayoutError(code="zip_no_skill_md", name=shown(roots[0]))


def _planned(item: Item, *, is_skill_md: bool) -> Item:
    _, *parts = item.place.parts
    path = PurePosixPath(SKILL_MD) if is_skill_md else PurePosixPath(*map(_nfc, parts))
    executable = bool(item.entry.mode & stat.S_IXUSR)
    if not item.entry.mode:  # made where files have no such mark, so the folder has to tell
        executable = len(parts) > 1 and parts[0] == _SCRIPTS
    file = PlannedFile(path=path, size=item.entry.size, executable=executable)
    return Item(entry=item.entry, place=item.place, file=file)


def _nfc(part: str) -> str:
    return unicodedata.normalize("NFC", part)


def _odd_case(skill_md: Item) -> Iterator[Problem]:
    name = skill_md.place.parts[-1]
    if name != SKILL_MD:
        details: dict[str, object] = {"name": name}
        yield Problem(code="skill_md_case", where=name, severity="warning", details=details)


def _decoded(folder: str, items: Sequence[Item], encoding: str) -> Iterator[Problem]:
    """Names that were read as UTF-8 need no word: that is what they are meant to be."""
    if encoding == "utf-8":
        return
    guessed = [i.place for i in items if not i.entry.is_utf8 and not i.entry.raw.isascii()]
    yield from _told(folder, "zip_names_decoded", guessed, encoding=encoding.upper())


def _told(folder: str, code: str, places: Iterable[Place], **details: object) -> Iterator[Problem]:
    names = [shown("/".join(place.parts)) for place in places]
    if names:
        more = f" (+{len(names) - _MOST_NAMED})" if len(names) > _MOST_NAMED else ""
        said = {"names": ", ".join(names[:_MOST_NAMED]) + more, **details}
        yield Problem(code=code, where=folder, severity="warning", details=said)
