"""The frontmatter of SKILL.md, field for field: which there are, and what their values may be."""

import json
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from apexbridge.policy.rules import split_patterns

Value: TypeAlias = "str | list[Value] | dict[str, Value] | None"
"""What frontmatter is made of before anyone says what it means: text, lists and mappings."""

PORTABLE_PREFIX = "apexbridge."
"""Fields outside the Agent Skills format may stand in `metadata` under this prefix."""

SPEC_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""All that the Agent Skills format itself knows."""


def _as_patterns(value: Value) -> object:
    return split_patterns(value) if isinstance(value, str) else _as_list(value)


def _as_list(value: Value) -> object:
    return () if value is None else value


def _as_words(value: Value) -> object:
    return value.replace(",", " ").split() if isinstance(value, str) else _as_list(value)


def _as_globs(value: Value) -> object:
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


def _as_text_map(value: Value) -> object:
    """Many authors nest; what is nested is kept as JSON text."""
    if not isinstance(value, dict):
        return {} if value is None else value
    return {key: _as_text(entry) for key, entry in value.items()}


def _as_text(value: Value) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _as_hint(value: Value) -> object:
    """`[file]` is how hints are written, and YAML takes it for a list."""
    if isinstance(value, list):
        return f"[{', '.join(map(_as_text, value))}]"
    return value


def _as_choice(value: Value) -> object:
    """One word, whatever its case; a list of one is that word."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value.strip().lower() if isinstance(value, str) else value


Patterns = Annotated[tuple[str, ...], BeforeValidator(_as_patterns)]
Words = Annotated[tuple[str, ...], BeforeValidator(_as_words)]
Globs = Annotated[tuple[str, ...], BeforeValidator(_as_globs)]
Hint = Annotated[str | None, BeforeValidator(_as_hint)]
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
    allowed_tools: Patterns = Field(default=(), alias="allowed-tools")
    disallowed_tools: Patterns = Field(default=(), alias="disallowed-tools")
    argument_hint: Hint = Field(default=None, alias="argument-hint")
    arguments: Words = ()
    model: str | None = None
    effort: str | None = None
    context: Annotated[Literal["inline", "fork"], BeforeValidator(_as_choice)] = "inline"
    agent: str | None = None
    user_invocable: bool = Field(default=True, alias="user-invocable")
    disable_model_invocation: bool = Field(default=False, alias="disable-model-invocation")
    paths: Globs = ()
    hooks: dict[str, Any] = Field(default_factory=dict[str, Any])
    shell: Annotated[Literal["bash", "powershell"], BeforeValidator(_as_choice)] = "bash"


def _key_of(field: str) -> str:
    return SkillManifest.model_fields[field].alias or field


KEYS = tuple(map(_key_of, SkillManifest.model_fields))
"""Every key we know, as it is written in SKILL.md."""


def _fold(key: str) -> str:
    return key.replace("-", "").replace("_", "").lower()


_BY_SPELLING = {_fold(key): key for key in KEYS}


def canonical_key(key: str) -> str | None:
    """The key an author meant: `allowedTools` and `allowed_tools` are `allowed-tools`."""
    return key if key in KEYS else _BY_SPELLING.get(_fold(key))
