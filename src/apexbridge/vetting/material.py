"""What is vetted: the bytes of a skill, and how much of them is looked at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

SKILL_MD = "SKILL.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a skill, by its path inside the folder."""

    path: PurePosixPath
    data: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """A skill as it was found."""

    folder: str
    files: tuple[File, ...]
    others: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names and descriptions of the skills already known."""
    is_partial: bool = False
    """Whether files were left out before they came here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VettingLimits:
    """Where looking stops; what lies behind makes a report partial."""

    files: int = 2_000
    file_bytes: int = 1024 * 1024
    total_bytes: int = 64 * 1024 * 1024
    text_bytes: int = 8 * 1024 * 1024
    """How much text is read in all, SKILL.md and programs first."""
    findings: int = 10_000
    findings_per_rule: int = 20
    """In one file; the others would say the same again."""
    program_bytes: int = 256 * 1024
    """The largest Python file whose data flow is followed."""
    others: int = 20_000
    """How many known skills names and descriptions are compared with."""


DEFAULT_LIMITS = VettingLimits()
