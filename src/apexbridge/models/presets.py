"""Provider presets: base URL, API key variables and wire protocol, from `presets.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from apexbridge.errors import ConfigError

Protocol = Literal["openai", "anthropic"]
Tools = Literal["native", "text", "auto"]
"""Native tool calls, tool calls as text, or native with text as the fallback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Defaults of one provider."""

    name: str
    title: str
    base_url: str
    key_names: tuple[str, ...] = ()
    """Environment variables that may hold the API key, in order of precedence."""
    protocol: Protocol = "openai"
    tools: Tools = "native"
    model: str = ""
    """Default model; empty where it depends on what is installed or subscribed to."""
    has_schema: bool = False
    """Whether the server enforces a `json_schema` with every model."""


def _load() -> dict[str, Preset]:
    rows: list[dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_bytes())
    for row in rows:
        row["key_names"] = tuple(row.get("key_names", ()))
    return {row["name"]: Preset(**row) for row in rows}


PRESETS: Mapping[str, Preset] = MappingProxyType(_load())
_ALIASES = {
    "qwen": "dashscope",
    "kimi": "moonshot",
    "glm": "zhipu",
    "bigmodel": "zhipu",
    "zai": "zhipu-intl",
    "claude": "anthropic",
}


def preset(name: str) -> Preset:
    """Look up a preset by name or alias.

    >>> preset("LM Studio").base_url, preset("Qwen").name
    ('http://localhost:1234/v1', 'dashscope')

    Raises:
        ConfigError: If there is none of that name.
    """
    key = name.strip().lower().replace("_", "-").replace(" ", "")
    key = key.replace("lm-studio", "lmstudio")
    found = PRESETS.get(_ALIASES.get(key, key))
    if found is None:
        known = (*PRESETS, *_ALIASES)
        near = get_close_matches(key, known, n=1) or sorted(PRESETS)
        raise ConfigError(f"no provider is named {name!r}; try {', '.join(near)}")
    return found
