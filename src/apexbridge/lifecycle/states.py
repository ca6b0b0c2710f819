"""Skill states: which names are disabled, and which are pinned to a version."""

import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from apexbridge.errors import StateDamagedError
from apexbridge.state_files import StateFile

log = logging.getLogger(__name__)


class StatesFile(BaseModel):
    """Content of `states.json`."""

    model_config = ConfigDict(extra="ignore")

    disabled: set[str] = set()
    pinned: dict[str, str] = {}
    """Skill name to content hash."""


class SkillStates:
    """A JSON file beside the skills.

    Methods raise StateDamagedError if it cannot be read: a disabled skill must not come back.
    Writes raise StorageError.
    """

    def __init__(self, path: Path) -> None:
        self._file = StateFile(path, StatesFile)
        self._last: frozenset[str] | None = None

    def disabled(self) -> frozenset[str]:
        """Return the names of disabled skills."""
        return frozenset(self._file.read().disabled)

    def disabled_or_last(self) -> frozenset[str]:
        """Return the disabled names; of a damaged file, those that this process read last.

        A running server goes on, but none starts without them.
        """
        try:
            self._last = self.disabled()
        except StateDamagedError as error:
            if self._last is None:
                raise
            log.warning("The skills that were disabled stay so: %s", error)
        return self._last

    def set_enabled(self, name: str, *, enabled: bool) -> bool:
        """Enable or disable a name; False if it was so before."""
        with self._file.change() as states:
            if (name not in states.disabled) is enabled:
                return False
            if enabled:
                states.disabled.discard(name)
            else:
                states.disabled.add(name)
        return True

    def pinned(self) -> dict[str, str]:
        """Return the pinned names, each with the content hash of its version."""
        return self._file.read().pinned

    def pin(self, name: str, sha256: str) -> bool:
        """Pin a name to a version, or unpin it with an empty hash; False if it was so before."""
        with self._file.change() as states:
            if states.pinned.get(name, "") == sha256:
                return False
            if sha256:
                states.pinned[name] = sha256
            else:
                del states.pinned[name]
        return True

    def forget(self, name: str, *, keeps_disabled: bool = False) -> None:
        """Remove the pin of a name, and the disabled state unless that is to stay."""
        with self._file.change() as states:
            if not keeps_disabled:
                states.disabled.discard(name)
            states.pinned.pop(name, None)
