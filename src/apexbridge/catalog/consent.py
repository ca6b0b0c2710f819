"""Consent to the use of a skill by the model: given by who installs it, or by `trust`.

Both are bound to the content hash. That of the installer is for the installed skill of that name
alone: the same files in a project, a plugin or a server's answer inherit nothing.
"""

import contextlib
import logging
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from apexbridge.actor import Actor
from apexbridge.catalog.trust import TrustStore, recheck_files
from apexbridge.skills.model import Origin, Skill
from apexbridge.state_databases import database_errors, open_database

log = logging.getLogger(__name__)

CONSENTS_FILE = "consents.db"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS installers (
    name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, actor TEXT NOT NULL, consents INTEGER NOT NULL,
    at REAL NOT NULL
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installer:
    """Who installed the present content of a skill, and whether that consents to its use."""

    sha256: str
    actor: str
    consents: bool
    at: float


class InstallerStore:
    """Installers in an SQLite file; fail closed: an unreadable file consents to nothing.

    Writes raise StateDamagedError then, and StorageError if the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, name: str) -> Installer | None:
        """Return who installed the skill of a name; None if that is not known."""
        try:
            if not self._path.exists():
                return None
            with contextlib.closing(self._open()) as database:
                row = database.execute(
                    "SELECT sha256, actor, consents, at FROM installers WHERE name = ?", (name,)
                ).fetchone()
        except (sqlite3.Error, OSError) as error:
            log.warning("Consents cannot be read, none applies: %s", error)
            return None
        if row is None:
            return None
        sha256, actor, consents, at = row
        return Installer(sha256=sha256, actor=actor, consents=bool(consents), at=at)

    def record(self, name: str, sha256: str, actor: Actor) -> None:
        """Replace what is recorded of a name: only the last who changed its files counts."""
        values = (name, sha256, actor.id, actor.may_consent, time.time())
        self._write("INSERT OR REPLACE INTO installers VALUES (?, ?, ?, ?, ?)", values)

    def forget(self, name: str) -> None:
        """Remove what is recorded of a name."""
        if self._path.exists():
            self._write("DELETE FROM installers WHERE name = ?", (name,))

    def _write(self, statement: str, values: tuple[object, ...]) -> None:
        with (
            database_errors(self._path),
            contextlib.closing(self._open()) as database,
            database,
        ):
            database.execute(statement, values)

    def _open(self) -> sqlite3.Connection:
        database = open_database(self._path)
        try:
            database.execute(_SCHEMA)
        except BaseException:
            database.close()
            raise
        return database


class ConsentCheck:
    """Whether a person has consented to the use of a skill with its present files."""

    def __init__(self, trust: TrustStore, installers: InstallerStore) -> None:
        self._trust, self._installers = trust, installers

    def is_given(self, skill: Skill) -> bool:
        """Hash the files again (TOCTOU), and look for a consent to exactly these. Blocking."""
        known = skill.fingerprint
        if known is None or not skill.is_trusted or not self._is_recorded(skill, known.sha256):
            return False
        return recheck_files(skill) is skill

    def _is_recorded(self, skill: Skill, sha256: str) -> bool:
        if sha256 in self._trust.approved():
            return True
        if skill.provenance.origin is not Origin.INSTALLED:
            return False
        found = self._installers.get(skill.name)
        return found is not None and found.consents and found.sha256 == sha256
