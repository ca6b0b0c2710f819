"""SkillManager: how skills come to stay, change and leave, completely or not at all."""

from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath

import anyio.to_thread

from apexbridge.errors import SkillInvalidError, SkillNotFoundError
from apexbridge.lifecycle.skill_list import ListFilter, SkillPage, list_skills
from apexbridge.lifecycle.store import TrashedSkill
from apexbridge.lifecycle.transactions import (
    BlockLevel,
    InstallResult,
    check_unchanged,
    enter_in_thread,
    parse_body,
    read_skill_md,
    shielded,
)
from apexbridge.lifecycle.unpack_and_validate import Inspection, inspect_skill, stage_skill
from apexbridge.lifecycle.versions import SkillVersions
from apexbridge.lifecycle.zip.archive import pack_skill
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.editor import edit_description
from apexbridge.skills.model import Fingerprint, Skill
from apexbridge.skills.parser import parse_skill


class SkillManager(SkillVersions):
    """Changes the installed skills. Each attempt is recorded, whatever comes of it."""

    async def install(
        self,
        path: Path,
        *,
        renames: bool = False,
        blocks_at: BlockLevel = "policy",
    ) -> InstallResult:
        """Take a skill from an archive or a folder; nothing is there of one that is refused.

        Findings at or over `blocks_at`, by default what settings say, refuse it; None lets every
        skill pass.

        Raises:
            PermissionDeniedError: If it looks too dangerous.
            SkillExistsError: If an installed skill has the name.
            ArchiveError: If the archive is unsafe, broken or no skill's.
            SkillInvalidError: If a rule is broken.
            StorageError: If the disk refuses.
        """
        async with (
            self._recorded("install", archive=path.name),
            enter_in_thread(self.store.staging()) as at,
        ):
            take = partial(stage_skill, path, at, renames=renames, limits=self.policy.limits)
            intake = await anyio.to_thread.run_sync(take)
            skill = intake.skill
            await anyio.to_thread.run_sync(self.store.refuse_taken, skill.name)
            report = await self._vet(skill, intake.root, blocks_at)
            data = await anyio.to_thread.run_sync(read_skill_md, intake.root)
            entry, problem = await self._embed(skill, parse_body(data, skill.name))
            async with self._changing(skill.name), shielded():
                await anyio.to_thread.run_sync(self.store.refuse_taken, skill.name)
                await self._record("install", skill)
                await anyio.to_thread.run_sync(self.store.put, intake.root, skill.name)
                await self._settle(skill.name, entry, "install")
        return InstallResult(
            skill=self._around.find(skill.name),
            problems=intake.problems,
            findings=report.findings,
            not_indexed=problem,
        )

    async def edit_description(
        self, name: str, description: str, *, seen: str = ""
    ) -> InstallResult:
        """Change the description and not one other byte; `seen` is the hash the caller knows.

        Raises:
            SkillNotFoundError: If there is no such skill.
            SkillReadOnlyError: If it is not an installed one.
            SkillChangedError: If it is in another state than the caller saw.
            SkillInvalidError: If the text breaks a rule of descriptions.
        """
        async with self._recorded("edit", skill=name):
            self._own(name)
            async with self._changing(name):
                await self._around.follow(name, "refresh")  # it may have been edited by hand
                skill = self._own(name)
                check_unchanged(skill, seen)
                self._refuse_pinned(name)
                old = await anyio.to_thread.run_sync(read_skill_md, self.store.folder(name))
                new = await anyio.to_thread.run_sync(edit_description, old, description)
                if new == old:
                    return InstallResult(skill=skill, has_changed=False)
                edited = await anyio.to_thread.run_sync(_with_skill_md, skill, new)
                entry, problem = await self._embed(edited, parse_body(new, name))
                async with shielded():
                    await self._record("edit", edited)
                    await anyio.to_thread.run_sync(self.store.replace_file, name, new)
                    await self._settle(name, entry, "edit")
        return InstallResult(skill=self._around.find(name), not_indexed=problem)

    async def uninstall(self, name: str) -> TrashedSkill:
        """Take a skill away; it can be brought back for a while.

        Raises:
            SkillNotFoundError: If there is no such skill.
            SkillReadOnlyError: If it is not an installed one.
        """
        async with self._recorded("uninstall", skill=name):
            skill = self._own(name)
            async with self._changing(name), shielded():
                await anyio.to_thread.run_sync(self.store.folder, name)  # it may be gone by now
                await self._record("uninstall", skill)
                gone = await anyio.to_thread.run_sync(self.store.take_away, name)
                await self._settle(name, None, "uninstall")
        return gone

    async def undo(self, name: str) -> InstallResult:
        """Bring back what was taken away last under this name.

        Raises:
            SkillNotFoundError: If there is nothing to bring back.
            SkillExistsError: If another skill has the name by now.
        """
        async with self._recorded("undo", skill=name):
            # Only what was taken away is a name for sure; a lock is a file of that name.
            await anyio.to_thread.run_sync(self.store.last_trashed, name)
            async with self._changing(name), shielded():
                gone = await anyio.to_thread.run_sync(self.store.last_trashed, name)
                await anyio.to_thread.run_sync(self.store.refuse_taken, name)
                await anyio.to_thread.run_sync(lambda: self._audit.record("undo", skill=name))
                await anyio.to_thread.run_sync(self.store.bring_back, gone)
                await self._settle(name, None, "install")
        return InstallResult(skill=self._around.find(name))

    async def switch(self, name: str, *, is_on: bool) -> bool:
        """Switch a skill of any source on or off; False if it was so before.

        Raises:
            SkillNotFoundError: If there is no such skill.
        """
        action = "enable" if is_on else "disable"
        async with self._recorded(action, skill=name):
            if not is_on:
                name = self._around.find(name).name
            switch = partial(self.states.switch, name, is_on=is_on)
            has_changed = await anyio.to_thread.run_sync(switch)
            if has_changed:
                await anyio.to_thread.run_sync(lambda: self._audit.record(action, skill=name))
                await self._around.follow(name, "edit")
        return has_changed

    async def list(self, wanted: ListFilter | None = None) -> SkillPage:
        """A page of skills with version, state, size and findings; of all sources."""
        return await anyio.to_thread.run_sync(
            list_skills,
            self._around.snapshot(),
            wanted or ListFilter(),
            self.states.pinned(),
            self.verdicts,
        )

    async def inspect(self, path: Path, *, renames: bool = False) -> Inspection:
        """What an archive or folder holds and could do; nothing is installed.

        Raises:
            ArchiveError: If the archive is unsafe, broken or no skill's.
            SkillInvalidError: If a rule is broken.
        """
        look = partial(
            inspect_skill,
            path,
            renames=renames,
            limits=self.policy.limits,
            others=self._around.known(),
        )
        return await anyio.to_thread.run_sync(look)

    async def export(self, name: str) -> bytes:
        """A skill as a zip that installs elsewhere; equal skills give equal bytes.

        Raises:
            SkillNotFoundError: If there is no such skill, or it has no folder.
            ArchiveUnsafeError: If there is a link or device among its files.
        """
        skill = self._around.find(name)
        if skill.root is None:
            raise SkillNotFoundError(name)
        return await anyio.to_thread.run_sync(partial(pack_skill, skill.root, skill.name))


def _with_skill_md(skill: Skill, data: bytes) -> Skill:
    """The skill as it will be with another SKILL.md."""
    read = parse_skill(data, folder=skill.name, provenance=skill.provenance)
    if read.skill is None or skill.root is None:
        raise SkillInvalidError(skill.name, read.problems)
    mark = tree.fingerprint(skill.root, instead={PurePosixPath(SKILL_MD): data})
    if not isinstance(mark, Fingerprint):
        raise SkillInvalidError(skill.name, [mark])
    return replace(read.skill, root=skill.root, folder_id=skill.folder_id, fingerprint=mark)
