"""Other names for models: a skill asks for `sonnet`, and gets what is called so here."""

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
"""Names in skills that stand for no model of any provider: without an alias, the usual one."""


class ModelAliases:
    """Asks for the model that a name stands for; names without one are asked for as they are."""

    def __init__(self, inner: ModelClient, usual: str, aliases: Mapping[str, str]) -> None:
        self._inner = inner
        self._names = {**dict.fromkeys(MODEL_FAMILIES, usual), **aliases}

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelDelta]]:
        """Open a reply."""
        name = self._names.get(request.model, request.model)
        return self._inner.stream(
            replace(request, model=name) if name != request.model else request
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderConnection:
    """Where a model is, and how it is talked to."""

    base_url: str
    api_key: str = field(default="", repr=False)
    protocol: Protocol = "openai"
    tools: Tools = "auto"
    has_schema: bool = False
    """Whether the server enforces a `json_schema`; only asked of it where tools are words."""
    patience: Timeouts = field(default_factory=Timeouts)

    @classmethod
    def to(cls, provider: str, *, api_key: str = "", base_url: str = "") -> "ProviderConnection":
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

    def but(
        self, *, protocol: Protocol | None = None, tools: Tools | None = None
    ) -> "ProviderConnection":
        """The same with what is given."""
        return replace(self, protocol=protocol or self.protocol, tools=tools or self.tools)


@asynccontextmanager
async def open_client(connection: ProviderConnection) -> AsyncGenerator[ModelClient]:
    """A client for as long as the block lasts; nothing is sent before the first request."""
    kind = AnthropicModel if connection.protocol == "anthropic" else OpenAiModel
    client = kind(connection.base_url, api_key=connection.api_key, patience=connection.patience)
    in_words = TextToolCallModel(client, has_schema=connection.has_schema)
    choices: dict[Tools, ModelClient] = {
        "native": client,
        "text": in_words,
        "auto": ToolFallbackModel(client, base_url=connection.base_url, text=in_words),
    }
    try:
        yield choices[connection.tools]
    finally:
        await client.close()
