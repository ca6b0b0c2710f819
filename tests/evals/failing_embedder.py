"""An embedder that is unavailable."""

from collections.abc import Sequence

from apexbridge.errors import EmbedderUnavailableError
from apexbridge.retrieval.base import Matrix, TextKind
from apexbridge.testing import HashEmbedder


class BrokenEmbedder(HashEmbedder):
    """Has a name and a size, and never answers."""

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        raise EmbedderUnavailableError("it is down", name=self.id)
