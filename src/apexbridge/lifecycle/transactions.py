"""Skill transactions: per-name locks, audit records and preconditions shared by every change."""

from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
from anyio import to_thread

from apexbridge.actor import current_actor
from apexbridge.audit import AuditLog
from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.consent import InstallerStore
from apexbridge.errors import (
    ApexBridgeError,
    RetrievalError,
    SkillChangedError,
    SkillReadOnlyError,
    SkillVersionError,
    SourceError,
)
from apexbridge.lifecycle.scan_results import BlockLevel
from apexbridge.lifecycle.signature_check import UNSIGNED, SignatureCheck, SignaturePolicy
from apexbridge.lifecycle.states import SkillStates
from apexbridge.lifecycle.store import SkillStore, fold_name
from apexbridge.lifecycle.zip.limits import DEFAULT_LIMITS, ArchiveLimits
from apexbridge.scanner.report import Finding
from apexbridge.scanner.rules import RiskLevel
from apexbridge.skills.model import Problem, Skill

__all__ = ["BlockLevel", "InstallPolicy", "InstallResult", "SkillTransactions"]

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPolicy:
    """Archive limits, the blocking level of scanner findings, and the number of versions kept."""

    limits: ArchiveLimits = DEFAULT_LIMITS
    blocks_at: RiskLevel = "block"
    """Findings of this level or above refuse a skill."""
    keep_versions: int = 10
    signatures: SignaturePolicy = field(default_factory=SignaturePolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallResult:
    """Result of a change: the skill as it is now, validation warnings and scanner findings."""

    skill: Skill
    problems: tuple[Problem, ...] = ()
    findings: tuple[Finding, ...] = ()
    has_changed: bool = True
    signature: SignatureCheck = UNSIGNED
    index_error: RetrievalError | None = None
    """Why the skill has no embedding yet: BM25 alone finds it until the next index sync."""


class SkillTransactions:
    """Serialise changes by skill name and write each attempt, refused or not, to the audit log."""

    def __init__(
        self,
        store: SkillStore,
        states: SkillStates,
        audit: AuditLog,
        catalog: Catalog,
        installers: InstallerStore,
    ) -> None:
        self._store = store
        self._states = states
        self._audit = audit
        self._catalog = catalog
        self._installers = installers
        self._locks: dict[str, anyio.Lock] = {}

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncGenerator[None]:
        """Hold the exclusive lock of a name, in this process and across processes.

        Tasks of this process queue on an `anyio.Lock` first. If each blocked a worker thread on the
        file lock instead, the waiters could exhaust the thread pool that the holder needs.
        """
        lock = self._locks.setdefault(fold_name(name), anyio.Lock())
        async with lock, enter_in_thread(self._store.name_lock(name)):
            yield

    @asynccontextmanager
    async def exclusive(self, name: str) -> AsyncGenerator[None]:
        """Lock an installed skill, and keep crash recovery of other processes out meanwhile."""
        self.installed(name)
        async with enter_in_thread(self._store.shared_lock()), self.lock(name):
            yield

    def installed(self, name: str) -> Skill:
        """Return the installed skill of a name, also a disabled one, or one that is shadowed.

        Raises:
            SkillNotFoundError: If there is no such skill.
            SkillReadOnlyError: If another source provides it.
        """
        hidden = self._catalog.snapshot.shadowed
        shadowed = (s for s in hidden if s.provenance.writable and s.name == name)
        skill = next(shadowed, None) or self._catalog.find(name)
        if not skill.provenance.writable or skill.name != name:
            raise SkillReadOnlyError(name=skill.name, origin=skill.provenance.origin)
        return skill

    def check_not_pinned(self, name: str) -> None:
        """Refuse to change a skill that is pinned to a version.

        Raises:
            SkillVersionError: `skill_pinned`.
        """
        pinned = self._states.pinned().get(name)
        if pinned:
            raise SkillVersionError(code="skill_pinned", name=name, version=pinned[:12])

    async def record(self, action: str, **facts: str) -> None:
        """Append to the audit log before the commit: an unrecorded change must not happen."""
        actor = current_actor().id
        await to_thread.run_sync(lambda: self._audit.record(action, **facts, actor=actor))

    async def record_skill(
        self, action: str, skill: Skill, signature: SignatureCheck = UNSIGNED
    ) -> None:
        """Append an action on a skill in a given state to the audit log, with its signer."""
        signed = {"signed_by": signature.key} if signature.status == "valid" else {}
        await self.record(action, skill=skill.name, sha256=sha256_of(skill), **signed)

    async def record_installer(self, skill: Skill) -> None:
        """Record who put these files here; one who may also run skills consents to their use."""
        sha256, actor = sha256_of(skill), current_actor()
        await to_thread.run_sync(self._installers.record, skill.name, sha256, actor)

    @asynccontextmanager
    async def audited(self, action: str, **facts: str) -> AsyncGenerator[None]:
        """Record `<action>_refused` with the error code if the block raises."""
        try:
            yield
        except ApexBridgeError as error:
            await self.record(f"{action}_refused", code=error.code, **facts)
            raise


def sha256_of(skill: Skill) -> str:
    """Return the content hash of a skill's files; empty if it has none."""
    return skill.fingerprint.sha256 if skill.fingerprint else ""


def check_unchanged(skill: Skill, expected_sha256: str) -> None:
    """Optimistic concurrency check: refuse if the skill is not in the state the caller saw.

    Raises:
        SkillChangedError: With both states.
    """
    now = sha256_of(skill)
    if expected_sha256 and expected_sha256 != now:
        raise SkillChangedError(name=skill.name, now=now[:12], seen=expected_sha256[:12])


def check_content(skill: Skill, expected_sha256: str) -> None:
    """Refuse a skill whose files are others than they must be.

    Raises:
        SourceError: `source_content_changed`, with both hashes.
    """
    found = sha256_of(skill)
    if expected_sha256 and expected_sha256 != found:
        raise SourceError(
            code="source_content_changed",
            name=skill.name,
            expected=expected_sha256[:12],
            found=found[:12],
        )


@asynccontextmanager
async def enter_in_thread(manager: AbstractContextManager[Value]) -> AsyncGenerator[Value]:
    """Enter and exit a blocking context manager (file lock, staging folder) in a worker thread."""
    value = await to_thread.run_sync(manager.__enter__)
    try:
        yield value
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(manager.__exit__, None, None, None)


@asynccontextmanager
async def shielded() -> AsyncGenerator[None]:
    """Shield from cancellation between the commit and the index update that belongs to it."""
    with anyio.CancelScope(shield=True):
        yield
