"""Symlinks of a skill's folder, followed where the folder is copied or packed.

Authors link one file to two places, and git keeps that. A link that stays inside the skill is
copied as what it points to; one that leads out of it, in a circle, to nothing or into version
control is not followed. Archives have no such links: there a link entry is always refused.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from apexbridge.skills import tree
from apexbridge.skills.tree import TreeEntry


class _Folder(NamedTuple):
    """A folder to list, and the real paths of it and of those above: a circle comes back to one."""

    path: PurePosixPath
    above: frozenset[Path]


def copied_entries(root: Path) -> Iterator[TreeEntry]:
    """Walk a folder as it is copied, without caches and version control.

    What stays of kind `link` must not be followed. The walk is lazy, and links can make a small
    folder large: the caller counts, and stops at its limit.
    """
    top = root.resolve()
    pending = [_Folder(PurePosixPath(), frozenset({top}))]
    while pending:
        folder = pending.pop()
        below = list[_Folder]()
        for listed in tree.list_folder(root, folder.path):
            if tree.is_junk(listed.path):
                continue
            entry = _followed(root, top, listed, folder.above) if listed.kind == "link" else listed
            if entry.kind == "folder":
                real = (root / entry.path).resolve()
                below.append(_Folder(entry.path, folder.above | {real}))
            yield entry
        pending += reversed(below)


def _followed(root: Path, top: Path, link: TreeEntry, above: frozenset[Path]) -> TreeEntry:
    """Return what a link stands for; the link itself if it must not be followed."""
    try:
        target = (root / link.path).resolve(strict=True)
        status = target.stat()
    except (OSError, RuntimeError):  # to nowhere, or to itself
        return link
    kind = tree.file_kind(status.st_mode)
    if kind not in {"file", "folder"} or target in above or not target.is_relative_to(top):
        return link
    if tree.is_junk(PurePosixPath(target.relative_to(top))):
        return link
    return replace(
        link, kind=kind, size=status.st_size, executable=tree.is_executable(status.st_mode)
    )


def link_target(root: Path, entry: TreeEntry) -> str:
    """Return where a link points, as it is written; for messages."""
    try:
        return str((root / entry.path).readlink())
    except OSError:
        return "?"
