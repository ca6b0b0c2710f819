"""SQLite cache of parsed skills: unchanged folders are not parsed again after a restart."""

import contextlib
import hashlib
import json
import logging
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from apexbridge import permissions, skills
from apexbridge.permissions.hook_protocol import Hook, HookEvent
from apexbridge.permissions.rules import ToolPattern
from apexbridge.skills.model import Fingerprint, FolderId, Problem, Provenance, Skill, SkillManifest
from apexbridge.skills.parser import ParseResult
from apexbridge.state_databases import open_database


@cache
def reader_id() -> str:
    """Version of the parser's code: results of another version are ignored."""
    return hashlib.sha256(";".join(_source_stats()).encode()).hexdigest()[:16]


def _source_stats() -> Iterator[str]:
    folders = [Path(place) for package in (skills, permissions) for place in package.__path__]
    for folder in sorted(folders):
        modules = [*sorted(folder.glob("*.py")), *folder.parent.glob("path_patterns.py")]
        # In a zip file no module has a stat result: the archive's is used.
        for module in modules or [next(p for p in folder.parents if p.exists())]:
            status = module.stat()
            yield f"{module.name} {status.st_size} {status.st_mtime_ns}"


def serialize(reading: ParseResult) -> bytes | None:
    """Serialize a parse result; None without a skill or without a fingerprint."""
    skill = reading.skill
    if skill is None or skill.fingerprint is None:
        return None
    mark = skill.fingerprint
    fields = {
        "name": skill.name,
        "description": skill.description,
        "manifest": skill.manifest.model_dump(by_alias=True, exclude_defaults=True, mode="json"),
        "tools": [[pattern.tool, pattern.argument] for pattern in skill.tools],
        "hooks": [asdict(hook) for hook in skill.hooks],
        "fingerprint": [mark.size, mark.files, mark.sha256],
        "problems": [[p.code, p.where, p.severity, p.details] for p in reading.problems],
    }
    try:
        return json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError):  # a detail that is not JSON, or a lone surrogate
        return None


def deserialize(
    data: bytes, *, root: Path, provenance: Provenance, folder_id: FolderId | None = None
) -> ParseResult | None:
    """Deserialize; None if the data is invalid."""
    try:
        fields: dict[str, Any] = json.loads(data)
        size, files, sha256 = fields["fingerprint"]
        if not all(isinstance(fields[key], str) for key in ("name", "description")):
            return None
        skill = Skill(
            name=fields["name"],
            description=fields["description"],
            manifest=SkillManifest.model_validate(fields["manifest"]),
            provenance=provenance,
            root=root,
            folder_id=folder_id,
            fingerprint=Fingerprint(size=size, files=files, sha256=sha256),
            tools=tuple(ToolPattern(tool, argument) for tool, argument in fields["tools"]),
            hooks=tuple(_hook(**declared) for declared in fields["hooks"]),
            is_trusted=not provenance.needs_trust,
        )
        problems = tuple(
            Problem(code=code, where=where, severity=severity, details=details)
            for code, where, severity, details in fields["problems"]
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return ParseResult(skill=skill, problems=problems)


def _hook(event: str, command: Sequence[str], **rest: Any) -> Hook:
    return Hook(event=HookEvent(event), command=tuple(command), **rest)


log = logging.getLogger(__name__)

SETTLED_NS = 2_000_000_000
"""File system clocks are coarse: a file that changed this shortly before it was parsed may have
changed again with equal stat results, and is parsed again.
"""

RETRY_AFTER_SECONDS = 30.0
"""Pause after the database was locked, full or read-only, so that no scan waits for it again."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS readings (
    source TEXT NOT NULL, folder TEXT NOT NULL, reader TEXT NOT NULL,
    stamp BLOB NOT NULL, read_ns INTEGER NOT NULL, reading BLOB NOT NULL, document BLOB NOT NULL,
    PRIMARY KEY (source, folder)
)
"""


class CachedReading(NamedTuple):
    """Stat digest of a folder, when it was parsed, and the serialized result."""

    stamp: bytes
    read_ns: int
    reading: bytes
    document: bytes = b""
    """The SKILL.md, loaded only on demand."""


class ScanCache:
    """The database. It only saves time: on any error scans work without it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # One lock per process, so that only other processes can cause a busy database.
        self._lock = threading.Lock()
        self._paused_until = 0.0

    def load(self, source: str) -> dict[str, CachedReading]:
        """Load all results of a source, by folder."""
        with self._lock:
            try:
                if self._is_paused(source) or not self._path.exists():
                    return {}
                with contextlib.closing(self._open()) as database:
                    rows = database.execute(
                        "SELECT folder, stamp, read_ns, reading FROM readings"
                        " WHERE source = ? AND reader = ?",
                        (source, reader_id()),
                    )
                    return {folder: CachedReading(*rest) for folder, *rest in rows}
            except sqlite3.DatabaseError as error:
                self._recreate(error)
            except OSError as error:
                log.debug("the scan cache cannot be read: %s", error)
            return {}

    def store(self, source: str, new: Mapping[str, CachedReading], gone: Iterable[str]) -> None:
        """Insert or replace these folders, and delete those."""
        rows = [
            (source, folder, reader_id(), *k[:-1], zlib.compress(k.document, 1))
            for folder, k in new.items()
            if _is_encodable(folder)
        ]
        deleted = [(source, folder) for folder in gone if _is_encodable(folder)]
        with self._lock:
            if self._is_paused(source):
                return
            try:
                with contextlib.closing(self._open()) as database, database:
                    database.executemany(
                        "DELETE FROM readings WHERE source = ? AND folder = ?", deleted
                    )
                    database.executemany(
                        "INSERT OR REPLACE INTO readings VALUES (?, ?, ?, ?, ?, ?, ?)", rows
                    )
            except sqlite3.DatabaseError as error:
                self._recreate(error)
            except OSError as error:
                log.debug("the scan cache cannot be written: %s", error)

    def document(self, source: str, folder: str, stamp: bytes) -> bytes | None:
        """Load the SKILL.md of a folder with exactly this stat digest."""
        try:
            with contextlib.closing(self._open()) as database:
                row = database.execute(
                    "SELECT document FROM readings WHERE source = ? AND folder = ? AND stamp = ?",
                    (source, folder, stamp),
                ).fetchone()
            return zlib.decompress(row[0]) if row else None
        except (sqlite3.DatabaseError, OSError, zlib.error, UnicodeError) as error:
            log.debug("a cached SKILL.md cannot be read: %s", error)
            return None

    def _is_paused(self, source: str) -> bool:
        return time.monotonic() < self._paused_until or not _is_encodable(source)

    def _open(self) -> sqlite3.Connection:
        database = open_database(self._path, timeout=0.5)
        # Losing the last scans in a power cut costs one parse: fsync is not worth its time.
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = OFF")
        database.execute(_SCHEMA)
        return database

    def _recreate(self, error: sqlite3.DatabaseError) -> None:
        # Locked, full or read-only, but not corrupt.
        if isinstance(error, sqlite3.OperationalError):
            self._paused_until = time.monotonic() + RETRY_AFTER_SECONDS
            log.debug("the scan cache is not available: %s", error)
            return
        log.warning("the scan cache is corrupt and will be recreated: %s", error)
        with contextlib.suppress(OSError):
            for path in self._path.parent.glob(f"{self._path.name}*"):
                path.unlink(missing_ok=True)


def _is_encodable(path: str) -> bool:
    """Return whether a path is valid Unicode: file names may be arbitrary bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
