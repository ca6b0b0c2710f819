"""Paths of this machine in texts for clients: replaced, so that no error discloses its layout."""

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from apexbridge.settings import Config

# ASCII: in a Chinese sentence there is no space beside a path.
_BEFORE, _AFTER = r"(?<![A-Za-z0-9_-])", r"(?![A-Za-z0-9_-]|\.[A-Za-z0-9])"


class HiddenPaths:
    """Replaces the data folder, the home folder and the folder of temporary files in a text."""

    def __init__(self, named: Iterable[tuple[Path, str]]) -> None:
        self._names = {path: name for folder, name in named for path in _spellings(folder)}
        # The longest first: the data folder may be in the home folder.
        longest = sorted(self._names, key=len, reverse=True)
        paths = "|".join(map(re.escape, longest)) or "(?!)"
        self._pattern = re.compile(f"{_BEFORE}(?:{paths}){_AFTER}")

    @classmethod
    def from_config(cls, config: Config) -> "HiddenPaths":
        """Hide the folders of an instance."""
        temporary = Path(tempfile.gettempdir())
        return cls(((temporary, "<tmp>"), (config.home, "~"), (config.data, "<data>")))

    def hide(self, text: str) -> str:
        """Return a text without these paths."""
        return self._pattern.sub(lambda match: self._names[match[0]], text)


HIDDEN_PATHS: ContextVar[HiddenPaths | None] = ContextVar("hidden paths", default=None)
"""Paths that responses in this context do not contain."""


def hide_paths(text: str) -> str:
    """Return a text for a client without the paths of this machine."""
    hidden = HIDDEN_PATHS.get()
    return hidden.hide(text) if hidden is not None else text


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Change every string of a JSON value; names of fields stay."""
    match value:
        case str():
            return change(value)
        case dict():
            return {name: map_strings(item, change) for name, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list() | tuple():
            return [map_strings(item, change) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def _spellings(folder: Path) -> Iterator[str]:
    """Return a folder as it was configured and without symlinks; never the root of everything."""
    for path in {folder.absolute(), folder.resolve()}:
        if len(path.parts) > 1:
            yield str(path)
