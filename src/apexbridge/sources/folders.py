"""Source of skill folders on disk: every `name/SKILL.md` below a root."""

import time
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import anyio.to_thread

from apexbridge.errors import SkillNotFoundError, SourceError
from apexbridge.paths import safe_join
from apexbridge.regular_files import read_regular
from apexbridge.skills import tree
from apexbridge.skills.model import (
    Fingerprint,
    Origin,
    Problem,
    Provenance,
    Skill,
    SkillContent,
    SkillResource,
)
from apexbridge.skills.parser import ParseResult, parse_body, read_skill, read_skill_file
from apexbridge.sources import scan_cache
from apexbridge.sources.base import BaseSource, Scan
from apexbridge.sources.directory_scanner import (
    DEFAULT_LIMITS,
    DirectoryScanner,
    ScanLimits,
    SkillFolder,
    resolve_leniently,
)
from apexbridge.sources.scan_cache import SETTLED_NS, CachedReading, ScanCache

TRUSTED_ORIGINS = frozenset({Origin.MANAGED, Origin.USER, Origin.INSTALLED, Origin.BUNDLED})
"""Origins that the user or operator controls; skills of all others need approval."""


@dataclass(frozen=True, slots=True)
class _KnownFolder:
    """Parse result of a folder, and the stat digest it is valid for."""

    reading: ParseResult
    stamp: bytes
    read_ns: int
    good: bytes | None = None
    """Stat digest of the last good version, in use because the current one is invalid."""

    def without_data(self) -> "_KnownFolder":
        """Drop the text, which is not kept in memory for every skill."""
        if not self.reading.data:
            return self
        return replace(self, reading=replace(self.reading, data=b""))

    def is_current(self, stamp: tree.Stamp | None) -> bool:
        """Return whether the stat digest is unchanged and old enough for the clock's resolution."""
        return (
            stamp is not None
            and stamp.digest == self.stamp
            and self.read_ns - stamp.newest_ns > SETTLED_NS
        )


class FolderSource(BaseSource):
    """Skills below one root, with incremental scans: unchanged folders are not parsed again.

    An edit that makes a SKILL.md invalid keeps the last good version in use, with a problem, as
    long as the source lives.
    """

    def __init__(
        self,
        root: Path,
        origin: Origin,
        limits: ScanLimits = DEFAULT_LIMITS,
        *,
        cache: ScanCache | None = None,
        needs_trust: bool | None = None,
        home: Path | None = None,
    ) -> None:
        self.root = root
        self._limits = limits
        self._cache = cache
        self._known: dict[str, _KnownFolder] = {}
        self._roots: tuple[Path, ...] = (root,)
        self.provenance = Provenance(
            origin=origin,
            source_id=f"{origin}:{root}",
            needs_trust=origin not in TRUSTED_ORIGINS if needs_trust is None else needs_trust,
            may_run_shell=True,
            writable=origin is Origin.INSTALLED,
            home=home,
        )

    @property
    def roots(self) -> tuple[Path, ...]:
        """The root, its group folders and the skill folders, as of the last scan."""
        return self._roots

    async def scan(self) -> Scan:
        """Parse every changed skill folder; a root that does not exist is empty."""
        return await anyio.to_thread.run_sync(self._scan)

    async def content(self, skill: Skill, arguments: str = "") -> SkillContent:
        """Load the body."""
        return await anyio.to_thread.run_sync(self.content_at_once, skill)

    async def resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        """Load a file beside SKILL.md."""
        return await anyio.to_thread.run_sync(self._resource, skill, path)

    def _scan(self) -> Scan:
        before = self._known
        cached = self._cache.load(self.id) if self._cache and not before else {}
        walk = DirectoryScanner(str(self.root), self._limits)
        try:
            folders = list(walk.skills())
        except OSError as error:
            raise SourceError(error.strerror or str(error), source=self.id) from None
        self._known = {
            folder.path: self._read(folder, before.get(folder.path), cached) for folder in folders
        }
        self._update_roots(walk.visited_folders)
        self._update_cache(before, cached)
        self._known = {path: known.without_data() for path, known in self._known.items()}
        readings = [known.reading for known in self._known.values()]
        problems = [problem for reading in readings for problem in reading.problems]
        limit = Problem.warning("folder_limit", str(self.root), limit=self._limits.max_folders)
        return Scan(
            skills=tuple(reading.skill for reading in readings if reading.skill),
            problems=(
                *problems,
                *map(self._external_symlink_problem, walk.external_symlinks),
                *(
                    Problem.warning("folder_not_searched", path, path=path)
                    for path in walk.unsearched
                ),
                *([limit] if walk.is_truncated else []),
            ),
        )

    def _update_roots(self, visited_folders: list[str]) -> None:
        """Build the watched paths once per scan: the watcher asks for them every second."""
        skills = (known.reading.skill for known in self._known.values())
        own = dict(zip(self._known, (skill and skill.root for skill in skills), strict=True))
        roots = [self.root / path for path in visited_folders]
        roots += [root or self.root / path for path, root in own.items()]
        self._roots = tuple(roots) or (self.root,)

    def _read(
        self, folder: SkillFolder, known: _KnownFolder | None, cached: dict[str, CachedReading]
    ) -> _KnownFolder:
        path = f"{self.root}/{folder.path}"
        stamp = tree.stamp(path, folder.entries, is_ours=not self.provenance.needs_trust)
        if known is not None and known.is_current(stamp):
            return known
        if stamp is not None and (entry := cached.get(folder.path)) is not None:
            reading = self._load_cached(folder, stamp, entry)
            if reading is not None:
                return reading
        now = time.time_ns()
        reading = read_skill(Path(path), self.provenance)
        problems = tuple(
            replace(p, where=_problem_location(folder.path, p.where)) for p in reading.problems
        )
        digest = stamp.digest if stamp else b""
        if reading.skill is None and known is not None and known.reading.skill is not None:
            fallback = Problem.warning("last_good_kept", folder.path)
            # Approval of the last good version does not extend to the files that are beside it now.
            skill = self._rehash(known.reading.skill) if self.provenance.needs_trust else None
            last = ParseResult(skill=skill or known.reading.skill, problems=(*problems, fallback))
            return _KnownFolder(
                last, digest, now, known.stamp if known.good is None else known.good
            )
        skill = reading.skill and replace(reading.skill, folder_id=folder.identity)
        return _KnownFolder(
            ParseResult(skill=skill, problems=problems, data=reading.data), digest, now
        )

    def _rehash(self, skill: Skill) -> Skill:
        """Replace the fingerprint of an untrusted skill by the hash of its current files."""
        mark = tree.fingerprint(self._folder_of(skill), is_ours=False)
        return replace(skill, fingerprint=mark if isinstance(mark, Fingerprint) else None)

    def _load_cached(
        self, folder: SkillFolder, stamp: tree.Stamp, entry: CachedReading
    ) -> _KnownFolder | None:
        if entry.stamp != stamp.digest or entry.read_ns - stamp.newest_ns <= SETTLED_NS:
            return None
        reading = scan_cache.deserialize(
            entry.reading,
            root=Path(f"{self.root}/{folder.path}"),
            provenance=self.provenance,
            folder_id=folder.identity,
        )
        return reading and _KnownFolder(reading, entry.stamp, entry.read_ns)

    def _update_cache(
        self, before: dict[str, _KnownFolder], cached: dict[str, CachedReading]
    ) -> None:
        """Cache new parse results with their text: the last good version after a bad edit."""
        if self._cache is None:
            return
        new = dict[str, CachedReading]()
        for path, known in self._known.items():
            is_old = known is before.get(path) or (
                path in cached and cached[path].read_ns == known.read_ns
            )
            if is_old or known.good is not None or not known.stamp:
                continue
            reading = scan_cache.serialize(known.reading)
            if reading is not None:
                document = known.reading.data
                new[path] = CachedReading(known.stamp, known.read_ns, reading, document)
        gone = [path for path in (*before, *cached) if path not in self._known]
        if new or gone:
            self._cache.store(self.id, new, gone)

    def _external_symlink_problem(self, path: str) -> Problem:
        link = self.root / path
        return Problem.warning("link_leads_out", path, path=link, target=resolve_leniently(link))

    def _folder_of(self, skill: Skill) -> Path:
        if skill.root is None or not skill.root.is_relative_to(self.root):
            raise SkillNotFoundError(skill.name)
        return skill.root

    def content_at_once(self, skill: Skill) -> SkillContent:
        """Load the body, blocking the calling thread."""
        file = read_skill_file(self._folder_of(skill))
        body = file if isinstance(file, Problem) else parse_body(file.data)
        if isinstance(body, Problem):
            good = self._last_good(skill)
            body = body if good is None else good
        if isinstance(body, Problem):
            raise SourceError(body.message, source=self.id)
        return SkillContent(skill=skill, body=body)

    def _last_good(self, skill: Skill) -> str | None:
        """Load the last good body from the cache."""
        path = self._folder_of(skill).relative_to(self.root).as_posix()
        known = self._known.get(path)
        if self._cache is None or known is None or known.good is None:
            return None
        document = self._cache.document(self.id, path, known.good)
        body = parse_body(document) if document is not None else None
        return None if isinstance(body, Problem) else body

    def _resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        target = safe_join(self._folder_of(skill), path.as_posix())
        try:
            return SkillResource(skill=skill, path=path, data=read_regular(target))
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}", source=self.id) from None


def _problem_location(folder: str, where: str) -> str:
    """Prefix a problem's location with the folder, unless it is the folder itself."""
    name = folder.rpartition("/")[2]
    return folder if where == name else f"{folder}/{where}"
