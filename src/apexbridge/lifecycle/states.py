"""What was decided about skills by name, and is no part of them: switched off, held fast."""

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
    """The hash of the files that a skill is held to."""


class SkillStates:
    """A small file beside the skills. One that cannot be read switches nothing off, and says so."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def disabled(self) -> frozenset[str]:
        """The names that are switched off."""
        return frozenset(self._read().disabled)

    def switch(self, name: str, *, is_on: bool) -> bool:
        """Switch a name on or off; False if it was so before.

        Raises:
            StorageError: If that cannot be written down.
        """
        with self._alone():
            book = self._read()
            if (name not in book.disabled) is is_on:
                return False
            if is_on:
                book.disabled.discard(name)
            else:
                book.disabled.add(name)
            self._write(book)
            return True

    def pinned(self) -> dict[str, str]:
        """The names that are held to a version, each with its hash."""
        return dict(self._read().pinned)

    def pin(self, name: str, sha256: str) -> bool:
        """Hold a name to a version, or with an empty one let it go; False if it was so before.

        Raises:
            StorageError: If that cannot be written down.
        """
        with self._alone():
            book = self._read()
            if book.pinned.get(name, "") == sha256:
                return False
            if sha256:
                book.pinned[name] = sha256
            else:
                del book.pinned[name]
            self._write(book)
            return True

    def _write(self, book: _StatesFile) -> None:
        replace_bytes(self._path, book.model_dump_json(indent=1).encode())

    def _read(self) -> _StatesFile:
        try:
            return _StatesFile.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _StatesFile()
        except (OSError, ValidationError) as error:
            log.warning("What was switched off cannot be read: %s", error)
            return _StatesFile()

    def _alone(self) -> AbstractContextManager[int]:
        return file_lock(self._path.with_suffix(".lock"))
