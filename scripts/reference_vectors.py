"""Precompute what ships with the package for the default embedder: reference vectors and the probe.

The probe is a small network over query vectors: requests (`training/requests`) against
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

from apexbridge.retrieval.embedders.default import DefaultEmbedder
from apexbridge.retrieval.embedders.validation import embed_validated
from apexbridge.retrieval.reference_vectors import (
    SMALL_TALK_TEXTS,
    VECTORS_FOLDER,
    embed_reference_texts,
    probe_file_name,
    vectors_file_name,
)
from benchmarks.everyday import read_everyday
from benchmarks.small_network import fit_network
from training.held_out import letters

REQUESTS = Path(__file__).parent.parent / "training" / "requests"
EVERY_NTH = 6
"""Share of the requests for skills: about as many as everyday ones."""
SERVED = frozenset({"fun", "advice"})
"""Kinds of small talk that some skill may serve: a joke, what to wear."""


async def main() -> None:
    """Embed the reference texts, in half precision, and fit the probe."""
    embedder = DefaultEmbedder()
    vectors = await embed_reference_texts(embedder)
    for old in (*VECTORS_FOLDER.glob("reference-*.npy"), *VECTORS_FOLDER.glob("task-probe-*.npy")):
        old.unlink()
    _save(vectors_file_name(embedder.id), vectors.astype(np.float16))
    everyday = read_everyday()
    measured = {letters(one.query) for one in (*everyday.fitted, *everyday.held_out)}
    tasks = [text for text in _tasks() if letters(text) not in measured]
    talk = [text for text in _conversation() if letters(text) not in measured]
    texts = [*tasks, *talk]
    queries = await embed_validated(embedder, texts, kind="query")
    is_task = np.arange(len(texts)) < len(texts) - len(talk)
    _save(probe_file_name(), fit_network(queries, is_task).astype(np.float16))
    print(f"{len(vectors)} vectors; probe of {is_task.sum()} tasks and {len(talk)} others")


def _save(name: str, array: NDArray[np.floating]) -> None:
    np.save(VECTORS_FOLDER / name, array, allow_pickle=False)


def _tasks() -> Iterator[str]:
    for row in _rows("everyday-*.jsonl"):
        yield from (*row["requests_en"], *row["requests_zh"])
    for row in _rows("styles-*.jsonl"):
        yield from (*row["en"], *row["zh"])
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


if __name__ == "__main__":
    anyio.run(main)
