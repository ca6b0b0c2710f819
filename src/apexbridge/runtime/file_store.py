"""File store: files that scripts made and files that came with chat requests, kept for some days.

One folder a run or request, named by an id that cannot be guessed, with the session or API key
that it belongs to. The oldest are removed when they expire, or when all together are too large.
"""

import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from apexbridge.errors import StorageError
from apexbridge.paths import commit_dir, join_posix, staging_dir, storage_errors
from apexbridge.tree_removal import remove_tree

log = logging.getLogger(__name__)

_ID = re.compile(r"(?:run|upload)_[0-9a-f]{16}")
_OWNER_FILE = "owner.json"
_FILES = "files"
_DAY = 86_400.0
_SHORTEST = 3_600.0
"""Files that came with a request are kept at least as long as any turn lasts."""


def new_id(kind: Literal["run", "upload"]) -> str:
    """Return a new id."""
    return f"{kind}_{uuid.uuid4().hex[:16]}"


class _Known(NamedTuple):
    """What is needed to expire a folder, so that it is read from disk once."""

    at: float
    size: int
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of a run or request."""

    path: str
    size: int
    location: Path


class FileStore:
    """Folders of files below one root. All methods block."""

    def __init__(self, root: Path, *, max_bytes: int, days: float) -> None:
        self._root, self._max_bytes, self._seconds = root, max_bytes, days * _DAY
        self._lock = threading.Lock()
        self._known: dict[str, _Known] | None = None

    @property
    def is_enabled(self) -> bool:
        """False if nothing is kept, by settings."""
        return self._seconds > 0 and self._max_bytes > 0

    def put(self, folder_id: str, owner: str, files: Mapping[str, bytes]) -> Path:
        """Store files, and return the folder that has them.

        Raises:
            StorageError: If the disk refuses; nothing is stored then.
        """
        target, size = self._root / folder_id, sum(map(len, files.values()))
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        entry = _Known(time.time(), size, owner)
        with staging_dir(self._root) as staging, storage_errors(target):
            place = staging / folder_id
            (place / _FILES).mkdir(parents=True, mode=0o700)
            for name, data in files.items():
                path = join_posix(place / _FILES, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            (place / _OWNER_FILE).write_text(json.dumps(entry._asdict()), encoding="utf-8")
            commit_dir(place, target)
        with self._lock:
            self._load()[folder_id] = entry
            self._expire(keep=folder_id)
        return target / _FILES

    def list(self, folder_id: str) -> tuple[StoredFile, ...]:
        """Return the files of a run or request by path; none if they are not kept."""
        if not _ID.fullmatch(folder_id):
            return ()
        folder = self._root / folder_id / _FILES
        return tuple(
            StoredFile(
                path=path.relative_to(folder).as_posix(), size=path.stat().st_size, location=path
            )
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        )

    def find(self, folder_id: str, path: str) -> StoredFile | None:
        """Return one file; None if there is none."""
        return next((file for file in self.list(folder_id) if file.path == path), None)

    def owner(self, folder_id: str) -> str | None:
        """Return the session or API key that the files belong to; None if they are not kept."""
        with self._lock:
            if not _ID.fullmatch(folder_id):
                return None
            known = self._load().get(folder_id) or _read_entry(self._root / folder_id)
        return known.owner if known is not None else None

    def delete_of_session(self, session_id: str) -> None:
        """Delete the files of a session and of its subagents."""
        with self._lock:
            for folder_id, known in list(self._load().items()):
                if known.owner == session_id or known.owner.startswith(f"{session_id}."):
                    self._remove(folder_id)

    def expire(self) -> None:
        """Remove what is too old or too much, and what a crash left half-written."""
        abandoned = time.time() - _DAY
        staging = self._root / ".staging"
        with self._lock, suppress(OSError):
            self._expire()
            for folder in staging.iterdir() if staging.is_dir() else ():
                if folder.stat().st_mtime < abandoned:
                    remove_tree(folder)

    def _expire(self, *, keep: str = "") -> None:
        known = self._load()
        oldest = time.time() - max(self._seconds, _SHORTEST)
        total = sum(entry.size for entry in known.values())
        for folder_id, entry in sorted(known.items(), key=lambda item: item[1].at):
            if folder_id == keep or (entry.at >= oldest and total <= self._max_bytes):
                continue
            total -= entry.size
            self._remove(folder_id)

    def _remove(self, folder_id: str) -> None:
        try:
            remove_tree(self._root / folder_id)
        except OSError as error:
            log.warning("Cannot remove the files of %s: %s", folder_id, error)
        if self._known is not None:
            self._known.pop(folder_id, None)

    def _load(self) -> dict[str, _Known]:
        if self._known is None:
            self._known = dict(_read_entries(self._root))
        return self._known


def _read_entries(root: Path) -> Iterator[tuple[str, _Known]]:
    folders = list(root.iterdir()) if root.is_dir() else []
    for folder in folders:
        entry = _read_entry(folder) if _ID.fullmatch(folder.name) else None
        if entry is not None:
            yield folder.name, entry


def _read_entry(folder: Path) -> _Known | None:
    """Read whose files these are; where that is damaged they are nobody's, and expire first."""
    try:
        return _Known(**json.loads((folder / _OWNER_FILE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        log.warning("Cannot read %s: %s", folder / _OWNER_FILE, error)
        return _Known(0.0, 0, "")


def put_or_warn(
    store: FileStore, folder_id: str, owner: str, files: Mapping[str, bytes]
) -> Path | None:
    """Store files; None if they are not kept: a full disk is no reason to fail the run."""
    if not (files and store.is_enabled):
        return None
    try:
        return store.put(folder_id, owner, files)
    except StorageError as error:
        log.warning("Cannot keep the files of %s: %s", folder_id, error)
        return None
