"""What an archive would become: the limits it is held to, and the files it would give."""

from dataclasses import dataclass
from pathlib import PurePosixPath

from apexbridge.errors import ArchiveError, ArchiveUnsafeError
from apexbridge.skills.model import Problem

_MIB = 1024 * 1024
_ENTRIES_PER_FILE = 4
"""A file may come with a folder of its own, and both with what a desktop system adds to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """The largest archive that is taken."""

    packed_bytes: int = 30_000_000
    unpacked_bytes: int = 64 * _MIB
    file_bytes: int = 10_000_000
    files: int = 2_000
    ratio: int = 100
    """How many times its packed size a file may have; small files may have more."""
    ratio_floor_bytes: int = _MIB
    """What is no larger than this when unpacked is never called a bomb."""
    depth: int = 16
    """Names on the way to a file, the root folder's and its own among them."""
    path_bytes: int = 240

    @property
    def entries(self) -> int:
        """How many entries the end of an archive may announce."""
        return self.files * _ENTRIES_PER_FILE


DEFAULT_LIMITS = ArchiveLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFile:
    """A file that would be written; `path` is relative to the skill's root."""

    path: PurePosixPath
    size: int
    executable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionPlan:
    """What an archive gives when it is unpacked."""

    folder: str
    """The name of its one root folder, in NFC."""
    files: tuple[ArchiveFile, ...]
    size: int
    """Bytes of all files together."""
    skill_md: bytes
    problems: tuple[Problem, ...]
    """Warnings only: what is an error is raised."""
    dropped: tuple[str, ...]
    """Entries that are no part of the skill and are not written."""


def limit_exceeded(detail: str) -> ArchiveError:
    """The refusal of more than the limits allow."""
    return ArchiveUnsafeError(detail, code="zip_too_large")
