"""Secret store: one encrypted, authenticated file with the values and their grants.

AES-256-GCM over the whole file: a changed byte is an error, never an empty store. Each change is
one durable rename under a lock, so that a crash leaves the old state or the new one.
"""

import base64
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import BaseModel, ConfigDict, Field

from apexbridge.errors import ConfigError, StateDamagedError
from apexbridge.file_lock import file_lock
from apexbridge.paths import create_bytes, replace_bytes, storage_errors
from apexbridge.sandbox.placeholders import MAX_VALUE, MIN_VALUE
from apexbridge.secrets.encryption_key import EncryptionKeys, KeyPlace
from apexbridge.secrets.sealed_file import SealedFile
from apexbridge.skills.secret_declarations import is_secret_name
from apexbridge.state_files import StateFile

_NONCE_BYTES = 12
T = TypeVar("T")


class SecretValue(BaseModel):
    """A value, and when it was set. Values are never part of a repr."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    value: str = Field(repr=False)
    at: float


class SecretGrant(BaseModel):
    """A person's agreement: this secret, for this content of this skill, to these hosts."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    secret: str
    skill: str
    sha256: str
    hosts: tuple[str, ...]
    places: tuple[str, ...] = ("header",)
    at: float = 0


class SecretState(BaseModel):
    """Everything in the store."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    values: dict[str, SecretValue] = Field(default_factory=dict[str, SecretValue])
    grants: tuple[SecretGrant, ...] = ()

    def grants_of(self, skill: str) -> dict[str, SecretGrant]:
        """Return the grants of a skill by the secret's name, whatever content they are for."""
        return {grant.secret: grant for grant in self.grants if grant.skill == skill}


class SecretStore:
    """The file `secrets.json` of a data folder. All methods block and may raise StorageError."""

    def __init__(self, path: Path, keys: EncryptionKeys) -> None:
        self._path, self._keys = path, keys

    def read(self) -> SecretState:
        """Decrypt and return everything; an empty state only if there is no file.

        Raises:
            StorageError: If the file or its key is damaged or missing.
        """
        sealed = self._read_file()
        return self._open(sealed) if sealed else SecretState()

    def check(self, name: str, value: str) -> None:
        """Check a name and a value before anything is changed.

        Raises:
            ConfigError: If one cannot be used.
        """
        check_name(name)
        check_value(name, value)

    def set(self, name: str, value: str) -> None:
        """Set a value; the grants of a secret that had one stay.

        Raises:
            ConfigError: If the name or the value cannot be used.
        """
        self.check(name, value)
        entry = SecretValue(value=value, at=time.time())
        self._change(
            lambda state: state.model_copy(update={"values": {**state.values, name: entry}})
        )

    def remove(self, name: str) -> bool:
        """Remove a value and its grants; False if there was neither."""

        def without(state: SecretState) -> SecretState:
            values = {key: value for key, value in state.values.items() if key != name}
            grants = tuple(grant for grant in state.grants if grant.secret != name)
            return SecretState(values=values, grants=grants)

        before, after = self._change(without)
        return before != after

    def grant(self, grants: Iterable[SecretGrant]) -> None:
        """Add grants; each replaces the earlier one of that secret to that skill."""
        new = {(grant.secret, grant.skill): grant for grant in grants}

        def with_new(state: SecretState) -> SecretState:
            kept = (g for g in state.grants if (g.secret, g.skill) not in new)
            return state.model_copy(update={"grants": (*kept, *new.values())})

        self._change(with_new)

    def revoke(self, skill: str, names: Iterable[str] = ()) -> tuple[SecretGrant, ...]:
        """Revoke grants of a skill, all or those of the named secrets; return them."""
        chosen = set(names)

        def is_meant(grant: SecretGrant) -> bool:
            return grant.skill == skill and (not chosen or grant.secret in chosen)

        before, _ = self._change(
            lambda state: state.model_copy(
                update={"grants": tuple(g for g in state.grants if not is_meant(g))}
            )
        )
        return tuple(filter(is_meant, before.grants))

    def _change(
        self, change: Callable[[SecretState], SecretState]
    ) -> tuple[SecretState, SecretState]:
        with file_lock(self._path.with_suffix(".lock")):
            sealed = self._read_file()
            before = self._open(sealed) if sealed else SecretState()
            after = change(before)
            if after != before:
                self._write(sealed, after)
        return before, after

    def _read_file(self) -> SealedFile | None:
        try:
            return StateFile(self._path, SealedFile).read_if_exists()
        except StateDamagedError as error:
            if isinstance(error.__cause__, OSError):
                raise
            raise StateDamagedError(code="secrets_damaged", path=self._path) from None

    def _open(self, sealed: SealedFile) -> SecretState:
        key = self._keys.load(sealed.key, sealed.id)
        try:
            nonce, data = base64.b64decode(sealed.nonce), base64.b64decode(sealed.data)
            text = AESGCM(key).decrypt(nonce, data, _associated(sealed.key, sealed.id))
            return SecretState.model_validate_json(text)
        except (InvalidTag, ValueError):  # a ValidationError is one, and would quote values
            raise StateDamagedError(code="secrets_damaged", path=self._path) from None

    def _write(self, before: SealedFile | None, state: SecretState) -> None:
        if before is None:
            store_id = uuid.uuid4().hex
            # The key is on disk before anything is encrypted with it.
            place, key = self._keys.create(store_id)
        else:
            place, store_id = before.key, before.id
            key = self._keys.load(place, store_id)
        nonce = os.urandom(_NONCE_BYTES)
        text = state.model_dump_json().encode()
        data = AESGCM(key).encrypt(nonce, text, _associated(place, store_id))
        sealed = SealedFile(
            key=place,
            id=store_id,
            nonce=base64.b64encode(nonce).decode(),
            data=base64.b64encode(data).decode(),
        )
        content = sealed.model_dump_json().encode()
        with storage_errors(self._path):
            if before is None:
                create_bytes(self._path, content, mode=0o600)
            else:
                replace_bytes(self._path, content)  # keeps the mode


def _associated(place: KeyPlace, store_id: str) -> bytes:
    """Return what is authenticated with the data: the parts of the file that are readable."""
    return json.dumps(["apexbridge-secrets", 1, place, store_id]).encode()


def check_name(name: str) -> None:
    """Check the name of a secret, which becomes an environment variable.

    Raises:
        ConfigError: If it is not one.
    """
    if not is_secret_name(name):
        raise ConfigError(code="secret_name_invalid", name=name)


def check_value(name: str, value: str) -> None:
    """Check that a value can be sent in a header and recognized in a response.

    Raises:
        ConfigError: Without the value, which must not get into a message.
    """
    is_clean = value.isprintable() and value == value.strip()
    if not is_clean or not MIN_VALUE <= len(value) <= MAX_VALUE:
        raise ConfigError(code="secret_value_invalid", name=name, least=MIN_VALUE, most=MAX_VALUE)
