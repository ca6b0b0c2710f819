"""Request pool of the last stages: clean requests and documents, with the shipped vectors."""

import dataclasses
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.base import TextKind
from apexbridge.retrieval.embedders.onnx import load_encoder
from training.dataset import is_kept_back
from training.jsonl import read_rows
from training.pasted_logs import KnownError, read_errors

Vectors = NDArray[np.floating]

REQUESTS_MODEL, DOCUMENTS_MODEL = "requests_int8.onnx", "documents_int8.onnx"
_KINDS = {
    "written": (0.35, 1_000_000),
    "thing": (0.20, 18_000),
    "framed": (0.10, 9_000),
    "mined A": (0.07, 9_000),
    "mined B": (0.10, 9_000),
    "renamed": (0.02, 3_000),
    "mined across": (0.07, 8_000),
    "segment across": (0.04, 6_000),
    "name": (0.04, 6_000),
    "mined C": (0.01, 2_500),
}
"""Share of a kind of pair among the examples, and its largest number: each needs two vectors."""
_BATCH = 32


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Clean requests, documents and small talk with their vectors before the stage."""

    requests: Sequence[str]
    request_vectors: Vectors
    documents: Sequence[str]
    document_vectors: Vectors
    pairs: NDArray[np.int64]
    """Request, document, group."""
    shares: NDArray[np.float64]
    """Probability of each pair."""
    small_talk: Sequence[str]
    small_talk_vectors: Vectors
    errors: Sequence[KnownError]
    error_vectors: Mapping[str, Vectors]
    """Vectors of what the errors are about, by language."""


def read_pool(
    data: Path,
    requests: Path,
    shipped: Path,
    *,
    threads: int = 2,
    shares_by_kind: Mapping[str, float] | None = None,
) -> Pool:
    """Sample the output of `prepare`, and encode it with the shipped encoders.

    `shares_by_kind` replaces the shares of the robustness stage; the sample stays the same, and
    pairs of a kind that it does not name contribute their documents alone, as negatives.
    """
    by_kind = defaultdict[str, dict[tuple[str, int], int]](dict)
    for row in read_rows(data / "pairs.jsonl.xz"):
        by_kind[row["k"]].setdefault((row["q"], row["d"]), row["g"])
    chance = random.Random(7)  # noqa: S311  # no secret hangs on it
    chosen, shares = list[tuple[str, int, int]](), list[float]()
    for kind, (usual, most) in _KINDS.items():
        rows = [(text, document, group) for (text, document), group in by_kind[kind].items()]
        some = chance.sample(rows, most) if len(rows) > most else rows
        chosen += some
        share = usual if shares_by_kind is None else shares_by_kind.get(kind, 0.0)
        shares += [share / len(some) for _ in some]
    texts = [row["text"] for row in read_rows(data / "documents.jsonl.xz")]
    said = {text: place for place, text in enumerate(sorted({text for text, _, _ in chosen}))}
    used = {number: place for place, number in enumerate(sorted({row[1] for row in chosen}))}
    documents = [texts[number] for number in used]
    idle = [
        text
        for place, row in enumerate(read_rows(data / "none.jsonl.xz"))
        if not is_kept_back(place)
        for text in (row["en"], row["zh"])
    ]
    errors = read_errors(requests / "errors.jsonl")

    def encoded(given: Sequence[str], kind: TextKind = "query") -> Vectors:
        return encode(shipped, given, kind, threads=threads)

    return Pool(
        requests=list(said),
        request_vectors=encoded(list(said)),
        documents=documents,
        document_vectors=encoded(documents, "document"),
        pairs=np.array([(said[text], used[number], group) for text, number, group in chosen]),
        shares=np.array(shares) / sum(shares),
        small_talk=idle,
        small_talk_vectors=encoded(idle),
        errors=errors,
        error_vectors={
            language: encoded([error.about(language) for error in errors])
            for language in ("en", "zh")
        },
    )


def encode(
    shipped: Path, texts: Sequence[str], kind: TextKind, *, threads: int = 2, tokens: int = 0
) -> Vectors:
    """Encode texts with a shipped encoder, queries up to so many tokens; 0 is its own limit."""
    model = REQUESTS_MODEL if kind == "query" else DOCUMENTS_MODEL
    encoder = load_encoder(shipped, 1, model, model=model)
    if tokens:
        recipe = encoder.recipe.model_copy(update={"max_query_tokens": tokens})
        encoder = dataclasses.replace(encoder, recipe=recipe)

    def work(part: Sequence[str]) -> Vectors:
        return encoder.rows([encoder.tokens(text, kind) for text in part])

    parts = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(work, parts)))
