"""Skill versions: keep, compare, pin and roll back to earlier states of an installed skill."""

import re
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path

from anyio import to_thread

from apexbridge.errors import SkillInvalidError, SkillVersionError
from apexbridge.lifecycle.index_updates import IndexUpdates, read_skill_md
from apexbridge.lifecycle.scan_results import BlockLevel, ScanGate
from apexbridge.lifecycle.signature_check import UNSIGNED, SignatureCheck, SignatureStore
from apexbridge.lifecycle.source_records import InstallOrigin
from apexbridge.lifecycle.states import SkillStates
from apexbridge.lifecycle.store import SkillStore
from apexbridge.lifecycle.transactions import (
    InstallPolicy,
    InstallResult,
    SkillTransactions,
    enter_in_thread,
    sha256_of,
    shielded,
)
from apexbridge.lifecycle.unpack_and_validate import StagedSkill, stage_skill
from apexbridge.lifecycle.version_store import Version, VersionDiff, diff_folders, modified_at
from apexbridge.lifecycle.zip.archive import pack_skill
from apexbridge.scanner.report import Finding
from apexbridge.skills.model import Problem, Skill
from apexbridge.skills.parser import read_skill

_VERSION_NUMBER = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,7})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVersion:
    """A version that was added without being used; `is_new` unless it was stored before."""

    sha256: str
    problems: tuple[Problem, ...]
    findings: tuple[Finding, ...]
    is_new: bool
    signature: SignatureCheck = UNSIGNED


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerParts:
    """The collaborators that installs and version changes share."""

    store: SkillStore
    states: SkillStates
    transactions: SkillTransactions
    index: IndexUpdates
    scans: ScanGate
    policy: InstallPolicy
    signatures: SignatureStore


def check_not_older(old: Skill, new: Skill) -> None:
    """Refuse a downgrade; a version that is not a dotted number counts as newer.

    Raises:
        SkillVersionError: `version_older`.
    """
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


async def stage_version(
    parts: ManagerParts, name: str, path: Path, staging: Path, origin: InstallOrigin
) -> StagedSkill:
    """Unpack a version of one skill, or of any skill if `name` is empty.

    Raises:
        SignatureError: If the signature is wrong, or one is required and missing.
        SkillInvalidError: If the archive holds another skill.
    """
    stage = partial(
        stage_skill,
        path,
        staging,
        renames="titles",
        limits=parts.policy.limits,
        signatures=parts.policy.signatures,
        origin=origin,
    )
    staged = await to_thread.run_sync(stage)
    if name not in ("", staged.skill.name):
        other = staged.skill.name
        details = {"name": name, "other": other}
        problem = Problem(code="version_of_another", where=other, details=details)
        raise SkillInvalidError(other, [problem])
    return staged


class SkillVersions:
    """Versions of installed skills, addressed by content hash, hash prefix or declared version."""

    def __init__(self, parts: ManagerParts) -> None:
        self._parts = parts
        self._store = parts.store
        self._states = parts.states
        self._transactions = parts.transactions

    async def list(self, name: str) -> tuple[Version, ...]:
        """Return the version in use, then the stored ones, the latest first.

        Raises:
            SkillNotFoundError: If no such skill is installed.
        """
        self._transactions.installed(name)
        skill = await to_thread.run_sync(self._store.read, name)
        sha256 = sha256_of(skill)
        current = Version(
            sha256=sha256,
            declared=skill.manifest.version or "",
            size=skill.fingerprint.size if skill.fingerprint else 0,
            at=0,
            is_current=True,
            is_pinned=self._states.pinned().get(name) == sha256,
            description=skill.description,
            created=await to_thread.run_sync(modified_at, self._store.folder(name)),
        )
        return (current, *await to_thread.run_sync(self._store.versions.list, name))

    async def get(self, name: str, wanted: str) -> Version:
        """Return the version that a hash, a hash prefix or a declared version denotes.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `version_unknown`.
        """
        current, *_ = await self.list(name)
        if wanted and (current.declared == wanted or current.sha256.startswith(wanted)):
            return current
        return await to_thread.run_sync(self._store.versions.find, name, wanted)

    async def add(
        self,
        name: str,
        path: Path,
        *,
        blocks_at: BlockLevel = "policy",
        signature: str = "",
    ) -> StoredVersion:
        """Store an archive or folder as a version of a skill, without using it.

        Raises:
            SignatureError: If the signature is wrong, or one is required and missing.
            SkillNotFoundError: If no such skill is installed.
            SkillInvalidError: If it is another skill's, or a validation rule fails.
            PermissionDeniedError: If a scanner finding blocks it.
            ArchiveError: If the archive is unsafe, malformed or not a skill.
            StorageError: If the disk refuses.
        """
        parts, transactions = self._parts, self._transactions
        async with (
            transactions.audited("keep", skill=name),
            enter_in_thread(self._store.staging()) as staging,
        ):
            transactions.installed(name)
            staged = await stage_version(
                parts, name, path, staging, InstallOrigin(signature=signature)
            )
            report = await parts.scans.check(staged.skill, staged.root, blocks_at)
            sha256 = sha256_of(staged.skill)
            async with transactions.lock(name), shielded():
                known = {version.sha256 for version in await self.list(name)}
                if sha256 not in known:
                    await transactions.record_skill("keep", staged.skill, staged.signature)
                    add = partial(self._store.versions.add, name, staged.root, sha256)
                    await to_thread.run_sync(add)
                    keep = partial(parts.signatures.put, sha256, staged.signature)
                    await to_thread.run_sync(keep)
                    await self.prune(name)
        return StoredVersion(
            sha256=sha256,
            problems=staged.problems,
            findings=report.findings,
            is_new=sha256 not in known,
            signature=staged.signature,
        )

    async def remove(self, name: str, version: str) -> Version:
        """Delete a stored version; the one in use cannot be deleted.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `version_unknown`, or `version_in_use`.
            StorageError: If the disk refuses.
        """
        transactions = self._transactions
        async with (
            transactions.audited("forget", skill=name, version=version),
            transactions.exclusive(name),
        ):
            found = await self.get(name, version)
            if found.is_current:
                raise SkillVersionError(code="version_in_use", name=name, version=version)
            async with enter_in_thread(self._store.staging()) as staging, shielded():
                await transactions.record("forget", skill=name, sha256=found.sha256)
                remove = partial(self._store.versions.remove, name, found.sha256, staging)
                await to_thread.run_sync(remove)
        return found

    async def prune(self, name: str) -> None:
        """Delete all but the latest stored versions, as the policy says."""
        keep = self._parts.policy.keep_versions
        await to_thread.run_sync(self._store.versions.prune, name, keep)

    async def rollback(self, name: str, version: str = "") -> InstallResult:
        """Use a stored version again; without one, the last that was in use.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `version_unknown`, `version_damaged` or `skill_pinned`.
            StorageError: If the disk refuses.
        """
        transactions = self._transactions
        async with (
            transactions.audited("rollback", skill=name, version=version),
            transactions.exclusive(name),
        ):
            transactions.check_not_pinned(name)
            await to_thread.run_sync(self._store.read, name)  # refused if its folder is gone
            found = await to_thread.run_sync(self._store.versions.find, name, version)
            await self._activate(name, found)
        return InstallResult(skill=transactions.installed(name))

    async def _activate(self, name: str, version: Version) -> None:
        """Exchange the version in use with a stored one, whose entry is made before that."""
        parts = self._parts
        root = self._store.versions.folder(name, version.sha256)
        provenance = self._transactions.installed(name).provenance
        skill = (await to_thread.run_sync(read_skill, root, provenance)).skill
        if skill is None or skill.name != name:
            raise SkillVersionError(code="version_damaged", name=name, version=version.sha256[:12])
        data = await to_thread.run_sync(read_skill_md, root)
        # Before the exchange, so that the index lags behind the disk as briefly as possible.
        prepared = await parts.index.prepare(skill, data)
        async with shielded():
            await self._transactions.record_skill("rollback", skill)
            await self._transactions.record_installer(skill)
            await to_thread.run_sync(self._store.versions.activate, name, version.sha256)
            await parts.index.commit(name, "update", prepared)
            await self.prune(name)

    async def pin(self, name: str, version: str = "") -> Version:
        """Pin a skill to a version, activating it first; without one, to the version in use.

        Until `unpin`, the skill cannot be updated, edited or rolled back.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `version_unknown` or `version_damaged`.
            StorageError: If the disk refuses.
        """
        transactions = self._transactions
        async with (
            transactions.audited("pin", skill=name, version=version),
            transactions.exclusive(name),
        ):
            current, *_ = await self.list(name)
            is_current = current.sha256.startswith(version) or version == current.declared
            if version and not is_current:
                found = await to_thread.run_sync(self._store.versions.find, name, version)
                transactions.check_not_pinned(name)
                await self._activate(name, found)
                current, *_ = await self.list(name)
            await transactions.record_skill("pin", transactions.installed(name))
            await to_thread.run_sync(self._states.pin, name, current.sha256)
        return replace(current, is_pinned=True)

    async def unpin(self, name: str) -> bool:
        """Allow changes of a skill again; False if it was not pinned.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            StorageError: If the disk refuses.
        """
        transactions = self._transactions
        async with transactions.audited("unpin", skill=name), transactions.exclusive(name):
            await transactions.record_skill("unpin", transactions.installed(name))
            return await to_thread.run_sync(self._states.pin, name, "")

    async def diff(self, name: str, old: str = "", new: str = "") -> VersionDiff:
        """Compare two versions; by default the last stored one with the one in use.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `version_unknown`.
        """
        before = await self._folder(name, old)
        after = await self._folder(name, new) if new else self._store.folder(name)
        return await to_thread.run_sync(diff_folders, before, after)

    async def export(self, name: str, wanted: str) -> bytes:
        """Pack a version as a zip, as `SkillManager.export` packs the one in use.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `version_unknown`.
            ArchiveError: If there is a symlink or device among its files.
        """
        root = await self._folder(name, wanted)
        return await to_thread.run_sync(pack_skill, root, name)

    async def _folder(self, name: str, version: str) -> Path:
        found = await self.get(name, version)
        if found.is_current:
            return self._store.folder(name)
        return self._store.versions.folder(name, found.sha256)
