"""How an installed skill becomes another version of itself, and how it goes back."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path

import anyio.to_thread

from apexbridge.errors import RetrievalError, SkillVersionError
from apexbridge.lifecycle.changes import (
    Blocks,
    Changes,
    Done,
    body_of,
    held,
    refuse_changed,
    skill_md,
    unstoppable,
)
from apexbridge.lifecycle.difference import Difference, compare
from apexbridge.lifecycle.intake import Intake, take_in
from apexbridge.lifecycle.kept import Version
from apexbridge.retrieval.base import Entry
from apexbridge.skills.model import Skill
from apexbridge.skills.reader import read_skill
from apexbridge.vetting.report import Finding

_NUMBER = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,7})", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """A version that is ready to take another's place."""

    intake: Intake
    sha256: str
    findings: tuple[Finding, ...]
    entry: Entry | None
    not_indexed: RetrievalError | None


class Versioning(Changes):
    """Updates skills, and keeps what they were by the hash of their files."""

    async def update(
        self,
        path: Path,
        *,
        seen: str = "",
        allows_older: bool = False,
        blocks_at: Blocks = "policy",
    ) -> Done:
        """Let an archive or folder take the place of the installed skill it names.

        What was there is kept as a version. `seen` is the hash of it that the caller knows.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `skill_pinned`, or `version_older` unless `allows_older`.
            SkillChangedError: If the skill is in another state than the caller saw.
            PermissionDeniedError: If the new version looks too dangerous.
            ArchiveError: If the archive is unsafe, broken or no skill's.
            SkillInvalidError: If a rule is broken.
            StorageError: If the disk refuses.
        """
        async with self._recorded("update", archive=path.name), held(self.store.staging()) as at:
            take = partial(take_in, path, at, renames=True, limits=self.policy.limits)
            intake = await anyio.to_thread.run_sync(take)
            name = intake.skill.name
            self._refuse_pinned(name)
            offer = await self._prepare(intake, blocks_at)
            async with self._changing(name):
                old = await self._now(name)
                refuse_changed(old, seen)
                if not allows_older:
                    _refuse_older(old, intake.skill)
                if old.fingerprint and old.fingerprint.sha256 == offer.sha256:
                    return Done(skill=old, problems=intake.problems, has_changed=False)
                async with unstoppable():
                    await self._record("update", intake.skill)
                    swap = partial(self.store.versions.replace, name, intake.root, offer.sha256)
                    await anyio.to_thread.run_sync(swap)
                    await self._after(name, offer.entry)
        return Done(
            skill=self._around.find(name),
            problems=intake.problems,
            findings=offer.findings,
            not_indexed=offer.not_indexed,
        )

    async def _prepare(self, intake: Intake, blocks_at: Blocks) -> _Offer:
        """Judge and embed, before anybody has to wait for anything."""
        skill = intake.skill
        self._own(skill.name)
        report = await self._vet(skill, intake.root, blocks_at)
        data = await anyio.to_thread.run_sync(skill_md, intake.root)
        entry, problem = await self._embed(skill, body_of(data, skill.name))
        return _Offer(
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

    async def _after(self, name: str, entry: Entry | None) -> None:
        await self._settle(name, entry, "update")
        prune = partial(self.store.versions.prune, name, self.policy.keep_versions)
        await anyio.to_thread.run_sync(prune)

    async def rollback(self, name: str, version: str = "") -> Done:
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
        return Done(skill=self._around.find(name))

    async def _bring(self, name: str, version: Version) -> None:
        """A kept version takes the place of the one in use; its entry is made before that."""
        root = self.store.versions.folder(name, version.sha256)
        mine = self._own(name).provenance
        skill = (await anyio.to_thread.run_sync(read_skill, root, mine)).skill
        if skill is None or skill.name != name:
            raise SkillVersionError(code="version_damaged", name=name, version=version.sha256[:12])
        data = await anyio.to_thread.run_sync(skill_md, root)
        entry, _ = await self._embed(skill, body_of(data, name))
        async with unstoppable():
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
        )
        return (current, *await anyio.to_thread.run_sync(self.store.versions.all, name))

    async def diff(self, name: str, old: str = "", new: str = "") -> Difference:
        """What changed from one version to another; without them, from the last to what is used.

        Raises:
            SkillNotFoundError: If no such skill is installed.
            SkillVersionError: `version_unknown`.
        """
        before = await self._root_of(name, old)
        after = await self._root_of(name, new) if new else self.store.folder(name)
        return await anyio.to_thread.run_sync(compare, before, after)

    async def _root_of(self, name: str, version: str) -> Path:
        now, *_ = await self.versions(name)
        is_current = version and (version == now.declared or now.sha256.startswith(version))
        if is_current:
            return self.store.folder(name)
        found = await anyio.to_thread.run_sync(self.store.versions.find, name, version)
        return self.store.versions.folder(name, found.sha256)

    @asynccontextmanager
    async def _turn(self, name: str) -> AsyncGenerator[None]:
        """Change a name, safe from the recovery of another process."""
        self._own(name)
        async with held(self.store.in_use()), self._changing(name):
            yield


def _refuse_older(old: Skill, new: Skill) -> None:
    """Only numbers can be compared; what calls itself anything else is taken as newer."""
    before, after = (_NUMBER.fullmatch(s.manifest.version or "") for s in (old, new))
    if before is None or after is None:
        return
    for one, other in zip_longest(*(m[1].split(".") for m in (before, after)), fillvalue="0"):
        if int(one) != int(other):
            if int(other) < int(one):
                raise SkillVersionError(
                    code="version_older", name=new.name, version=after[0], now=before[0]
                )
            return
