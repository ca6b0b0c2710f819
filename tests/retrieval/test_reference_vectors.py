"""Reference vectors and the task probe: precomputed for the default embedder alone."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from apexbridge.retrieval import reference_vectors
from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.confidence import CosineScale
from apexbridge.retrieval.embedders.default import DIMENSIONS, DefaultEmbedder
from apexbridge.retrieval.embedders.validation import embed_validated
from apexbridge.retrieval.reference_vectors import (
    REFERENCE_TEXTS,
    SMALL_TALK_TEXTS,
    ReferenceVectors,
    embed_reference_texts,
    load_precomputed,
    load_probe,
    probe_file_name,
    vectors_file_name,
)
from apexbridge.testing import HashEmbedder
from benchmarks.small_network import fit_network

pytestmark = pytest.mark.anyio


async def test_the_precomputed_vectors_are_those_of_the_embedder() -> None:
    embedder = DefaultEmbedder()
    stored = load_precomputed(embedder.id)
    assert stored is not None, "out of date: python -m scripts.reference_vectors"
    vectors = await embed_reference_texts(embedder)
    # Other CPUs sum in another order, so that int8 rounding differs a little.
    assert (stored * vectors).sum(axis=1).min() > 0.99
    assert len(stored) == len(REFERENCE_TEXTS)


async def test_another_embedder_embeds_the_texts() -> None:
    assert load_precomputed(HashEmbedder().id) is None
    reference = await ReferenceVectors.load(HashEmbedder())
    assert reference.skills.shape[1] == reference.small_talk.shape[1] == HashEmbedder().dimensions


def test_other_texts_invalidate_the_precomputed_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    before = vectors_file_name("a")
    assert vectors_file_name("b") != before
    monkeypatch.setattr(reference_vectors, "REFERENCE_TEXTS", (*REFERENCE_TEXTS, "one more"))
    assert vectors_file_name("a") != before
    assert load_precomputed(DefaultEmbedder().id) is None


@pytest.mark.parametrize(
    "content", [None, b"", b"not an array", b"\x93NUMPY\x01\x00 cut off", "fewer", "flat"]
)
def test_an_unreadable_file_is_ignored(
    content: bytes | str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / vectors_file_name(DefaultEmbedder().id)
    if isinstance(content, str):
        np.save(place, np.zeros((2, 3)) if content == "fewer" else np.zeros(len(REFERENCE_TEXTS)))
    elif content is not None:
        place.write_bytes(content)
    monkeypatch.setattr(reference_vectors, "VECTORS_FOLDER", tmp_path)
    assert load_precomputed(DefaultEmbedder().id) is None


async def test_without_a_probe_a_task_is_what_is_unlike_small_talk() -> None:
    embedder = HashEmbedder()
    reference = await ReferenceVectors.load(embedder)
    assert reference.probe is None
    talk, other = await embed_validated(
        embedder, [SMALL_TALK_TEXTS[0], "zebra kiwi quartz"], kind="query"
    )
    assert reference.small_talk_similarity(talk) > reference.small_talk_similarity(other)
    assert reference.task(talk) < reference.task(other)


def _tiny_reference(probe: Matrix | None) -> ReferenceVectors:
    none, scale = np.zeros((4, 2), np.float32), CosineScale(mean=0.0, spread=1.0)
    return ReferenceVectors(none, none, scale, probe)


def test_with_a_probe_a_task_is_what_the_probe_says() -> None:
    units = [[2, -1, 0.5, 3], [1, 0, -2, 7], [0, 0, 0, -0.25]]  # inputs, bias, output; its bias
    reference = _tiny_reference(np.array(units, np.float32))
    hidden = 2 * 0.6 - 0.8 + 0.5  # of the first unit; the second one is below zero
    task = reference.task(np.array([0.6, 0.8], np.float32))
    assert task == pytest.approx(3 * hidden - 0.25)
    assert _tiny_reference(None).task(np.array([0.6, 0.8], np.float32)) == 0


async def test_the_default_embedder_has_a_probe_that_tells_a_task_from_small_talk() -> None:
    embedder = DefaultEmbedder()
    reference = await ReferenceVectors.load(embedder)
    assert reference.probe is not None, "out of date: python -m scripts.reference_vectors"
    assert reference.probe.shape[1] == embedder.dimensions + 2
    talk = await embed_validated(embedder, ["thanks a lot", "你好呀"], kind="query")
    tasks = await embed_validated(
        embedder, ["convert this spreadsheet to a PDF", "把合同翻译成英文"], kind="query"
    )
    assert max(map(reference.task, talk)) < 0 < min(map(reference.task, tasks))


def test_another_embedder_has_no_probe() -> None:
    assert load_probe(HashEmbedder().id) is None
    assert load_probe("apexbridge-retriever-fork:1") is None


@pytest.mark.parametrize("content", [None, b"", b"not an array", "longer", "matrix"])
def test_an_unreadable_probe_is_ignored(
    content: bytes | str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, size = tmp_path / probe_file_name(), DIMENSIONS + 1
    if isinstance(content, str):
        np.save(place, np.zeros(size + 1) if content == "longer" else np.zeros((size, 1)))
    elif content is not None:
        place.write_bytes(content)
    monkeypatch.setattr(reference_vectors, "VECTORS_FOLDER", tmp_path)
    assert load_probe(DefaultEmbedder().id) is None


def _labelled(tasks: int, others: int) -> tuple[Matrix, NDArray[np.bool_]]:
    """Draw unit vectors; tasks lie on one side of the first axis."""
    chance = np.random.default_rng(7)
    is_task = np.arange(tasks + others) < tasks
    vectors = 0.2 * chance.standard_normal((len(is_task), 8))
    vectors[:, 0] += np.where(is_task, 0.6, -0.6)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32), is_task


@pytest.mark.parametrize(("tasks", "others"), [(60, 60), (300, 20), (20, 300)])
def test_the_fitted_probe_parts_tasks_from_conversation(tasks: int, others: int) -> None:
    vectors, is_task = _labelled(tasks, others)
    probe = fit_network(vectors, is_task)
    assert (probe.shape[1], probe.dtype) == (10, np.float32)
    reference = _tiny_reference(probe)
    odds = np.array([reference.task(vector) for vector in vectors])
    assert ((odds > 0) == is_task).mean() > 0.97
    assert (fit_network(vectors, is_task) == probe).all()  # the same again


def test_the_probe_parts_what_no_plane_does() -> None:
    vectors = np.random.default_rng(3).standard_normal((400, 2)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    is_task = vectors[:, 0] * vectors[:, 1] > 0
    reference = _tiny_reference(fit_network(vectors, is_task))
    odds = np.array([reference.task(vector) for vector in vectors])
    assert ((odds > 0) == is_task).mean() > 0.9


def test_classes_of_the_probe_are_balanced_whatever_their_sizes() -> None:
    same = np.tile(np.eye(1, 4, dtype=np.float32), (100, 1))  # nothing can be told apart
    for tasks in (5, 50, 95):
        probe = fit_network(same, np.arange(100) < tasks)
        assert abs(_tiny_reference(probe).task(same[0])) < 0.3
