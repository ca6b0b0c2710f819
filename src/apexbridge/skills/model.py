"""What a skill is. Three types, one for each level of disclosure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from apexbridge import locales
from apexbridge.permissions.hook_protocol import Hook
from apexbridge.permissions.rules import ToolPattern, split_patterns

YamlValue: TypeAlias = "str | list[YamlValue] | dict[str, YamlValue] | None"
"""What frontmatter is made of before anyone says what it means: text, lists and mappings."""

PORTABLE_PREFIX = "apexbridge."
"""Fields outside the Agent Skills format may stand in `metadata` under this prefix."""

SPEC_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""All that the Agent Skills format itself knows."""


def _as_patterns(value: YamlValue) -> object:
    return split_patterns(value) if isinstance(value, str) else _as_list(value)


def _as_list(value: YamlValue) -> object:
    return () if value is None else value


def _as_words(value: YamlValue) -> object:
    return value.replace(",", " ").split() if isinstance(value, str) else _as_list(value)


def _as_globs(value: YamlValue) -> object:
    """Cut at commas and line ends, but not inside braces."""
    if not isinstance(value, str):
        return _as_list(value)
    parts, depth = [""], 0
    for char in value:
        depth += (char == "{") - (char == "}" and depth > 0)
        if char == "\n" or (char == "," and depth == 0):
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def _as_text_map(value: YamlValue) -> object:
    """Many authors nest; what is nested is kept as JSON text."""
    if not isinstance(value, dict):
        return {} if value is None else value
    return {key: _as_text(entry) for key, entry in value.items()}


def _as_text(value: YamlValue) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _as_hint(value: YamlValue) -> object:
    """`[file]` is how hints are written, and YAML takes it for a list."""
    if isinstance(value, list):
        return f"[{', '.join(map(_as_text, value))}]"
    return value


def _as_choice(value: YamlValue) -> object:
    """One word, whatever its case; a list of one is that word."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value.strip().lower() if isinstance(value, str) else value


ToolPatterns = Annotated[tuple[str, ...], BeforeValidator(_as_patterns)]
WordList = Annotated[tuple[str, ...], BeforeValidator(_as_words)]
GlobList = Annotated[tuple[str, ...], BeforeValidator(_as_globs)]
HintText = Annotated[str | None, BeforeValidator(_as_hint)]
TextMap = Annotated[dict[str, str], BeforeValidator(_as_text_map)]


class SkillManifest(BaseModel):
    """What an author declared. Unknown keys are kept (`model_extra`), never trusted."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    name: str | None = None
    description: str | None = None
    when_to_use: str | None = None
    version: str | None = None
    license: str | None = None
    compatibility: str | None = None
    metadata: TextMap = Field(default_factory=dict[str, str])
    allowed_tools: ToolPatterns = Field(default=(), alias="allowed-tools")
    disallowed_tools: ToolPatterns = Field(default=(), alias="disallowed-tools")
    argument_hint: HintText = Field(default=None, alias="argument-hint")
    arguments: WordList = ()
    model: str | None = None
    effort: str | None = None
    context: Annotated[Literal["inline", "fork"], BeforeValidator(_as_choice)] = "inline"
    agent: str | None = None
    user_invocable: bool = Field(default=True, alias="user-invocable")
    disable_model_invocation: bool = Field(default=False, alias="disable-model-invocation")
    paths: GlobList = ()
    hooks: dict[str, Any] = Field(default_factory=dict[str, Any])
    shell: Annotated[Literal["bash", "powershell"], BeforeValidator(_as_choice)] = "bash"


def _yaml_key(field: str) -> str:
    return SkillManifest.model_fields[field].alias or field


KEYS = tuple(map(_yaml_key, SkillManifest.model_fields))
"""Every key we know, as it is written in SKILL.md."""


def _fold_key(key: str) -> str:
    return key.replace("-", "").replace("_", "").lower()


_KEY_BY_FOLDED = {_fold_key(key): key for key in KEYS}


def canonical_key(key: str) -> str | None:
    """The key an author meant: `allowedTools` and `allowed_tools` are `allowed-tools`."""
    return key if key in KEYS else _KEY_BY_FOLDED.get(_fold_key(key))


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
        return self.localized().message

    def localized(self, language: locales.Language = "en") -> locales.LocalizedText:
        """The broken rule and how to mend it, in the reader's language."""
        return locales.localize(self.code, self.details, language)
