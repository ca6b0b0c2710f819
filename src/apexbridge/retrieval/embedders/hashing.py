"""Feature hashing: deterministic word-hash vectors without a model, for tests and offline use."""

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from apexbridge.retrieval.base import Matrix, TextKind
from apexbridge.retrieval.embedders.validation import replace_surrogates, word_tokens


class HashEmbedder:
    """Bag-of-words hashing; Chinese counts by character bigrams. It has no semantics."""

    def __init__(self, dimensions: int = 64) -> None:
        self._dimensions = dimensions

    @property
    def id(self) -> str:
        """Name of the hashing scheme."""
        return f"hash-{self._dimensions}"

    @property
    def dimensions(self) -> int:
        """Size of every vector."""
        return self._dimensions

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        """Embed one batch, in order."""
        rows = np.zeros((len(texts), self._dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            self._fill(row, text)
        return rows

    async def close(self) -> None:
        """Do nothing: there are no resources."""

    def _fill(self, row: Matrix, text: str) -> None:
        for word, count in Counter(word_tokens(replace_surrogates(text))).items():
            digest = hashlib.blake2b(word.encode(), digest_size=5).digest()
            place = int.from_bytes(digest[:4]) % self._dimensions
            row[place] += count if digest[4] % 2 else -count
        length = np.linalg.norm(row)
        if length:
            row /= length
        else:  # no words, or words that cancel each other out
            row[0] = 1.0
