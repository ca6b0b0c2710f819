"""What requests are judged by is kept for our own encoder, and made for any other."""

from pathlib import Path

import numpy as np
import pytest

from apexbridge.retrieval import company
from apexbridge.retrieval.company import TEXTS, Judges, kept_for, make_company, name_of
from apexbridge.retrieval.embedders.own import OwnEmbedder
from apexbridge.testing import HashEmbedder

pytestmark = pytest.mark.anyio


async def test_what_is_kept_is_what_our_encoder_makes() -> None:
    embedder = OwnEmbedder()
    kept = kept_for(embedder.id)
    assert kept is not None, "out of date: python -m scripts.keep_company"
    made = await make_company(embedder)
    # Other processors add in another order, and what is then rounded the other way shows a little.
    assert (kept * made).sum(axis=1).min() > 0.99
    assert len(kept) == len(TEXTS)


async def test_another_embedder_makes_its_own() -> None:
    assert kept_for(HashEmbedder().id) is None
    judges = await Judges.of(HashEmbedder())
    assert judges.skills.shape[1] == judges.small_talk.shape[1] == HashEmbedder().dimensions


def test_another_text_makes_what_is_kept_useless(monkeypatch: pytest.MonkeyPatch) -> None:
    before = name_of("a")
    assert name_of("b") != before
    monkeypatch.setattr(company, "TEXTS", (*TEXTS, "one more"))
    assert name_of("a") != before
    assert kept_for(OwnEmbedder().id) is None


@pytest.mark.parametrize(
    "content", [None, b"", b"not an array", b"\x93NUMPY\x01\x00 cut off", "fewer", "flat"]
)
def test_what_cannot_be_read_is_made_anew(
    content: bytes | str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / name_of(OwnEmbedder().id)
    if isinstance(content, str):
        np.save(place, np.zeros((2, 3)) if content == "fewer" else np.zeros(len(TEXTS)))
    elif content is not None:
        place.write_bytes(content)
    monkeypatch.setattr(company, "KEPT", tmp_path)
    assert kept_for(OwnEmbedder().id) is None
