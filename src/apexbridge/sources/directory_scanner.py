"""Scan directories for skill folders: downward from a root, and upward from touched files."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from apexbridge.path_patterns import parse_gitignore
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import FolderId
from apexbridge.sources.git_excludes import GitUser, find_git_dir, read_small_file

_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})
"""Folders of package managers and caches, which hold no author's skills."""
_HIDDEN_CATALOGS = frozenset({".curated", ".experimental", ".system"})
"""Hidden folders in which published repositories keep skills."""
_IN_HIDDEN_FOLDERS = ("skills", "plugins")
"""The only folders searched in other hidden ones: `.github/skills`, `.agents/plugins`."""
_NEVER_SEARCHED = frozenset({".git", ".hg", ".svn"})
_MAX_PEEK = 200
"""Entries checked for skills in a folder that is not searched."""
_SKILL_MD = SKILL_MD.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLimits:
    """Depth and folder limits, so that a scan of any root terminates."""

    max_depth: int = 6
    max_folders: int = 2_000
    follow_external_symlinks: bool = True
    """True if symlinks that lead out of the root are followed."""
    hidden_catalogs: bool = False
    """True if the hidden folders of published repositories are searched: `.curated`,
    `.github/skills`."""


DEFAULT_LIMITS = ScanLimits()


class SkillFolder(NamedTuple):
    """A folder with a SKILL.md: path below the root, device and inode, directory entries.

    A folder that cannot be listed has no entries.
    """

    path: str
    identity: FolderId
    entries: "tuple[os.DirEntry[str], ...]" = ()


@dataclass(slots=True)
class DirectoryScanner:
    """One traversal. Each folder is visited once (symlink loops); skills are not searched."""

    root: str
    limits: ScanLimits
    is_truncated: bool = False
    """True if the root has more folders than the limit."""
    visited_folders: list[str] = field(default_factory=list[str])
    """Folders that are no skills: new skills would appear in them."""
    external_symlinks: list[str] = field(default_factory=list[str])
    """Symlinks that lead out of the root and were not followed."""
    unsearched: list[str] = field(default_factory=list[str])
    """Folders that hold skills and were not searched: hidden, inside of a skill, or too deep.

    They are looked for with `hidden_catalogs` only.
    """

    def skills(self) -> Iterator[SkillFolder]:
        """Yield skill folders in a fixed order; OSError if the root itself cannot be listed."""
        seen, visited = set[FolderId](), 0
        pending = [("", 0)]
        while pending:
            path, depth = pending.pop()
            identity = self._identity(path)
            if identity is None or identity in seen:
                continue
            seen.add(identity)
            visited += 1
            if visited > self.limits.max_folders + 1:
                self.is_truncated = True
                return
            names, entries = self._look(path)
            if entries is not None and depth:
                if not self._is_mirror(path, entries):
                    yield SkillFolder(path, identity, entries)
                    self._note_inner_skills(path, entries)
                continue
            self.visited_folders.append(path)
            below = f"{path}/" if path else ""
            if depth < self.limits.max_depth:
                pending += [(f"{below}{name}", depth + 1) for name in reversed(names)]
            elif self.limits.hidden_catalogs:
                self.unsearched += [n for n in map(below.__add__, names) if self._has_skills(n)]

    def _identity(self, path: str) -> FolderId | None:
        try:
            status = os.stat(f"{self.root}/{path}")  # noqa: PTH116, one call for each of thousands
        except FileNotFoundError:
            return None
        except OSError:
            if not path:
                raise
            return None
        return FolderId(status.st_dev, status.st_ino)

    def _look(self, path: str) -> "tuple[list[str], tuple[os.DirEntry[str], ...] | None]":
        """List the folders below; or, if this one is a skill, all of its entries."""
        try:
            with os.scandir(f"{self.root}/{path}") as items:
                present = list(items)
        except FileNotFoundError:
            return [], None
        except OSError:
            if not path:
                raise
            return [], ()  # parsing it as a skill reports the error
        if any(item.name.lower() == _SKILL_MD for item in present):
            return [], tuple(present)
        folders = filter(is_scannable_folder, present)
        names = sorted(item.name for item in folders if self._may_enter(path, item))
        # After the visible ones: of two equal skills the visible one is found first.
        return [*names, *self.hidden_folders(path, present)], None

    def hidden_folders(self, path: str, present: "list[os.DirEntry[str]]") -> list[str]:
        """List the folders to search in hidden ones; note others that hold skills."""
        if not self.limits.hidden_catalogs:
            return []
        hidden = [item for item in present if item.name.startswith(".") and _is_real_folder(item)]
        found = list[str]()
        for item in sorted(hidden, key=lambda item: item.name):
            name = item.name
            if name in _NEVER_SEARCHED:
                continue
            inside = [f"{name}/{below}" for below in _IN_HIDDEN_FOLDERS]
            inside = [each for each in inside if is_folder(Path(self.root, path, each))]
            found += [name] if name in _HIDDEN_CATALOGS else inside
            if not (inside or name in _HIDDEN_CATALOGS) and self._has_skills(f"{path}/{name}"):
                self.unsearched.append(f"{path}/{name}" if path else name)
        return found

    def _note_inner_skills(self, path: str, entries: "tuple[os.DirEntry[str], ...]") -> None:
        """Note the folders of a skill that hold skills: they are files of that skill."""
        if self.limits.hidden_catalogs:
            inner = (f"{path}/{item.name}" for item in entries if _is_real_folder(item))
            self.unsearched += [name for name in inner if self._has_skills(name)]

    def _is_mirror(self, path: str, entries: "tuple[os.DirEntry[str], ...]") -> bool:
        """Return whether SKILL.md is a symlink to another file of the same repository.

        Repositories list their skills so for clients that look elsewhere (`.gemini/skills`). A
        target that is a SKILL.md is found itself; another one, such as a command, is noted.
        """
        links = [e for e in entries if e.name.lower() == _SKILL_MD and e.is_symlink()]
        if not (self.limits.hidden_catalogs and links):
            return False
        root = Path(self.root)
        hidden = next((p for p in (root, root.parent) if p.name.startswith(".")), None)
        top = resolve_leniently(hidden.parent if hidden else root)
        target = resolve_leniently(Path(links[0].path))
        if not target.is_relative_to(top):
            return False
        if target.name.lower() != _SKILL_MD:
            self.unsearched.append(path)
        return True

    def _has_skills(self, path: str) -> bool:
        """Return whether a folder is a skill, or has one directly below it."""
        folder = Path(f"{self.root}/{path}")
        below = [folder / name for name in islice(_list_names(folder), _MAX_PEEK)]
        return any(map(_is_skill, (folder, *below)))

    def _may_enter(self, path: str, item: "os.DirEntry[str]") -> bool:
        if self.limits.follow_external_symlinks or not item.is_symlink():
            return True
        if resolve_leniently(Path(item.path)).is_relative_to(resolve_leniently(Path(self.root))):
            return True
        self.external_symlinks.append(f"{path}/{item.name}" if path else item.name)
        return False


def published_folders(root: Path) -> tuple[list[Path], list[str]]:
    """Return the folders beside `skills` in which a repository publishes more of them.

    These are `plugins`, `.curated`, `.github/plugins` and the like. The second list has the names
    of other hidden folders that hold skills.
    """
    scanner = DirectoryScanner(str(root), ScanLimits(hidden_catalogs=True))
    try:
        with os.scandir(root) as items:
            found = scanner.hidden_folders("", list(items))
    except OSError:
        return [], []
    plugins = [root / "plugins"] if is_folder(root / "plugins") else []
    return [*plugins, *(root / name for name in found)], scanner.unsearched


def _is_real_folder(item: "os.DirEntry[str]") -> bool:
    try:
        return item.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _list_names(path: Path) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208, names are enough
    except OSError:  # not a folder, or not readable
        return []


def _is_skill(path: Path) -> bool:
    return any(name.lower() == _SKILL_MD for name in _list_names(path))


def is_folder(path: Path) -> bool:
    """Return whether a folder exists, without raising for an unusable path."""
    try:
        return path.is_dir()
    except OSError:  # ENAMETOOLONG, EACCES
        return False


def resolve_leniently(path: Path) -> Path:
    """Resolve symlinks; a path that cannot be resolved (symlink loop) is returned unchanged."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):
        return path


def is_skipped(name: str) -> bool:
    """Return whether a folder name is excluded from scans."""
    return name.startswith(".") or name in _SKIPPED_FOLDERS


def is_scannable_folder(item: "os.DirEntry[str]") -> bool:
    """Return whether an entry is a folder to scan."""
    try:
        return not is_skipped(item.name) and item.is_dir()
    except OSError:  # a symlink into a folder without permission
        return False


MAX_FOLDERS = 10_000
"""Limit of project folders to visit, however many files are touched."""


class NestedRoot(NamedTuple):
    """A skills folder, and the project folder that contains it."""

    path: Path
    home: Path


class NestedDiscovery:
    """Find `.claude/skills` folders between a touched file and the project's root."""

    def __init__(
        self, project: Path, places: Sequence[str], git_user: GitUser | None = None
    ) -> None:
        self._project = project.resolve()
        self._git_user = git_user
        self._places = tuple(places)
        self._visited: set[Path] = set()

    def discover(self, touched: Iterable[Path]) -> list[NestedRoot]:
        """Return new skill roots, the deepest first.

        Gitignored folders, hidden ones and those of package managers are skipped.
        """
        found = list[NestedRoot]()
        for folder in self._new_folders(touched):
            here = [folder / place for place in self._places if is_folder(folder / place)]
            parts = folder.relative_to(self._project).parts
            if here and not any(map(is_skipped, parts)):
                top = _repository_root(self._project)
                found += [
                    NestedRoot(root, folder)
                    for root in here
                    if not is_gitignored(root, top, self._git_user)
                ]
        return sorted(found, key=lambda root: -len(root.path.parts))

    def _new_folders(self, touched: Iterable[Path]) -> Iterator[Path]:
        for path in touched:
            start = path if is_folder(path) else path.parent
            for folder in (start, *start.parents):
                if folder == self._project or not folder.is_relative_to(self._project):
                    break
                if folder in self._visited or len(self._visited) >= MAX_FOLDERS:
                    break  # its parents were visited with it
                self._visited.add(folder)
                if is_folder(folder) and resolve_leniently(folder).is_relative_to(self._project):
                    yield folder


def _repository_root(project: Path) -> Path:
    """Find the git repository's root; outside of a repository, the project's."""
    for folder in (project, *project.parents):
        if (folder / ".git").exists():
            return folder
    return project


def is_gitignored(path: Path, top: Path, user: GitUser | None = None) -> bool:
    """Return whether git ignores a folder or one of its parents, also by the user's own file."""
    steps = [*reversed([p for p in path.parents if p.is_relative_to(top) and p != top]), path]
    files = [(folder, folder / ".gitignore") for folder in (top, *steps[:-1])]
    git_dir = find_git_dir(top)
    files.insert(0, (top, git_dir / "info" / "exclude"))
    if user is not None:  # the weakest: whatever stands in the repository decides over it
        files.insert(0, (top, user.excludes_file(git_dir)))
    rules = [(folder, parse_gitignore(read_small_file(file))) for folder, file in files]
    for step in steps:
        verdict: bool | None = None
        for folder, patterns in rules:
            if not step.is_relative_to(folder) or step == folder:
                continue
            matched = patterns.verdict(f"{step.relative_to(folder).as_posix()}/")
            verdict = verdict if matched is None else matched
        if verdict:
            return True
    return False
