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
from apexbridge.catalog.snapshot import Snapshot
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
from apexbridge.events import ChangeCause
from apexbridge.lifecycle.scan_results import ScanResultStore, scan_folder
from apexbridge.lifecycle.states import SkillStates
from apexbridge.lifecycle.store import SkillStore, fold_name
from apexbridge.lifecycle.zip.archive import DEFAULT_LIMITS, ArchiveLimits
from apexbridge.retrieval.base import IndexEntry
from apexbridge.scanner.report import Finding, Report
from apexbridge.scanner.rules import RISK_LEVELS, RiskLevel
from apexbridge.skills.model import Problem, Skill
from apexbridge.skills.parser import parse_document, read_skill_file

log = logging.getLogger(__name__)

Value = TypeVar("Value")

BlockLevel = RiskLevel | Literal["policy"] | None
"""From which level on findings refuse a skill: what settings say, or never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerDeps:
    """What the rest of the house does at a change; who builds the house gives these."""

    find: Callable[[str], Skill]
    """The skill that has a name now, of whatever source."""
    known: Callable[[], Mapping[str, str]]
    """Names and descriptions of all skills."""
    embed: Callable[[Skill, str], Awaitable[IndexEntry]]
    """Makes the entry of a skill with this body, and stores nothing."""
    put: Callable[[Skill, IndexEntry], Awaitable[None]]
    """Stores an entry, and then marks the skill."""
    snapshot: Callable[[], Snapshot]
    """Every skill there is now, those switched off or hidden among them."""
    follow: Callable[[str, ChangeCause], Awaitable[None]]
    """Brings catalogue and index up to what lies on disk under a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPolicy:
    """What archives are held to, and how much of the past is kept."""

    limits: ArchiveLimits = DEFAULT_LIMITS
    blocks_at: RiskLevel = "block"
    """Findings of this level or graver refuse a skill."""
    keep_versions: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallResult:
    """A skill as it is now, what is odd about it, and whether anything was changed."""

    skill: Skill
    problems: tuple[Problem, ...] = ()
    findings: tuple[Finding, ...] = ()
    """What looked dangerous in it."""
    has_changed: bool = True
    not_indexed: RetrievalError | None = None
    """Why it is found by its words only, until the index can be brought up."""


class SkillTransactions:
    """Holds what every change needs. Each attempt is recorded, whatever comes of it."""

    def __init__(
        self,
        store: SkillStore,
        states: SkillStates,
        audit: AuditLog,
        surroundings: ManagerDeps,
        policy: InstallPolicy | None = None,
    ) -> None:
        self.store = store
        self.states = states
        self.policy = policy or InstallPolicy()
        self._audit = audit
        self._around = surroundings
        self._turns: dict[str, anyio.Lock] = {}
        self.verdicts = ScanResultStore(store.root.parent / "verdicts")

    @asynccontextmanager
    async def _changing(self, name: str) -> AsyncGenerator[None]:
        """Be the only one who changes a name.

        Who waits for somebody of this process waits without a thread: else those who wait could
        hold all the threads that the one they wait for needs.
        """
        turn = self._turns.setdefault(fold_name(name), anyio.Lock())
        async with turn, enter_in_thread(self.store.changing(name)):
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

    async def _vet(self, skill: Skill, root: Path, blocks_at: BlockLevel) -> Report:
        """Look for what is dangerous, remember what was found, and refuse what is too grave."""
        report = await anyio.to_thread.run_sync(scan_folder, root, self._around.known())
        self._refuse_dangerous(skill, report, blocks_at)
        if skill.fingerprint is not None:
            await anyio.to_thread.run_sync(self.verdicts.put, skill.fingerprint.sha256, report)
        return report

    def _refuse_dangerous(self, skill: Skill, report: Report, blocks_at: BlockLevel) -> None:
        limit = self.policy.blocks_at if blocks_at == "policy" else blocks_at
        worst = report.worst()
        if limit is None or worst is None or RISK_LEVELS.index(worst) < RISK_LEVELS.index(limit):
            return
        rules = ", ".join(dict.fromkeys(f.rule for f in report.findings if f.level == worst))
        raise SkillDangerousError(report, name=skill.name, level=worst, rules=rules)

    async def _embed(
        self, skill: Skill, body: str
    ) -> tuple[IndexEntry | None, RetrievalError | None]:
        """The entry before anything is changed; without one a skill is found by its words."""
        try:
            return await self._around.embed(skill, body), None
        except RetrievalError as error:
            return None, error

    async def _settle(self, name: str, entry: IndexEntry | None, cause: ChangeCause) -> None:
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


def check_unchanged(skill: Skill, seen: str) -> None:
    """Say no if a skill is not in the state that was seen.

    Raises:
        SkillChangedError: With both states.
    """
    now = skill.fingerprint.sha256 if skill.fingerprint else ""
    if seen and seen != now:
        raise SkillChangedError(name=skill.name, now=now[:12], seen=seen[:12])


def read_skill_md(root: Path) -> bytes:
    """The bytes of a skill's SKILL.md.

    Raises:
        SkillInvalidError: If it cannot be read.
    """
    file = read_skill_file(root)
    if isinstance(file, Problem):
        raise SkillInvalidError(root.name, [file])
    return file.data


def parse_body(data: bytes, name: str) -> str:
    """The text below the frontmatter of a SKILL.md.

    Raises:
        SkillInvalidError: If it cannot be read.
    """
    opened = parse_document(data)
    if isinstance(opened, Problem):
        raise SkillInvalidError(name, [opened])
    return opened[0].body


@asynccontextmanager
async def enter_in_thread(lent: AbstractContextManager[Value]) -> AsyncGenerator[Value]:
    """Enter and leave something that may wait for a disk or a lock, in a thread."""
    value = await anyio.to_thread.run_sync(lent.__enter__)
    try:
        yield value
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(lent.__exit__, None, None, None)


@asynccontextmanager
async def shielded() -> AsyncGenerator[None]:
    """Between the commit and what follows from it nobody is cancelled."""
    with anyio.CancelScope(shield=True):
        yield
