"""Version store: earlier versions of installed skills as whole folders, by content hash; and diffs.

skills/.versions/NAME/SHA256/NAME       a stored version
skills/.versions/NAME/new-SHA256/NAME   a version about to be exchanged with the one in use

An update commits by exchanging two folders (`renameat2`). Afterwards the old version is in the
folder that carries the new one's hash, and is renamed; crash recovery repeats that rename.
"""

import difflib
import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from apexbridge.errors import SkillVersionError, StorageError
from apexbridge.paths import exchange_dirs, fsync_dir, recover_exchange, storage_errors
from apexbridge.regular_files import read_regular
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Fingerprint, Origin, Provenance
from apexbridge.skills.parser import read_skill
from apexbridge.tree_removal import remove_tree

VERSIONS = ".versions"
_NEW = "new-"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MIN_HASH_PREFIX = 4
_PROVENANCE = Provenance(
    origin=Origin.INSTALLED, source_id="installed:kept", needs_trust=False, may_run_shell=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of a skill, in use or stored."""

    sha256: str
    declared: str
    """The `version` field of its SKILL.md, if any."""
    size: int
    at: float
    """Time of its replacement, in seconds since the epoch; 0 for the one in use."""
    is_current: bool = False
    is_pinned: bool = False
    description: str = ""
    created: float = 0.0
    """Time its files were written, in seconds since the epoch; 0 if unknown."""


class VersionStore:
    """Versions of installed skills that are not in use. Methods block, and raise StorageError.

    Callers that change versions of a name must hold its name lock.
    """

    def __init__(self, skills: Path) -> None:
        self._skills = skills
        self._root = skills / VERSIONS

    def folder(self, name: str, sha256: str) -> Path:
        """Return the folder of a stored version."""
        return self._root / name / sha256 / name

    def list(self, name: str) -> "tuple[Version, ...]":
        """Return the stored versions of a skill, the latest first."""
        kept = [_describe(place, name) for place in self._places(name)]
        return tuple(sorted(kept, key=lambda version: version.at, reverse=True))

    def _places(self, name: str) -> "list[Path]":
        try:
            return [p for p in (self._root / name).iterdir() if _SHA256.fullmatch(p.name)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def find(self, name: str, wanted: str) -> Version:
        """Return the stored version of a hash, hash prefix or declared version, or the latest.

        Raises:
            SkillVersionError: `version_unknown` if none or more than one matches.
        """
        kept = self.list(name)
        if not wanted and kept:
            return kept[0]
        found = [version for version in kept if version.declared == wanted]
        if len(wanted) >= _MIN_HASH_PREFIX:
            found += [v for v in kept if v.sha256.startswith(wanted) and v not in found]
        if len(found) == 1:
            return found[0]
        known = ", ".join(f"{v.sha256[:12]} {v.declared}".strip() for v in kept) or "-"
        raise SkillVersionError(name=name, version=wanted or "-", known=known)

    def created(self, name: str) -> dict[str, float]:
        """Return the creation time of each stored version by hash; reads only metadata."""
        return {place.name: modified_at(place / name) for place in self._places(name)}

    def add(self, name: str, staged: Path, sha256: str) -> None:
        """Store a staged folder beside the skill in use. The second rename is the commit."""
        place = self._root / name / f"{_NEW}{sha256}"
        with storage_errors(place):
            remove_tree(place)  # leftover of an interrupted attempt
            place.mkdir(parents=True, mode=0o700)
            try:
                staged.rename(place / name)
                place.rename(place.with_name(sha256))
                fsync_dir(place.parent)
            except OSError:
                with suppress(OSError):
                    remove_tree(place)
                raise

    def remove(self, name: str, sha256: str, staging: Path) -> None:
        """Move a stored version into staging, to be deleted. The rename in here is the commit."""
        place = self._root / name / sha256
        with storage_errors(place):
            place.rename(staging / sha256)
            fsync_dir(place.parent)

    def activate(self, name: str, sha256: str) -> None:
        """Exchange a stored version with the one in use. The exchange is the commit.

        Raises:
            SkillVersionError: `version_damaged` if its content does not match its hash.
            StorageError: If the disk refuses.
        """
        place = self._root / name / sha256
        if _sha256(place / name) != sha256:
            raise SkillVersionError(code="version_damaged", name=name, version=sha256[:12])
        with storage_errors(place):
            # The index row belongs to the other version.
            (place / name / tree.MARKER).unlink(missing_ok=True)
        exchange_dirs(place / name, self._skills / name)
        self._rename_by_hash(place, name)

    def replace(self, name: str, staged: Path, sha256: str) -> None:
        """Replace the skill in use by a staged folder, and store the old version.

        The exchange is the commit; on an earlier failure nothing has changed.
        """
        place = self._root / name / f"{_NEW}{sha256}"
        with storage_errors(place):
            remove_tree(place)  # leftover of an interrupted attempt
            place.mkdir(parents=True, mode=0o700)
            try:
                staged.rename(place / name)
                exchange_dirs(place / name, self._skills / name)
            except (OSError, StorageError):
                with suppress(OSError):
                    # Never delete the version that was in use, wherever a failure left it.
                    if _sha256(place / name) == sha256 or not any(place.iterdir()):
                        remove_tree(place)
                raise
        self._rename_by_hash(place, name)

    def _rename_by_hash(self, place: Path, name: str) -> None:
        """Rename a folder to the hash of its content; on failure, recovery does it."""
        with suppress(OSError):
            (place / name / tree.MARKER).unlink(missing_ok=True)
            sha256 = _sha256(place / name)
            if sha256 in {"", place.name}:
                return
            target = place.with_name(sha256)
            if target.exists():  # the same content was stored before
                remove_tree(target)
            place.rename(target)
            os.utime(target)
            fsync_dir(target.parent)

    def prune(self, name: str, keep: int) -> None:
        """Delete all but the latest stored versions; errors are ignored."""
        for version in self.list(name)[keep:]:
            with suppress(OSError):
                remove_tree(self._root / name / version.sha256)

    def recover(self) -> int:
        """Crash recovery: finish or remove interrupted exchanges; return their number."""
        count = 0
        for place in (p for n in _folders(self._root) for p in _folders(n)):
            name = place.parent.name
            recover_exchange(place / name, self._skills / name)
            sha256 = _sha256(place / name)
            if place.name == sha256:
                continue
            count += 1
            if place.name == f"{_NEW}{sha256}" or not (place / name).is_dir():
                remove_tree(place)
            else:
                self._rename_by_hash(place, name)
        return count

    def move(self, name: str, target: Path) -> None:
        """Move all stored versions of a skill elsewhere, if there are any."""
        with suppress(FileNotFoundError):
            (self._root / name).rename(target)
            fsync_dir(self._root)

    def take_back(self, name: str, source: Path) -> None:
        """Move the versions of a skill back from where `move` put them."""
        if source.is_dir():
            self._root.mkdir(mode=0o700, exist_ok=True)
            source.rename(self._root / name)
            fsync_dir(self._root)

    def discard(self, name: str) -> None:
        """Delete all stored versions of a skill."""
        remove_tree(self._root / name)

    def keep_only(self, names: Collection[str]) -> None:
        """Delete the versions of all other skills, which cannot be restored any more."""
        for place in _folders(self._root):
            if place.name not in names:
                remove_tree(place)


def _folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []


def _sha256(root: Path) -> str:
    """Return the content hash of a folder; empty if it cannot be read."""
    found = tree.fingerprint(root)
    return found.sha256 if isinstance(found, Fingerprint) else ""


def modified_at(root: Path) -> float:
    """Return the mtime of a skill's SKILL.md, in seconds since the epoch; 0 if missing."""
    try:
        return (root / SKILL_MD).stat().st_mtime
    except OSError:
        return 0.0


def _describe(place: Path, name: str) -> Version:
    skill = read_skill(place / name, _PROVENANCE).skill
    size = skill.fingerprint.size if skill and skill.fingerprint else 0
    return Version(
        sha256=place.name,
        declared=(skill.manifest.version or "") if skill else "",
        size=size,
        at=place.stat().st_mtime,
        description=skill.description if skill else "",
        created=modified_at(place / name),
    )


_MAX_DIFF_BYTES = 256 * 1024
_MAX_DIFF_LINES = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A changed file."""

    path: PurePosixPath
    what: Literal["added", "removed", "changed"]
    lines: tuple[str, ...] = ()
    """A unified diff, for text."""
    is_cut: bool = False
    """The diff is omitted, because the file is binary or too large."""
    executable: tuple[bool, bool] = (False, False)
    """Executable bit before and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDiff:
    """Changed files, by path."""

    changes: tuple[FileChange, ...]


def diff_folders(old: Path, new: Path) -> VersionDiff:
    """Compare two folders; symlinks by their target, devices by their kind.

    Raises:
        OSError: If a folder cannot be read.
    """
    before, after = _files_by_path(old), _files_by_path(new)
    changes = list[FileChange]()
    for path in sorted(before.keys() | after.keys()):
        change = _diff_file(path, _DiffSide(old, before.get(path)), _DiffSide(new, after.get(path)))
        if change is not None:
            changes.append(change)
    return VersionDiff(changes=tuple(changes))


@dataclass(frozen=True, slots=True)
class _DiffSide:
    root: Path
    entry: tree.TreeEntry | None

    @property
    def executable(self) -> bool:
        return self.entry is not None and self.entry.executable

    def read(self) -> bytes:
        if self.entry is None:
            return b""
        path = self.root / self.entry.path
        if self.entry.kind == "link":
            return f"-> {path.readlink()}\n".encode("utf-8", "replace")
        return read_regular(path, self.entry.size) if self.entry.kind == "file" else b""


def _files_by_path(root: Path) -> dict[PurePosixPath, tree.TreeEntry]:
    return {entry.path: entry for entry in tree.entries(root) if entry.kind != "folder"}


def _diff_file(path: PurePosixPath, old: _DiffSide, new: _DiffSide) -> FileChange | None:
    before, after = old.read(), new.read()
    executable = (old.executable, new.executable)
    if old.entry and new.entry and before == after:
        same = executable[0] == executable[1] and old.entry.kind == new.entry.kind
        return None if same else FileChange(path=path, what="changed", executable=executable)
    lines, is_cut = _diff_lines(path, before, after)
    what = "added" if old.entry is None else "removed" if new.entry is None else "changed"
    return FileChange(path=path, what=what, lines=lines, is_cut=is_cut, executable=executable)


def _diff_lines(path: PurePosixPath, before: bytes, after: bytes) -> tuple[tuple[str, ...], bool]:
    if max(len(before), len(after)) > _MAX_DIFF_BYTES or b"\0" in before + after:
        return (), True
    old, new = (data.decode("utf-8", "replace").splitlines() for data in (before, after))
    if max(len(old), len(new)) > _MAX_DIFF_LINES:  # difflib takes quadratic time
        return (), True
    lines = difflib.unified_diff(old, new, f"old/{path}", f"new/{path}", lineterm="")
    return tuple(lines), False
