"""Newer versions of installed skills, and the lock file: what is outdated, update, synchronise."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import anyio.to_thread

from apexbridge.errors import ApexBridgeError, ConfigError, SkillNotFoundError, SourceError
from apexbridge.file_lock import file_lock
from apexbridge.lifecycle.install_sources.address import Address, recorded_address
from apexbridge.lifecycle.lockfile import (
    LockedSkill,
    lock_record,
    locked_source,
    read_lock,
    write_lock,
)
from apexbridge.lifecycle.source_records import SourceRecord
from apexbridge.lifecycle.store import SkillStore
from apexbridge.lifecycle.transactions import InstallResult, enter_in_thread, sha256_of
from apexbridge.lifecycle.unpack_and_validate import stage_skill
from apexbridge.lifecycle.zip.limits import ArchiveLimits
from apexbridge.runtime.install_service import (
    InstallService,
    Offers,
    SkillOffer,
    check_offer,
    origin_of,
)
from apexbridge.skills.model import Skill

UpdateState = Literal["current", "outdated", "gone", "failed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateStatus:
    """An installed skill compared with the newest state of its source."""

    name: str
    state: UpdateState
    source: str = ""
    ref: str = ""
    installed: str = ""
    """Revision that is installed."""
    newest: str = ""
    version: str = ""
    newest_version: str = ""
    is_modified: bool = False
    """True if the installed files are others than those that came from the source."""
    error: ApexBridgeError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVersion:
    """A skill of an open address, staged once to know its content."""

    offers: Offers
    skill: SkillOffer
    sha256: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncStep:
    """A skill that the lock file has in another state than is installed."""

    locked: LockedSkill
    new: NewVersion
    is_installed: bool

    @property
    def name(self) -> str:
        """Name of the skill."""
        return self.locked.name


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncPlan:
    """What a synchronisation does; everything is fetched and verified."""

    steps: tuple[SyncStep, ...]
    unchanged: tuple[str, ...]
    """Skills that are installed as locked."""


class UpdateService:
    """Compares installed skills with their sources and with a lock file."""

    def __init__(self, installer: InstallService, store: SkillStore, data: Path) -> None:
        self._installer = installer
        self._manager = installer.manager
        self._store = store
        self._lock = data / "lockfile.lock"

    async def outdated(self, names: Sequence[str] = ()) -> tuple[UpdateStatus, ...]:
        """Compare skills with their sources, by content: another commit alone is no update.

        A source that cannot be reached is the state `failed` of its skills.

        Raises:
            SkillNotFoundError: If a named skill is not installed.
        """
        records = await anyio.to_thread.run_sync(self._manager.sources.all)
        installed = await anyio.to_thread.run_sync(self._installed, names or sorted(records))
        found = [
            UpdateStatus(name=name, state="unknown") for name in installed if name not in records
        ]
        groups = dict[tuple[str, str], list[str]]()
        for name in installed:
            if name in records:
                record = records[name]
                groups.setdefault((record.source, record.ref), []).append(name)
        for members in groups.values():
            found += await self._compare({n: records[n] for n in members}, installed)
        return tuple(sorted(found, key=lambda status: status.name))

    async def _compare(
        self, records: Mapping[str, SourceRecord], installed: Mapping[str, Skill]
    ) -> list[UpdateStatus]:
        """Compare the skills of one source; it is fetched only if its revision is another."""
        base = [_status(name, records[name], installed[name]) for name in records]
        try:
            newest = await self._installer.sources.resolve(_newest(next(iter(records.values()))))
            if newest.revision and all(r.revision == newest.revision for r in records.values()):
                return [replace(status, newest=newest.revision) for status in base]
            async with self._installer.open(newest) as offers:
                return [
                    await self._compare_one(status, records[status.name], offers) for status in base
                ]
        except ApexBridgeError as error:
            return [replace(status, state="failed", error=error) for status in base]

    async def _compare_one(
        self, status: UpdateStatus, record: SourceRecord, offers: Offers
    ) -> UpdateStatus:
        status = replace(status, newest=offers.address.revision)
        find = partial(find_offer, offers, status.name, record.path)
        skill = await anyio.to_thread.run_sync(find)
        if skill is None:
            return replace(status, state="gone")
        try:
            new = await self._stage(offers, skill)
        except ApexBridgeError as error:
            return replace(status, state="failed", error=error)
        is_same = new.sha256 == record.sha256
        return replace(
            status, state="current" if is_same else "outdated", newest_version=new.version
        )

    def _installed(self, names: Iterable[str]) -> dict[str, Skill]:
        return {name: self._store.read(name) for name in names}

    @asynccontextmanager
    async def newest(self, name: str) -> AsyncGenerator[NewVersion]:
        """Fetch the newest state of an installed skill's source.

        Raises:
            SourceError: `source_not_recorded`, `source_skill_unknown` if it is no longer there, or
                if the source cannot be fetched.
        """
        record = self._installer.record(name)
        async with self._installer.open(_newest(record)) as offers:
            skill = await anyio.to_thread.run_sync(find_offer, offers, name, record.path)
            if skill is None:
                offers.choose([name])  # raises, with the names that there are
                raise SkillNotFoundError(name)
            yield await self._stage(offers, skill)

    async def update(
        self, new: NewVersion, *, expected_sha256: str = "", **options: bool
    ) -> InstallResult:
        """Update an installed skill to what was fetched; raises as `SkillManager.update` does."""
        return await self._manager.update(
            new.skill.path,
            expected_sha256=expected_sha256,
            allows_older=options.get("allows_older", False),
            blocks_at=None if options.get("allows_findings") else "policy",
            origin=origin_of(new.offers, new.skill, new.sha256),
        )

    async def _stage(self, offers: Offers, skill: SkillOffer) -> NewVersion:
        """Stage a skill as an installation does, to know its content hash and version."""
        check_offer(skill)
        async with enter_in_thread(self._store.staging()) as staging:
            limits: ArchiveLimits = self._manager.policy.limits
            stage = partial(stage_skill, skill.path, staging, renames=skill.renames, limits=limits)
            staged = (await anyio.to_thread.run_sync(stage)).skill
        return NewVersion(
            offers=offers,
            skill=skill,
            sha256=sha256_of(staged),
            version=staged.manifest.version or "",
        )

    @asynccontextmanager
    async def plan_sync(self, lock: Path, *, is_frozen: bool = False) -> AsyncGenerator[SyncPlan]:
        """Fetch and verify all that the lock file has and that is not installed so.

        Raises:
            ConfigError: `lock_invalid`; `lock_incomplete` if `is_frozen` and a hash is missing.
            SourceError: If a source cannot be fetched, or has other content than is locked.
        """
        locked = await anyio.to_thread.run_sync(read_lock, lock)
        for entry in locked.values():
            if is_frozen and not entry.is_exact:
                raise ConfigError(code="lock_incomplete", path=lock, name=entry.name)
        present = await anyio.to_thread.run_sync(self._present, locked)
        wanted = [entry for name, entry in locked.items() if present.get(name) != entry.sha256]
        async with AsyncExitStack() as stack:
            opened = dict[Address, Offers]()
            steps = list[SyncStep]()
            for entry in wanted:
                address = replace(locked_source(entry, lock.parent).address(), path="")
                if address not in opened:
                    opened[address] = await stack.enter_async_context(self._installer.open(address))
                new = await self._verified(entry, opened[address])
                steps.append(SyncStep(locked=entry, new=new, is_installed=entry.name in present))
            kept = tuple(name for name in locked if locked[name] not in wanted)
            yield SyncPlan(steps=tuple(steps), unchanged=kept)

    async def _verified(self, entry: LockedSkill, offers: Offers) -> NewVersion:
        skill = await anyio.to_thread.run_sync(find_offer, offers, entry.name, entry.path)
        if skill is None or skill.name != entry.name:
            (skill,) = offers.choose([entry.name])
        new = await self._stage(offers, skill)
        if entry.sha256 and new.sha256 != entry.sha256:
            raise SourceError(
                code="source_content_changed",
                name=entry.name,
                expected=entry.sha256[:12],
                found=new.sha256[:12],
            )
        return new

    def _present(self, locked: Mapping[str, LockedSkill]) -> dict[str, str]:
        """Return the content hashes of the locked skills that are installed."""
        found = dict[str, str]()
        for name in locked:
            try:
                found[name] = sha256_of(self._store.read(name))
            except SkillNotFoundError:
                continue
        return found

    async def apply(self, step: SyncStep, *, allows_findings: bool = False) -> InstallResult:
        """Install or update one skill of a plan; raises as the manager does."""
        if step.is_installed:
            return await self.update(step.new, allows_older=True, allows_findings=allows_findings)
        return await self._manager.install(
            step.new.skill.path,
            renames=step.new.skill.renames,
            blocks_at=None if allows_findings else "policy",
            origin=origin_of(step.new.offers, step.new.skill, step.new.sha256),
        )

    async def write_lock(
        self, lock: Path, names: Iterable[str], *, adds: bool, creates: bool = False
    ) -> bool:
        """Bring the entries of some skills up to date; True if the file has changed.

        One that is not installed any more is removed. With `adds` new ones come in, and with
        `creates` a file that does not exist is made.

        Raises:
            ConfigError: `lock_invalid`.
            StorageError: If it cannot be written; the old one is kept.
        """
        write = partial(self._write_lock, lock, tuple(names), adds=adds, creates=creates)
        return await anyio.to_thread.run_sync(write)

    def _write_lock(self, lock: Path, names: Sequence[str], *, adds: bool, creates: bool) -> bool:
        if not creates and not lock.exists():
            return False
        records = self._manager.sources.all()
        with file_lock(self._lock):
            locked = read_lock(lock)
            for name in names:
                if name in records and (adds or name in locked):
                    locked[name] = lock_record(name, records[name], lock.parent.resolve())
                elif name not in records:
                    locked.pop(name, None)
            return write_lock(lock, locked)


def find_offer(offers: Offers, name: str, path: str) -> SkillOffer | None:
    """Return the skill at its former path; one that has moved is found by its name. Blocking."""
    at_path = offers.at(path)
    if at_path is not None and at_path.name == name:
        return at_path
    return next((skill for skill in offers.skills if skill.name == name), None)


def _newest(record: SourceRecord) -> Address:
    return recorded_address(record.source, ref=record.ref)


def _status(name: str, record: SourceRecord, skill: Skill) -> UpdateStatus:
    return UpdateStatus(
        name=name,
        state="current",
        source=record.source,
        ref=record.ref,
        installed=record.revision,
        version=skill.manifest.version or "",
        is_modified=sha256_of(skill) != record.sha256,
    )
