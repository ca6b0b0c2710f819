"""Data model of skills: manifest, provenance, and three levels of progressive disclosure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from apexbridge import locales
from apexbridge.permissions.hook_protocol import Hook
from apexbridge.permissions.rules import ToolPattern, split_patterns
from apexbridge.skills.secret_declarations import SecretDeclarations

YamlValue: TypeAlias = "str | list[YamlValue] | dict[str, YamlValue] | None"
"""A parsed YAML value before it has a type: text, lists and mappings."""

PORTABLE_PREFIX = "apexbridge."
"""Prefix under which `metadata` may hold fields outside of the Agent Skills format."""

SPEC_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""Keys of the Agent Skills format itself."""


def _as_patterns(value: YamlValue) -> object:
    return split_patterns(value) if isinstance(value, str) else _as_list(value)


def _as_list(value: YamlValue) -> object:
    return () if value is None else value


def _as_words(value: YamlValue) -> object:
    return value.replace(",", " ").split() if isinstance(value, str) else _as_list(value)


def _as_globs(value: YamlValue) -> object:
    """Split at commas and line breaks, but not inside braces."""
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
    """Keep nested values, which many authors write, as JSON text."""
    if not isinstance(value, dict):
        return {} if value is None else value
    return {key: _as_text(entry) for key, entry in value.items()}


def _as_text(value: YamlValue) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _as_hint(value: YamlValue) -> object:
    """Turn `[file]`, which YAML parses as a list, back into the text of a hint."""
    if isinstance(value, list):
        return f"[{', '.join(map(_as_text, value))}]"
    return value


def _as_choice(value: YamlValue) -> object:
    """Normalise one word to lower case; a list of one is that word."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value.strip().lower() if isinstance(value, str) else value


def _as_name(value: YamlValue) -> object:
    """Strip a name; a blank one is none."""
    return value.strip() or None if isinstance(value, str) else value


def _as_model(value: YamlValue) -> object:
    name = _as_name(value)
    return "inherit" if isinstance(name, str) and name.lower() == "inherit" else name


ToolPatterns = Annotated[tuple[str, ...], BeforeValidator(_as_patterns)]
WordList = Annotated[tuple[str, ...], BeforeValidator(_as_words)]
GlobList = Annotated[tuple[str, ...], BeforeValidator(_as_globs)]
HintText = Annotated[str | None, BeforeValidator(_as_hint)]
TextMap = Annotated[dict[str, str], BeforeValidator(_as_text_map)]


class SkillManifest(BaseModel):
    """Frontmatter fields as declared. Unknown keys are kept (`model_extra`), never trusted."""

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
    model: Annotated[str | None, BeforeValidator(_as_model)] = None
    effort: str | None = None
    context: Annotated[Literal["inline", "fork"], BeforeValidator(_as_choice)] = "inline"
    agent: Annotated[str | None, BeforeValidator(_as_name)] = None
    user_invocable: bool = Field(default=True, alias="user-invocable")
    disable_model_invocation: bool = Field(default=False, alias="disable-model-invocation")
    paths: GlobList = ()
    hooks: dict[str, Any] = Field(default_factory=dict[str, Any])
    shell: Annotated[Literal["bash", "powershell"], BeforeValidator(_as_choice)] = "bash"
    secrets: SecretDeclarations = ()


def _yaml_key(field: str) -> str:
    return SkillManifest.model_fields[field].alias or field


KEYS = tuple(map(_yaml_key, SkillManifest.model_fields))
"""Every known key, as it is written in SKILL.md."""


def fold_key(key: str) -> str:
    """Fold the spellings of a key: `Allowed_Tools` and `allowed-tools` are `allowedtools`."""
    return key.replace("-", "").replace("_", "").lower()


_KEY_BY_FOLDED = {fold_key(key): key for key in KEYS}


def canonical_key(key: str) -> str | None:
    """Resolve a key's spelling: `allowedTools` and `allowed_tools` are `allowed-tools`."""
    return key if key in KEYS else _KEY_BY_FOLDED.get(fold_key(key))


DESCRIPTIVE_KEYS = frozenset({
    "tags", "keywords", "category", "categories", "domain", "triggers", "notfor", "tier", "type",
    "author", "authors", "maintainer", "homepage", "repository", "url", "source", "created",
    "updated", "status", "language", "languages", "agents", "compatibletools", "command",
    "dependencies", "requires", "requirements", "title", "displayname", "color",
})  # fmt: skip
"""Folded keys that authors often write for people and other clients. They change nothing here."""

Severity = Literal["error", "warning", "advice"]
"""An error refuses an installation, a warning does not; advice is on what breaks no rule."""


class Origin(StrEnum):
    """Kind of the source that lists a skill, in order of the default precedence."""

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
    """Source of a skill and the trust that follows from it."""

    origin: Origin
    source_id: str
    needs_trust: bool = True
    """True if a person must approve each version of the skill (by hash) before it may act."""
    may_run_shell: bool = False
    """True if inline commands may ever run; those of remote skills never may."""
    writable: bool = False
    home: Path | None = None
    """The project folder that a nested skill belongs to; `paths` globs are relative to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Content hash of all files of a skill, with their number and total size."""

    size: int
    files: int
    sha256: str


class FolderId(NamedTuple):
    """Device and inode of a folder, the same through any symlink."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """Level one, metadata: enough to list, rank and choose. Held for every known skill."""

    name: str
    description: str
    manifest: SkillManifest
    provenance: Provenance
    root: Path | None = None
    file: Path | None = None
    """The Markdown file of a skill that has no folder: a command."""
    folder_id: FolderId | None = None
    fingerprint: Fingerprint | None = None
    tools: tuple[ToolPattern, ...] = ()
    hooks: tuple[Hook, ...] = ()
    is_trusted: bool = False
    """True if its scripts, hooks, inline commands and tool grants are allowed. Fails closed."""

    @property
    def may_run_shell(self) -> bool:
        """True if its inline commands may run."""
        return self.is_trusted and self.provenance.may_run_shell

    @property
    def trusted_sha256(self) -> str:
        """Hash of the files that were trusted; empty for a skill that needs no trust."""
        is_bound = self.provenance.needs_trust and self.is_trusted
        return self.fingerprint.sha256 if is_bound and self.fingerprint else ""

    @property
    def is_conditional(self) -> bool:
        """True if the skill stays hidden until a file that matches `paths` is touched."""
        return bool(self.manifest.paths)

    @property
    def summary(self) -> str:
        """Description and `when_to_use`: the text for models and for the search index."""
        return " ".join(filter(None, (self.description, self.manifest.when_to_use)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillContent:
    """Level two, instructions: the body, loaded when the skill is activated."""

    skill: Skill
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillResource:
    """Level three, resources: a file beside SKILL.md, loaded when the body refers to it."""

    skill: Skill
    path: PurePosixPath
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One diagnostic: a violated rule with its location and severity."""

    code: str
    where: str
    severity: Severity = "error"
    details: Mapping[str, object] = field(default_factory=dict[str, object])

    @classmethod
    def error(cls, code: str, where: str, /, **details: object) -> Self:
        """Build an error from its details."""
        return cls(code=code, where=where, details=details)

    @classmethod
    def warning(cls, code: str, where: str, /, **details: object) -> Self:
        """Build a warning from its details."""
        return cls(code=code, where=where, severity="warning", details=details)

    @property
    def message(self) -> str:
        """The message in English."""
        return self.localized().message

    def localized(self, language: locales.Language = "en") -> locales.LocalizedText:
        """The message and how to fix it, in the given language."""
        return locales.localize(self.code, self.details, language)
