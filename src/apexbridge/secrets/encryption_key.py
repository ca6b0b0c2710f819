"""Encryption key of the secret store: in the system keyring where one works, else in a file.

Only the key is in the keyring. The values stay in one encrypted file, where a change of several is
one rename, and where the size limits of some keyrings do not matter.
"""

import base64
import binascii
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, Protocol

from apexbridge.errors import StorageError
from apexbridge.paths import create_bytes, storage_errors

log = logging.getLogger(__name__)

KEY_BYTES = 32
_SERVICE = "apexbridge"

KeyPlace = Literal["keyring", "file"]


class _Keyring(Protocol):
    def get_password(self, service: str, username: str) -> str | None: ...
    def set_password(self, service: str, username: str, password: str) -> None: ...


class _KeyringModule(Protocol):
    def get_keyring(self) -> _Keyring: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionKeys:
    """Where the keys of a store are. With `uses_keyring` the system keyring is tried first."""

    file: Path
    uses_keyring: bool = True

    def create(self, store_id: str) -> tuple[KeyPlace, bytes]:
        """Create the key of a new store; return where it is. A key file that exists is kept.

        Raises:
            StorageError: If it cannot be written.
        """
        key = os.urandom(KEY_BYTES)
        text = base64.b64encode(key).decode()
        if self.uses_keyring and _store_in_keyring(store_id, text):
            return "keyring", key
        with storage_errors(self.file):
            self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with suppress(FileNotFoundError):
            return "file", self._read_file()
        create_bytes(self.file, f"{text}\n".encode(), mode=0o600)
        return "file", key

    def load(self, place: KeyPlace, store_id: str) -> bytes:
        """Load the key of a store.

        Raises:
            StorageError: If it is not there, or is damaged: a new one would lose the secrets.
        """
        if place == "keyring":
            text = _load_from_keyring(store_id)
            if text is None:
                raise StorageError(code="secrets_key_missing", place="keyring")
            return _decode(text, "keyring")
        try:
            return self._read_file()
        except FileNotFoundError:
            raise StorageError(code="secrets_key_missing", place=self.file) from None

    def _read_file(self) -> bytes:
        try:
            text = self.file.read_text(encoding="ascii")
        except FileNotFoundError:
            raise
        except (OSError, UnicodeDecodeError) as error:
            raise StorageError(code="secrets_key_missing", place=self.file) from error
        return _decode(text, self.file)


def _decode(text: str, place: object) -> bytes:
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise StorageError(code="secrets_key_damaged", place=place)
    return key


def _keyring() -> _Keyring | None:
    """Return the system keyring; None where the package or a working backend is missing."""
    try:
        module: _KeyringModule = _import_keyring()
        return module.get_keyring()
    # Backends raise whatever their library does: D-Bus errors, OSError, RuntimeError.
    except Exception as error:  # noqa: BLE001
        log.info("No system keyring: %s", type(error).__name__)
        return None


def _import_keyring() -> _KeyringModule:
    module: object = import_module("keyring")
    return module  # pyright: ignore[reportReturnType]  # a module, with the functions of the protocol


def _store_in_keyring(store_id: str, text: str) -> bool:
    """Store a key, and read it again: some backends accept everything and keep nothing."""
    keyring = _keyring()
    if keyring is None:
        return False
    try:
        keyring.set_password(_SERVICE, store_id, text)
        return keyring.get_password(_SERVICE, store_id) == text
    except Exception as error:  # noqa: BLE001  # see _keyring
        log.info("The system keyring does not work: %s", type(error).__name__)
        return False


def _load_from_keyring(store_id: str) -> str | None:
    keyring = _keyring()
    try:
        return keyring.get_password(_SERVICE, store_id) if keyring else None
    except Exception as error:  # noqa: BLE001  # see _keyring
        log.warning("The system keyring does not work: %s", type(error).__name__)
        return None
