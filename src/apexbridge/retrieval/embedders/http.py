"""Embedder over HTTP: OpenAI-compatible `/embeddings`."""

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ValidationError

from apexbridge.errors import EmbedderOutputError, EmbedderUnavailableError
from apexbridge.models.upstream import Upstream
from apexbridge.models.upstream_errors import ErrorMapping
from apexbridge.retrieval.base import Matrix, TextKind
from apexbridge.retrieval.embedders.validation import normalized_rows, replace_surrogates

_MAX_CHARACTERS = 8_000
"""Longer texts exceed the usual window of 8192 tokens, for which servers refuse the batch."""
_MAX_BODY_BYTES = 1024 * 1024
_MAX_BODY_BYTES_PER_ROW = 256 * 1024
"""Enough for 8192 floats in JSON."""


class _EmbeddingRow(BaseModel):
    embedding: list[float] | str
    index: int | None = None


class _EmbeddingsResponse(BaseModel):
    data: list[_EmbeddingRow]


class HttpEmbedder:
    """Client for `{base_url}/embeddings`; the URL is used as it is given.

    The first call creates the connection pool, which belongs to its event loop.
    """

    def __init__(  # noqa: PLR0913  # each is a setting
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "",
        dimensions: int = 0,
        batch: int = 64,
        timeout_seconds: float = 30,
        query_prefix: str = "",
        document_prefix: str = "",
    ) -> None:
        self._upstream = Upstream(base_url, api_key=api_key, timeout_seconds=timeout_seconds)
        self._model = model
        self._asked_dimensions = dimensions
        self._dimensions = dimensions
        self._batch = batch
        self._prefixes: dict[TextKind, str] = {"query": query_prefix, "document": document_prefix}

    @property
    def id(self) -> str:
        """Host, model and whatever else changes the vectors."""
        parts = ["http", self._upstream.host, self._model]
        if self._asked_dimensions:
            parts.append(str(self._asked_dimensions))
        if any(self._prefixes.values()):
            written = json.dumps(self._prefixes, sort_keys=True).encode()
            parts.append(hashlib.sha256(written).hexdigest()[:8])
        return ":".join(parts)

    @property
    def dimensions(self) -> int:
        """Size of every vector; 0 before the first response, unless it was requested."""
        return self._dimensions

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        """Embed in batches, in order."""
        prefix = self._prefixes[kind]
        said = [_truncated(prefix + text) for text in texts]
        parts = [
            await self._embed(said[start : start + self._batch])
            for start in range(0, len(said), self._batch)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, self._dimensions), np.float32)

    async def close(self) -> None:
        """Close the connections."""
        await self._upstream.close()

    async def _embed(self, texts: Sequence[str]) -> Matrix:
        body = await self._post(texts)
        rows = self._rows(body, len(texts))
        checked = normalized_rows(rows, count=len(texts), dimensions=self._dimensions, name=self.id)
        self._dimensions = checked.shape[1]
        return checked

    async def _post(self, texts: Sequence[str]) -> bytes:
        fields: dict[str, object] = {
            "model": self._model,
            "input": texts,
            "encoding_format": "float",
        }
        if self._asked_dimensions:
            fields["dimensions"] = self._asked_dimensions
        errors = ErrorMapping(
            name=self.id,
            unavailable=EmbedderUnavailableError,
            rejected=EmbedderUnavailableError,
            unusable=EmbedderOutputError,
        )
        max_bytes = _MAX_BODY_BYTES + len(texts) * _MAX_BODY_BYTES_PER_ROW
        return await self._upstream.post_bytes(
            "/embeddings", fields, max_bytes=max_bytes, errors=errors
        )

    def _rows(self, body: bytes, count: int) -> list[list[float]]:
        try:
            rows = _EmbeddingsResponse.model_validate_json(body).data
        except ValidationError:
            detail = "the answer is not JSON with vectors in `data`"
            raise EmbedderOutputError(detail, name=self.id) from None
        if any(row.index is not None for row in rows):
            by_index = {row.index: row for row in rows}
            if len(rows) != count or by_index.keys() != set(range(count)):
                detail = f"{len(rows)} vectors for {count} texts, or not one for each"
                raise EmbedderOutputError(detail, name=self.id)
            rows = [by_index[at] for at in range(count)]
        return [self._numbers(row.embedding) for row in rows]

    def _numbers(self, embedding: list[float] | str) -> list[float]:
        if not isinstance(embedding, str):
            return embedding
        try:
            return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4").tolist()
        except (binascii.Error, ValueError) as error:
            raise EmbedderOutputError("a vector that is not base64", name=self.id) from error


def _truncated(text: str) -> str:
    """Sanitize a text for servers: no lone surrogates, no NUL, not too long, not empty."""
    return replace_surrogates(text[:_MAX_CHARACTERS]).replace("\0", " ") or " "
