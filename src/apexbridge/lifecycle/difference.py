"""What is different between two states of a skill, file by file."""

import difflib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from apexbridge.skills import tree

_MAX_BYTES = 256 * 1024
_MAX_LINES = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file that is not the same."""

    path: PurePosixPath
    what: Literal["added", "removed", "changed"]
    lines: tuple[str, ...] = ()
    """A unified diff, for text."""
    is_cut: bool = False
    """Whether it is too large to be shown whole, or no text."""
    executable: tuple[bool, bool] = (False, False)
    """Whether it could be run before, and whether it can be now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Every file that is not the same, by path."""

    changes: tuple[FileChange, ...]


def compare(old: Path, new: Path) -> Difference:
    """Compare two folders; links and devices count by where they lead and what they are.

    Raises:
        OSError: If a folder cannot be read.
    """
    before, after = _files(old), _files(new)
    changes = list[FileChange]()
    for path in sorted(before.keys() | after.keys()):
        change = _change(path, _Side(old, before.get(path)), _Side(new, after.get(path)))
        if change is not None:
            changes.append(change)
    return Difference(changes=tuple(changes))


@dataclass(frozen=True, slots=True)
class _Side:
    root: Path
    entry: tree.Entry | None

    @property
    def executable(self) -> bool:
        return self.entry is not None and self.entry.executable

    def read(self) -> bytes:
        if self.entry is None:
            return b""
        path = self.root / self.entry.path
        if self.entry.kind == "link":
            return f"-> {path.readlink()}\n".encode("utf-8", "replace")
        return path.read_bytes() if self.entry.kind == "file" else b""


def _files(root: Path) -> dict[PurePosixPath, tree.Entry]:
    return {entry.path: entry for entry in tree.entries(root) if entry.kind != "folder"}


def _change(path: PurePosixPath, old: _Side, new: _Side) -> FileChange | None:
    before, after = old.read(), new.read()
    runs = (old.executable, new.executable)
    if old.entry and new.entry and before == after:
        same = runs[0] == runs[1] and old.entry.kind == new.entry.kind
        return None if same else FileChange(path=path, what="changed", executable=runs)
    lines, is_cut = _lines(path, before, after)
    if old.entry is None or new.entry is None:
        what = "added" if old.entry is None else "removed"
        return FileChange(path=path, what=what, lines=lines, is_cut=is_cut, executable=runs)
    return FileChange(path=path, what="changed", lines=lines, is_cut=is_cut, executable=runs)


def _lines(path: PurePosixPath, before: bytes, after: bytes) -> tuple[tuple[str, ...], bool]:
    if max(len(before), len(after)) > _MAX_BYTES or b"\0" in before + after:
        return (), True
    old, new = (data.decode("utf-8", "replace").splitlines() for data in (before, after))
    if max(len(old), len(new)) > _MAX_LINES:  # the comparison takes time by their product
        return (), True
    lines = difflib.unified_diff(old, new, f"old/{path}", f"new/{path}", lineterm="")
    return tuple(lines), False
