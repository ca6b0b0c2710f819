"""The client for a provider, put together from what is known of it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from apexbridge.models.anthropic import AnthropicModel
from apexbridge.models.base import ModelClient
from apexbridge.models.openai_compat import OpenAiModel
from apexbridge.models.presets import Protocol, Tools, preset
from apexbridge.models.react_text import ReactTextModel, ToolFallbackModel
from apexbridge.models.trying import Patience


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where a model is, and how it is talked to."""

    base_url: str
    api_key: str = field(default="", repr=False)
    protocol: Protocol = "openai"
    tools: Tools = "auto"
    has_schema: bool = False
    """Whether the server enforces a `json_schema`; only asked of it where tools are words."""
    patience: Patience = field(default_factory=Patience)

    @classmethod
    def to(cls, provider: str, *, api_key: str = "", base_url: str = "") -> "Connection":
        """A connection to a provider by its name, at another address if one is given.

        Raises:
            ConfigError: If there is no such provider.
        """
        known = preset(provider)
        return cls(
            base_url=base_url or known.base_url,
            api_key=api_key,
            protocol=known.protocol,
            tools=known.tools,
            has_schema=known.has_schema,
        )

    def but(self, *, protocol: Protocol | None = None, tools: Tools | None = None) -> "Connection":
        """The same with what is given."""
        return replace(self, protocol=protocol or self.protocol, tools=tools or self.tools)


@asynccontextmanager
async def connected(connection: Connection) -> AsyncGenerator[ModelClient]:
    """A client for as long as the block lasts; nothing is sent before the first request."""
    kind = AnthropicModel if connection.protocol == "anthropic" else OpenAiModel
    client = kind(connection.base_url, api_key=connection.api_key, patience=connection.patience)
    in_words = ReactTextModel(client, has_schema=connection.has_schema)
    choices: dict[Tools, ModelClient] = {
        "native": client,
        "text": in_words,
        "auto": ToolFallbackModel(client, base_url=connection.base_url, text=in_words),
    }
    try:
        yield choices[connection.tools]
    finally:
        await client.close()
