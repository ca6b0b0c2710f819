"""Model client factory: a provider connection to a client, and model aliases."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace

from apexbridge.models.anthropic import AnthropicModel
from apexbridge.models.base import ModelClient, ModelDelta, ModelRequest
from apexbridge.models.openai import OpenAiModel
from apexbridge.models.presets import Protocol, Tools, preset
from apexbridge.models.retry import Timeouts
from apexbridge.models.text_tool_calls.client import TextToolCallModel, ToolFallbackModel

MODEL_FAMILIES = frozenset({"sonnet", "opus", "haiku", "default", "inherit"})
"""Names in skills that are no model ids: without an alias, the configured model."""


class ModelAliases:
    """Model client that resolves aliases: a skill that wants `sonnet` gets what that is here."""

    def __init__(self, inner: ModelClient, default: str, aliases: Mapping[str, str]) -> None:
        self._inner = inner
        self._names = {**dict.fromkeys(MODEL_FAMILIES, default), **aliases}

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelDelta]]:
        """Open a stream of deltas from the resolved model."""
        name = self._names.get(request.model, request.model)
        return self._inner.stream(
            replace(request, model=name) if name != request.model else request
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderConnection:
    """Base URL, key, wire protocol and tool-call mode of a provider."""

    base_url: str
    api_key: str = field(default="", repr=False)
    protocol: Protocol = "openai"
    tools: Tools = "auto"
    has_schema: bool = False
    """Whether the server enforces a `json_schema`; used for text tool calls only."""
    timeouts: Timeouts = field(default_factory=Timeouts)

    @classmethod
    def from_preset(
        cls, provider: str, *, api_key: str = "", base_url: str = ""
    ) -> "ProviderConnection":
        """Build the connection of a provider preset, with another base URL if one is given.

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

    def override(
        self, *, protocol: Protocol | None = None, tools: Tools | None = None
    ) -> "ProviderConnection":
        """Copy with the arguments that are given."""
        return replace(self, protocol=protocol or self.protocol, tools=tools or self.tools)


@asynccontextmanager
async def open_client(connection: ProviderConnection) -> AsyncGenerator[ModelClient]:
    """Open a client for the block; nothing is sent before the first request."""
    kind = AnthropicModel if connection.protocol == "anthropic" else OpenAiModel
    client = kind(connection.base_url, api_key=connection.api_key, timeouts=connection.timeouts)
    text_client = TextToolCallModel(client, has_schema=connection.has_schema)
    choices: dict[Tools, ModelClient] = {
        "native": client,
        "text": text_client,
        "auto": ToolFallbackModel(client, base_url=connection.base_url, text=text_client),
    }
    try:
        yield choices[connection.tools]
    finally:
        await client.close()
