"""Skill states: which names are disabled, and which are pinned to a version."""

import logging
from contextlib import AbstractContextManager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from apexbridge.file_lock import file_lock
from apexbridge.paths import replace_bytes

log = logging.getLogger(__name__)


class _StatesFile(BaseModel):
    model_config = ConfigDict(extra="ignore")

    disabled: set[str] = set()
    pinned: dict[str, str] = {}
    """Skill name to content hash."""


class SkillStates:
    """A JSON file beside the skills. One that cannot be read disables nothing, with a warning.

    Writes raise StorageError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def disabled(self) -> frozenset[str]:
        """Return the names of disabled skills."""
        return frozenset(self._read().disabled)

    def set_enabled(self, name: str, *, enabled: bool) -> bool:
        """Enable or disable a name; False if it was so before."""
        with self._lock():
            states = self._read()
            if (name not in states.disabled) is enabled:
                return False
            if enabled:
                states.disabled.discard(name)
            else:
                states.disabled.add(name)
            self._write(states)
            return True

    def pinned(self) -> dict[str, str]:
        """Return the pinned names, each with the content hash of its version."""
        return dict(self._read().pinned)

    def pin(self, name: str, sha256: str) -> bool:
        """Pin a name to a version, or unpin it with an empty hash; False if it was so before."""
        with self._lock():
            states = self._read()
            if states.pinned.get(name, "") == sha256:
                return False
            if sha256:
                states.pinned[name] = sha256
            else:
                del states.pinned[name]
            self._write(states)
            return True

    def forget(self, name: str, *, keeps_disabled: bool = False) -> None:
        """Remove the pin of a name, and the disabled state unless that is to stay."""
        with self._lock():
            states = self._read()
            is_disabled = name in states.disabled and not keeps_disabled
            if not is_disabled and name not in states.pinned:
                return
            if is_disabled:
                states.disabled.discard(name)
            states.pinned.pop(name, None)
            self._write(states)

    def _write(self, states: _StatesFile) -> None:
        replace_bytes(self._path, states.model_dump_json(indent=1).encode())

    def _read(self) -> _StatesFile:
        try:
            return _StatesFile.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _StatesFile()
        except (OSError, ValidationError) as error:
            log.warning("Skill states cannot be read, none applied: %s", error)
            return _StatesFile()

    def _lock(self) -> AbstractContextManager[int]:
        return file_lock(self._path.with_suffix(".lock"))
