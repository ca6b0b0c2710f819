"""Any model that the package `fastembed` knows, or one of its kind from a folder."""

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from anyio import to_thread
from numpy.typing import ArrayLike

from apexbridge.errors import EmbedderUnavailableError
from apexbridge.retrieval.base import Matrix, TextKind
from apexbridge.retrieval.embedders.loader import (
    embedder_errors,
    find_model,
    fingerprint,
    import_optional,
)
from apexbridge.retrieval.embedders.validation import normalized_rows, replace_surrogates

_registry_lock = threading.Lock()
"""fastembed keeps one list of models for the whole process."""


class _Model(Protocol):
    def query_embed(self, query: Iterable[str], *, batch_size: int) -> Iterable[ArrayLike]: ...
    def passage_embed(self, texts: Iterable[str], *, batch_size: int) -> Iterable[ArrayLike]: ...


class FastembedEmbedder:
    """Loads from the hub, or from `folder` without asking anyone."""

    def __init__(self, model: str, *, folder: Path | None = None) -> None:
        self._model = model
        self._folder = folder
        self._name = f"fastembed:{model}"
        self._id = "" if folder else self._name
        self._dimensions = 0
        self._loaded: _Model | None = None
        self._loading = threading.Lock()

    @property
    def id(self) -> str:
        """Names the model, and what is in the files of its folder."""
        if not self._id and self._folder:
            files = (*self._folder.glob("*.onnx*"), *self._folder.glob("*.json"))
            self._id = f"{self._name}:{fingerprint(files)}"
        return self._id

    @property
    def dimensions(self) -> int:
        """The size of every vector; 0 before the first answer."""
        return self._dimensions

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        """Embed in order, in a thread; the first call loads the model."""
        if not texts:
            return np.zeros((0, self._dimensions), np.float32)
        # A download can take minutes: whoever no longer waits for it is let go.
        return await to_thread.run_sync(self._embed, texts, kind, abandon_on_cancel=True)

    async def close(self) -> None:
        """Let go of the model."""
        self._loaded = None

    def _embed(self, texts: Sequence[str], kind: TextKind) -> Matrix:
        said = [replace_surrogates(text) for text in texts]
        place = self._folder or "the hub or its cache; a folder needs no network"
        with self._loading, embedder_errors(f"it cannot be loaded from {place}", self._name):
            model = self._loaded or self._load()
            self._loaded = model
        with embedder_errors("the model failed", self._name):
            embed = model.query_embed if kind == "query" else model.passage_embed
            # One at a time: in a quantised model a row depends on what stands beside it.
            rows = np.stack([np.asarray(row) for row in embed(said, batch_size=1)])
        checked = normalized_rows(rows, count=len(said), dimensions=self._dimensions, name=self.id)
        self._dimensions = checked.shape[1]
        return checked

    def _load(self) -> _Model:
        package = import_optional("fastembed", extra="fastembed", name=self._name)
        if self._folder is None:
            return package.TextEmbedding(self._model, threads=1)
        if not self._folder.is_dir():
            raise EmbedderUnavailableError(f"there is no folder {self._folder}", name=self._name)
        known = self._registered(package, self._folder)
        return package.TextEmbedding(known, threads=1, specific_model_path=str(self._folder))

    def _registered(self, package: ModuleType, folder: Path) -> str:
        """The name under which fastembed knows the model in the folder."""
        with _registry_lock:
            listed: list[dict[str, Any]] = package.TextEmbedding.list_supported_models()
            names = {str(model["model"]).lower() for model in listed}
            if self._model.lower() in names:
                return self._model
            if self.id.lower() not in names:
                parts = import_optional(
                    "fastembed.common.model_description", extra="fastembed", name=self._name
                )
                package.TextEmbedding.add_custom_model(
                    model=self.id,
                    pooling=parts.PoolingType.MEAN,
                    normalization=True,
                    sources=parts.ModelSource(hf=self._model),
                    dim=1,  # asked for, but used by nothing that is called here
                    model_file=find_model(folder, name=self._name).name,
                )
            return self.id
