"""Index service: the memory of the document encoder after a sync."""

from pathlib import Path

import pytest

from apexbridge.retrieval.embedders.default import DefaultEmbedder
from apexbridge.runtime import Runtime
from apexbridge.settings import load
from apexbridge.testing import make_skill

pytestmark = pytest.mark.anyio


async def test_the_document_model_is_unloaded_after_a_large_sync_and_stays_after_a_small_one(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unloaded = list[DefaultEmbedder]()

    def unload(embedder: DefaultEmbedder) -> None:
        unloaded.append(embedder)

    monkeypatch.setattr(DefaultEmbedder, "unload_document_model", unload)
    for number in range(40):
        make_skill(tmp_path / ".apexbridge/skills", f"skill-{number}")
    async with Runtime.open(load(project=tmp_path, environment={"HOME": str(home)})) as runtime:
        await runtime.index_service.sync()
        assert len(unloaded) == 1
        make_skill(tmp_path / ".apexbridge/skills", "one-more")
        await runtime.catalog.refresh()
        report = await runtime.index_service.sync()
        assert report.added == ("one-more",)
        assert len(unloaded) == 1
