"""Model aliases: models behind the names `sonnet`, `opus` and `haiku` that skills ask for."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from apexbridge.models.base import ModelClient, ModelDelta, ModelRequest

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
