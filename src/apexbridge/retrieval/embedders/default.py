"""Default embedder: a bundled ONNX bi-encoder for English and Chinese.

Two models share one embedding space and one vocabulary: a query encoder, and a smaller document
encoder, because documents are many and say plainly what they are about. The weights are in the
package `apexbridge-retriever` and are verified by SHA-256: other weights give other vectors.

Texts are encoded one at a time (`onnx` says why), documents on two threads. One short text is
encoded on the event loop: waking a thread would take longer. Queries of several callers who wait
at the same time are encoded by one thread call (`query_batcher`).
"""

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.to_thread
import numpy as np
from anyio.lowlevel import RunVar

from apexbridge.errors import EmbedderUnavailableError, RetrievalError
from apexbridge.retrieval.base import Matrix, TextKind
from apexbridge.retrieval.embedders.model_files import (
    combine_digests,
    embedder_errors,
    import_package,
    trim_heap,
    verify_sha256,
)
from apexbridge.retrieval.embedders.onnx import OnnxEncoder, TextPipeline, load_encoder
from apexbridge.retrieval.embedders.query_batcher import QueryBatcher
from apexbridge.retrieval.embedders.validation import normalized_rows

DIMENSIONS = 384
DOCUMENT_MODEL_HASHES = {
    "cjk.json": "19832757f4f1fbb5defdb6e0ed6beb9aae9a87c1aad1cc0749a17fdaafe656b0",
    "documents_int8.onnx": "e3cd178dcd8e361e2338aae7aa411584d77d21ec23756fb8d8e9c28936ea5cba",
    "embedder.json": "13c2841b56b8b5c28f79c6244650f3998f9b0e0ad62a65794d816d1c46d9de96",
    "tokenizer.json": "54e54ed9497356363d053e60289f33c8b2a0c02964e57a585ba5ecdc4a782e2d",
    "words.bin": "b768e4d7364a7edef82145b4d306903d6fa55fddd36764de3ddb66bbaa671224",
}
"""Files that determine document vectors; the embedder's id is a hash of these digests."""
QUERY_MODEL_HASHES = {
    "requests_int8.onnx": "11082fe3caac713cb9b72ff38e004e9438727b8c91eb017ccda66d3ca5ac58d5"
}
"""Query encoder, which is not part of the id: a new one needs no re-indexing."""
_MODEL_FILES: dict[TextKind, str] = {
    "document": "documents_int8.onnx",
    "query": "requests_int8.onnx",
}
_NAME = "apexbridge-retriever"
_INLINE_BYTES = 120
"""Texts up to this length in UTF-8 are encoded on the event loop, within some 1.5 ms.

A token has about four bytes, in English as in Chinese.
"""
_MAX_QUERY_TOKENS = 128
"""As many as the model has positions: at half of them, most of a long request was not read.

Not in `embedder.json`, which is part of the id: documents are read as before.
"""
_BATCH_SIZE = 8
"""Texts per call, after which a cancellation takes effect."""


class DefaultEmbedder:
    """Embedder without server or API key; one instance serves concurrent callers."""

    def __init__(self, threads: int = 2) -> None:
        self._threads = max(1, threads)
        self._loading = threading.Lock()
        self._encoders = dict[TextKind, OnnxEncoder]()
        self._pipeline: TextPipeline | None = None
        """Tokenizer of both models, kept while one of them is unloaded."""
        # Every search asks for it; it depends on the expected files alone.
        self._id = f"{_NAME}:{combine_digests(DOCUMENT_MODEL_HASHES)}"
        self._batchers: RunVar[QueryBatcher] = RunVar("query batcher")

    @property
    def dimensions(self) -> int:
        """Size of every vector."""
        return DIMENSIONS

    @property
    def id(self) -> str:
        """Hash of the expected files; files that differ are not loaded."""
        return self._id

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        """Embed texts in order; the first call loads the model."""
        out: Matrix = np.empty((len(texts), DIMENSIONS), np.float32)
        if not texts:
            return out
        encoder = self._encoders.get(kind)
        if encoder is not None and len(texts) == 1:
            if kind == "query":
                encode = partial(self._encode, encoder, kind)
                return await self._batcher.encode(texts[0], encode, is_short=_is_short(texts[0]))
            if _is_short(texts[0]):
                return self._encode(encoder, kind, texts)
        encoder = await anyio.to_thread.run_sync(self._load, kind)
        await self._share(encoder, texts, kind, out)
        return out

    def has_word(self, word: str) -> bool:
        """Say whether a word is one token of the vocabulary, which has most English words."""
        pipeline = self._pipeline
        return pipeline is None or pipeline.tokenizer.token_to_id(word) is not None

    async def close(self) -> None:
        """Release the models."""
        self._encoders, self._pipeline = {}, None

    def unload_document_model(self) -> None:
        """Free the memory of the document encoder until documents are embedded again."""
        with self._loading:
            self._encoders.pop("document", None)
        trim_heap()

    async def _share(
        self, encoder: OnnxEncoder, texts: Sequence[str], kind: TextKind, out: Matrix
    ) -> None:
        """Distribute shards over threads: each takes the next shard when it is done with one."""
        parts = deque(_shards(len(texts), self._threads))
        failed = list[RetrievalError]()

        def work() -> None:
            with suppress(IndexError):  # no shard is left
                while not failed:
                    anyio.from_thread.check_cancelled()
                    part = parts.popleft()
                    try:
                        out[part] = self._encode(encoder, kind, texts[part])
                    except RetrievalError as error:
                        failed.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(min(self._threads, len(parts))):
                group.start_soon(anyio.to_thread.run_sync, work)
        if failed:
            raise failed[0]

    @property
    def _batcher(self) -> QueryBatcher:
        """The queue of this event loop: several may use one embedder."""
        found = self._batchers.get(None)
        if found is None:
            found = QueryBatcher()
            self._batchers.set(found)
        return found

    def _encode(self, encoder: OnnxEncoder, kind: TextKind, texts: Sequence[str]) -> Matrix:
        name = self.id
        with embedder_errors("the tokenizer failed", name):
            tokens = [encoder.tokens(text, kind) for text in texts]
        with embedder_errors("the model failed", name):
            rows = encoder.rows(tokens)
        return normalized_rows(rows, count=len(texts), dimensions=DIMENSIONS, name=name)

    def _load(self, kind: TextKind) -> OnnxEncoder:
        with self._loading:
            if kind not in self._encoders:
                package = import_package("apexbridge_retriever", install=_NAME, name=self.id)
                encoder = _load_verified(
                    Path(package.FOLDER), _MODEL_FILES[kind], self.id, self._pipeline
                )
                self._encoders[kind], self._pipeline = encoder, encoder.pipeline
                trim_heap()
            return self._encoders[kind]


def _is_short(text: str) -> bool:
    return len(text) * (1 if text.isascii() else 3) <= _INLINE_BYTES


def _shards(count: int, threads: int) -> Iterator[slice]:
    """Yield shards, smaller ones towards the end, so that the threads finish together."""
    at = 0
    while at < count:
        size = max(1, min(_BATCH_SIZE, (count - at) // (2 * threads)))
        yield slice(at, at + size)
        at += size


def _load_verified(folder: Path, model: str, name: str, beside: TextPipeline | None) -> OnnxEncoder:
    """Load a model after verifying its files; shared ones were verified with the first."""
    try:
        for file, digest in {**DOCUMENT_MODEL_HASHES, **QUERY_MODEL_HASHES}.items():
            if file == model or (beside is None and not file.endswith(".onnx")):
                verify_sha256(folder / file, digest)
    except (OSError, ValueError) as error:
        raise EmbedderUnavailableError(str(error), name=name) from error
    encoder = load_encoder(folder, 1, name, model=model, beside=beside)
    recipe = encoder.recipe.model_copy(update={"max_query_tokens": _MAX_QUERY_TOKENS})
    return replace(encoder, recipe=recipe)
