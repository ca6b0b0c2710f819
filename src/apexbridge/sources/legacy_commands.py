"""Source of legacy slash commands: Markdown files below `.claude/commands`."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import anyio.to_thread

from apexbridge.errors import SkillNotFoundError, SourceError
from apexbridge.regular_files import FLAGS, open_regular
from apexbridge.skills import document, tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import (
    Fingerprint,
    Origin,
    Problem,
    Skill,
    SkillContent,
    SkillManifest,
    SkillResource,
)
from apexbridge.skills.parser import (
    MAX_SKILL_MD_BYTES,
    ParsedManifest,
    description_problems,
    first_paragraph,
    parse_document,
    parse_manifest,
)
from apexbridge.sources.base import NAMESPACE_SEPARATOR, BaseSource, Scan, name_part
from apexbridge.sources.directory_scanner import is_skipped
from apexbridge.sources.folders import DEFAULT_LIMITS, FolderSource, ScanLimits


class LegacySource(BaseSource):
    """Commands below one root: `sub/deploy.md` is `sub:deploy`; folders with a SKILL.md are skills.

    Symlinks to commands are not followed, so that every file read is below the root. With `only`
    the source is that one file of the root, and nothing else in it is looked at.
    """

    def __init__(
        self,
        root: Path,
        limits: ScanLimits = DEFAULT_LIMITS,
        *,
        needs_trust: bool = True,
        only: str = "",
    ) -> None:
        self.root = root
        self._limits = limits
        self._only = only
        self._folders = FolderSource(root, Origin.LEGACY, limits, needs_trust=needs_trust)
        self.provenance = self._folders.provenance
        self._files: dict[str, PurePosixPath] = {}

    @property
    def roots(self) -> tuple[Path, ...]:
        """The root, and folders below it with commands or skills."""
        below = [self.root / path.parent for path in self._files.values()]
        return tuple(dict.fromkeys((*self._folders.roots, *below)))

    async def scan(self) -> Scan:
        """Parse skill folders, then commands; a root that does not exist is empty."""
        scan = Scan() if self._only else await self._folders.scan()
        skills, problems = await anyio.to_thread.run_sync(self._commands)
        new = [problem for problem in problems if problem not in scan.problems]
        return Scan(skills=(*scan.skills, *skills), problems=(*scan.problems, *new))

    async def content(self, skill: Skill, arguments: str = "") -> SkillContent:
        """Load the body."""
        if skill.root is not None:
            return await self._folders.content(skill, arguments)
        return await anyio.to_thread.run_sync(self._content, skill)

    async def resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        """Load a file beside SKILL.md; a single-file command has none."""
        if skill.root is not None:
            return await self._folders.resource(skill, path)
        raise SourceError(f"'{skill.name}' is a single file without {path}", source=self.id)

    def _commands(self) -> tuple[list[Skill], list[Problem]]:
        self._files, problems = self._list()
        skills = list[Skill]()
        for name, path in self._files.items():
            data = self._read(path)
            skill, found = (None, [data]) if isinstance(data, Problem) else self._skill(name, data)
            # The parser locates problems in SKILL.md: here it is the command's file.
            prefix = path.as_posix()
            problems += [replace(p, where=prefix + p.where.removeprefix(SKILL_MD)) for p in found]
            if skill is not None:
                skills.append(replace(skill, file=self.root / path))
        return skills, problems

    def _skill(self, name: str, data: bytes) -> tuple[Skill | None, list[Problem]]:
        opened = _open(data)
        if isinstance(opened, Problem):
            return None, [opened]
        declared, body = opened
        written = (declared.manifest.description or "").strip()
        problems = [*declared.problems, *description_problems(written)]
        if not body.strip():
            problems.append(Problem.warning("body_empty", SKILL_MD))
        mark = Fingerprint(size=len(data), files=1, sha256=hashlib.sha256(data).hexdigest())
        skill = Skill(
            name=name,
            description=written or first_paragraph(body) or name,
            manifest=declared.manifest,
            provenance=self.provenance,
            fingerprint=mark,
            tools=declared.tools,
            hooks=declared.hooks,
            is_trusted=not self.provenance.needs_trust,
        )
        return skill, problems

    def _content(self, skill: Skill) -> SkillContent:
        path = self._command_path(skill)
        data = self._read(path)
        opened = data if isinstance(data, Problem) else _open(data)
        if isinstance(opened, Problem):
            raise SourceError(f"{path}: {opened.message}", source=self.id)
        return SkillContent(skill=skill, body=opened[1])

    def _command_path(self, skill: Skill) -> PurePosixPath:
        if skill.provenance.source_id == self.id:
            if skill.name not in self._files:
                self._files, _ = self._list()
            if skill.name in self._files:
                return self._files[skill.name]
        raise SkillNotFoundError(skill.name)

    def _list(self) -> tuple[dict[str, PurePosixPath], list[Problem]]:
        """Assign names to command files; on a conflict the first keeps the name."""
        files, problems = dict[str, PurePosixPath](), list[Problem]()
        for number, found in enumerate(self._walk()):
            if number >= self._limits.max_folders:
                problems.append(self._limit_problem())
                break
            problems += [found] if isinstance(found, Problem) else _claim_name(found, files)
        return files, problems

    def _walk(self) -> Iterator[PurePosixPath | Problem]:
        """Yield command files in a fixed order, without those inside of skills."""
        if self._only:
            yield PurePosixPath(self._only)
            return
        pending, visited = [PurePosixPath()], 0
        while pending:
            folder = pending.pop()
            visited += 1
            if visited > self._limits.max_folders + 1:
                yield self._limit_problem()
                return
            entries = self._list_folder(folder)
            if folder.parts and _is_skill(entries):
                continue
            below = list[PurePosixPath]()
            for entry in entries:
                path, kind = folder / entry.name, _kind_of(entry)
                if kind == "folder" and len(path.parts) <= self._limits.max_depth:
                    below.append(path)
                elif kind == "file" and path.suffix.lower() == ".md":
                    yield path
                elif kind == "link":
                    yield from self._report_symlink(path, entry)
            pending += reversed(below)

    def _limit_problem(self) -> Problem:
        return Problem.warning("folder_limit", str(self.root), limit=self._limits.max_folders)

    def _report_symlink(self, path: PurePosixPath, entry: "os.DirEntry[str]") -> list[Problem]:
        """Report a skipped symlink, unless it is a skill, which the folder scan finds."""
        if entry.is_dir():
            is_skipped_entry = not _is_skill(self._list_folder(path))
        else:
            is_skipped_entry = path.suffix.lower() == ".md"
        detail = "it is a symlink, and symlinks are not followed"
        found = Problem.warning("command_unreadable", path.as_posix(), detail=detail)
        return [found] if is_skipped_entry else []

    def _list_folder(self, folder: PurePosixPath) -> "list[os.DirEntry[str]]":
        try:
            with os.scandir(self.root / folder) as items:
                seen = [i for i in items if not is_skipped(i.name)]
        except OSError:  # the folder scan reports the error
            return []
        return sorted(seen, key=lambda item: item.name)

    def _read(self, path: PurePosixPath) -> bytes | Problem:
        """Open folder by folder with O_NOFOLLOW: no symlink on the path is followed (TOCTOU)."""
        try:
            folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for part in path.parts[:-1]:
                    below = os.open(part, FLAGS | os.O_DIRECTORY, dir_fd=folder)
                    os.close(folder)
                    folder = below
                with open_regular(path.name, dir_fd=folder) as file:
                    data = file.read(MAX_SKILL_MD_BYTES + 1)
            finally:
                os.close(folder)
        except OSError as error:
            return _unreadable(error.strerror or str(error))
        if len(data) > MAX_SKILL_MD_BYTES:
            return _unreadable(f"it has more than {MAX_SKILL_MD_BYTES} bytes")
        return data


def _is_skill(entries: "list[os.DirEntry[str]]") -> bool:
    return any(entry.name.lower() == SKILL_MD.lower() for entry in entries)


def _kind_of(entry: "os.DirEntry[str]") -> tree.FileKind:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "device"


def _claim_name(path: PurePosixPath, files: dict[str, PurePosixPath]) -> list[Problem]:
    where = path.as_posix()
    parts = [name_part(part) for part in (*path.parts[:-1], path.stem)]
    if not parts[-1]:
        return [Problem(code="name_empty", where=where)]
    name = NAMESPACE_SEPARATOR.join(filter(None, parts))
    first = files.setdefault(name, path)
    if first is path:
        return []
    details = {"name": name, "source": where, "winner": first.as_posix()}
    return [Problem.warning("skill_shadowed", where, **details)]


def _open(data: bytes) -> tuple[ParsedManifest, str] | Problem:
    """Parse the frontmatter, if there is one, and return it with the body."""
    text = document.decode_skill_md(data)
    if isinstance(text, Problem):
        line = text.details.get("line", 1)
        return Problem.error("command_not_text", text.where, line=line)
    opened = parse_document(data)
    if not isinstance(opened, Problem):
        return parse_manifest(opened[1]), opened[0].body
    if opened.code != "frontmatter_missing":
        return opened
    nothing = ParsedManifest(manifest=SkillManifest(), tools=(), hooks=(), problems=())
    return nothing, text.removeprefix("\ufeff")


def _unreadable(detail: str) -> Problem:
    return Problem.error("command_unreadable", SKILL_MD, detail=detail)
