"""Small state in JSON files: validated when read, replaced atomically, private to their owner.

A file that cannot be read is never taken for an empty one and never overwritten: what needs it
fails with `StateDamagedError`, until a person restores it or has it set aside (`doctor --fix`).
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from apexbridge.errors import StateDamagedError
from apexbridge.file_lock import file_lock
from apexbridge.paths import replace_bytes

Content = TypeVar("Content", bound=BaseModel)


class StateFile(Generic[Content]):
    """A JSON file with the schema of a model; a missing file has the model's defaults."""

    def __init__(self, path: Path, model: type[Content]) -> None:
        self.path = path
        self._model = model

    def read(self) -> Content:
        """Read the file.

        Raises:
            StateDamagedError: If there is a file that cannot be read or is not valid.
        """
        found = self.read_if_exists()
        return self._model() if found is None else found

    def read_if_exists(self) -> Content | None:
        """Read the file; None if there is none. Raises as `read` does."""
        try:
            return self._model.model_validate_json(self.path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):  # no file, or no data folder
            return None
        except OSError as error:
            raise StateDamagedError(error.strerror or str(error), path=self.path) from error
        except ValidationError as error:
            # Without the input, which may be a secret, and without the cause, which quotes it.
            reason = error.errors(include_input=False, include_url=False)[0]["msg"]
            raise StateDamagedError(reason, path=self.path) from None

    @contextmanager
    def change(self) -> Generator[Content]:
        """Yield the content to change it, under a lock; it is written if it was changed.

        Raises:
            StateDamagedError: If the file cannot be read; it is left as it is.
            StorageError: If it cannot be written.
        """
        with file_lock(self.path.with_suffix(".lock")):
            content = self.read()
            before = content.model_copy(deep=True)
            yield content
            if content != before:
                self.write(content)

    def write(self, content: Content) -> None:
        """Replace the file; the caller holds the lock. Raises StorageError."""
        replace_bytes(self.path, content.model_dump_json(indent=1).encode(), new_mode=0o600)
