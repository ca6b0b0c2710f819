"""Which language model answers: the one that settings name, or the one that needs no key."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from apexbridge.models.aliased import AliasedModel
from apexbridge.models.anthropic import AnthropicModel
from apexbridge.models.base import ModelClient
from apexbridge.models.embedded import EmbeddedModel
from apexbridge.models.openai_compat import OpenAiModel
from apexbridge.models.presets import Preset, preset
from apexbridge.models.react_text import ReactTextModel, ToolFallbackModel
from apexbridge.models.trying import Patience
from apexbridge.settings import Loaded

EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A model that can be asked."""

    client: ModelClient
    name: str
    window: int
    close: Callable[[], Awaitable[None]]


async def _nothing() -> None:
    """There is nothing to let go of."""


def open_model(loaded: Loaded) -> Opened:
    """The model to ask. Nothing is reached before it is asked.

    Raises:
        ConfigError: If settings name a provider that is not known.
    """
    chosen = loaded.settings.model
    known = preset(chosen.preset) if chosen.preset else Preset(name="", title="", base_url="")
    address, name = chosen.base_url or known.base_url, chosen.name or known.model
    if not (address and name):
        return Opened(client=EmbeddedModel(), name=EMBEDDED, window=chosen.window, close=_nothing)
    key = chosen.api_key.get_secret_value() or _key_of(known, loaded)
    protocol = known.protocol if chosen.preset else chosen.protocol
    maker = AnthropicModel if protocol == "anthropic" else OpenAiModel
    inner = maker(address, api_key=key, patience=Patience(first_seconds=chosen.first_seconds))
    aliases = dict(text.split("=", 1) for text in chosen.aliases)
    return Opened(
        client=AliasedModel(_with_tools(inner, loaded, known, address), name, aliases),
        name=name,
        window=chosen.window,
        close=inner.close,
    )


def _key_of(known: Preset, loaded: Loaded) -> str:
    return next((loaded.keys[name] for name in known.key_names if name in loaded.keys), "")


def _with_tools(inner: ModelClient, loaded: Loaded, known: Preset, address: str) -> ModelClient:
    wanted = loaded.settings.model.tools
    way = known.tools if wanted == "auto" and known.name else wanted
    if way == "native":
        return inner
    has_schema = known.has_schema or loaded.settings.model.json_schema
    text = ReactTextModel(inner, has_schema=has_schema)
    return text if way == "text" else ToolFallbackModel(inner, base_url=address, text=text)
