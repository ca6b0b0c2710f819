"""Precompute what ships with the package for the default embedder: reference vectors and the probe.

The probe is a logistic regression over query vectors: requests (`training/requests`) against
conversation. Run it when an encoder, a reference text or those requests change:

python -m scripts.reference_vectors
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.embedders.default import DefaultEmbedder
from apexbridge.retrieval.embedders.validation import embed_validated
from apexbridge.retrieval.reference_vectors import (
    SMALL_TALK_TEXTS,
    VECTORS_FOLDER,
    embed_reference_texts,
    probe_file_name,
    vectors_file_name,
)
from benchmarks.logistic_regression import Numbers, fit_logistic

REQUESTS = Path(__file__).parent.parent / "training" / "requests"
EVERY_NTH = 6
"""Share of the requests for skills: about as many as everyday ones."""
RIDGE = 5.0
SERVED = frozenset({"fun", "advice"})
"""Kinds of small talk that some skill may serve: a joke, what to wear."""


async def main() -> None:
    """Embed the reference texts, in half precision, and fit the probe."""
    embedder = DefaultEmbedder()
    vectors = await embed_reference_texts(embedder)
    for old in (*VECTORS_FOLDER.glob("reference-*.npy"), *VECTORS_FOLDER.glob("task-probe-*.npy")):
        old.unlink()
    _save(vectors_file_name(embedder.id), vectors.astype(np.float16))
    texts = [*_tasks(), *(talk := [*_conversation()])]
    queries = await embed_validated(embedder, texts, kind="query")
    is_task = np.arange(len(texts)) < len(texts) - len(talk)
    _save(probe_file_name(), fit_probe(queries, is_task))
    print(f"{len(vectors)} vectors; probe of {is_task.sum()} tasks and {len(talk)} others")


def _save(name: str, array: NDArray[np.floating]) -> None:
    np.save(VECTORS_FOLDER / name, array, allow_pickle=False)


def _tasks() -> Iterator[str]:
    for row in _rows("everyday-*.jsonl"):
        yield from (*row["requests_en"], *row["requests_zh"])
    for number, row in enumerate(_rows("written-*.jsonl")):
        if number % EVERY_NTH == 0:
            yield from (row["en"], row["zh"])
    yield from (row["query"] for row in _rows("task-or-talk-*.jsonl") if row.get("needs"))


def _conversation() -> Iterator[str]:
    yield from SMALL_TALK_TEXTS
    for row in _rows("none.jsonl"):
        if row["kind"] not in SERVED:
            yield from (row["en"], row["zh"])
    yield from (row["query"] for row in _rows("task-or-talk-*.jsonl") if not row.get("needs"))


def _rows(pattern: str) -> Iterator[dict[str, Any]]:
    for path in sorted(REQUESTS.glob(pattern)):
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def fit_probe(vectors: Matrix, is_task: NDArray[np.bool_]) -> Matrix:
    """Fit a logistic regression with balanced classes; the last weight is the bias."""
    given: Numbers = np.hstack([vectors, np.ones((len(vectors), 1), np.float32)]).astype(np.float64)
    share = float(is_task.mean())
    weights = fit_logistic(
        given, is_task.astype(np.float64), np.where(is_task, 0.5 / share, 0.5 / (1 - share)), RIDGE
    )
    return weights.astype(np.float32)


if __name__ == "__main__":
    anyio.run(main)
