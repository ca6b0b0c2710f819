"""Download cache with content pinning: trust on first use (TOFU), by SHA-256.

A URL is pinned to the bytes it served first; other bytes are kept aside until a person accepts
them. Bytes are stored by their hash and verified when read, so that tampering on disk is detected.
If a server is down, the pinned bytes are used.
"""

import hashlib
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apexbridge.errors import SourceError
from apexbridge.file_lock import file_lock
from apexbridge.paths import create_bytes, replace_bytes, storage_errors
from apexbridge.skills.model import Problem
from apexbridge.sources.remote.discovery import (
    RemoteFile,
    SkillIndex,
    legacy_index_url,
    parse_index,
)
from apexbridge.sources.remote.http_client import (
    DEFAULT_TRANSPORT,
    FetchLimits,
    Transport,
    fetch,
    retrieve,
)
from apexbridge.sources.remote.object_storage import is_object, read_object
from apexbridge.ssrf import display_url, url_key

_FILE = "pins.json"
_BLOBS = "kept"
_SHA256 = r"^[0-9a-f]{64}$"


def sha256_hex(data: bytes) -> str:
    """Compute the hex SHA-256 that bytes are stored by."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PinChange:
    """Digests of a URL whose content differs from its pin."""

    old: str
    new: str


class _Pin(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sha256: str = Field(pattern=_SHA256)
    offered: str = Field(default="", pattern=rf"{_SHA256}|^$")


class _PinFile(BaseModel):
    """The JSON file: a pin per URL, and for indexes, which may change, the last response."""

    model_config = ConfigDict(extra="forbid")

    pins: dict[str, _Pin] = Field(default_factory=dict[str, _Pin])
    latest: dict[str, _Pin] = Field(default_factory=dict[str, _Pin])

    def uses(self, sha256: str) -> bool:
        """Return whether any URL needs the bytes with this hash."""
        known = (*self.pins.values(), *self.latest.values())
        return any(sha256 in {pin.sha256, pin.offered} for pin in known)


class PinStore:
    """Pins of all remote URLs, in one folder. Safe for concurrent threads and processes.

    Methods raise SourceError if the pins cannot be read, StorageError if they cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    @property
    def folders(self) -> Path:
        """Parent of the folders to which skills are extracted, each by its content hash."""
        return self._folder / "folders"

    def pin_first(self, url: str, data: bytes) -> PinChange | None:
        """Pin a URL's first content; if it differs later, store it aside and return the change."""
        found, key = sha256_hex(data), url_key(url)
        if self.pinned(url) == found and self.load_blob(found) is not None:
            return None  # a read-only folder still serves what it has
        with self._transaction() as pin_file:
            pin = pin_file.pins.setdefault(key, _Pin(sha256=found))
            if pin.sha256 != found:
                pin_file.pins[key] = _Pin(sha256=pin.sha256, offered=found)
            self._store_blob(data)
            return None if pin.sha256 == found else PinChange(old=pin.sha256, new=found)

    def store_latest(self, url: str, data: bytes) -> None:
        """Store the last response of an index, which may change at any time."""
        with self._transaction() as pin_file:
            pin_file.latest[url_key(url)] = _Pin(sha256=sha256_hex(data))
            self._store_blob(data)

    def pinned(self, url: str) -> str:
        """Return the pinned hash of a URL; empty if there is none."""
        pin = self._read().pins.get(url_key(url))
        return pin.sha256 if pin else ""

    def last_good(self, url: str) -> bytes | None:
        """Return the pinned bytes, if they are present and intact."""
        return self.load_blob(self.pinned(url))

    def offered(self, url: str) -> bytes | None:
        """Return the changed bytes, for review before they are accepted."""
        pin = self._read().pins.get(url_key(url))
        return self.load_blob(pin.offered) if pin else None

    def latest(self, url: str) -> bytes | None:
        """Return the last response of an index."""
        pin = self._read().latest.get(url_key(url))
        return self.load_blob(pin.sha256) if pin else None

    def accept_change(self, url: str) -> bool:
        """Pin a URL to its changed bytes; False if there are none."""
        with self._transaction() as pin_file:
            pin = pin_file.pins.get(url_key(url))
            if pin is None or not pin.offered:
                return False
            pin_file.pins[url_key(url)] = _Pin(sha256=pin.offered)
            return True

    def load_blob(self, sha256: str) -> bytes | None:
        """Return the bytes with this hash, if they are present and intact."""
        if not sha256:
            return None
        try:
            data = (self._folder / _BLOBS / sha256).read_bytes()
        except OSError:
            return None
        return data if sha256_hex(data) == sha256 else None

    def _read(self) -> _PinFile:
        path = self._folder / _FILE
        try:
            return _PinFile.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return _PinFile()
        except OSError as error:
            raise SourceError(error.strerror or "", code="pins_unreadable", path=path) from None
        except ValidationError:
            raise SourceError("it is corrupt", code="pins_unreadable", path=path) from None

    @contextmanager
    def _transaction(self) -> Generator[_PinFile]:
        """Read-modify-write transaction under a lock; nothing is written without a change."""
        with storage_errors(self._folder):
            (self._folder / _BLOBS).mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._lock, file_lock(self._folder / ".lock"):
            pin_file = self._read()
            before = pin_file.model_copy(deep=True)
            yield pin_file
            if pin_file == before:
                return
            written = pin_file.model_dump_json(indent=1, exclude_defaults=True).encode()
            replace_bytes(self._folder / _FILE, written, new_mode=0o600)
            for pin in (*before.pins.values(), *before.latest.values()):
                for sha256 in filter(None, (pin.sha256, pin.offered)):
                    if not pin_file.uses(sha256):
                        self._delete_blob(sha256)

    def _store_blob(self, data: bytes) -> None:
        path = self._folder / _BLOBS / sha256_hex(data)
        if self.load_blob(path.name) is not None:
            return
        self._delete_blob(path.name)  # corrupt
        create_bytes(path, data, mode=0o600)

    def _delete_blob(self, sha256: str) -> None:
        with suppress(OSError):
            (self._folder / _BLOBS / sha256).unlink(missing_ok=True)


_NOT_THERE = frozenset({404, 410})
_TAMPER_CODES = frozenset({"remote_changed", "remote_digest"})
"""Errors that suggest tampering rather than an outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """Bytes that may be used, if any, and problems with them."""

    data: bytes | None = field(default=None, repr=False)
    problems: tuple[Problem, ...] = ()


class DownloadCache:
    """Downloads within limits, verified against digests and pins; raises what `PinStore` raises."""

    def __init__(
        self, limits: FetchLimits, pins: PinStore, transport: Transport = DEFAULT_TRANSPORT
    ) -> None:
        self.limits = limits
        self.pins = pins
        self._transport = transport

    async def fetch_file(self, file: RemoteFile) -> Download:
        """Download a file. Bytes that do not match their digest or pin are never returned."""
        try:
            data = await self._download(file)
            change = await anyio.to_thread.run_sync(self.pins.pin_first, file.url, data)
        except SourceError as error:
            fault = Problem.error(error.code, display_url(file.url), **error.details)
            return await self.last_good(file, fault)
        if change is None:
            return Download(data=data)
        where = display_url(file.url)
        changed = Problem.error("remote_changed", where, url=where, old=change.old, new=change.new)
        return await self.last_good(file, changed)

    async def last_good(self, file: RemoteFile, fault: Problem) -> Download:
        """Fall back to the pinned bytes, with the current problem."""
        data = await anyio.to_thread.run_sync(self.pins.last_good, file.url)
        if data is None or fault.code in _TAMPER_CODES:
            return Download(data=data, problems=(fault,))
        return Download(data=data, problems=(_stale_problem(file.url, fault.message),))

    async def fetch_index(self, url: str) -> SkillIndex:
        """Download an index; on failure fall back to its last response; SourceError without one."""
        try:
            return await self._fetch_first_index(url)
        except SourceError as error:
            for place in filter(None, (url, legacy_index_url(url))):
                stored = await anyio.to_thread.run_sync(self.pins.latest, place)
                if stored is None:
                    continue
                # Its redirect target is not stored: a stale index must not lead to private
                # networks.
                old = parse_index(stored, place, may_be_private=False)
                problems = (_stale_problem(url, error.message), *old.problems)
                return SkillIndex(entries=old.entries, problems=problems)
            raise

    async def _fetch_first_index(self, url: str) -> SkillIndex:
        """Download the index; where a host has none, the one of discovery 0.1."""
        try:
            return await self._fetch_one_index(url)
        except SourceError as error:
            legacy = legacy_index_url(url)
            if not legacy or error.details.get("status") not in _NOT_THERE:
                raise
            try:
                return await self._fetch_one_index(legacy)
            except SourceError:
                raise error from None

    async def _fetch_one_index(self, url: str) -> SkillIndex:
        found = await retrieve(url, self.limits, expected="json", transport=self._transport)
        listing = parse_index(found.data, found.url, may_be_private=found.is_private)
        await anyio.to_thread.run_sync(self.pins.store_latest, url, found.data)
        return listing

    async def _download(self, file: RemoteFile) -> bytes:
        if file.sha256:
            stored = await anyio.to_thread.run_sync(self.pins.load_blob, file.sha256)
            if stored is not None:
                return stored
        if is_object(file.url) and not file.is_listed:
            return await read_object(file.url, self.limits)
        limits = self.limits.after(is_private=file.may_be_private)
        if file.kind == "archive":
            limits = replace(limits, max_bytes=limits.archive_bytes)
        data = await fetch(file.url, limits, expected=file.kind, transport=self._transport)
        if file.sha256 in {"", sha256_hex(data)}:
            return data
        details = {"expected": file.sha256, "found": sha256_hex(data)}
        raise SourceError(code="remote_digest", url=display_url(file.url), **details)


def _stale_problem(url: str, detail: str) -> Problem:
    return Problem.warning("source_stale", display_url(url), url=display_url(url), detail=detail)
