"""How an installed skill becomes another version of itself, and how it goes back."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path

import anyio.to_thread

from apexbridge.errors import RetrievalError, SkillInvalidError, SkillVersionError
from apexbridge.lifecycle.transactions import (
    BlockLevel,
    InstallResult,
    SkillTransactions,
    check_unchanged,
    enter_in_thread,
    parse_body,
    read_skill_md,
    shielded,
)
from apexbridge.lifecycle.unpack_and_validate import StagedSkill, stage_skill
from apexbridge.lifecycle.version_store import Version, VersionDiff, diff_folders, modified_at
from apexbridge.lifecycle.zip.archive import pack_skill
from apexbridge.retrieval.base import IndexEntry
from apexbridge.scanner.report import Finding
from apexbridge.skills.model import Problem, Skill
from apexbridge.skills.parser import read_skill

_VERSION_NUMBER = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,7})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PreparedVersion:
    """A version that is ready to take another's place."""

    intake: StagedSkill
    sha256: str
    findings: tuple[Finding, ...]
    entry: IndexEntry | None
    not_indexed: RetrievalError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVersion:
    """A version that is kept, what is odd about it, and whether it was not before."""

    sha256: str
    problems: tuple[Problem, ...]
    findings: tuple[Finding, ...]
    is_new: bool


class SkillVersions(SkillTransactions):
    """Updates skills, and keeps what they were by the hash of their files."""

    async def update(
        self,
        path: Path,
        *,
        only: str = "",
        seen: str = "",
        allows_older: bool = False,
        blocks_at: BlockLevel = "policy",
    ) -> InstallResult:
        """Let an archive or folder take the place of the installed skill it names.

        What was there is kept as a version. `seen` is the hash of it that the caller knows, and
        `only` the one skill that may be meant.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `skill_pinned`, or `version_older` unless `allows_older`.
            SkillChangedError: If the skill is in another state than the caller saw.
            PermissionDeniedError: If the new version looks too dangerous.
            ArchiveError: If the archive is unsafe, broken or no skill's.
            SkillInvalidError: If a rule is broken.
            StorageError: If the disk refuses.
        """
        async with (
            self._recorded("update", archive=path.name),
            enter_in_thread(self.store.staging()) as at,
        ):
            intake = await self._taken_for(only, path, at)
            name = intake.skill.name
            self._refuse_pinned(name)
            offer = await self._prepare(intake, blocks_at)
            async with self._changing(name):
                old = await self._now(name)
                check_unchanged(old, seen)
                if not allows_older:
                    _check_not_older(old, intake.skill)
                if old.fingerprint and old.fingerprint.sha256 == offer.sha256:
                    return InstallResult(skill=old, problems=intake.problems, has_changed=False)
                async with shielded():
                    await self._record("update", intake.skill)
                    swap = partial(self.store.versions.replace, name, intake.root, offer.sha256)
                    await anyio.to_thread.run_sync(swap)
                    await self._after(name, offer.entry)
        return InstallResult(
            skill=self._around.find(name),
            problems=intake.problems,
            findings=offer.findings,
            not_indexed=offer.not_indexed,
        )

    async def keep(
        self, name: str, path: Path, *, blocks_at: BlockLevel = "policy"
    ) -> StoredVersion:
        """Keep an archive or folder as a version of a skill, without using it.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillInvalidError: If it is another skill's, or a rule is broken.
            PermissionDeniedError: If it looks too dangerous.
            ArchiveError: If the archive is unsafe, broken or no skill's.
            StorageError: If the disk refuses.
        """
        async with self._recorded("keep", skill=name), enter_in_thread(self.store.staging()) as at:
            self._own(name)
            intake = await self._taken_for(name, path, at)
            report = await self._vet(intake.skill, intake.root, blocks_at)
            sha256 = intake.skill.fingerprint.sha256 if intake.skill.fingerprint else ""
            async with self._changing(name), shielded():
                known = {version.sha256 for version in await self.versions(name)}
                if sha256 not in known:
                    await self._record("keep", intake.skill)
                    add = partial(self.store.versions.add, name, intake.root, sha256)
                    await anyio.to_thread.run_sync(add)
                    await self._prune(name)
        return StoredVersion(
            sha256=sha256,
            problems=intake.problems,
            findings=report.findings,
            is_new=sha256 not in known,
        )

    async def _taken_for(self, name: str, path: Path, staging: Path) -> StagedSkill:
        """Take in a version of one skill and of no other; of any if the name is empty."""
        take = partial(stage_skill, path, staging, renames=True, limits=self.policy.limits)
        intake = await anyio.to_thread.run_sync(take)
        if name not in ("", intake.skill.name):
            details = {"name": name, "other": intake.skill.name}
            told = Problem(code="version_of_another", where=intake.skill.name, details=details)
            raise SkillInvalidError(intake.skill.name, [told])
        return intake

    async def forget(self, name: str, version: str) -> Version:
        """Keep a version no longer; the one in use cannot be forgotten.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `version_unknown`, or `version_in_use`.
            StorageError: If the disk refuses.
        """
        async with self._recorded("forget", skill=name, version=version), self._turn(name):
            found = await self.version(name, version)
            if found.is_current:
                raise SkillVersionError(code="version_in_use", name=name, version=version)
            async with enter_in_thread(self.store.staging()) as at, shielded():
                facts = {"skill": name, "sha256": found.sha256}
                await anyio.to_thread.run_sync(lambda: self._audit.record("forget", **facts))
                go = partial(self.store.versions.forget, name, found.sha256, at)
                await anyio.to_thread.run_sync(go)
        return found

    async def version(self, name: str, wanted: str) -> Version:
        """The version that a hash, its beginning or a declared version means.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `version_unknown`.
        """
        now, *_ = await self.versions(name)
        if wanted and (now.declared == wanted or now.sha256.startswith(wanted)):
            return now
        return await anyio.to_thread.run_sync(self.store.versions.find, name, wanted)

    async def export_version(self, name: str, wanted: str) -> bytes:
        """A version as a zip, as `export` gives the one in use.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `version_unknown`.
            ArchiveError: If there is a link or device among its files.
        """
        root = await self._root_of(name, wanted)
        return await anyio.to_thread.run_sync(partial(pack_skill, root, name))

    async def _prepare(self, intake: StagedSkill, blocks_at: BlockLevel) -> _PreparedVersion:
        """Judge and embed, before anybody has to wait for anything."""
        skill = intake.skill
        self._own(skill.name)
        report = await self._vet(skill, intake.root, blocks_at)
        data = await anyio.to_thread.run_sync(read_skill_md, intake.root)
        entry, problem = await self._embed(skill, parse_body(data, skill.name))
        return _PreparedVersion(
            intake=intake,
            sha256=skill.fingerprint.sha256 if skill.fingerprint else "",
            findings=report.findings,
            entry=entry,
            not_indexed=problem,
        )

    async def _now(self, name: str) -> Skill:
        """The skill as it lies there now: it may have been changed by hand."""
        self._refuse_pinned(name)
        self._own(name)
        return await anyio.to_thread.run_sync(self.store.read, name)

    async def _after(self, name: str, entry: IndexEntry | None) -> None:
        await self._settle(name, entry, "update")
        await self._prune(name)

    async def _prune(self, name: str) -> None:
        prune = partial(self.store.versions.prune, name, self.policy.keep_versions)
        await anyio.to_thread.run_sync(prune)

    async def rollback(self, name: str, version: str = "") -> InstallResult:
        """Let a kept version be used again; without one, the last that was put aside.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `version_unknown`, `version_damaged` or `skill_pinned`.
            StorageError: If the disk refuses.
        """
        async with self._recorded("rollback", skill=name, version=version), self._turn(name):
            await self._now(name)
            found = await anyio.to_thread.run_sync(self.store.versions.find, name, version)
            await self._bring(name, found)
        return InstallResult(skill=self._around.find(name))

    async def _bring(self, name: str, version: Version) -> None:
        """A kept version takes the place of the one in use; its entry is made before that."""
        root = self.store.versions.folder(name, version.sha256)
        mine = self._own(name).provenance
        skill = (await anyio.to_thread.run_sync(read_skill, root, mine)).skill
        if skill is None or skill.name != name:
            raise SkillVersionError(code="version_damaged", name=name, version=version.sha256[:12])
        data = await anyio.to_thread.run_sync(read_skill_md, root)
        entry, _ = await self._embed(skill, parse_body(data, name))
        async with shielded():
            await self._record("rollback", skill)
            await anyio.to_thread.run_sync(self.store.versions.bring, name, version.sha256)
            await self._after(name, entry)

    async def pin(self, name: str, version: str = "") -> Version:
        """Hold a skill to a version, bringing that one back first; without one, to what is there.

        Until it is let go nothing updates, edits or rolls it back.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `version_unknown` or `version_damaged`.
            StorageError: If the disk refuses.
        """
        async with self._recorded("pin", skill=name, version=version), self._turn(name):
            now, *_ = await self.versions(name)
            if version and not now.sha256.startswith(version) and version != now.declared:
                found = await anyio.to_thread.run_sync(self.store.versions.find, name, version)
                self._refuse_pinned(name)
                await self._bring(name, found)
                now, *_ = await self.versions(name)
            await self._record("pin", self._own(name))
            await anyio.to_thread.run_sync(self.states.pin, name, now.sha256)
        return replace(now, is_pinned=True)

    async def unpin(self, name: str) -> bool:
        """Let a skill change again; False if it was not held.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            StorageError: If the disk refuses.
        """
        async with self._recorded("unpin", skill=name), self._turn(name):
            await self._record("unpin", self._own(name))
            return await anyio.to_thread.run_sync(self.states.pin, name, "")

    async def versions(self, name: str) -> tuple[Version, ...]:
        """The version in use, and then the kept ones, the latest first.

        Raises:
            SkillNotFoundError: If no such skill is installed.
        """
        self._own(name)
        skill = await anyio.to_thread.run_sync(self.store.read, name)
        mark = skill.fingerprint
        sha256 = mark.sha256 if mark else ""
        current = Version(
            sha256=sha256,
            declared=skill.manifest.version or "",
            size=mark.size if mark else 0,
            at=0,
            is_current=True,
            is_pinned=self.states.pinned().get(name) == sha256,
            description=skill.description,
            created=await anyio.to_thread.run_sync(modified_at, self.store.folder(name)),
        )
        return (current, *await anyio.to_thread.run_sync(self.store.versions.all, name))

    async def diff(self, name: str, old: str = "", new: str = "") -> VersionDiff:
        """What changed from one version to another; without them, from the last to what is used.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `version_unknown`.
        """
        before = await self._root_of(name, old)
        after = await self._root_of(name, new) if new else self.store.folder(name)
        return await anyio.to_thread.run_sync(diff_folders, before, after)

    async def _root_of(self, name: str, version: str) -> Path:
        found = await self.version(name, version)
        if found.is_current:
            return self.store.folder(name)
        return self.store.versions.folder(name, found.sha256)

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncGenerator[None]:
        """Change a name, safe from the recovery of another process."""
        self._own(name)
        async with enter_in_thread(self.store.in_use()), self._changing(name):
            yield


def _check_not_older(old: Skill, new: Skill) -> None:
    """Only numbers can be compared; what calls itself anything else is taken as newer."""
    before, after = (_VERSION_NUMBER.fullmatch(s.manifest.version or "") for s in (old, new))
    if before is None or after is None:
        return
    for one, other in zip_longest(*(m[1].split(".") for m in (before, after)), fillvalue="0"):
        if int(one) != int(other):
            if int(other) < int(one):
                raise SkillVersionError(
                    code="version_older", name=new.name, version=after[0], now=before[0]
                )
            return
