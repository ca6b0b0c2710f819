"""What a skill was before it was updated: whole folders, each by the hash of its tree.

skills/.versions/NAME/SHA256/NAME       a version that can be brought back
skills/.versions/NAME/new-SHA256/NAME   a version about to change places with the one that is used

The commit of an update is the exchange of two folders: afterwards the old version lies where the
new one lay, under a name that is no longer true. Whoever finds that, after a crash too, gives it
the name it should have.
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
from apexbridge.paths import exchange_dirs, fsync_dir, recover_exchange, remove_tree, storage_errors
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Fingerprint, Origin, Provenance
from apexbridge.skills.parser import read_skill

VERSIONS = ".versions"
_NEW = "new-"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MIN_HASH_PREFIX = 4
_PROVENANCE = Provenance(
    origin=Origin.INSTALLED, source_id="installed:kept", needs_trust=False, may_run_shell=False
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A state of a skill: in use, or kept."""

    sha256: str
    declared: str
    """What its SKILL.md calls this version, if anything."""
    size: int
    at: float
    """When it was put aside, in seconds since the epoch; 0 for the one in use."""
    is_current: bool = False
    is_pinned: bool = False
    description: str = ""
    created: float = 0.0
    """When its files were written here, in seconds since the epoch; 0 where nobody knows."""


class VersionStore:
    """The versions of installed skills that are not in use. Every method blocks.

    Whoever changes a name's versions holds the lock of that name.
    """

    def __init__(self, skills: Path) -> None:
        self._skills = skills
        self._root = skills / VERSIONS

    def folder(self, name: str, sha256: str) -> Path:
        """Where a kept version lies."""
        return self._root / name / sha256 / name

    def list(self, name: str) -> "tuple[Version, ...]":
        """The kept versions of a skill, the latest first."""
        kept = [_describe(place, name) for place in self._places(name)]
        return tuple(sorted(kept, key=lambda version: version.at, reverse=True))

    def _places(self, name: str) -> "list[Path]":
        try:
            return [p for p in (self._root / name).iterdir() if _SHA256.fullmatch(p.name)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def find(self, name: str, wanted: str) -> Version:
        """The kept version that a hash, its beginning or a declared version means; '' the latest.

        Raises:
            SkillVersionError: `version_unknown` if there is none, or more than one could be meant.
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
        """When each kept version was made, by its hash; nothing is read but dates."""
        return {place.name: modified_at(place / name) for place in self._places(name)}

    def add(self, name: str, staged: Path, sha256: str) -> None:
        """Keep a built folder beside the skill in use. The second rename is the commit.

        Raises:
            StorageError: If the disk refuses.
        """
        place = self._root / name / f"{_NEW}{sha256}"
        with storage_errors(place):
            remove_tree(place)  # what an earlier attempt may have left
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
        """Move a kept version where it will be removed. The rename in here is the commit.

        Raises:
            StorageError: If the disk refuses.
        """
        place = self._root / name / sha256
        with storage_errors(place):
            place.rename(staging / sha256)
            fsync_dir(place.parent)

    def activate(self, name: str, sha256: str) -> None:
        """Let a kept version and the one in use change places. The exchange is the commit.

        Raises:
            SkillVersionError: `version_damaged` if it is not what it was; nothing was changed.
            StorageError: If the disk refuses.
        """
        place = self._root / name / sha256
        if _sha256(place / name) != sha256:
            raise SkillVersionError(code="version_damaged", name=name, version=sha256[:12])
        with storage_errors(place):
            (place / name / tree.MARKER).unlink(missing_ok=True)  # its row is another's now
        exchange_dirs(place / name, self._skills / name)
        self._rename_by_hash(place, name)

    def replace(self, name: str, staged: Path, sha256: str) -> None:
        """Let a built folder take the place of the skill in use, which is kept.

        The exchange is the commit. If it does not come to that, everything is as it was.

        Raises:
            StorageError: If the disk refuses.
        """
        place = self._root / name / f"{_NEW}{sha256}"
        with storage_errors(place):
            remove_tree(place)  # what an earlier attempt may have left
            place.mkdir(parents=True, mode=0o700)
            try:
                staged.rename(place / name)
                exchange_dirs(place / name, self._skills / name)
            except (OSError, StorageError):
                with suppress(OSError):
                    # And not the version in use before, wherever it was left.
                    if _sha256(place / name) == sha256 or not any(place.iterdir()):
                        remove_tree(place)
                raise
        self._rename_by_hash(place, name)

    def _rename_by_hash(self, place: Path, name: str) -> None:
        """Name a place by what lies in it; a failure loses nothing, and the next start does it."""
        with suppress(OSError):
            (place / name / tree.MARKER).unlink(missing_ok=True)
            sha256 = _sha256(place / name)
            if sha256 in {"", place.name}:
                return
            target = place.with_name(sha256)
            if target.exists():  # the same state was kept before
                remove_tree(target)
            place.rename(target)
            os.utime(target)
            fsync_dir(target.parent)

    def prune(self, name: str, keep: int) -> None:
        """Forget all but the latest versions of a skill; what cannot be removed stays."""
        for version in self.list(name)[keep:]:
            with suppress(OSError):
                remove_tree(self._root / name / version.sha256)

    def recover(self) -> int:
        """Put right what a crash left half done; how many were."""
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

    def keep_only(self, names: Collection[str]) -> None:
        """Remove what is kept of skills that are gone for good."""
        for place in _folders(self._root):
            if place.name not in names:
                remove_tree(place)


def _folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []


def _sha256(root: Path) -> str:
    """The hash of a tree; empty if there is none that can be read."""
    found = tree.fingerprint(root)
    return found.sha256 if isinstance(found, Fingerprint) else ""


def modified_at(root: Path) -> float:
    """When a skill's SKILL.md was written, in seconds since the epoch; 0 where there is none."""
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
class VersionDiff:
    """Every file that is not the same, by path."""

    changes: tuple[FileChange, ...]


def diff_folders(old: Path, new: Path) -> VersionDiff:
    """Compare two folders; links and devices count by where they lead and what they are.

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
        return path.read_bytes() if self.entry.kind == "file" else b""


def _files_by_path(root: Path) -> dict[PurePosixPath, tree.TreeEntry]:
    return {entry.path: entry for entry in tree.entries(root) if entry.kind != "folder"}


def _diff_file(path: PurePosixPath, old: _DiffSide, new: _DiffSide) -> FileChange | None:
    before, after = old.read(), new.read()
    runs = (old.executable, new.executable)
    if old.entry and new.entry and before == after:
        same = runs[0] == runs[1] and old.entry.kind == new.entry.kind
        return None if same else FileChange(path=path, what="changed", executable=runs)
    lines, is_cut = _diff_lines(path, before, after)
    if old.entry is None or new.entry is None:
        what = "added" if old.entry is None else "removed"
        return FileChange(path=path, what=what, lines=lines, is_cut=is_cut, executable=runs)
    return FileChange(path=path, what="changed", lines=lines, is_cut=is_cut, executable=runs)


def _diff_lines(path: PurePosixPath, before: bytes, after: bytes) -> tuple[tuple[str, ...], bool]:
    if max(len(before), len(after)) > _MAX_DIFF_BYTES or b"\0" in before + after:
        return (), True
    old, new = (data.decode("utf-8", "replace").splitlines() for data in (before, after))
    if max(len(old), len(new)) > _MAX_DIFF_LINES:  # the comparison takes time by their product
        return (), True
    lines = difflib.unified_diff(old, new, f"old/{path}", f"new/{path}", lineterm="")
    return tuple(lines), False
