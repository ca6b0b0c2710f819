"""Model factory: create the model client by settings, else the embedded model that needs no key."""

from dataclasses import dataclass
from typing import Protocol

from apexbridge.models.aliases import ModelAliases, context_window
from apexbridge.models.anthropic import AnthropicModel
from apexbridge.models.base import ModelClient
from apexbridge.models.embedded import EmbeddedModel
from apexbridge.models.openai import OpenAiModel
from apexbridge.models.presets import Preset, preset
from apexbridge.models.retry import Timeouts
from apexbridge.models.text_tool_calls.client import TextToolCallModel, ToolFallbackModel
from apexbridge.settings import Config

EMBEDDED_MODEL = "embedded"


class ModelConnection(Protocol):
    """HTTP connections of a model client."""

    async def close(self) -> None:
        """Close all connections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelHandle:
    """A model client with its default model name and context window."""

    client: ModelClient
    name: str
    window: int
    connection: ModelConnection | None = None

    async def close(self) -> None:
        """Close the HTTP connections, if there are any."""
        if self.connection is not None:
            await self.connection.close()


def open_model(config: Config) -> ModelHandle:
    """Create the model client of settings; it connects at the first request.

    Raises:
        ConfigError: If settings name a provider that is not known.
    """
    chosen = config.settings.model
    known = preset(chosen.preset) if chosen.preset else Preset(name="", title="", base_url="")
    address, name = chosen.base_url or known.base_url, chosen.name or known.model
    if not (address and name):
        return ModelHandle(
            client=EmbeddedModel(), name=EMBEDDED_MODEL, window=chosen.context_window
        )
    key = chosen.api_key.get_secret_value() or _api_key(known, config)
    protocol = known.protocol if chosen.preset else chosen.protocol
    maker = AnthropicModel if protocol == "anthropic" else OpenAiModel
    inner = maker(
        address, api_key=key, timeouts=Timeouts(first_byte_seconds=chosen.first_token_seconds)
    )
    aliases = dict(text.split("=", 1) for text in chosen.aliases)
    return ModelHandle(
        client=ModelAliases(_with_tool_calls(inner, config, known, address), name, aliases),
        name=name,
        window=context_window(name, chosen.context_window),
        connection=inner,
    )


def _api_key(known: Preset, config: Config) -> str:
    return next((config.keys[name] for name in known.key_names if name in config.keys), "")


def _with_tool_calls(
    inner: ModelClient, config: Config, known: Preset, address: str
) -> ModelClient:
    wanted = config.settings.model.tools
    way = known.tools if wanted == "auto" and known.name else wanted
    if way == "native":
        return inner
    has_schema = known.has_schema or config.settings.model.json_schema
    text = TextToolCallModel(inner, has_schema=has_schema)
    return text if way == "text" else ToolFallbackModel(inner, base_url=address, text=text)
