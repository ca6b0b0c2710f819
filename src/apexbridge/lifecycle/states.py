"""What was decided about skills by name, and is no part of them: which are switched off."""

import fcntl
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from apexbridge.errors import StorageError
from apexbridge.paths import replace_bytes

log = logging.getLogger(__name__)


class _Book(BaseModel):
    model_config = ConfigDict(extra="ignore")

    disabled: set[str] = set()


class States:
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
            text = _Book(disabled=book.disabled).model_dump_json(indent=1)
            replace_bytes(self._path, text.encode())
            return True

    def _read(self) -> _Book:
        try:
            return _Book.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _Book()
        except (OSError, ValidationError) as error:
            log.warning("What was switched off cannot be read: %s", error)
            return _Book()

    @contextmanager
    def _alone(self) -> Generator[None]:
        lock = self._path.with_suffix(".lock")
        try:
            lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(error.strerror or str(error), path=lock) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
