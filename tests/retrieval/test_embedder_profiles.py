"""Embedder profiles: fitted ones, and the generic one."""

from collections.abc import Sequence

import pytest

from apexbridge.errors import EmbedderUnavailableError
from apexbridge.retrieval import confidence
from apexbridge.retrieval.base import Matrix, TextKind
from apexbridge.retrieval.confidence import (
    DEFAULT_PROFILE,
    GENERIC_PROFILE,
    ConfidenceCalibration,
    EmbedderProfile,
    profile_for,
)
from apexbridge.retrieval.embedders.default import DefaultEmbedder
from apexbridge.retrieval.embedders.use import UseEmbedder
from apexbridge.retrieval.fusion import FusionWeights
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.skill_document import SkillText
from apexbridge.retrieval.stores.memory import MemoryStore
from apexbridge.retrieval.sync import IndexItem, sync
from apexbridge.testing import HashEmbedder

pytestmark = pytest.mark.anyio


def test_a_profile_is_found_by_the_prefix_of_the_id() -> None:
    assert profile_for(DefaultEmbedder().id) is DEFAULT_PROFILE
    for other in (UseEmbedder(), UseEmbedder(is_adapted=False), HashEmbedder()):
        assert profile_for(other.id) is GENERIC_PROFILE
    for name in ("onnx:mine:0123", "", "apexbridge-retriever-fork:1"):
        assert profile_for(name) is GENERIC_PROFILE


async def _confidence(embedder_id: str) -> float:
    index = SkillIndex(HashEmbedder(), MemoryStore(embedder_id))

    async def read() -> SkillText:
        return SkillText(name="pdf-forms", summary="Fill in PDF forms.")

    await sync(index, [IndexItem(name="pdf-forms", fingerprint="1", read=read)])
    return (await index.search("fill in a pdf")).confidence


async def test_an_index_takes_the_numbers_of_its_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    never = ConfidenceCalibration(bias=-40)
    table = {"apexbridge-retriever": EmbedderProfile(fusion=FusionWeights(), calibration=never)}
    monkeypatch.setattr(confidence, "_PROFILES", table)
    assert await _confidence("apexbridge-retriever:1") < 1e-6
    assert await _confidence("other:1") > 0.1


async def test_an_index_has_as_many_views_as_its_embedder_is_worth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def read() -> SkillText:
        said = " ".join(f'"say this or that number {place}"' for place in range(6))
        return SkillText(name="sayings", summary=f"Says things: {said}.")

    counts = dict[str, int]()
    table = {
        "few": EmbedderProfile(fusion=FusionWeights(), calibration=ConfidenceCalibration(), views=2)
    }
    monkeypatch.setattr(confidence, "_PROFILES", table)
    for kind in ("few", "other"):
        index = SkillIndex(HashEmbedder(), MemoryStore(f"{kind}:1"))
        await sync(index, [IndexItem(name="s", fingerprint="1", read=read)])
        await index.refresh()
        counts[kind] = index.memory.texts.count(0)
    assert counts == {"few": 3, "other": 7}


async def test_the_best_evidence_is_the_input_of_the_confidence() -> None:
    index = SkillIndex(HashEmbedder(), MemoryStore(HashEmbedder().id))

    def item(name: str, summary: str) -> IndexItem:
        async def read() -> SkillText:
            return SkillText(name=name, summary=summary)

        return IndexItem(name=name, fingerprint="1", read=read)

    await sync(index, [item("pdf-forms", "Fill in PDF forms."), item("bread", "Bake bread.")])
    request = "填写 pdf forms"
    name, evidence = await index.best_evidence(request)
    found = await index.search(request)
    assert found.hits[0].name == name == "pdf-forms"
    assert found.confidence == pytest.approx(GENERIC_PROFILE.calibration.confidence(evidence))
    assert (evidence.length, evidence.count) == (len(request.encode()), 2)
    assert evidence.name == pytest.approx(found.hits[0].parts.name)


async def test_the_best_evidence_raises_the_error_of_the_embedder() -> None:
    class Gone(HashEmbedder):
        async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
            raise EmbedderUnavailableError("it is gone", name=self.id)

    index = SkillIndex(Gone(), MemoryStore("gone"))
    with pytest.raises(EmbedderUnavailableError):
        await index.best_evidence("fill in pdf forms")
