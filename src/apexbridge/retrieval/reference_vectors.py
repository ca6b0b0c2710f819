"""The vectors of the company in which requests are judged; our own encoder's come with the package.

They are the same in every process, and making them would be the most of a first search.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from apexbridge.retrieval import reference_texts
from apexbridge.retrieval.base import Embedder, Matrix
from apexbridge.retrieval.embedders.validation import embed_validated
from apexbridge.retrieval.fusion import CosineScale
from apexbridge.retrieval.quantized_vectors import dot_products

VECTORS_FOLDER = Path(__file__).parent
"""Where `python -m scripts.keep_company` writes, for one embedder and these very texts."""
_ENGLISH_ROWS = np.flatnonzero(~np.array(reference_texts.IS_CHINESE_TEXT))
_CHINESE_ROWS = np.flatnonzero(reference_texts.IS_CHINESE_TEXT)
REFERENCE_TEXTS = (*reference_texts.SKILL_TEXTS, *reference_texts.SMALL_TALK_TEXTS)


@dataclass(frozen=True, slots=True)
class ReferenceVectors:
    """Vectors of texts that requests are judged by."""

    skills: Matrix
    small_talk: Matrix
    ruler: CosineScale

    @classmethod
    async def of(cls, embedder: Embedder) -> "ReferenceVectors":
        """From what is kept, if it is this embedder's; else made now.

        Raises:
            RetrievalError: If the embedder fails.
        """
        vectors = load_precomputed(embedder.id)
        if vectors is None:
            vectors = await embed_reference_texts(embedder)
        skills, small_talk = np.split(vectors, [len(reference_texts.SKILL_TEXTS)])
        return cls(skills, small_talk, CosineScale.of(skills, small_talk))

    def small_talk_near(self, vector: Matrix) -> float:
        """How near a request is to the small talk it is most like."""
        nearest = np.sort(dot_products(self.small_talk, vector))[-3:]
        return float(nearest.sum()) / len(nearest)

    def skills_near(self, vector: Matrix) -> tuple[Matrix, Matrix]:
        """How near a request is to what skills say everywhere, in English and in Chinese."""
        near = dot_products(self.skills, vector)
        return near[_ENGLISH_ROWS], near[_CHINESE_ROWS]


async def embed_reference_texts(embedder: Embedder) -> Matrix:
    """Skills are read as documents, and what people say as requests.

    Raises:
        RetrievalError: If the embedder fails.
    """
    skills = await embed_validated(embedder, reference_texts.SKILL_TEXTS, kind="document")
    small_talk = await embed_validated(embedder, reference_texts.SMALL_TALK_TEXTS, kind="query")
    return np.concatenate((skills, small_talk))


def vectors_file_name(embedder_id: str) -> str:
    """The file's name: another embedder, or another text, has another."""
    said = "\n".join((embedder_id, *REFERENCE_TEXTS))
    return f"company-{hashlib.sha256(said.encode()).hexdigest()[:12]}.npy"


def load_precomputed(embedder_id: str) -> Matrix | None:
    """The vectors that come with the package, if they are this embedder's."""
    if not embedder_id.startswith("apexbridge-retriever:"):
        return None  # nothing is read for those that cannot match
    try:
        # Opened here, because numpy leaves what it cannot read open.
        with (VECTORS_FOLDER / vectors_file_name(embedder_id)).open("rb") as file:
            stored = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None  # it only saves time
    vectors: Matrix = stored.astype(np.float32)
    return vectors if vectors.ndim == 2 and len(vectors) == len(REFERENCE_TEXTS) else None
