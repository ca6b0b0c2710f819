"""Archive limits against zip bombs, and the result of an extraction."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from apexbridge.errors import ArchiveError, ArchiveUnsafeError
from apexbridge.skills.model import Problem

_MIB = 1024 * 1024
_ENTRIES_PER_FILE = 4
"""A file may come with its folder, and both with metadata of a desktop system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """Maximum sizes, counts and compression ratio of an accepted archive.

    The defaults are for `pack` and for library calls; an installation takes its limits from the
    settings `install.*` (`settings/schema.py`), whose defaults are the same (tested).
    """

    packed_bytes: int = 30_000_000
    unpacked_bytes: int = 64 * _MIB
    file_bytes: int = 10_000_000
    files: int = 2_000
    ratio: int = 100
    """Maximum compression ratio of a file, above the floor below."""
    ratio_floor_bytes: int = _MIB
    """Unpacked size up to which any ratio is accepted."""
    depth: int = 16
    """Maximum number of path components, root folder and file name included."""
    path_bytes: int = 240

    @property
    def entries(self) -> int:
        """Maximum number of entries that the EOCD record may announce."""
        return self.files * _ENTRIES_PER_FILE


DEFAULT_LIMITS = ArchiveLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFile:
    """A file to extract; `path` is relative to the skill's root."""

    path: PurePosixPath
    size: int
    executable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionPlan:
    """The files of an archive after all checks."""

    folder: str
    """Name of the root folder, in NFC."""
    files: tuple[ArchiveFile, ...]
    size: int
    """Total bytes of all files."""
    skill_md: bytes
    problems: tuple[Problem, ...]
    """Warnings; errors are raised."""
    dropped: tuple[str, ...]
    """Names of entries that are not extracted."""


def limit_exceeded(detail: str) -> ArchiveError:
    """Create the error for an exceeded limit."""
    return ArchiveUnsafeError(detail, code="zip_too_large")
