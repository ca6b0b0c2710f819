"""The vectors of the company in which requests are judged; our own encoder's come with the package.

They are the same in every process, and making them would be the most of a first search.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from apexbridge.retrieval import background
from apexbridge.retrieval.base import Embedder, Matrix
from apexbridge.retrieval.embedders.checked import embed_checked
from apexbridge.retrieval.fuse import Ruler
from apexbridge.retrieval.vectors import products

KEPT = Path(__file__).parent
"""Where `python -m scripts.keep_company` writes, for one embedder and these very texts."""
_ENGLISH = np.flatnonzero(~np.array(background.IS_CHINESE))
_CHINESE = np.flatnonzero(background.IS_CHINESE)
TEXTS = (*background.TEXTS, *background.SMALL_TALK)


@dataclass(frozen=True, slots=True)
class Judges:
    """Vectors of texts that requests are judged by."""

    skills: Matrix
    small_talk: Matrix
    ruler: Ruler

    @classmethod
    async def of(cls, embedder: Embedder) -> "Judges":
        """From what is kept, if it is this embedder's; else made now.

        Raises:
            RetrievalError: If the embedder fails.
        """
        vectors = kept_for(embedder.id)
        if vectors is None:
            vectors = await make_company(embedder)
        skills, small_talk = np.split(vectors, [len(background.TEXTS)])
        return cls(skills, small_talk, Ruler.of(skills, small_talk))

    def small_talk_near(self, vector: Matrix) -> float:
        """How near a request is to the small talk it is most like."""
        nearest = np.sort(products(self.small_talk, vector))[-3:]
        return float(nearest.sum()) / len(nearest)

    def skills_near(self, vector: Matrix) -> tuple[Matrix, Matrix]:
        """How near a request is to what skills say everywhere, in English and in Chinese."""
        near = products(self.skills, vector)
        return near[_ENGLISH], near[_CHINESE]


async def make_company(embedder: Embedder) -> Matrix:
    """Skills are read as documents, and what people say as requests.

    Raises:
        RetrievalError: If the embedder fails.
    """
    skills = await embed_checked(embedder, background.TEXTS, kind="document")
    small_talk = await embed_checked(embedder, background.SMALL_TALK, kind="query")
    return np.concatenate((skills, small_talk))


def name_of(embedder_id: str) -> str:
    """The file's name: another embedder, or another text, has another."""
    said = "\n".join((embedder_id, *TEXTS))
    return f"company-{hashlib.sha256(said.encode()).hexdigest()[:12]}.npy"


def kept_for(embedder_id: str) -> Matrix | None:
    """The vectors that come with the package, if they are this embedder's."""
    if not embedder_id.startswith("apexbridge-retriever:"):
        return None  # nothing is read for those that cannot match
    try:
        # Opened here, because numpy leaves what it cannot read open.
        with (KEPT / name_of(embedder_id)).open("rb") as file:
            stored = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None  # it only saves time
    vectors: Matrix = stored.astype(np.float32)
    return vectors if vectors.ndim == 2 and len(vectors) == len(TEXTS) else None
