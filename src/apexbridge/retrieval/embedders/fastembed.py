"""Embedder for models of the package `fastembed`, from the hub or from a local folder."""

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
from apexbridge.retrieval.embedders.model_files import (
    embedder_errors,
    find_model,
    fingerprint,
    import_package,
)
from apexbridge.retrieval.embedders.validation import normalized_rows, replace_surrogates

_registry_lock = threading.Lock()
"""fastembed has one process-wide model registry."""


class _Model(Protocol):
    def query_embed(self, query: Iterable[str], *, batch_size: int) -> Iterable[ArrayLike]: ...
    def passage_embed(self, texts: Iterable[str], *, batch_size: int) -> Iterable[ArrayLike]: ...


class FastembedEmbedder:
    """fastembed model, downloaded from the hub or loaded offline from `folder`."""

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
        """Model name, and a hash of the files in its folder."""
        if not self._id and self._folder:
            files = (*self._folder.glob("*.onnx*"), *self._folder.glob("*.json"))
            self._id = f"{self._name}:{fingerprint(files)}"
        return self._id

    @property
    def dimensions(self) -> int:
        """Size of every vector; 0 before the first call."""
        return self._dimensions

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        """Embed texts on a worker thread; the first call loads the model."""
        if not texts:
            return np.zeros((0, self._dimensions), np.float32)
        # A download can take minutes: a cancelled caller does not wait for it.
        return await to_thread.run_sync(self._embed, texts, kind, abandon_on_cancel=True)

    async def close(self) -> None:
        """Release the model."""
        self._loaded = None

    def _embed(self, texts: Sequence[str], kind: TextKind) -> Matrix:
        said = [replace_surrogates(text) for text in texts]
        place = self._folder or "the hub or its cache; a folder needs no network"
        with self._loading, embedder_errors(f"it cannot be loaded from {place}", self._name):
            model = self._loaded or self._load()
            self._loaded = model
        with embedder_errors("the model failed", self._name):
            embed = model.query_embed if kind == "query" else model.passage_embed
            # One text a call: dynamic quantization makes a row depend on its batch.
            rows = np.stack([np.asarray(row) for row in embed(said, batch_size=1)])
        checked = normalized_rows(rows, count=len(said), dimensions=self._dimensions, name=self.id)
        self._dimensions = checked.shape[1]
        return checked

    def _load(self) -> _Model:
        package = import_package("fastembed", install="'apexbridge[fastembed]'", name=self._name)
        if self._folder is None:
            return package.TextEmbedding(self._model, threads=1)
        if not self._folder.is_dir():
            raise EmbedderUnavailableError(f"there is no folder {self._folder}", name=self._name)
        known = self._registered(package, self._folder)
        return package.TextEmbedding(known, threads=1, specific_model_path=str(self._folder))

    def _registered(self, package: ModuleType, folder: Path) -> str:
        """Register the model of the folder with fastembed and return its name there."""
        with _registry_lock:
            listed: list[dict[str, Any]] = package.TextEmbedding.list_supported_models()
            names = {str(model["model"]).lower() for model in listed}
            if self._model.lower() in names:
                return self._model
            if self.id.lower() not in names:
                parts = import_package(
                    "fastembed.common.model_description",
                    install="'apexbridge[fastembed]'",
                    name=self._name,
                )
                package.TextEmbedding.add_custom_model(
                    model=self.id,
                    pooling=parts.PoolingType.MEAN,
                    normalization=True,
                    sources=parts.ModelSource(hf=self._model),
                    dim=1,  # required, but not used by the calls made here
                    model_file=find_model(folder, name=self._name).name,
                )
            return self.id
