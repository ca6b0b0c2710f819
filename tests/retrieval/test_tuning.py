"""Each embedder has numbers that were fitted to it; others have the general ones."""

from collections.abc import Sequence

import pytest

from apexbridge.errors import EmbedderUnavailableError
from apexbridge.retrieval import tuning
from apexbridge.retrieval.base import Kind, Matrix
from apexbridge.retrieval.embedders.own import OwnEmbedder
from apexbridge.retrieval.embedders.use import UseEmbedder
from apexbridge.retrieval.fuse import Calibration, Curve, Fusion
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.stores.memory import MemoryStore
from apexbridge.retrieval.sync import Item, sync
from apexbridge.retrieval.text import SkillText
from apexbridge.retrieval.tuning import GENERAL, OWN, USE, Tuning, tuning_of
from apexbridge.testing import HashEmbedder

pytestmark = pytest.mark.anyio


def test_an_embedder_is_known_by_what_its_id_begins_with() -> None:
    assert tuning_of(OwnEmbedder().id) is OWN
    assert tuning_of(UseEmbedder().id) is tuning_of(UseEmbedder(is_adapted=False).id) is USE
    assert tuning_of(HashEmbedder().id) is tuning_of("onnx:mine:0123") is GENERAL


async def _confidence(embedder_id: str) -> float:
    index = SkillIndex(HashEmbedder(), MemoryStore(embedder_id))

    async def read() -> SkillText:
        return SkillText(name="pdf-forms", summary="Fill in PDF forms.")

    await sync(index, [Item(name="pdf-forms", fingerprint="1", read=read)])
    return (await index.search("fill in pdf forms")).confidence


async def test_an_index_takes_the_numbers_of_its_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    never = Calibration(is_fitting=Curve(near=0, bias=-20))
    table = {"apexbridge-retriever": Tuning(fusion=Fusion(), calibration=never)}
    monkeypatch.setattr(tuning, "_OF_KIND", table)
    assert await _confidence("apexbridge-retriever:1") < 1e-6
    assert await _confidence("other:1") > 0.1


async def test_an_index_has_as_many_views_as_its_embedder_is_worth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def read() -> SkillText:
        said = " ".join(f'"say this or that number {place}"' for place in range(6))
        return SkillText(name="sayings", summary=f"Says things: {said}.")

    counts = dict[str, int]()
    table = {"few": Tuning(fusion=Fusion(), calibration=Calibration(), views=2)}
    monkeypatch.setattr(tuning, "_OF_KIND", table)
    for kind in ("few", "other"):
        index = SkillIndex(HashEmbedder(), MemoryStore(f"{kind}:1"))
        await sync(index, [Item(name="s", fingerprint="1", read=read)])
        await index.refresh()
        counts[kind] = index.shelf.texts.count(0)
    assert counts == {"few": 3, "other": 7}


async def test_what_calibration_weighs_is_what_the_confidence_takes() -> None:
    index = SkillIndex(HashEmbedder(), MemoryStore(HashEmbedder().id))

    async def read() -> SkillText:
        return SkillText(name="pdf-forms", summary="Fill in PDF forms.")

    await sync(index, [Item(name="pdf-forms", fingerprint="1", read=read)])
    request = "fill in pdf forms"
    near, small_talk, total = await index.weigh(request)
    found = await index.search(request)
    assert found.confidence == pytest.approx(
        GENERAL.calibration.confidence(float(near[0]), small_talk, 1)
    )
    assert found.hits[0].parts.total == pytest.approx(float(total[0]))


async def test_without_an_embedder_nothing_is_weighed() -> None:
    class Gone(HashEmbedder):
        async def embed(self, texts: Sequence[str], *, kind: Kind) -> Matrix:
            raise EmbedderUnavailableError("it is gone", name=self.id)

    index = SkillIndex(Gone(), MemoryStore("gone"))
    with pytest.raises(EmbedderUnavailableError):
        await index.weigh("fill in pdf forms")
