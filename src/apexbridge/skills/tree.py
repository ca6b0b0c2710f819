"""File tree of a skill: listing, content hash and stat digest."""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from apexbridge.regular_files import open_regular
from apexbridge.skills.model import Fingerprint, Problem

MARKER = ".vectorized"
"""Marker file of the index. Not part of a skill in our store: never packed, hashed or trusted.

None is written into an untrusted skill. A file of that name there is hashed like any other: left
out of the hash, it could change after the skill was approved (TOCTOU).
"""

MAX_FILES = 10_000

_JUNK = frozenset({"__pycache__", ".git", ".hg", ".svn", ".DS_Store", "Thumbs.db", "__MACOSX"})

FileKind = Literal["file", "folder", "link", "device"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """One entry of a skill's folder; `path` is relative to it."""

    path: PurePosixPath
    kind: FileKind
    size: int
    executable: bool


def is_junk(path: PurePosixPath) -> bool:
    """Return whether a path is excluded from packages: caches and version control."""
    return (
        bool(_JUNK.intersection(path.parts)) or path.suffix == ".pyc" or path.name.startswith("._")
    )


def entries(root: Path, *, is_ours: bool = True) -> Iterator[TreeEntry]:
    """Walk the folder in a fixed order; symlinks are listed, never followed."""
    pending = [PurePosixPath()]
    while pending:
        folder = pending.pop()
        listed = _list(root, folder, is_ours=is_ours)
        found = sorted(listed, key=lambda entry: os.fsencode(entry.path))
        yield from found
        pending += [entry.path for entry in reversed(found) if entry.kind == "folder"]


def list_folder(root: Path, folder: PurePosixPath) -> list[TreeEntry]:
    """List one folder of a skill in our store, in a fixed order."""
    return sorted(_list(root, folder, is_ours=True), key=lambda entry: os.fsencode(entry.path))


def is_executable(mode: int) -> bool:
    """Return whether the owner may execute a file of a mode."""
    return bool(mode & stat.S_IXUSR)


def _list(root: Path, folder: PurePosixPath, *, is_ours: bool) -> Iterator[TreeEntry]:
    with os.scandir(root / folder) as items:
        for item in items:
            path = folder / item.name
            if is_ours and path == PurePosixPath(MARKER):
                continue
            status = item.stat(follow_symlinks=False)
            yield TreeEntry(
                path=path,
                kind=file_kind(status.st_mode),
                size=status.st_size,
                executable=is_executable(status.st_mode),
            )


def file_kind(mode: int) -> FileKind:
    """Classify a file by its mode."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "device"


def fingerprint(
    root: Path,
    *,
    max_files: int = MAX_FILES,
    is_ours: bool = True,
    instead: Mapping[PurePosixPath, bytes] | None = None,
) -> Fingerprint | Problem:
    """Hash names and contents of all files; equal trees hash alike on any machine.

    `instead` replaces the contents of some paths, to hash a tree that is not written yet.
    """
    planned = instead or {}
    digest, size, files, folders = hashlib.sha256(), 0, 0, 0
    try:
        for entry in entries(root, is_ours=is_ours):
            files, folders = files + (entry.kind != "folder"), folders + (entry.kind == "folder")
            if max(files, folders) > max_files:
                return too_many_files(root, max_files)
            if entry.kind == "folder":
                continue
            head = f"{entry.kind}\0".encode() + os.fsencode(entry.path) + b"\0"
            data = planned.get(entry.path)
            size += entry.size if data is None else len(data)
            content = _content(root / entry.path, entry) if data is None else _hash(data)
            digest.update(head + content)
    except OSError as error:
        return unreadable(root, error)
    return Fingerprint(size=size, files=files, sha256=digest.hexdigest())


def file_sha256(path: Path) -> str:
    """Hash a single file, or a symlink itself; empty if it cannot be read."""
    try:
        status = path.lstat()
        entry = TreeEntry(
            path=PurePosixPath(path.name),
            kind=file_kind(status.st_mode),
            size=status.st_size,
            executable=is_executable(status.st_mode),
        )
        return _content(path, entry).hex()
    except OSError:
        return ""


def _hash(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _content(path: Path, entry: TreeEntry) -> bytes:
    if entry.kind == "link":
        return _hash(os.fsencode(path.readlink()))
    if entry.kind == "device":
        return bytes(32)
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").digest()


class Stamp(NamedTuple):
    """Digest of the stat results of all files: equal as long as none was modified."""

    digest: bytes
    newest_ns: int
    """Latest change time (ctime), by the file system's clock."""


def stamp(
    root: str,
    listed: "Sequence[os.DirEntry[str]]",
    *,
    max_files: int = MAX_FILES,
    is_ours: bool = True,
) -> Stamp | None:
    """Digest the stat results without reading a file; None on errors or above the limit.

    `listed` are the root's entries. The digest includes ctime, which no user can set: an edit that
    keeps size and modification time is detected too.
    """
    lines, newest, folders = list[bytes](), 0, 0
    pending = [("", item) for item in listed if not (is_ours and item.name == MARKER)]
    try:
        while pending:
            folder, item = pending.pop()
            path = f"{folder}{item.name}"
            if item.is_dir(follow_symlinks=False):
                folders += 1
                if folders > max_files:
                    return None
                with os.scandir(f"{root}/{path}") as inside:
                    pending += [(f"{path}/", below) for below in inside]
                continue
            status = item.stat(follow_symlinks=False)
            newest = max(newest, status.st_ctime_ns)
            lines.append(_status_line(path, status))
            if len(lines) > max_files:
                return None
    except OSError:
        return None
    lines.sort()
    return Stamp(hashlib.blake2b(b"\0".join(lines), digest_size=16).digest(), newest)


def _status_line(path: str, status: os.stat_result) -> bytes:
    times = (status.st_mtime_ns, status.st_ctime_ns)
    values = (os.fsencode(path), status.st_mode, status.st_size, *times, status.st_ino)
    return b"%s\0%d %d %d %d %d" % values


def unreadable(root: Path, error: OSError) -> Problem:
    """Build the problem of a folder that cannot be listed or read."""
    return Problem.error("folder_unreadable", root.name, detail=error.strerror or str(error))


def too_many_files(root: Path, limit: int) -> Problem:
    """Build the problem of a folder with more entries than the limit."""
    return Problem.error("tree_too_large", root.name, limit=limit)
