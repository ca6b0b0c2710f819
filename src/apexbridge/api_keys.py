"""API keys: create, revoke and look up by hash; only the SHA-256 of a key is stored."""

import hashlib
import math
import secrets
import time
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager, suppress
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


class _KeyFile(BaseModel):
    model_config = ConfigDict(extra="ignore")

    keys: tuple[ApiKey, ...] = ()


class ApiKeyStore:
    """JSON file of API keys with mode 0600, reloaded when its mtime, size or inode changes.

    A key is 32 random bytes: a plain SHA-256 is enough, since brute force is out of reach. Methods
    raise StorageError if the file exists and cannot be read, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
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
        with self._file_lock():
            self._write((*self._read(), key))
        return text, key

    def revoke(self, wanted: str) -> ApiKey | None:
        """Revoke a key by id or name; None if there is no valid one.

        Raises:
            ConfigError: If several valid ones have that name.
        """
        with self._file_lock():
            keys, now = self._read(), time.time()
            valid = [key for key in keys if key.is_valid(now)]
            found = [key for key in valid if key.id == wanted] or [
                key for key in valid if key.name == wanted
            ]
            if not found:
                return None
            if len(found) > 1:
                ids = ", ".join(key.id for key in found)
                raise ConfigError(code="key_ambiguous", name=wanted, ids=ids)
            revoked = found[0].model_copy(update={"revoked": now})
            self._write(revoked if key.id == revoked.id else key for key in keys)
        return revoked

    def all(self) -> tuple[ApiKey, ...]:
        """Return every key, also expired and revoked ones, oldest first."""
        return self._read()

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
        return any(key.is_valid(now) for key in self._read())

    def check(self) -> None:
        """Check that the file can be read; reload it if it changed."""
        now = time.monotonic()
        if now - self._checked_at < _STAT_INTERVAL:
            return
        seen = (0, 0, 0)
        with storage_errors(self._path), suppress(FileNotFoundError):
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if seen != self._seen:
            self._by_hash = {key.sha256: key for key in self._read()}
            self._seen = seen
        self._checked_at = now

    def _file_lock(self) -> AbstractContextManager[int]:
        return file_lock(self._path.with_suffix(".lock"))

    def _read(self) -> tuple[ApiKey, ...]:
        try:
            return _KeyFile.model_validate_json(self._path.read_bytes()).keys
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError) as error:
            # Fail closed: a damaged file authenticates no caller.
            raise StorageError(str(error), path=self._path) from error

    def _write(self, keys: Iterable[ApiKey]) -> None:
        ring = _KeyFile(keys=tuple(keys))
        if not self._path.exists():
            self._path.touch(mode=0o600)  # replace_bytes keeps the mode of the old file
        replace_bytes(self._path, ring.model_dump_json(indent=1).encode())
        self._checked_at = -math.inf


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
