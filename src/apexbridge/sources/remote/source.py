"""Source of remote skills: single URLs, and hosts with a skill index.

They are untrusted until a person approves them, and their text is used literally: nothing is
expanded, and inline commands never run (prompt injection must not become code execution).
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import anyio
import anyio.to_thread

from apexbridge.errors import ArchiveError, SkillNotFoundError, SourceError, StorageError
from apexbridge.skills import names
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import (
    Fingerprint,
    Origin,
    Problem,
    Provenance,
    Skill,
    SkillContent,
    SkillResource,
)
from apexbridge.skills.parser import MAX_SKILL_MD_BYTES, parse_document, parse_skill
from apexbridge.sources.base import BaseSource, Scan
from apexbridge.sources.extracted_folder import SkillFile, extract_files
from apexbridge.sources.remote.discovery import RemoteFile, SkillIndex, index_url
from apexbridge.sources.remote.download_cache import Download, DownloadCache, PinStore, sha256_hex
from apexbridge.sources.remote.http_client import DEFAULT_TRANSPORT, FetchLimits, Transport
from apexbridge.ssrf import display_url, url_key

PREFIX = "_canonical_"
"""Prefix of every remote skill's name, so that none can shadow or imitate a local one."""
ArchiveReader = Callable[[bytes], Mapping[str, bytes]]
"""Unpack an archive in memory: files by path, or an ArchiveError."""
_MAX_CONCURRENT = 8
_DEADLINE_FACTOR = 4
"""Deadline of all files together, as a multiple of the deadline of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLocations:
    """URLs of single skills, and hosts with an index."""

    skills: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListedSkill:
    """Files and fingerprint of a listed skill."""

    file: RemoteFile
    sha256: str
    """Hash of SKILL.md, or of the archive."""
    fingerprint: Fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class _Retrieved:
    """A skill's SKILL.md, if it may be used, and the hashes of all of its files."""

    file: RemoteFile
    skill_md: bytes | None = None
    sha256: str = ""
    problems: tuple[Problem, ...] = ()


def _no_archives(_data: bytes) -> Mapping[str, bytes]:
    raise ArchiveError("no reader of archives is configured")


def remote_sources(
    places: RemoteLocations,
    limits: FetchLimits,
    pins: PinStore,
    transport: Transport = DEFAULT_TRANSPORT,
    *,
    read_archive: ArchiveReader = _no_archives,
) -> tuple["RemoteSource", ...]:
    """Create one source per index, and one for all single URLs; nothing is requested yet."""
    cache = DownloadCache(limits, pins, transport)
    by_id = {f"remote:{display_url(place.rstrip('/'))}": place for place in places.indexes}
    sources = [
        RemoteSource(
            source_id,
            partial(cache.fetch_index, index_url(place)),
            cache,
            read_archive=read_archive,
        )
        for source_id, place in by_id.items()
    ]
    if places.skills:
        files = (RemoteFile(url=url, name=_name_from_url(url)) for url in places.skills)
        single = SkillIndex(entries=tuple({url_key(file.url): file for file in files}.values()))

        async def listing() -> SkillIndex:
            return single

        sources.append(RemoteSource("remote:addresses", listing, cache, is_required=True))
    return tuple(sources)


class RemoteSource(BaseSource):
    """Skills of one index, or of a list of URLs."""

    def __init__(
        self,
        source_id: str,
        listing: Callable[[], Awaitable[SkillIndex]],
        cache: DownloadCache,
        *,
        is_required: bool = False,
        read_archive: ArchiveReader = _no_archives,
    ) -> None:
        """Store the configuration; with `is_required`, a scan without any file is an error."""
        self._listing = listing
        self._downloads = cache
        self._is_required = is_required
        self._read_archive = read_archive
        self._listed: dict[str, _ListedSkill] = {}
        self.provenance = Provenance(
            origin=Origin.REMOTE, source_id=source_id, needs_trust=True, may_run_shell=False
        )

    async def scan(self) -> Scan:
        """Download every skill. One that is down is served from the cache, with a warning."""
        try:
            listing = await self._listing()
            found = await self._fetch_all(listing.entries)
        except StorageError as error:
            raise SourceError(error.message, source=self.id) from None
        if self._is_required and all(each.skill_md is None for each in found):
            raise self._unavailable_error([p for each in found for p in each.problems])
        build = _ScanBuilder(self.provenance).build
        scan, listed = await anyio.to_thread.run_sync(build, listing, found)
        self._listed = listed
        return scan

    async def content(self, skill: Skill, arguments: str = "") -> SkillContent:
        """Load the body as it was listed."""
        opened = parse_document(await self._skill_md(self._find(skill)))
        if isinstance(opened, Problem):
            raise SourceError(opened.message, source=self.id)
        return SkillContent(skill=skill, body=opened[0].body)

    async def resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        """Load SKILL.md, or a file that the index lists with its digest."""
        listed = self._find(skill)
        if path == PurePosixPath(SKILL_MD):
            return SkillResource(skill=skill, path=path, data=await self._skill_md(listed))
        sha256 = listed.file.files.get(path.as_posix())
        if sha256 is None:
            detail = f"{path} is not listed in the index with a digest"
            raise SourceError(detail, source=self.id)
        if listed.file.kind == "archive":
            data = (await self._unpacked(listed))[path.as_posix()]
        else:
            data = await self._fetch_exact(listed.file.sibling(path.as_posix(), sha256))
        return SkillResource(skill=skill, path=path, data=data)

    async def folder(self, skill: Skill) -> Path:
        """Return a folder with the skill's files, downloaded with their digests checked.

        Raises:
            SourceError: If one of them cannot be had.
            StorageError: If the folder cannot be written.
        """
        listed = self._find(skill)
        found = await self._all_files(listed)
        paths = sorted(map(PurePosixPath, found), key=_tree_order)
        files = [SkillFile(path=path, data=found[str(path)]) for path in paths]
        target = self._downloads.pins.folders / listed.fingerprint.sha256
        return await anyio.to_thread.run_sync(extract_files, files, target)

    async def _all_files(self, listed: _ListedSkill) -> Mapping[str, bytes]:
        if listed.file.kind == "archive":
            return await self._unpacked(listed)
        found = {SKILL_MD: await self._skill_md(listed)}
        for path, sha256 in listed.file.files.items():
            if path not in found:
                found[path] = await self._fetch_exact(listed.file.sibling(path, sha256))
        return found

    async def _fetch_all(self, files: Sequence[RemoteFile]) -> list[_Retrieved]:
        """Download skills concurrently; those that miss the deadline come from the cache."""
        found, errors = dict[int, _Retrieved](), list[SourceError | StorageError]()
        limiter = anyio.CapacityLimiter(_MAX_CONCURRENT)

        async def get(at: int) -> None:
            async with limiter:
                try:
                    found[at] = await self._retrieve(files[at], self._downloads.fetch_file)
                except (SourceError, StorageError) as error:
                    errors.append(error)

        with anyio.move_on_after(_DEADLINE_FACTOR * self._downloads.limits.seconds):
            async with anyio.create_task_group() as tasks:
                for at in range(len(files)):
                    tasks.start_soon(get, at)
        if errors:
            raise errors[0]
        return [
            found[at] if at in found else await self._retrieve(each, self._last_good)
            for at, each in enumerate(files)
        ]

    async def _last_good(self, file: RemoteFile) -> Download:
        return await self._downloads.last_good(file, _deadline_problem(file))

    async def _retrieve(
        self, file: RemoteFile, fetch: Callable[[RemoteFile], Awaitable[Download]]
    ) -> _Retrieved:
        """Download a SKILL.md or an archive, and the further files that have no digest yet."""
        download = await fetch(file)
        data, problems = download.data, download.problems
        if data is None:
            return _Retrieved(file=file, problems=problems)
        if file.kind == "archive":
            return await anyio.to_thread.run_sync(self._open_archive, file, data, problems)
        hashes = dict(file.files)
        for path in file.unhashed:
            sibling = await fetch(file.sibling(path, ""))
            problems += sibling.problems
            if sibling.data is not None:
                hashes[path] = sha256_hex(sibling.data)
        return _Retrieved(
            file=replace(file, files=hashes),
            skill_md=data,
            sha256=sha256_hex(data),
            problems=problems,
        )

    def _open_archive(
        self, file: RemoteFile, data: bytes, problems: tuple[Problem, ...]
    ) -> _Retrieved:
        try:
            files = dict(self._read_archive(data))
        except ArchiveError as error:
            refused = Problem.error(error.code, display_url(file.url), **error.details)
            return _Retrieved(file=file, problems=(*problems, refused))
        skill_md = files.pop(SKILL_MD)
        hashes = {path: sha256_hex(content) for path, content in files.items()}
        return _Retrieved(
            file=replace(file, files=hashes),
            skill_md=skill_md,
            sha256=sha256_hex(data),
            problems=problems,
        )

    async def _skill_md(self, listed: _ListedSkill) -> bytes:
        if listed.file.kind == "archive":
            return (await self._unpacked(listed))[SKILL_MD]
        return await self._fetch_exact(replace(listed.file, sha256=listed.sha256))

    async def _unpacked(self, listed: _ListedSkill) -> Mapping[str, bytes]:
        data = await self._fetch_exact(replace(listed.file, sha256=listed.sha256))
        return await anyio.to_thread.run_sync(self._read_archive, data)

    async def _fetch_exact(self, file: RemoteFile) -> bytes:
        """Download the bytes with that hash, and no others."""
        try:
            download = await self._downloads.fetch_file(file)
        except StorageError as error:
            raise SourceError(error.message, source=self.id) from None
        if download.data is not None and sha256_hex(download.data) == file.sha256:
            return download.data
        detail = "; ".join(problem.message for problem in download.problems)
        raise SourceError(detail, source=self.id)

    def _find(self, skill: Skill) -> _ListedSkill:
        listed = self._listed.get(skill.name)
        if listed is None or skill.provenance.source_id != self.id:
            raise SkillNotFoundError(skill.name)
        if listed.fingerprint != skill.fingerprint:
            raise SourceError(f"{skill.name} has changed since it was listed", source=self.id)
        return listed

    def _unavailable_error(self, problems: Sequence[Problem]) -> SourceError:
        if len(problems) == 1:
            details = {key: said for key, said in problems[0].details.items() if key != "detail"}
            detail = str(problems[0].details.get("detail", ""))
            return SourceError(detail, code=problems[0].code, **details)
        return SourceError("; ".join(problem.message for problem in problems), source=self.id)


class _ScanBuilder:
    """Collects skills and problems of a scan."""

    def __init__(self, provenance: Provenance) -> None:
        self.provenance = provenance
        self._skills: dict[str, Skill] = {}
        self._listed: dict[str, _ListedSkill] = {}
        self._problems: list[Problem] = []

    def build(
        self, listing: SkillIndex, found: Sequence[_Retrieved]
    ) -> tuple[Scan, dict[str, _ListedSkill]]:
        """Parse every file; on a name conflict the first wins, the second is a problem."""
        self._problems += listing.problems
        for each in found:
            self._problems += each.problems
            if each.skill_md is not None:
                self._add(each, each.skill_md)
        skills = tuple(self._skills.values())
        return Scan(skills=skills, problems=tuple(self._problems)), self._listed

    def _add(self, found: _Retrieved, data: bytes) -> None:
        file = found.file
        where = display_url(file.url)
        if len(data) > MAX_SKILL_MD_BYTES:
            too_large = Problem.error("skill_md_too_large", where, limit=MAX_SKILL_MD_BYTES)
            self._problems.append(too_large)
            return
        reading = parse_skill(data, folder=file.name, provenance=self.provenance)
        # A URL is not a folder: its last part need not equal the name.
        reported = [p for p in reading.problems if file.is_listed or p.code != "name_mismatch"]
        self._problems += [replace(problem, where=where) for problem in reported]
        if reading.skill is None:
            return
        name = f"{PREFIX}{names.slug(reading.skill.name)}"
        if name in self._skills:
            other = display_url(self._listed[name].file.url)
            self._problems.append(Problem.error("remote_name_taken", where, name=name, other=other))
            return
        mark = _fingerprint(file, data)
        self._skills[name] = replace(reading.skill, name=name, fingerprint=mark)
        self._listed[name] = _ListedSkill(file=file, sha256=found.sha256, fingerprint=mark)


def _fingerprint(file: RemoteFile, data: bytes) -> Fingerprint:
    """Hash like a folder with the same files; only SKILL.md's size is known."""
    hashes = {SKILL_MD: sha256_hex(data), **file.files}
    digest = hashlib.sha256()
    for path in sorted(map(PurePosixPath, hashes), key=_tree_order):
        digest.update(f"file\0{path}\0".encode() + bytes.fromhex(hashes[str(path)]))
    return Fingerprint(size=len(data), files=len(hashes), sha256=digest.hexdigest())


def _tree_order(path: PurePosixPath) -> tuple[tuple[str, ...], str]:
    return path.parts[:-1], path.name


def _name_from_url(url: str) -> str:
    """Derive a default name from the URL: folder, file or host."""
    try:
        parts = urlsplit(url)
    except ValueError:  # it is refused when it is requested
        return ""
    path = [unquote(part) for part in parts.path.split("/") if part]
    if path and path[-1].lower() == SKILL_MD.lower():
        path.pop()
    return path[-1].removesuffix(".md") if path else parts.netloc.rpartition("@")[2]


def _deadline_problem(file: RemoteFile) -> Problem:
    where = display_url(file.url)
    return Problem.error("remote_unreachable", where, url=where, detail="the deadline has passed")
