"""Write the vectors that our own encoder makes of the texts requests are judged by.

python -m scripts.keep_company
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
    """Embed and write; half precision is more than the weights have."""
    embedder = DefaultEmbedder()
    vectors = await embed_reference_texts(embedder)
    for old in VECTORS_FOLDER.glob("company-*.npy"):
        old.unlink()
    np.save(
        VECTORS_FOLDER / vectors_file_name(embedder.id),
        vectors.astype(np.float16),
        allow_pickle=False,
    )
    print(f"{len(vectors)} vectors for {embedder.id}")


if __name__ == "__main__":
    anyio.run(main)
