"""SkillManager: how skills come to stay, change and leave, completely or not at all."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from apexbridge.audit import AuditLog
from apexbridge.errors import (
    ApexBridgeError,
    PermissionDeniedError,
    RetrievalError,
    SkillChangedError,
    SkillInvalidError,
    SkillNotFoundError,
    SkillReadOnlyError,
)
from apexbridge.events import Cause
from apexbridge.lifecycle.archive import DEFAULT_LIMITS, ArchiveLimits, pack
from apexbridge.lifecycle.intake import take_in
from apexbridge.lifecycle.states import States
from apexbridge.lifecycle.store import SkillStore, Trashed, folded
from apexbridge.lifecycle.vet import vet
from apexbridge.retrieval.base import Entry
from apexbridge.skills.edit import edit_description
from apexbridge.skills.model import Problem, Skill
from apexbridge.skills.reader import open_document, read_skill_file
from apexbridge.vetting.report import Finding, Report
from apexbridge.vetting.rulebook import LEVELS, Level

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the rest of the house does at a change; who builds the house gives these."""

    find: Callable[[str], Skill]
    """The skill that has a name now, of whatever source."""
    known: Callable[[], Mapping[str, str]]
    """Names and descriptions of all skills."""
    embed: Callable[[Skill, str], Awaitable[Entry]]
    """Makes the entry of a skill with this body, and stores nothing."""
    put: Callable[[Skill, Entry], Awaitable[None]]
    """Stores an entry, and then marks the skill."""
    follow: Callable[[str, Cause], Awaitable[None]]
    """Brings catalogue and index up to what lies on disk under a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A skill as it is now, what is odd about it, and whether anything was changed."""

    skill: Skill
    problems: tuple[Problem, ...] = ()
    findings: tuple[Finding, ...] = ()
    """What looked dangerous in it."""
    has_changed: bool = True
    not_indexed: RetrievalError | None = None
    """Why it is found by its words only, until the index can be brought up."""


class SkillManager:
    """Changes the installed skills. Each attempt is recorded, whatever comes of it."""

    def __init__(
        self,
        store: SkillStore,
        states: States,
        audit: AuditLog,
        surroundings: Surroundings,
        limits: ArchiveLimits = DEFAULT_LIMITS,
    ) -> None:
        self.store = store
        self.states = states
        self._audit = audit
        self._around = surroundings
        self._limits = limits
        self._turns: dict[str, anyio.Lock] = {}

    async def install(
        self, path: Path, *, renames: bool = False, blocks_at: Level | None = "block"
    ) -> Done:
        """Take a skill from an archive or a folder; nothing is there of one that is refused.

        Findings at or over `blocks_at` refuse it; None lets every skill pass.

        Raises:
            PermissionDeniedError: If it looks too dangerous.
            SkillExistsError: If an installed skill has the name.
            ArchiveError: If the archive is unsafe, broken or no skill's.
            SkillInvalidError: If a rule is broken.
            StorageError: If the disk refuses.
        """
        async with self._recorded("install", archive=path.name), _held(self.store.staging()) as at:
            take = partial(take_in, path, at, renames=renames, limits=self._limits)
            intake = await anyio.to_thread.run_sync(take)
            skill = intake.skill
            await anyio.to_thread.run_sync(self.store.refuse_taken, skill.name)
            report = await anyio.to_thread.run_sync(vet, intake.root, self._around.known())
            _refuse_dangerous(skill, report, blocks_at)
            entry, problem = await self._embed(skill, intake.root)
            async with self._changing(skill.name), _unstoppable():
                await self._record("install", skill)
                await anyio.to_thread.run_sync(self.store.put, intake.root, skill.name)
                await self._settle(skill.name, entry, "install")
        return Done(
            skill=self._around.find(skill.name),
            problems=intake.problems,
            findings=report.findings,
            not_indexed=problem,
        )

    async def edit_description(self, name: str, description: str, *, seen: str = "") -> Done:
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
                _refuse_changed(skill, seen)
                old = await anyio.to_thread.run_sync(_skill_md, self.store.folder(name))
                new = await anyio.to_thread.run_sync(edit_description, old, description)
                if new == old:
                    return Done(skill=skill, has_changed=False)
                async with _unstoppable():
                    await self._record("edit", skill)
                    await anyio.to_thread.run_sync(self.store.replace_file, name, new)
                    await self._around.follow(name, "edit")
        return Done(skill=self._around.find(name))

    async def uninstall(self, name: str) -> Trashed:
        """Take a skill away; it can be brought back for a while.

        Raises:
            SkillNotFoundError: If there is no such skill.
            SkillReadOnlyError: If it is not an installed one.
        """
        async with self._recorded("uninstall", skill=name):
            skill = self._own(name)
            async with self._changing(name), _unstoppable():
                await self._record("uninstall", skill)
                gone = await anyio.to_thread.run_sync(self.store.take_away, name)
                await self._around.follow(name, "uninstall")
        return gone

    async def undo(self, name: str) -> Done:
        """Bring back what was taken away last under this name.

        Raises:
            SkillNotFoundError: If there is nothing to bring back.
            SkillExistsError: If another skill has the name by now.
        """
        async with (
            self._recorded("undo", skill=name),
            self._changing(name),
            _unstoppable(),
        ):
            await anyio.to_thread.run_sync(self.store.bring_back, name)
            await anyio.to_thread.run_sync(lambda: self._audit.record("undo", skill=name))
            await self._around.follow(name, "install")
        return Done(skill=self._around.find(name))

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

    async def export(self, name: str) -> bytes:
        """A skill as a zip that installs elsewhere; equal skills give equal bytes.

        Raises:
            SkillNotFoundError: If there is no such skill, or it has no folder.
            ArchiveUnsafeError: If there is a link or device among its files.
        """
        skill = self._around.find(name)
        if skill.root is None:
            raise SkillNotFoundError(name)
        return await anyio.to_thread.run_sync(partial(pack, skill.root, skill.name))

    @asynccontextmanager
    async def _changing(self, name: str) -> AsyncGenerator[None]:
        """Be the only one who changes a name.

        Who waits for somebody of this process waits without a thread: else those who wait could
        hold all the threads that the one they wait for needs.
        """
        turn = self._turns.setdefault(folded(name), anyio.Lock())
        async with turn, _held(self.store.changing(name)):
            yield

    def _own(self, name: str) -> Skill:
        skill = self._around.find(name)
        if not skill.provenance.writable or skill.name != name:
            raise SkillReadOnlyError(name=skill.name, origin=skill.provenance.origin)
        return skill

    async def _embed(self, skill: Skill, root: Path) -> tuple[Entry | None, RetrievalError | None]:
        """The entry before anything is changed; without one a skill is found by its words."""
        body = await anyio.to_thread.run_sync(_body, root)
        try:
            return await self._around.embed(skill, body), None
        except RetrievalError as error:
            return None, error

    async def _settle(self, name: str, entry: Entry | None, cause: Cause) -> None:
        """Index and marker of what was just committed; a restart would do the same."""
        if entry is not None:
            skill = await anyio.to_thread.run_sync(self.store.read, name)
            await self._around.put(skill, entry)
        await self._around.follow(name, cause)

    async def _record(self, action: str, skill: Skill) -> None:
        """Before the change: what cannot be recorded does not happen."""
        mark = skill.fingerprint.sha256 if skill.fingerprint else ""
        await anyio.to_thread.run_sync(
            lambda: self._audit.record(action, skill=skill.name, sha256=mark)
        )

    @asynccontextmanager
    async def _recorded(self, action: str, **facts: str) -> AsyncGenerator[None]:
        """Record an attempt that was refused."""
        try:
            yield
        except ApexBridgeError as error:
            code = error.code
            await anyio.to_thread.run_sync(
                lambda: self._audit.record(f"{action}_refused", code=code, **facts)
            )
            raise


def _refuse_dangerous(skill: Skill, report: Report, blocks_at: Level | None) -> None:
    worst = report.worst()
    if blocks_at is None or worst is None or LEVELS.index(worst) < LEVELS.index(blocks_at):
        return
    rules = ", ".join(dict.fromkeys(f.rule for f in report.findings if f.level == worst))
    raise PermissionDeniedError(code="skill_dangerous", name=skill.name, level=worst, rules=rules)


def _refuse_changed(skill: Skill, seen: str) -> None:
    now = skill.fingerprint.sha256 if skill.fingerprint else ""
    if seen and seen != now:
        raise SkillChangedError(name=skill.name, now=now[:12], seen=seen[:12])


def _skill_md(root: Path) -> bytes:
    file = read_skill_file(root)
    if isinstance(file, Problem):
        raise SkillInvalidError(root.name, [file])
    return file.data


def _body(root: Path) -> str:
    opened = open_document(_skill_md(root))
    if isinstance(opened, Problem):
        raise SkillInvalidError(root.name, [opened])
    return opened[0].body


@asynccontextmanager
async def _held(manager: AbstractContextManager[Value]) -> AsyncGenerator[Value]:
    """Enter and leave something that may wait for a disk or a lock, in a thread."""
    value = await anyio.to_thread.run_sync(manager.__enter__)
    try:
        yield value
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(manager.__exit__, None, None, None)


@asynccontextmanager
async def _unstoppable() -> AsyncGenerator[None]:
    """Between the commit and what follows from it nobody is cancelled."""
    with anyio.CancelScope(shield=True):
        yield
