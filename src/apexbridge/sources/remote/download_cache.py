"""What each address gave when it was first asked: hashes and bytes, on disk.

Bytes are kept by their hash, and hashed again when they are read: nobody can change them unseen.
"""

import hashlib
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apexbridge.errors import SourceError
from apexbridge.file_lock import file_lock
from apexbridge.paths import create_bytes, replace_bytes, storage_errors
from apexbridge.skills.model import Problem
from apexbridge.sources.remote.discovery import RemoteFile, SkillIndex, parse_index
from apexbridge.sources.remote.http_client import (
    DEFAULT_TRANSPORT,
    Fetched,
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
    """The hash that bytes are remembered by."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PinChange:
    """An address gives other bytes than it did first."""

    old: str
    new: str


class _Pin(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sha256: str = Field(pattern=_SHA256)
    offered: str = Field(default="", pattern=rf"{_SHA256}|^$")


class _PinFile(BaseModel):
    """The file: a pin for each address, and for lists that may change what they said last."""

    model_config = ConfigDict(extra="forbid")

    pins: dict[str, _Pin] = Field(default_factory=dict[str, _Pin])
    latest: dict[str, _Pin] = Field(default_factory=dict[str, _Pin])

    def uses(self, sha256: str) -> bool:
        """Say whether any address needs the bytes with this hash."""
        known = (*self.pins.values(), *self.latest.values())
        return any(sha256 in {pin.sha256, pin.offered} for pin in known)


class PinStore:
    """The memory of all remote addresses, in one folder. Threads and processes may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def take(self, url: str, data: bytes) -> PinChange | None:
        """Remember what an address gives; other bytes than at first are a change, and kept aside.

        Raises:
            SourceError: If the memory cannot be read.
            StorageError: If it cannot be written.
        """
        found, key = sha256_hex(data), url_key(url)
        if self.pinned(url) == found and self.bytes_of(found) is not None:
            return None  # a folder that cannot be written serves what it has
        with self._changing() as book:
            pin = book.pins.setdefault(key, _Pin(sha256=found))
            if pin.sha256 != found:
                book.pins[key] = _Pin(sha256=pin.sha256, offered=found)
            self._keep(data)
            return None if pin.sha256 == found else PinChange(old=pin.sha256, new=found)

    def keep_latest(self, url: str, data: bytes) -> None:
        """Remember what a list says now; it may say something else each time."""
        with self._changing() as book:
            book.latest[url_key(url)] = _Pin(sha256=sha256_hex(data))
            self._keep(data)

    def pinned(self, url: str) -> str:
        """The hash an address is held to; empty if it never gave anything."""
        pin = self._read().pins.get(url_key(url))
        return pin.sha256 if pin else ""

    def last_good(self, url: str) -> bytes | None:
        """The bytes an address is held to, if they are still there and whole."""
        return self.bytes_of(self.pinned(url))

    def offered(self, url: str) -> bytes | None:
        """The other bytes an address gave since, to be looked at before they are accepted."""
        pin = self._read().pins.get(url_key(url))
        return self.bytes_of(pin.offered) if pin else None

    def latest(self, url: str) -> bytes | None:
        """What a list said last."""
        pin = self._read().latest.get(url_key(url))
        return self.bytes_of(pin.sha256) if pin else None

    def accept_change(self, url: str) -> bool:
        """Hold an address to the other bytes it gave last; False if it gave none.

        Raises:
            SourceError: If the memory cannot be read.
            StorageError: If it cannot be written.
        """
        with self._changing() as book:
            pin = book.pins.get(url_key(url))
            if pin is None or not pin.offered:
                return False
            book.pins[url_key(url)] = _Pin(sha256=pin.offered)
            return True

    def bytes_of(self, sha256: str) -> bytes | None:
        """The bytes with this hash, if they are there and whole."""
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
            raise SourceError("it is damaged", code="pins_unreadable", path=path) from None

    @contextmanager
    def _changing(self) -> Generator[_PinFile]:
        """Read, let change, and write if something did; one at a time."""
        with self._lock, self._alone():
            book = self._read()
            before = book.model_copy(deep=True)
            yield book
            if book == before:
                return
            written = book.model_dump_json(indent=1, exclude_defaults=True).encode()
            replace_bytes(self._folder / _FILE, written)
            for pin in (*before.pins.values(), *before.latest.values()):
                for sha256 in filter(None, (pin.sha256, pin.offered)):
                    if not book.uses(sha256):
                        self._drop(sha256)

    @contextmanager
    def _alone(self) -> Generator[None]:
        with storage_errors(self._folder):
            (self._folder / _BLOBS).mkdir(parents=True, exist_ok=True)
        with file_lock(self._folder / ".lock"):
            yield

    def _keep(self, data: bytes) -> None:
        path = self._folder / _BLOBS / sha256_hex(data)
        if self.bytes_of(path.name) is not None:
            return
        self._drop(path.name)  # damaged
        create_bytes(path, data, mode=0o600)

    def _drop(self, sha256: str) -> None:
        with suppress(OSError):
            (self._folder / _BLOBS / sha256).unlink(missing_ok=True)


_TAMPER_CODES = frozenset({"remote_changed", "remote_digest"})
"""Faults that mean more than that an address is down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """Bytes that may be used, if there are any, and what is to be said of them."""

    data: bytes | None = field(default=None, repr=False)
    problems: tuple[Problem, ...] = ()


class DownloadCache:
    """Files from the network, under these limits, held to what they were at first."""

    def __init__(
        self, limits: FetchLimits, pins: PinStore, web: Transport = DEFAULT_TRANSPORT
    ) -> None:
        self.limits = limits
        self.pins = pins
        self._web = web

    async def file(self, wanted: RemoteFile) -> Download:
        """Get a file. No byte is given that does not fit its digest or its pin.

        Raises:
            SourceError: If what was remembered cannot be read.
            StorageError: If it cannot be written.
        """
        try:
            data = await self._obtain(wanted)
            change = await anyio.to_thread.run_sync(self.pins.take, wanted.url, data)
        except SourceError as error:
            return await self.last_good(wanted, _problem(wanted.url, error))
        if change is None:
            return Download(data=data)
        details = {"url": display_url(wanted.url), "old": change.old, "new": change.new}
        changed = Problem(code="remote_changed", where=display_url(wanted.url), details=details)
        return await self.last_good(wanted, changed)

    async def last_good(self, wanted: RemoteFile, fault: Problem) -> Download:
        """The bytes of an earlier time, with what is wrong now."""
        data = await anyio.to_thread.run_sync(self.pins.last_good, wanted.url)
        if data is None or fault.code in _TAMPER_CODES:
            return Download(data=data, problems=(fault,))
        return Download(data=data, problems=(_stale_problem(wanted.url, fault.message),))

    async def listing(self, url: str) -> SkillIndex:
        """Get an index; where that fails, what it said last.

        Raises:
            SourceError: If it never said anything.
            StorageError: If it cannot be remembered.
        """
        try:
            found = await retrieve(url, self.limits, expected="json", web=self._web)
            listing = _parse_fetched_index(found)
        except SourceError as error:
            said = await anyio.to_thread.run_sync(self.pins.latest, url)
            if said is None:
                raise
            # Where it was found is forgotten: from an old list nothing private is asked.
            old = parse_index(said, url, may_be_private=False)
            problems = (_stale_problem(url, error.message), *old.problems)
            return SkillIndex(wanted=old.wanted, problems=problems)
        await anyio.to_thread.run_sync(self.pins.keep_latest, url, found.data)
        return listing

    async def _obtain(self, wanted: RemoteFile) -> bytes:
        if wanted.sha256:
            held = await anyio.to_thread.run_sync(self.pins.bytes_of, wanted.sha256)
            if held is not None:
                return held
        if is_object(wanted.url) and not wanted.is_listed:
            return await read_object(wanted.url, self.limits)
        limits = self.limits.after(is_private=wanted.may_be_private)
        data = await fetch(wanted.url, limits, web=self._web)
        if wanted.sha256 in {"", sha256_hex(data)}:
            return data
        details = {"expected": wanted.sha256, "found": sha256_hex(data)}
        raise SourceError(code="remote_digest", url=display_url(wanted.url), **details)


def _parse_fetched_index(found: Fetched) -> SkillIndex:
    return parse_index(found.data, found.url, may_be_private=found.is_private)


def _problem(url: str, error: SourceError) -> Problem:
    return Problem(code=error.code, where=display_url(url), details=error.details)


def _stale_problem(url: str, detail: str) -> Problem:
    details = {"url": display_url(url), "detail": detail}
    return Problem(code="source_stale", where=display_url(url), severity="warning", details=details)
