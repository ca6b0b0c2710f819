"""Keys of the HTTP door: made, revoked and found again; what is kept of one is its hash."""

import hashlib
import math
import secrets
import time
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from apexbridge.errors import ConfigError, StorageError
from apexbridge.file_lock import file_lock
from apexbridge.paths import create_bytes, replace_bytes, storage_errors

Scope = Literal["chat", "skills:read", "skills:write", "exec", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
_KEY_PREFIX = "apx_"
_STAT_INTERVAL = 0.02
"""Seconds for which a look at the file is good: asking the system is most of what finding costs."""


class ApiKey(BaseModel):
    """What is kept of a key. Whoever has the file has no key."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    name: str
    scopes: tuple[Scope, ...]
    sha256: str
    created: float
    expires: float | None = None
    revoked: float | None = None

    def is_good(self, now: float) -> bool:
        """Whether it opens anything now."""
        return self.revoked is None and (self.expires is None or now < self.expires)


class _KeyFile(BaseModel):
    model_config = ConfigDict(extra="ignore")

    keys: tuple[ApiKey, ...] = ()


class ApiKeyStore:
    """A small file, private to its owner, read again whenever somebody changed it.

    A key is 32 random bytes, so that a plain hash of it cannot be searched for.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._looked = -math.inf
        self._by_hash: dict[str, ApiKey] = {}

    def make(
        self, name: str, scopes: Collection[Scope], *, expires: float | None = None
    ) -> tuple[str, ApiKey]:
        """A new key, which is told this once, and what is kept of it.

        Raises:
            ConfigError: If it would open nothing.
            StorageError: If that cannot be written down.
        """
        if not scopes:
            raise ConfigError("a key needs at least one scope")
        text = _KEY_PREFIX + secrets.token_urlsafe(32)
        key = ApiKey(
            id=secrets.token_hex(6),
            name=name,
            scopes=tuple(scope for scope in SCOPES if scope in scopes),
            sha256=_hash(text),
            created=time.time(),
            expires=expires,
        )
        with self._alone():
            self._write((*self._read(), key))
        return text, key

    def revoke(self, wanted: str) -> ApiKey | None:
        """End a key, by its id or its name; None if there is no good one.

        Raises:
            ConfigError: If several good ones have that name.
            StorageError: If that cannot be written down.
        """
        with self._alone():
            keys, now = self._read(), time.time()
            good = [key for key in keys if key.is_good(now)]
            found = [key for key in good if key.id == wanted] or [
                key for key in good if key.name == wanted
            ]
            if not found:
                return None
            if len(found) > 1:
                ids = ", ".join(key.id for key in found)
                raise ConfigError(code="key_ambiguous", name=wanted, ids=ids)
            gone = found[0].model_copy(update={"revoked": now})
            self._write(gone if key.id == gone.id else key for key in keys)
        return gone

    def all(self) -> tuple[ApiKey, ...]:
        """Every key there ever was, the oldest first."""
        return self._read()

    def find(self, text: str) -> ApiKey | None:
        """What is kept of a key that opens something now; costs a look at the file's date at most.

        Raises:
            StorageError: If the file is there and cannot be read.
        """
        self._refresh()
        key = self._by_hash.get(_hash(text))
        return key if key is not None and key.is_good(time.time()) else None

    def get(self, key_id: str) -> ApiKey | None:
        """What is kept of a key, by its id, if it opens something now.

        Raises:
            StorageError: If the file is there and cannot be read.
        """
        self._refresh()
        now = time.time()
        found = (key for key in self._by_hash.values() if key.id == key_id and key.is_good(now))
        return next(found, None)

    def check(self) -> None:
        """Make sure that keys can be found.

        Raises:
            StorageError: If the file is there and cannot be read.
        """
        self._refresh()

    def has_any(self) -> bool:
        """Whether any key opens anything now."""
        now = time.time()
        return any(key.is_good(now) for key in self._read())

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._looked < _STAT_INTERVAL:
            return
        try:
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        except FileNotFoundError:
            seen = (0, 0, 0)
        except OSError as error:
            raise StorageError(error.strerror or str(error), path=self._path) from error
        if seen != self._seen:
            self._by_hash = {key.sha256: key for key in self._read()}
            self._seen = seen
        self._looked = now

    def _alone(self) -> AbstractContextManager[int]:
        return file_lock(self._path.with_suffix(".lock"))

    def _read(self) -> tuple[ApiKey, ...]:
        try:
            return _KeyFile.model_validate_json(self._path.read_bytes()).keys
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError) as error:
            # No key is better than a guess: nothing is opened by a file that makes no sense.
            raise StorageError(str(error), path=self._path) from error

    def _write(self, keys: Iterable[ApiKey]) -> None:
        ring = _KeyFile(keys=tuple(keys))
        if not self._path.exists():
            self._path.touch(mode=0o600)  # the new one takes the old one's mode
        replace_bytes(self._path, ring.model_dump_json(indent=1).encode())
        self._looked = -math.inf


def create_first_key(store: ApiKeyStore, place: Path) -> str | None:
    """Where there never was a key, make one for everything and keep it in a private file.

    Raises:
        StorageError: If it cannot be written down.
    """
    if store.all():
        return None
    text, _ = store.make("first", SCOPES)
    with storage_errors(place):
        place.unlink(missing_ok=True)
    create_bytes(place, f"{text}\n".encode(), mode=0o600)
    return text


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
