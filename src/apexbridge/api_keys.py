"""API keys: create, revoke and look up by hash; only the SHA-256 of a key is stored."""

import hashlib
import math
import secrets
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict

from apexbridge.errors import ConfigError
from apexbridge.paths import create_bytes, storage_errors
from apexbridge.state_files import StateFile

Scope = Literal["chat", "skills:read", "skills:write", "exec", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
_KEY_PREFIX = "apx_"
_STAT_INTERVAL = 0.02
"""Seconds between stat calls of the file: the system call is most of the cost of a lookup."""


class ApiKey(BaseModel):
    """Stored metadata and hash of a key; the key itself cannot be recovered from it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    name: str
    scopes: tuple[Scope, ...]
    sha256: str
    created: float
    expires: float | None = None
    revoked: float | None = None

    def is_valid(self, now: float) -> bool:
        """Return whether the key is neither revoked nor expired."""
        return self.revoked is None and (self.expires is None or now < self.expires)


class KeyFile(BaseModel):
    """Content of `keys.json`."""

    model_config = ConfigDict(extra="ignore")

    keys: tuple[ApiKey, ...] = ()


class ApiKeyStore:
    """JSON file of API keys with mode 0600, reloaded when its mtime, size or inode changes.

    A key is 32 random bytes: a plain SHA-256 is enough, since brute force is out of reach. Fail
    closed: methods raise StateDamagedError if the file exists and cannot be read, for it
    authenticates no caller then; and StorageError if it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._file = StateFile(path, KeyFile)
        self._seen: tuple[int, int, int] | None = None
        self._checked_at = -math.inf
        self._by_hash: dict[str, ApiKey] = {}

    def create(
        self, name: str, scopes: Collection[Scope], *, expires: float | None = None
    ) -> tuple[str, ApiKey]:
        """Create a key; return its secret text, which is not stored, and its metadata.

        Raises:
            ConfigError: If there is no scope.
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
        with self._file.change() as stored:
            stored.keys = (*stored.keys, key)
        self._checked_at = -math.inf
        return text, key

    def revoke(self, wanted: str) -> ApiKey | None:
        """Revoke a key by id or name; None if there is no valid one.

        Raises:
            ConfigError: If several valid ones have that name.
        """
        with self._file.change() as stored:
            now = time.time()
            valid = [key for key in stored.keys if key.is_valid(now)]
            found = [key for key in valid if key.id == wanted] or [
                key for key in valid if key.name == wanted
            ]
            if not found:
                return None
            if len(found) > 1:
                ids = ", ".join(key.id for key in found)
                raise ConfigError(code="key_ambiguous", name=wanted, ids=ids)
            revoked = found[0].model_copy(update={"revoked": now})
            stored.keys = tuple(revoked if key.id == revoked.id else key for key in stored.keys)
        self._checked_at = -math.inf
        return revoked

    def all(self) -> tuple[ApiKey, ...]:
        """Return every key, also expired and revoked ones, oldest first."""
        return self._file.read().keys

    def find(self, text: str) -> ApiKey | None:
        """Look up a valid key by its secret text; costs one stat call at most."""
        self.check()
        key = self._by_hash.get(_hash(text))
        return key if key is not None and key.is_valid(time.time()) else None

    def get(self, key_id: str) -> ApiKey | None:
        """Look up a valid key by its id."""
        self.check()
        now = time.time()
        found = (key for key in self._by_hash.values() if key.id == key_id and key.is_valid(now))
        return next(found, None)

    def has_any(self) -> bool:
        """Return whether there is any valid key."""
        now = time.time()
        return any(key.is_valid(now) for key in self._file.read().keys)

    def check(self) -> None:
        """Check that the file can be read; reload it if it changed."""
        now = time.monotonic()
        if now - self._checked_at < _STAT_INTERVAL:
            return
        seen = (0, 0, 0)
        with storage_errors(self._file.path), suppress(FileNotFoundError):
            stat = self._file.path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if seen != self._seen:
            self._by_hash = {key.sha256: key for key in self._file.read().keys}
            self._seen = seen
        self._checked_at = now


def create_first_key(store: ApiKeyStore, path: Path) -> str | None:
    """Create a key with all scopes if there never was one, and write it to a file of mode 0600."""
    if store.all():
        return None
    text, _ = store.create("first", SCOPES)
    with storage_errors(path):
        path.unlink(missing_ok=True)
    create_bytes(path, f"{text}\n".encode(), mode=0o600)
    return text


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
