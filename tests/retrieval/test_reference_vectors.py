"""What requests are judged by is kept for our own encoder, and made for any other."""

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


async def test_what_is_kept_is_what_our_encoder_makes() -> None:
    embedder = DefaultEmbedder()
    kept = load_precomputed(embedder.id)
    assert kept is not None, "out of date: python -m scripts.keep_company"
    made = await embed_reference_texts(embedder)
    # Other processors add in another order, and what is then rounded the other way shows a little.
    assert (kept * made).sum(axis=1).min() > 0.99
    assert len(kept) == len(REFERENCE_TEXTS)


async def test_another_embedder_makes_its_own() -> None:
    assert load_precomputed(HashEmbedder().id) is None
    judges = await ReferenceVectors.of(HashEmbedder())
    assert judges.skills.shape[1] == judges.small_talk.shape[1] == HashEmbedder().dimensions


def test_another_text_makes_what_is_kept_useless(monkeypatch: pytest.MonkeyPatch) -> None:
    before = vectors_file_name("a")
    assert vectors_file_name("b") != before
    monkeypatch.setattr(reference_vectors, "REFERENCE_TEXTS", (*REFERENCE_TEXTS, "one more"))
    assert vectors_file_name("a") != before
    assert load_precomputed(DefaultEmbedder().id) is None


@pytest.mark.parametrize(
    "content", [None, b"", b"not an array", b"\x93NUMPY\x01\x00 cut off", "fewer", "flat"]
)
def test_what_cannot_be_read_is_made_anew(
    content: bytes | str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / vectors_file_name(DefaultEmbedder().id)
    if isinstance(content, str):
        np.save(place, np.zeros((2, 3)) if content == "fewer" else np.zeros(len(REFERENCE_TEXTS)))
    elif content is not None:
        place.write_bytes(content)
    monkeypatch.setattr(reference_vectors, "VECTORS_FOLDER", tmp_path)
    assert load_precomputed(DefaultEmbedder().id) is None
