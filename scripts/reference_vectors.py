"""Precompute the reference vectors of the default embedder, which ship with the package.

python -m scripts.reference_vectors
"""

import anyio
import numpy as np

from apexbridge.retrieval.embedders.default import DefaultEmbedder
from apexbridge.retrieval.reference_vectors import (
    VECTORS_FOLDER,
    embed_reference_texts,
    vectors_file_name,
)


async def main() -> None:
    """Embed the reference texts and save them in half precision, which the int8 weights lack."""
    embedder = DefaultEmbedder()
    vectors = await embed_reference_texts(embedder)
    for old in VECTORS_FOLDER.glob("reference-*.npy"):
        old.unlink()
    np.save(
        VECTORS_FOLDER / vectors_file_name(embedder.id),
        vectors.astype(np.float16),
        allow_pickle=False,
    )
    print(f"{len(vectors)} vectors for {embedder.id}")


if __name__ == "__main__":
    anyio.run(main)
