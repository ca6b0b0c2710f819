"""Keys of the HTTP door: made, revoked and found again; what is kept of one is its hash."""

import hashlib
import secrets
import time
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from apexbridge.errors import ConfigError, StorageError
from apexbridge.locks import locked
from apexbridge.paths import replace_bytes

Scope = Literal["chat", "skills:read", "skills:write", "exec", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
_PREFIX = "apx_"


class Key(BaseModel):
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


class _Ring(BaseModel):
    model_config = ConfigDict(extra="ignore")

    keys: tuple[Key, ...] = ()


class KeyStore:
    """A small file, private to its owner, read again whenever somebody changed it.

    A key is 32 random bytes, so that a plain hash of it cannot be searched for.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._by_hash: dict[str, Key] = {}

    def make(
        self, name: str, scopes: Collection[Scope], *, expires: float | None = None
    ) -> tuple[str, Key]:
        """A new key, which is told this once, and what is kept of it.

        Raises:
            ConfigError: If it would open nothing.
            StorageError: If that cannot be written down.
        """
        if not scopes:
            raise ConfigError("a key needs at least one scope")
        text = _PREFIX + secrets.token_urlsafe(32)
        key = Key(
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

    def revoke(self, wanted: str) -> Key | None:
        """End a key, by its id or its name; None if there is no good one.

        Raises:
            StorageError: If that cannot be written down.
        """
        with self._alone():
            keys, now = self._read(), time.time()
            found = next((k for k in keys if wanted in (k.id, k.name) and k.is_good(now)), None)
            if found is None:
                return None
            gone = found.model_copy(update={"revoked": now})
            self._write(gone if key.id == gone.id else key for key in keys)
        return gone

    def all(self) -> tuple[Key, ...]:
        """Every key there ever was, the oldest first."""
        return self._read()

    def find(self, text: str) -> Key | None:
        """What is kept of a key that opens something now; costs one look at the file's date.

        Raises:
            StorageError: If the file is there and cannot be read.
        """
        self._refresh()
        key = self._by_hash.get(_hash(text))
        return key if key is not None and key.is_good(time.time()) else None

    def has_any(self) -> bool:
        """Whether any key opens anything now."""
        now = time.time()
        return any(key.is_good(now) for key in self._read())

    def _refresh(self) -> None:
        try:
            stat = self._path.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        except FileNotFoundError:
            seen = (0, 0, 0)
        if seen != self._seen:
            self._by_hash = {key.sha256: key for key in self._read()}
            self._seen = seen

    def _alone(self) -> AbstractContextManager[int]:
        return locked(self._path.with_suffix(".lock"))

    def _read(self) -> tuple[Key, ...]:
        try:
            return _Ring.model_validate_json(self._path.read_bytes()).keys
        except FileNotFoundError:
            return ()
        except (OSError, ValidationError) as error:
            # No key is better than a guess: nothing is opened by a file that makes no sense.
            raise StorageError(str(error), path=self._path) from error

    def _write(self, keys: Iterable[Key]) -> None:
        ring = _Ring(keys=tuple(keys))
        if not self._path.exists():
            self._path.touch(mode=0o600)  # the new one takes the old one's mode
        replace_bytes(self._path, ring.model_dump_json(indent=1).encode())


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
