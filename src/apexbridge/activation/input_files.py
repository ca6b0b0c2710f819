"""Input files of a script: files and folders of this machine, or content sent by a client."""

import base64
import binascii
import os
import stat
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, Field

from apexbridge.errors import ToolInputError
from apexbridge.regular_files import NotRegularFileError, read_regular

MAX_INPUT_BYTES = 32 * 1024 * 1024
"""Size of all input files of a run together: they are in memory until the script starts."""
MAX_INPUT_FILES = 1_000
_MAX_PATH = 1_000
_MAX_NAME_BYTES = 255
_JOINERS = "\u200c\u200d"
"""In names with emoji, and in Persian ones; other invisible characters are refused."""
_SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", "__pycache__", "node_modules"})
"""Folders of tools, whose thousands of files no script reads."""


class InputFile(BaseModel):
    """A file as a client sends it: its path in the script's working directory, and its content."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    path: str = Field(min_length=1, max_length=_MAX_PATH)
    """Relative path, `/` between its parts: `data/prices.csv`."""
    text: str | None = None
    """Content as text."""
    base64: str | None = None
    """Content in base64, in place of `text`."""

    def data(self) -> bytes:
        """Return the content.

        Raises:
            ToolInputError: If it has no content or two, or is invalid.
        """
        if (self.text is None) == (self.base64 is None):
            raise input_error(self.path, "give its content as 'text' or as 'base64'")
        try:
            if self.text is not None:
                return self.text.encode()
            return base64.b64decode(self.base64 or "", validate=True)
        except (UnicodeEncodeError, binascii.Error) as error:
            raise input_error(self.path, str(error)) from None


@dataclass(slots=True)
class InputFiles:
    """Input files by path, checked as they are added; folders bring all regular files in them."""

    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Entries of folders that are left out, with the reason."""
    _bytes: int = 0

    @classmethod
    def from_client(cls, sent: Sequence[InputFile]) -> "InputFiles":
        """Decode what a client sent.

        Raises:
            ToolInputError: If a path or a content is invalid, or all together are too large.
        """
        inputs = cls()
        for file in sent:
            inputs.add(file.path, file.data())
        return inputs

    @classmethod
    def from_disk(cls, paths: Sequence[Path]) -> "InputFiles":
        """Read files and folders; each is known by its own name. Blocks.

        Raises:
            OSError: If one cannot be read.
            ToolInputError: If two have the same name, or all together are too large.
        """
        inputs = cls()
        for path in paths:
            name = path.resolve().name if path.name in {"", ".."} else path.name
            if path.is_dir():
                inputs.add_folder(name, path)
            else:
                inputs.add(name, _read(path, inputs.budget))
        return inputs

    @property
    def budget(self) -> int:
        """Bytes that may still be added."""
        return MAX_INPUT_BYTES - self._bytes

    def add(self, path: str, data: bytes) -> None:
        """Add a file.

        Raises:
            ToolInputError: `input_file_invalid` or `input_files_too_large`.
        """
        if problem := _path_problem(path):
            raise input_error(path, problem)
        name = "/".join(PurePosixPath(path).parts)
        if any(name == known or _is_below(name, known) for known in self.files):
            raise input_error(path, "there are two files of that name")
        self._bytes += len(data)
        if self._bytes > MAX_INPUT_BYTES or len(self.files) >= MAX_INPUT_FILES:
            raise ToolInputError(
                code="input_files_too_large",
                mib=MAX_INPUT_BYTES // (1024 * 1024),
                count=MAX_INPUT_FILES,
            )
        self.files[name] = data

    def add_found(self, path: str, read: Callable[[], bytes]) -> None:
        """Add a file that was found in a folder; one that no script can be given is skipped.

        Raises:
            OSError: If it cannot be read.
            ToolInputError: If all together are too large.
        """
        if problem := _path_problem(path):
            self.skipped[path] = problem
        else:
            self.add(path, read())

    def add_folder(self, name: str, folder: Path) -> None:
        """Add the regular files of a folder, under its name; links are skipped. Blocks.

        Raises:
            OSError: If a file cannot be read.
            ToolInputError: If all together are too large.
        """
        for path, reason in _walk(folder):
            known_as = (PurePosixPath(name) / path.relative_to(folder)).as_posix()
            if reason:
                self.skipped[known_as] = reason
            else:
                self.add_found(known_as, partial(_read, path, self.budget))


def _walk(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield files in a fixed order, each with the reason to skip it, or none.

    Raises:
        OSError: If a folder cannot be read.
    """
    for where, folders, names in os.walk(folder, onerror=_raise):
        if not folders and not names:
            yield Path(where), "an empty folder"
        for name in sorted(folders):
            path = Path(where, name)
            if name in _SKIPPED_FOLDERS or path.is_symlink():
                yield path, "a link" if path.is_symlink() else "a folder of tools"
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS)
        for name in sorted(names):
            path = Path(where, name)
            mode = path.lstat().st_mode
            is_plain = stat.S_ISREG(mode)
            yield path, "" if is_plain else "a link" if stat.S_ISLNK(mode) else "not a plain file"


def _raise(error: OSError) -> None:
    raise error


def _read(path: Path, budget: int) -> bytes:
    """Read a regular file, not more than one byte over the budget."""
    try:
        return read_regular(path.resolve(), budget + 1)
    except NotRegularFileError as error:
        raise input_error(str(path), str(error)) from None


def _path_problem(path: str) -> str:
    """Return why a path cannot be one of an input file; empty if it can."""
    parts = PurePosixPath(path).parts
    if not parts or parts[0] == "/" or ".." in parts or len(path) > _MAX_PATH:
        return "its path must be relative, without '..'"
    if "\\" in path:
        return "the folders of its path must be separated by '/'"
    if not all(map(_is_name_character, path)):
        return "its name has characters that cannot be shown"
    if any(len(part.encode()) > _MAX_NAME_BYTES for part in parts):
        return f"a name has at most {_MAX_NAME_BYTES} bytes"
    return ""


def _is_name_character(character: str) -> bool:
    """Return whether a name may have it: also the spaces that macOS and Chinese texts use."""
    is_space = unicodedata.category(character) == "Zs"
    return is_space or character in _JOINERS or character.isprintable()


def _is_below(one: str, other: str) -> bool:
    """Return whether one of two paths is a folder of the other."""
    return one.startswith(f"{other}/") or other.startswith(f"{one}/")


def input_error(path: str, detail: str) -> ToolInputError:
    """Return the error about an input file."""
    return ToolInputError(detail, code="input_file_invalid", path=ascii(path[:200])[1:-1])


def format_skipped(skipped: Mapping[str, str], most: int = 10) -> str:
    """Return the entries that were left out, on one line."""
    named = [f"{name} ({reason})" for name, reason in list(skipped.items())[:most]]
    more = [f"and {len(skipped) - most} more"] if len(skipped) > most else []
    return ", ".join((*named, *more))
