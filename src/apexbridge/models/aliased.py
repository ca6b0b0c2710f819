"""Other names for models: a skill asks for `sonnet`, and gets what is called so here."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from apexbridge.models.base import ModelClient, ModelDelta, ModelRequest

FAMILIES = frozenset({"sonnet", "opus", "haiku", "default", "inherit"})
"""Names in skills that stand for no model of any provider: without an alias, the usual one."""


class AliasedModel:
    """Asks for the model that a name stands for; names without one are asked for as they are."""

    def __init__(self, inner: ModelClient, usual: str, aliases: Mapping[str, str]) -> None:
        self._inner = inner
        self._names = {**dict.fromkeys(FAMILIES, usual), **aliases}

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelDelta]]:
        """Open a reply."""
        name = self._names.get(request.model, request.model)
        return self._inner.stream(
            replace(request, model=name) if name != request.model else request
        )
