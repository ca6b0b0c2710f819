"""Trust: approvals by content hash, without which an untrusted skill runs and grants nothing."""

import contextlib
import logging
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from apexbridge.errors import PermissionDeniedError
from apexbridge.skills import tree
from apexbridge.skills.model import Fingerprint, Skill
from apexbridge.state_databases import database_errors, open_database

log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS approvals (
    sha256 TEXT PRIMARY KEY, name TEXT NOT NULL, source TEXT NOT NULL, at REAL NOT NULL
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A person's approval of one content hash of a skill."""

    sha256: str
    name: str
    source: str
    at: float


def apply_trust(skill: Skill, approved: Collection[str]) -> Skill:
    """Remove tools and hooks from a skill that needs an approval and has none.

    It can still be read, listed and found; its manifest keeps what it declares, for display.
    """
    if not skill.provenance.needs_trust:
        return skill if skill.is_trusted else replace(skill, is_trusted=True)
    if skill.fingerprint is not None and skill.fingerprint.sha256 in approved:
        return replace(skill, is_trusted=True)
    return replace(skill, is_trusted=False, tools=(), hooks=())


def recheck_files(skill: Skill) -> Skill:
    """TOCTOU guard: hash the files again; no approval fits a skill whose files have changed.

    Such a skill is returned without fingerprint, and untrusted if it needs trust. Blocking.
    """
    known = skill.fingerprint
    if known is None or _present_sha256(skill, known) == known.sha256:
        return skill
    return apply_trust(replace(skill, fingerprint=None), ())


def _present_sha256(skill: Skill, known: Fingerprint) -> str:
    if skill.root is None:  # a server's answer has no files that could change behind the scan
        return tree.file_sha256(skill.file) if skill.file else known.sha256
    now = tree.fingerprint(skill.root, is_ours=not skill.provenance.needs_trust)
    return now.sha256 if isinstance(now, Fingerprint) else ""


def require_trust(skill: Skill, approved: Collection[str]) -> None:
    """TOCTOU guard: hash the files again just before they run, and refuse changed content.

    Raises:
        PermissionDeniedError: If the current content is not approved.
    """
    if not skill.provenance.needs_trust:
        return
    now = recheck_files(skill)
    if now.is_trusted and now.fingerprint is not None and now.fingerprint.sha256 in approved:
        return
    source = skill.provenance.source_id
    raise PermissionDeniedError(code="skill_untrusted", name=skill.name, source=source)


class TrustStore:
    """Approvals in an SQLite file; fail closed: an unreadable file approves nothing.

    Writes raise StateDamagedError then, and StorageError if the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def approved(self) -> frozenset[str]:
        """Return the approved content hashes."""
        return frozenset(approval.sha256 for approval in self.list())

    def differs(self, skill: Skill) -> bool:
        """Return whether a skill was approved or revoked since its trust was applied."""
        mark = skill.fingerprint
        if not skill.provenance.needs_trust or mark is None:
            return False
        return (mark.sha256 in self.approved()) is not skill.is_trusted

    def list(self) -> "tuple[Approval, ...]":
        """Return every approval, the oldest first."""
        try:
            if not self._path.exists():
                return ()
            with contextlib.closing(self._open()) as database:
                rows = database.execute(
                    "SELECT sha256, name, source, at FROM approvals ORDER BY at, sha256"
                ).fetchall()
        except (sqlite3.Error, OSError) as error:
            log.warning("Approvals cannot be read, none applies: %s", error)
            return ()
        return tuple(
            Approval(sha256=sha256, name=name, source=source, at=at)
            for sha256, name, source, at in rows
        )

    def approve(self, skills: Iterable[Skill], now: float) -> None:
        """Approve the current content of skills."""
        rows = [
            (skill.fingerprint.sha256, skill.name, skill.provenance.source_id, now)
            for skill in skills
            if skill.fingerprint is not None
        ]
        self._write("INSERT OR REPLACE INTO approvals VALUES (?, ?, ?, ?)", rows)

    def revoke(self, hashes: Iterable[str]) -> None:
        """Withdraw approvals."""
        self._write("DELETE FROM approvals WHERE sha256 = ?", [(sha256,) for sha256 in hashes])

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        with (
            database_errors(self._path),
            contextlib.closing(self._open()) as database,
            database,
        ):
            database.executemany(statement, rows)

    def _open(self) -> sqlite3.Connection:
        database = open_database(self._path)
        try:
            database.execute(_SCHEMA)
        except BaseException:
            database.close()
            raise
        return database
