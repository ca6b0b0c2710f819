"""Reference vectors: texts of typical skills and small talk that calibrate the scores of a query.

Cosine scores have no absolute scale. Among thousands of skills their distribution gives one; among
six there are too few, so that 80 typical descriptions are scored beside them. Reference texts are
never search results. The vectors for the default embedder ship with the package: embedding the
texts would slow down the first search.

With them ships a probe of the default query encoder, a network of one hidden layer: it tells
requests from conversation by the query's vector alone. For other embedders the similarity to small
talk does.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from apexbridge.retrieval.base import Embedder, Matrix
from apexbridge.retrieval.confidence import CosineScale
from apexbridge.retrieval.embedders.default import DIMENSIONS, QUERY_MODEL_HASHES
from apexbridge.retrieval.embedders.model_files import combine_digests
from apexbridge.retrieval.embedders.validation import embed_validated
from apexbridge.retrieval.quantized_vectors import dot_products

VECTORS_FOLDER = Path(__file__).parent / "data"
"""`python -m scripts.reference_vectors` writes there, for one embedder and exactly these texts."""


def _lines(name: str) -> tuple[str, ...]:
    # Not splitlines: the file's name is a hash of these texts, which must not depend on the split.
    return tuple((VECTORS_FOLDER / name).read_text(encoding="utf-8").strip("\n").split("\n"))


_ENGLISH = _lines("reference_skills_en.txt")
SKILL_TEXTS = (*_ENGLISH, *_lines("reference_skills_zh.txt"))
SMALL_TALK_TEXTS = _lines("small_talk.txt")
REFERENCE_TEXTS = (*SKILL_TEXTS, *SMALL_TALK_TEXTS)


@dataclass(frozen=True, slots=True)
class ReferenceVectors:
    """Vectors of the reference texts, and the scale of the embedder's cosines."""

    skills: Matrix
    small_talk: Matrix
    scale: CosineScale
    probe: Matrix | None = None
    """Weights of the probe: for each hidden unit those of the inputs, its bias, its output weight.

    The last row has the bias of the output.
    """

    @classmethod
    async def load(cls, embedder: Embedder) -> "ReferenceVectors":
        """Load the precomputed vectors if they are this embedder's, or else embed the texts."""
        vectors = load_precomputed(embedder.id)
        if vectors is None:
            vectors = await embed_reference_texts(embedder)
        skills, small_talk = np.split(vectors, [len(SKILL_TEXTS)])
        scale = CosineScale.fit(skills @ vectors.T)
        return cls(skills, small_talk, scale, load_probe(embedder.id))

    def task(self, vector: Matrix) -> float:
        """Return the log-odds that a query asks for something to be done."""
        if self.probe is not None:
            units, bias = self.probe[:-1], self.probe[-1, -1]
            hidden = np.maximum(units[:, :-2] @ vector + units[:, -2], np.float32(0))
            return float(hidden @ units[:, -1] + bias)
        return -self.scale.standardize(self.small_talk_similarity(vector))

    def small_talk_similarity(self, vector: Matrix) -> float:
        """Average the cosines of a query with the three nearest small-talk texts."""
        nearest = np.sort(dot_products(self.small_talk, vector))[-3:]
        return float(nearest.sum()) / len(nearest)

    def skill_similarities(self, vector: Matrix) -> tuple[Matrix, Matrix]:
        """Return the cosines of a query with the typical skills, in English and in Chinese."""
        cosines = dot_products(self.skills, vector)
        # Slices, because np.split takes as long as all the products.
        return cosines[: len(_ENGLISH)], cosines[len(_ENGLISH) :]


async def embed_reference_texts(embedder: Embedder) -> Matrix:
    """Embed the skills as documents and the small talk as queries; RetrievalError on failure."""
    skills = await embed_validated(embedder, SKILL_TEXTS, kind="document")
    small_talk = await embed_validated(embedder, SMALL_TALK_TEXTS, kind="query")
    return np.concatenate((skills, small_talk))


def vectors_file_name(embedder_id: str) -> str:
    """Return the file name for an embedder; it has a hash of the embedder's id and the texts."""
    hashed = "\n".join((embedder_id, *REFERENCE_TEXTS))
    return f"reference-{hashlib.sha256(hashed.encode()).hexdigest()[:12]}.npy"


def probe_file_name() -> str:
    """Return the file name of the probe; it has a hash of the query encoder."""
    return f"task-probe-{combine_digests(QUERY_MODEL_HASHES)}.npy"


def load_probe(embedder_id: str) -> Matrix | None:
    """Load the probe of the default query encoder; None for any other embedder."""
    if not embedder_id.startswith("apexbridge-retriever:"):
        return None
    stored = _load_array(probe_file_name())
    is_probe = stored is not None and stored.ndim == 2 and stored.shape[1] == DIMENSIONS + 2
    return stored if is_probe else None


def load_precomputed(embedder_id: str) -> Matrix | None:
    """Load the vectors that ship with the package; None if they are another embedder's."""
    if not embedder_id.startswith("apexbridge-retriever:"):
        return None  # without a look at the disk
    vectors = _load_array(vectors_file_name(embedder_id))
    is_whole = vectors is not None and vectors.ndim == 2 and len(vectors) == len(REFERENCE_TEXTS)
    return vectors if is_whole else None


def _load_array(name: str) -> Matrix | None:
    try:
        # Opened here, because np.load leaks the file descriptor of a file it cannot read.
        with (VECTORS_FOLDER / name).open("rb") as file:
            stored = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None  # only a cache
    array: Matrix = stored.astype(np.float32)
    return array
