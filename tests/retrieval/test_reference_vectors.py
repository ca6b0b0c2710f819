"""Reference vectors: precomputed for the default embedder, embedded for any other."""

from pathlib import Path

import numpy as np
import pytest

from apexbridge.retrieval import reference_vectors
from apexbridge.retrieval.embedders.default import DefaultEmbedder
from apexbridge.retrieval.reference_vectors import (
    REFERENCE_TEXTS,
    ReferenceVectors,
    embed_reference_texts,
    load_precomputed,
    vectors_file_name,
)
from apexbridge.testing import HashEmbedder

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
