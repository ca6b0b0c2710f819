"""What a skill is. Three types, one for each level of disclosure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from apexbridge import wording
from apexbridge.policy.hookspec import Hook
from apexbridge.policy.rules import ToolPattern
from apexbridge.skills.manifest import SkillManifest

Severity = Literal["error", "warning"]


class Origin(StrEnum):
    """The kind of source a skill comes from, strongest first (the default precedence)."""

    MANAGED = "managed"
    USER = "user"
    PROJECT = "project"
    INSTALLED = "installed"
    ADDITIONAL = "additional"
    BUNDLED = "bundled"
    PLUGIN = "plugin"
    MCP = "mcp"
    REMOTE = "remote"
    LEGACY = "legacy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Who vouches for a skill, and what that allows."""

    origin: Origin
    source_id: str
    needs_trust: bool = True
    """Whether a person has to approve each state of the skill before it may do anything."""
    may_run_shell: bool = False
    """Whether commands in its text may ever run; what comes over a network never may."""
    writable: bool = False
    home: Path | None = None
    """The folder whose files a project's skill is about; patterns in `paths` count from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What every file of a skill comes to: bytes in all, number of files, and one hash."""

    size: int
    files: int
    sha256: str


class FolderId(NamedTuple):
    """Which folder of the disk it is, whatever path leads to it."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """Level one: enough to list, rank and choose. Cheap; held for every known skill."""

    name: str
    description: str
    manifest: SkillManifest
    provenance: Provenance
    root: Path | None = None
    folder_id: FolderId | None = None
    fingerprint: Fingerprint | None = None
    tools: tuple[ToolPattern, ...] = ()
    hooks: tuple[Hook, ...] = ()
    is_trusted: bool = False
    """Whether its scripts, hooks, inline commands and tool grants count. Fails closed."""

    @property
    def may_run_shell(self) -> bool:
        """Say whether commands in its text may run."""
        return self.is_trusted and self.provenance.may_run_shell

    @property
    def is_conditional(self) -> bool:
        """Say whether the skill sleeps until a matching file is touched."""
        return bool(self.manifest.paths)

    @property
    def summary(self) -> str:
        """The description with `when_to_use` behind it: what models read and search reads."""
        return " ".join(filter(None, (self.description, self.manifest.when_to_use)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillContent:
    """Level two: the body, read when the skill is activated."""

    skill: Skill
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillResource:
    """Level three: a file beside SKILL.md, read when the body points to it."""

    skill: Skill
    path: PurePosixPath
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One broken rule, said so that the author can mend it."""

    code: str
    where: str
    severity: Severity = "error"
    details: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def message(self) -> str:
        """The broken rule, in English."""
        return self.said().message

    def said(self, language: wording.Language = "en") -> wording.Phrase:
        """The broken rule and how to mend it, in the reader's language."""
        return wording.say(self.code, self.details, language)
