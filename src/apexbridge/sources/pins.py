"""What each address gave when it was first asked: hashes and bytes, on disk.

Bytes are kept by their hash, and hashed again when they are read: nobody can change them unseen.
"""

import hashlib
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apexbridge.errors import SourceError
from apexbridge.locks import locked
from apexbridge.paths import as_storage, create_bytes, replace_bytes
from apexbridge.sources.addresses import key_of

_FILE = "pins.json"
_KEPT = "kept"
_SHA256 = r"^[0-9a-f]{64}$"


def sha256_of(data: bytes) -> str:
    """The hash that bytes are remembered by."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An address gives other bytes than it did first."""

    old: str
    new: str


class _Pin(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sha256: str = Field(pattern=_SHA256)
    offered: str = Field(default="", pattern=rf"{_SHA256}|^$")


class _Book(BaseModel):
    """The file: a pin for each address, and for lists that may change what they said last."""

    model_config = ConfigDict(extra="forbid")

    pins: dict[str, _Pin] = Field(default_factory=dict[str, _Pin])
    latest: dict[str, _Pin] = Field(default_factory=dict[str, _Pin])

    def uses(self, sha256: str) -> bool:
        """Say whether any address needs the bytes with this hash."""
        known = (*self.pins.values(), *self.latest.values())
        return any(sha256 in {pin.sha256, pin.offered} for pin in known)


class Pins:
    """The memory of all remote addresses, in one folder. Threads and processes may share it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()

    def take(self, url: str, data: bytes) -> Change | None:
        """Remember what an address gives; other bytes than at first are a change, and kept aside.

        Raises:
            SourceError: If the memory cannot be read.
            StorageError: If it cannot be written.
        """
        found, key = sha256_of(data), key_of(url)
        if self.pinned(url) == found and self.bytes_of(found) is not None:
            return None  # a folder that cannot be written serves what it has
        with self._changing() as book:
            pin = book.pins.setdefault(key, _Pin(sha256=found))
            if pin.sha256 != found:
                book.pins[key] = _Pin(sha256=pin.sha256, offered=found)
            self._keep(data)
            return None if pin.sha256 == found else Change(old=pin.sha256, new=found)

    def keep_latest(self, url: str, data: bytes) -> None:
        """Remember what a list says now; it may say something else each time."""
        with self._changing() as book:
            book.latest[key_of(url)] = _Pin(sha256=sha256_of(data))
            self._keep(data)

    def pinned(self, url: str) -> str:
        """The hash an address is held to; empty if it never gave anything."""
        pin = self._read().pins.get(key_of(url))
        return pin.sha256 if pin else ""

    def last_good(self, url: str) -> bytes | None:
        """The bytes an address is held to, if they are still there and whole."""
        return self.bytes_of(self.pinned(url))

    def offered(self, url: str) -> bytes | None:
        """The other bytes an address gave since, to be looked at before they are accepted."""
        pin = self._read().pins.get(key_of(url))
        return self.bytes_of(pin.offered) if pin else None

    def latest(self, url: str) -> bytes | None:
        """What a list said last."""
        pin = self._read().latest.get(key_of(url))
        return self.bytes_of(pin.sha256) if pin else None

    def accept_change(self, url: str) -> bool:
        """Hold an address to the other bytes it gave last; False if it gave none.

        Raises:
            SourceError: If the memory cannot be read.
            StorageError: If it cannot be written.
        """
        with self._changing() as book:
            pin = book.pins.get(key_of(url))
            if pin is None or not pin.offered:
                return False
            book.pins[key_of(url)] = _Pin(sha256=pin.offered)
            return True

    def bytes_of(self, sha256: str) -> bytes | None:
        """The bytes with this hash, if they are there and whole."""
        if not sha256:
            return None
        try:
            data = (self._folder / _KEPT / sha256).read_bytes()
        except OSError:
            return None
        return data if sha256_of(data) == sha256 else None

    def _read(self) -> _Book:
        path = self._folder / _FILE
        try:
            return _Book.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return _Book()
        except OSError as error:
            raise SourceError(error.strerror or "", code="pins_unreadable", path=path) from None
        except ValidationError:
            raise SourceError("it is damaged", code="pins_unreadable", path=path) from None

    @contextmanager
    def _changing(self) -> Generator[_Book]:
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
        with as_storage(self._folder):
            (self._folder / _KEPT).mkdir(parents=True, exist_ok=True)
        with locked(self._folder / ".lock"):
            yield

    def _keep(self, data: bytes) -> None:
        path = self._folder / _KEPT / sha256_of(data)
        if self.bytes_of(path.name) is not None:
            return
        self._drop(path.name)  # damaged
        create_bytes(path, data, mode=0o600)

    def _drop(self, sha256: str) -> None:
        with suppress(OSError):
            (self._folder / _KEPT / sha256).unlink(missing_ok=True)
