"""Files that several environments have: kept once on the disk, as hard links by their content.

Environments of different locks often have packages in common. A download cache that builds share
could do the same, but a build could change it; here only files that were checked are linked, and
they are read-only.
"""

import filecmp
import hashlib
import os
import stat
import uuid
from contextlib import suppress
from pathlib import Path


class SharedFiles:
    """Hard links by content below one folder. All methods block."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def share(self, path: Path) -> None:
        """Replace a read-only file by a link to the one with the same content and mode.

        Where no link can be made (another disk, too many of them) the file stays as it is. A kept
        file that was changed meanwhile is not used again: this one takes its place.
        """
        status = path.stat()
        if not status.st_size:
            return
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        kept = self._home / digest[:2] / f"{digest}-{stat.S_IMODE(status.st_mode):o}"
        temporary = path.with_name(f".{uuid.uuid4().hex}")
        with suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            if kept.exists() and not filecmp.cmp(path, kept, shallow=False):
                kept.unlink()
            try:
                os.link(kept, temporary)
            except FileNotFoundError:
                os.link(path, kept)
            else:
                temporary.replace(path)

    def sweep(self) -> None:
        """Remove files that no environment has any more."""
        for path in self._home.glob("*/*"):
            with suppress(OSError):
                if path.lstat().st_nlink == 1:
                    path.unlink()
