"""Write the vectors that our own encoder makes of the texts requests are judged by.

python -m scripts.keep_company
"""

import anyio
import numpy as np

from apexbridge.retrieval.company import KEPT, make_company, name_of
from apexbridge.retrieval.embedders.own import OwnEmbedder


async def main() -> None:
    """Embed and write; half precision is more than the weights have."""
    embedder = OwnEmbedder()
    vectors = await make_company(embedder)
    for old in KEPT.glob("company-*.npy"):
        old.unlink()
    np.save(KEPT / name_of(embedder.id), vectors.astype(np.float16), allow_pickle=False)
    print(f"{len(vectors)} vectors for {embedder.id}")


if __name__ == "__main__":
    anyio.run(main)
