"""SkillManager: install, update, edit, disable, uninstall and restore skills, atomically."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from anyio import to_thread

from apexbridge.audit import AuditLog
from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.consent import CONSENTS_FILE, InstallerStore
from apexbridge.catalog.usage import UsageStore
from apexbridge.errors import SkillInvalidError, SkillNotFoundError, StorageError
from apexbridge.lifecycle.index_updates import IndexUpdates, SkillIndexer, read_skill_md
from apexbridge.lifecycle.inspection import Inspection, inspect_skill
from apexbridge.lifecycle.scan_results import BlockLevel, ScanGate, ScanResultStore
from apexbridge.lifecycle.signature_check import UNSIGNED, SignatureCheck, SignatureStore
from apexbridge.lifecycle.skill_list import ListFilter, SkillPage, list_skills
from apexbridge.lifecycle.skill_metadata import MetadataStore
from apexbridge.lifecycle.source_records import (
    UNKNOWN_ORIGIN,
    InstallOrigin,
    SourceRecord,
    SourceRecords,
)
from apexbridge.lifecycle.states import SkillStates
from apexbridge.lifecycle.store import SkillStore
from apexbridge.lifecycle.transactions import (
    InstallPolicy,
    InstallResult,
    SkillTransactions,
    check_content,
    check_unchanged,
    enter_in_thread,
    sha256_of,
    shielded,
)
from apexbridge.lifecycle.trash import TrashedSkill
from apexbridge.lifecycle.unpack_and_validate import Renames, StagedSkill, stage_skill
from apexbridge.lifecycle.versions import (
    ManagerParts,
    SkillVersions,
    check_not_older,
    stage_version,
)
from apexbridge.lifecycle.zip.archive import pack_skill
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.editor import edit_description
from apexbridge.skills.model import Fingerprint, Skill
from apexbridge.skills.parser import parse_skill


class ManagerStores(NamedTuple):
    """The files that a manager changes: skills, their states and usage, and the audit log."""

    skills: SkillStore
    states: SkillStates
    usage: UsageStore
    audit: AuditLog


class SkillManager:
    """Changes the installed skills. Each attempt, refused or not, is in the audit log."""

    def __init__(
        self,
        stores: ManagerStores,
        catalog: Catalog,
        indexer: SkillIndexer,
        policy: InstallPolicy | None = None,
    ) -> None:
        store, states, usage, audit = stores
        self.policy = policy or InstallPolicy()
        self.scan_results = ScanResultStore(store.root.parent / "verdicts")
        self.signatures = SignatureStore(store.root.parent / "signatures")
        self._store = store
        self._states = states
        self._catalog = catalog
        self._index = IndexUpdates(store.root, catalog, indexer)
        self.sources = SourceRecords(store.root.parent / "sources.json")
        derived = (self.scan_results.folder, self.signatures.folder)
        self._metadata = MetadataStore(store, states, catalog, usage, self.sources, derived)
        self._scans = ScanGate(self.scan_results, catalog, self.policy.blocks_at)
        self.installers = InstallerStore(store.root.parent / CONSENTS_FILE)
        self._transactions = SkillTransactions(store, states, audit, catalog, self.installers)
        self._parts = ManagerParts(
            store=store,
            states=states,
            transactions=self._transactions,
            index=self._index,
            scans=self._scans,
            policy=self.policy,
            signatures=self.signatures,
        )
        self.versions = SkillVersions(self._parts)

    async def install(
        self,
        path: Path,
        *,
        renames: Renames = False,
        blocks_at: BlockLevel = "policy",
        origin: InstallOrigin = UNKNOWN_ORIGIN,
    ) -> InstallResult:
        """Install a skill from an archive or a folder; a refused one leaves nothing behind.

        Scanner findings at `blocks_at` or above refuse it; None accepts every finding.

        Raises:
            SignatureError: If the signature is wrong, or one is required and missing.
            PermissionDeniedError: If a scanner finding blocks it.
            SkillExistsError: If an installed skill has the name.
            ArchiveError: If the archive is unsafe, malformed or not a skill.
            SkillInvalidError: If a validation rule fails.
            StorageError: If the disk refuses.
        """
        transactions, store = self._transactions, self._store
        async with (
            transactions.audited("install", archive=path.name),
            enter_in_thread(store.staging()) as staging,
        ):
            limits, keys = self.policy.limits, self.policy.signatures
            stage = partial(stage_skill, path, staging, limits=limits, signatures=keys)
            stage = partial(stage, renames=renames, origin=origin)
            staged = await to_thread.run_sync(stage)
            skill = staged.skill
            check_content(skill, origin.sha256)
            # Early, for a cheap refusal; again under the lock, where it decides the race.
            await to_thread.run_sync(store.check_name_free, skill.name)
            report = await self._scans.check(skill, staged.root, blocks_at, origin.address)
            data = await to_thread.run_sync(read_skill_md, staged.root)
            # Embed before the lock: it is the slow part, and needs nothing that is locked.
            prepared = await self._index.prepare(skill, data)
            async with transactions.lock(skill.name), shielded():
                await to_thread.run_sync(store.check_name_free, skill.name)
                await transactions.record_skill("install", skill, staged.signature)
                # Left by a crash, or by a folder that was deleted by hand.
                await to_thread.run_sync(self._metadata.clear, skill.name)
                await transactions.record_installer(skill)
                await self._record_source(skill, origin.source)
                await to_thread.run_sync(store.install, staged.root, skill.name)
                await self._store_signature(staged)
                await self._index.commit(skill.name, "install", prepared)
        done = _result(transactions.installed(skill.name), staged)
        return replace(done, findings=report.findings, index_error=prepared.error)

    async def update(
        self,
        path: Path,
        *,
        only: str = "",
        expected_sha256: str = "",
        allows_older: bool = False,
        blocks_at: BlockLevel = "policy",
        origin: InstallOrigin = UNKNOWN_ORIGIN,
    ) -> InstallResult:
        """Replace the installed skill that an archive or folder names; the old one is stored.

        `only` restricts the update to one name, `expected_sha256` to the state the caller saw.

        Raises:
            SignatureError: If the signature is wrong, or one is required and missing.
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `skill_pinned`, or `version_older` unless `allows_older`.
            SkillChangedError: If the skill is in another state than the caller saw.
            SourceError: If the new files are others than those of `origin`.
            PermissionDeniedError, ArchiveError, SkillInvalidError, StorageError: As for `install`.
        """
        transactions, store = self._transactions, self._store
        async with (
            transactions.audited("update", archive=path.name),
            enter_in_thread(store.staging()) as staging,
        ):
            staged = await stage_version(self._parts, only, path, staging, origin)
            skill, name = staged.skill, staged.skill.name
            check_content(skill, origin.sha256)
            transactions.check_not_pinned(name)
            transactions.installed(name)
            report = await self._scans.check(skill, staged.root, blocks_at, origin.address)
            data = await to_thread.run_sync(read_skill_md, staged.root)
            prepared = await self._index.prepare(skill, data)
            async with transactions.lock(name):
                transactions.check_not_pinned(name)
                transactions.installed(name)
                # Read from disk: an editor may have changed the files since the last scan.
                old = await to_thread.run_sync(store.read, name)
                check_unchanged(old, expected_sha256)
                if not allows_older:
                    check_not_older(old, skill)
                if origin.source is not None:  # after the commit it would be too late to refuse
                    await to_thread.run_sync(self.sources.all)
                if sha256_of(skill) == sha256_of(old) != "":
                    await self._store_signature(staged)
                    await self._record_source(skill, origin.source)
                    return replace(_result(old, staged), has_changed=False)
                async with shielded():
                    await transactions.record_skill("update", skill, staged.signature)
                    await transactions.record_installer(skill)
                    swap = partial(store.versions.replace, name, staged.root, sha256_of(skill))
                    await to_thread.run_sync(swap)
                    await self._store_signature(staged)
                    await self._record_source(skill, origin.source)
                    await self._index.commit(name, "update", prepared)
                    await self.versions.prune(name)
        done = _result(transactions.installed(name), staged)
        return replace(done, findings=report.findings, index_error=prepared.error)

    def signature_of(self, skill: Skill) -> SignatureCheck:
        """Return the signature that a skill was installed with, as far as its key is trusted now.

        An edited skill has none: the signature was of other content. Blocking.
        """
        mark = skill.fingerprint
        if mark is None or not skill.provenance.writable:
            return UNSIGNED
        return self.signatures.get(mark.sha256).under(self.policy.signatures)

    async def _store_signature(self, staged: StagedSkill) -> None:
        sha256 = sha256_of(staged.skill)
        await to_thread.run_sync(self.signatures.put, sha256, staged.signature)

    async def _record_source(self, skill: Skill, source: SourceRecord | None) -> None:
        """Store where a skill came from; a change without an address leaves the record there is."""
        if source is not None:
            known = {"sha256": sha256_of(skill), "version": skill.manifest.version or ""}
            record = source.model_copy(update=known)
            await to_thread.run_sync(self.sources.put, skill.name, record)

    async def edit_description(
        self, name: str, description: str, *, expected_sha256: str = ""
    ) -> InstallResult:
        """Replace the description in SKILL.md and leave every other byte unchanged.

        Raises:
            SkillNotFoundError: If there is no such skill.
            SkillReadOnlyError: If it is not an installed one.
            SkillChangedError: If it is in another state than the caller saw.
            SkillInvalidError: If the description breaks a validation rule.
        """
        transactions, store = self._transactions, self._store
        async with transactions.audited("edit", skill=name):
            transactions.installed(name)
            async with transactions.lock(name):
                await self._index.refresh("refresh")  # an editor may have changed the file
                skill = transactions.installed(name)
                check_unchanged(skill, expected_sha256)
                transactions.check_not_pinned(name)
                old = await to_thread.run_sync(read_skill_md, store.folder(name))
                new = await to_thread.run_sync(edit_description, old, description)
                if new == old:
                    await self._index.commit(name, "refresh")
                    return InstallResult(skill=skill, has_changed=False)
                edited = await to_thread.run_sync(_with_skill_md, skill, new)
                prepared = await self._index.prepare(edited, new)
                async with shielded():
                    await transactions.record_skill("edit", edited)
                    await transactions.record_installer(edited)
                    await to_thread.run_sync(store.replace_skill_md, name, new)
                    await self._index.commit(name, "edit", prepared)
        return InstallResult(skill=transactions.installed(name), index_error=prepared.error)

    async def uninstall(self, name: str) -> TrashedSkill:
        """Move a skill to the trash, from where `restore` brings it back until it expires.

        Its state, pin, usage, tags, scan results and stored versions go with it: the next skill of
        that name inherits none of them.

        Raises:
            SkillNotFoundError: If there is no such skill.
            SkillReadOnlyError: If it is not an installed one.
        """
        transactions = self._transactions
        async with transactions.audited("uninstall", skill=name):
            skill = transactions.installed(name)
            async with transactions.lock(name), shielded():
                await to_thread.run_sync(self._store.folder, name)  # it may be gone by now
                await transactions.record_skill("uninstall", skill)
                await to_thread.run_sync(self.installers.forget, skill.name)
                metadata = await to_thread.run_sync(self._metadata.read, name)
                trashed = await to_thread.run_sync(self._store.uninstall, name, metadata)
                move = partial(self._metadata.move_to_trash, trashed, sha256_of(skill))
                await to_thread.run_sync(move)
                await self._index.commit(name, "uninstall")
        return trashed

    async def restore(self, name: str) -> InstallResult:
        """Undo the most recent uninstall of a name.

        Raises:
            SkillNotFoundError: If there is nothing to restore.
            SkillExistsError: If another skill has the name by now.
        """
        transactions, store = self._transactions, self._store
        async with transactions.audited("undo", skill=name):
            # Before the lock: a lock is a file of that name, and only a trashed one is safe.
            await to_thread.run_sync(store.trash.latest, name)
            async with transactions.lock(name), shielded():
                trashed = await to_thread.run_sync(store.trash.latest, name)
                await to_thread.run_sync(store.check_name_free, name)
                await transactions.record("undo", skill=name)
                await to_thread.run_sync(self._metadata.restore, trashed)
                await self._index.commit(name, "install")
                # It is back already: without the record the model asks, which is no error.
                with suppress(StorageError):
                    await transactions.record_installer(transactions.installed(name))
        return InstallResult(skill=transactions.installed(name))

    async def set_enabled(self, name: str, *, enabled: bool) -> bool:
        """Enable or disable a skill of any source; False if it was so before.

        Raises:
            SkillNotFoundError: If there is no such skill.
        """
        action = "enable" if enabled else "disable"
        async with self._transactions.audited(action, skill=name):
            if not enabled:
                name = self._catalog.find(name).name
            change = partial(self._states.set_enabled, name, enabled=enabled)
            has_changed = await to_thread.run_sync(change)
            if has_changed:
                await self._transactions.record(action, skill=name)
                await self._index.commit(name, "edit")
        return has_changed

    async def list(self, wanted: ListFilter | None = None) -> SkillPage:
        """Return one page of the skills of all sources, with version, state, size and findings."""
        return await to_thread.run_sync(
            list_skills,
            self._catalog.snapshot,
            wanted or ListFilter(),
            self._states.pinned(),
            self.scan_results,
        )

    async def inspect(
        self,
        path: Path,
        *,
        renames: Renames = False,
        signature: str = "",
        archive: Path | None = None,
    ) -> Inspection:
        """Dry run of an install: contents, capabilities and findings of an archive or folder.

        `archive` is the signed archive, if a folder was unpacked from one.

        Raises:
            ArchiveError: If the archive is unsafe, malformed or not a skill.
            SkillInvalidError: If a validation rule fails.
        """
        origin = InstallOrigin(signature=signature, archive=archive)
        return await inspect_skill(path, self._scans, self.policy, renames=renames, origin=origin)

    async def export(self, name: str) -> bytes:
        """Pack a skill as a zip that can be installed; equal skills give equal bytes.

        Raises:
            SkillNotFoundError: If there is no such skill, or it has no folder.
            ArchiveUnsafeError: If there is a symlink or device among its files.
        """
        skill = self._catalog.find(name)
        if skill.root is None:
            raise SkillNotFoundError(name)
        return await to_thread.run_sync(pack_skill, skill.root, skill.name)


def _result(skill: Skill, staged: StagedSkill) -> InstallResult:
    return InstallResult(skill=skill, problems=staged.problems, signature=staged.signature)


def _with_skill_md(skill: Skill, data: bytes) -> Skill:
    """Parse a skill as it will be with another SKILL.md."""
    parsed = parse_skill(data, folder=skill.name, provenance=skill.provenance)
    if parsed.skill is None or skill.root is None:
        raise SkillInvalidError(skill.name, parsed.problems)
    fingerprint = tree.fingerprint(skill.root, instead={PurePosixPath(SKILL_MD): data})
    if not isinstance(fingerprint, Fingerprint):
        raise SkillInvalidError(skill.name, [fingerprint])
    return replace(
        parsed.skill, root=skill.root, folder_id=skill.folder_id, fingerprint=fingerprint
    )
