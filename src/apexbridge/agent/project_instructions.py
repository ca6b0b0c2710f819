"""Project instructions: the text of a project's `Agent.md`, for the system prompt."""

import logging
import stat
from pathlib import Path

from anyio import to_thread

from apexbridge.regular_files import read_regular

log = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024
_CUT = "\n\n(The rest of this file is left out: it is longer than the limit.)"


class ProjectInstructions:
    """One Markdown file of the project, read again when it has changed.

    A file outside of the project is not read, also not through a symlink.
    """

    def __init__(self, project: Path, name: str) -> None:
        self._project = project
        self.name = name
        self._seen: tuple[int, int, int] | None = None
        self._text = ""

    async def read(self) -> str:
        """Return the text of the file; empty if there is none, or it cannot be read."""
        return await to_thread.run_sync(self._read) if self.name else ""

    def _read(self) -> str:
        try:
            path = (self._project / self.name).resolve(strict=True)
            status = path.stat()
            is_inside = path.is_relative_to(self._project.resolve())
            if not is_inside or not stat.S_ISREG(status.st_mode):
                return ""
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
            if seen != self._seen:
                self._text, self._seen = _read_text(path), seen
        except FileNotFoundError:
            return ""
        except (OSError, ValueError, RuntimeError) as error:
            log.warning("%s cannot be read: %s", self.name, error)
            return ""
        return self._text


def _read_text(path: Path) -> str:
    """Read a file up to the limit; what is not UTF-8 is replaced."""
    data = read_regular(path, MAX_BYTES + 1)
    text = data[:MAX_BYTES].decode("utf-8", "replace").removeprefix("\ufeff").strip()
    return text + _CUT if len(data) > MAX_BYTES else text
