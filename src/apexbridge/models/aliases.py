"""Model names of settings and skills: aliases such as `sonnet`, and the `[1m]` suffix.

`opus[1m]` is the model `opus` with a context window of 1,000,000 tokens. The suffix is for clients:
it decides how much is listed and when a session is compacted, and is not sent to the API.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from apexbridge.models.base import ModelClient, ModelDelta, ModelRequest

MODEL_FAMILIES = frozenset({"sonnet", "opus", "haiku", "default", "inherit"})
"""Names in skills that are no model ids: without an alias, the configured model."""

LONG_CONTEXT = "[1m]"
LONG_WINDOW = 1_000_000


def has_long_context(name: str) -> bool:
    """Return whether a model name asks for the long context window."""
    return name.rstrip().casefold().endswith(LONG_CONTEXT)


def api_name(name: str) -> str:
    """Return the model name for the API, without the suffix."""
    return name.rstrip()[: -len(LONG_CONTEXT)].rstrip() if has_long_context(name) else name


def context_window(name: str, default: int) -> int:
    """Return the context window in tokens: the long one by its suffix, else the default."""
    return LONG_WINDOW if has_long_context(name) else default


def override_model(current: str, wanted: str | None) -> str:
    """Return the model that a skill wants, or else the current one, with its context window.

    A session with the long window keeps it: a history that fits in it would not fit in the shorter
    one of the same model.
    """
    if not wanted:
        return current
    keeps = has_long_context(current) and not has_long_context(wanted)
    return wanted + LONG_CONTEXT if keeps else wanted


class ModelAliases:
    """Model client that resolves aliases: a skill that wants `sonnet` gets what that is here."""

    def __init__(self, inner: ModelClient, default: str, aliases: Mapping[str, str]) -> None:
        self._inner = inner
        self._names = {**dict.fromkeys(MODEL_FAMILIES, default), **aliases}

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelDelta]]:
        """Open a stream of deltas from the resolved model."""
        wanted = api_name(request.model)
        name = api_name(self._names.get(request.model) or self._names.get(wanted, wanted))
        return self._inner.stream(
            replace(request, model=name) if name != request.model else request
        )
