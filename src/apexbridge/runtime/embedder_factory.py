"""Embedder and vector store factories: create what `index.embedder` and `index.store` name.

Each implementation is imported inside its branch, because numpy, ONNX Runtime or LanceDB take
longer to import than most commands take to run.
"""

from pathlib import Path

from apexbridge.retrieval.base import Embedder, VectorStore
from apexbridge.settings import Config, IndexSettings


def create_embedder(chosen: IndexSettings, loaded: Config) -> Embedder:
    """Create the configured embedder; its model is loaded by the first `embed` call."""
    kind, _, rest = chosen.embedder.partition(":")
    match kind:
        case "hash":
            from apexbridge.retrieval.embedders.hashing import HashEmbedder

            return HashEmbedder()
        case "onnx":
            from apexbridge.retrieval.embedders.onnx import OnnxEmbedder

            folder = loaded.home / rest[2:] if rest.startswith("~/") else loaded.project / rest
            return OnnxEmbedder(folder)
        case "fastembed":
            from apexbridge.retrieval.embedders.fastembed import FastembedEmbedder

            return FastembedEmbedder(rest)
        case "http":
            from apexbridge.retrieval.embedders.http import HttpEmbedder

            return HttpEmbedder(
                chosen.embedder_url,
                chosen.embedder_model,
                api_key=chosen.embedder_key.get_secret_value(),
                dimensions=chosen.embedder_dimensions,
            )
        case "use":
            from apexbridge.retrieval.embedders.use import UseEmbedder

            return UseEmbedder()
        case _:
            from apexbridge.retrieval.embedders.default import DefaultEmbedder

            return DefaultEmbedder()


def offline_embedders() -> list[Embedder]:
    """Create every embedder that works without a network or configuration."""
    from apexbridge.retrieval.embedders.default import DefaultEmbedder
    from apexbridge.retrieval.embedders.hashing import HashEmbedder
    from apexbridge.retrieval.embedders.use import UseEmbedder

    return [DefaultEmbedder(), UseEmbedder(), UseEmbedder(is_adapted=False), HashEmbedder()]


def create_vector_store(chosen: IndexSettings, path: Path, embedder_id: str) -> VectorStore:
    """Create the configured vector store, for the rows of one embedder."""
    if chosen.store == "lance":
        from apexbridge.retrieval.stores.lance import LanceStore

        return LanceStore(path, embedder_id)
    from apexbridge.retrieval.stores.sqlite import SqliteStore

    return SqliteStore(path, embedder_id, precision=chosen.precision)
