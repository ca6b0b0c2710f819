"""What all changes of installed skills have in common: turns, records, and what follows of them."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import anyio
import anyio.to_thread

from apexbridge.audit import AuditLog
from apexbridge.catalog.merge import Snapshot
from apexbridge.errors import (
    ApexBridgeError,
    RetrievalError,
    SkillChangedError,
    SkillDangerousError,
    SkillInvalidError,
    SkillReadOnlyError,
    SkillVersionError,
    StorageError,
)
from apexbridge.events import Cause
from apexbridge.lifecycle.archive import DEFAULT_LIMITS, ArchiveLimits
from apexbridge.lifecycle.states import States
from apexbridge.lifecycle.store import SkillStore, folded
from apexbridge.lifecycle.verdicts import Verdicts
from apexbridge.lifecycle.vet import vet
from apexbridge.retrieval.base import Entry
from apexbridge.skills.model import Problem, Skill
from apexbridge.skills.reader import open_document, read_skill_file
from apexbridge.vetting.report import Finding, Report
from apexbridge.vetting.rulebook import LEVELS, Level

log = logging.getLogger(__name__)

Value = TypeVar("Value")

Blocks = Level | Literal["policy"] | None
"""From which level on findings refuse a skill: what settings say, or never."""


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
    snapshot: Callable[[], Snapshot]
    """Every skill there is now, those switched off or hidden among them."""
    follow: Callable[[str, Cause], Awaitable[None]]
    """Brings catalogue and index up to what lies on disk under a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What archives are held to, and how much of the past is kept."""

    limits: ArchiveLimits = DEFAULT_LIMITS
    blocks_at: Level = "block"
    """Findings of this level or graver refuse a skill."""
    keep_versions: int = 10


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


class Changes:
    """Holds what every change needs. Each attempt is recorded, whatever comes of it."""

    def __init__(
        self,
        store: SkillStore,
        states: States,
        audit: AuditLog,
        surroundings: Surroundings,
        policy: Policy | None = None,
    ) -> None:
        self.store = store
        self.states = states
        self.policy = policy or Policy()
        self._audit = audit
        self._around = surroundings
        self._turns: dict[str, anyio.Lock] = {}
        self.verdicts = Verdicts(store.root.parent / "verdicts")

    @asynccontextmanager
    async def _changing(self, name: str) -> AsyncGenerator[None]:
        """Be the only one who changes a name.

        Who waits for somebody of this process waits without a thread: else those who wait could
        hold all the threads that the one they wait for needs.
        """
        turn = self._turns.setdefault(folded(name), anyio.Lock())
        async with turn, held(self.store.changing(name)):
            yield

    def _own(self, name: str) -> Skill:
        """The installed skill of that name, which may be changed."""
        skill = self._around.find(name)
        if not skill.provenance.writable or skill.name != name:
            raise SkillReadOnlyError(name=skill.name, origin=skill.provenance.origin)
        return skill

    def _refuse_pinned(self, name: str) -> None:
        pinned = self.states.pinned().get(name)
        if pinned:
            raise SkillVersionError(code="skill_pinned", name=name, version=pinned[:12])

    async def _vet(self, skill: Skill, root: Path, blocks_at: Blocks) -> Report:
        """Look for what is dangerous, remember what was found, and refuse what is too grave."""
        report = await anyio.to_thread.run_sync(vet, root, self._around.known())
        self._refuse_dangerous(skill, report, blocks_at)
        if skill.fingerprint is not None:
            await anyio.to_thread.run_sync(self.verdicts.put, skill.fingerprint.sha256, report)
        return report

    def _refuse_dangerous(self, skill: Skill, report: Report, blocks_at: Blocks) -> None:
        limit = self.policy.blocks_at if blocks_at == "policy" else blocks_at
        worst = report.worst()
        if limit is None or worst is None or LEVELS.index(worst) < LEVELS.index(limit):
            return
        rules = ", ".join(dict.fromkeys(f.rule for f in report.findings if f.level == worst))
        raise SkillDangerousError(report, name=skill.name, level=worst, rules=rules)

    async def _embed(self, skill: Skill, body: str) -> tuple[Entry | None, RetrievalError | None]:
        """The entry before anything is changed; without one a skill is found by its words."""
        try:
            return await self._around.embed(skill, body), None
        except RetrievalError as error:
            return None, error

    async def _settle(self, name: str, entry: Entry | None, cause: Cause) -> None:
        """Index and marker of what was just committed.

        The change is made: what the disk refuses now is no failure of it, and is done by the next
        scan.
        """
        try:
            if entry is not None:
                skill = await anyio.to_thread.run_sync(self.store.read, name)
                await self._around.put(skill, entry)
        except StorageError as error:
            log.warning("%s is not indexed yet: %s", name, error)
        try:
            await self._around.follow(name, cause)
        except StorageError as error:
            log.warning("The index is behind at %s: %s", name, error)

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


def refuse_changed(skill: Skill, seen: str) -> None:
    """Say no if a skill is not in the state that was seen.

    Raises:
        SkillChangedError: With both states.
    """
    now = skill.fingerprint.sha256 if skill.fingerprint else ""
    if seen and seen != now:
        raise SkillChangedError(name=skill.name, now=now[:12], seen=seen[:12])


def skill_md(root: Path) -> bytes:
    """The bytes of a skill's SKILL.md.

    Raises:
        SkillInvalidError: If it cannot be read.
    """
    file = read_skill_file(root)
    if isinstance(file, Problem):
        raise SkillInvalidError(root.name, [file])
    return file.data


def body_of(data: bytes, name: str) -> str:
    """The text below the frontmatter of a SKILL.md.

    Raises:
        SkillInvalidError: If it cannot be read.
    """
    opened = open_document(data)
    if isinstance(opened, Problem):
        raise SkillInvalidError(name, [opened])
    return opened[0].body


@asynccontextmanager
async def held(lent: AbstractContextManager[Value]) -> AsyncGenerator[Value]:
    """Enter and leave something that may wait for a disk or a lock, in a thread."""
    value = await anyio.to_thread.run_sync(lent.__enter__)
    try:
        yield value
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(lent.__exit__, None, None, None)


@asynccontextmanager
async def unstoppable() -> AsyncGenerator[None]:
    """Between the commit and what follows from it nobody is cancelled."""
    with anyio.CancelScope(shield=True):
        yield
