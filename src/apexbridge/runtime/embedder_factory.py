"""Embedder and vector store factories: create what `index.embedder` and `index.store` name.

Each implementation is imported inside its branch, because numpy, ONNX Runtime or LanceDB take
longer to import than most commands take to run.
"""

from pathlib import Path

from apexbridge.retrieval.base import Embedder, VectorStore
from apexbridge.settings import Config, IndexSettings


def create_embedder(chosen: IndexSettings, loaded: Config) -> Embedder:
    """The embedder that settings name; what it needs is imported here and loaded later still."""
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
    """Those that need nothing but themselves."""
    from apexbridge.retrieval.embedders.default import DefaultEmbedder
    from apexbridge.retrieval.embedders.hashing import HashEmbedder
    from apexbridge.retrieval.embedders.use import UseEmbedder

    return [DefaultEmbedder(), UseEmbedder(), UseEmbedder(is_adapted=False), HashEmbedder()]


def create_vector_store(chosen: IndexSettings, place: Path, embedder_id: str) -> VectorStore:
    """The store that settings name, for one embedder's entries."""
    if chosen.store == "lance":
        from apexbridge.retrieval.stores.lance import LanceStore

        return LanceStore(place, embedder_id)
    from apexbridge.retrieval.stores.sqlite import SqliteStore

    return SqliteStore(place, embedder_id, precision=chosen.precision)
