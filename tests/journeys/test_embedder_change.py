"""Migration to another embedder: search works throughout."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from apexbridge.retrieval.results import SyncCallbacks, SyncProgress
from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load
from apexbridge.testing import make_skill

pytestmark = pytest.mark.anyio

REQUESTS = ("fill in the form in this pdf", "填写 PDF 表单")


def _load(home: Path, project: Path, **variables: str) -> Config:
    environment = {"HOME": str(home), "APEXBRIDGE_DATA_DIR": str(home / "data"), **variables}
    return load(project=project, environment=environment)


async def _found(runtime: Runtime) -> list[str]:
    return [(await runtime.search(request)).hits[0].name for request in REQUESTS]


async def test_what_use_indexed_serves_until_our_own_has_indexed_all(
    home: Path, tmp_path: Path
) -> None:
    make_skill(home / "data/skills", "pdf-forms", description="Fill in PDF forms. 填写 PDF 表单。")
    make_skill(home / "data/skills", "plan-trips", description="Plan trips with flights.")
    async with Runtime.open(_load(home, tmp_path, APEXBRIDGE_INDEX__EMBEDDER="use")) as runtime:
        before = await runtime.index_service.sync()
        assert await _found(runtime) == ["pdf-forms", "pdf-forms"]

    told, served = list[SyncProgress](), list[str]()
    async with Runtime.open(_load(home, tmp_path)) as runtime:

        async def stored(_names: Sequence[str]) -> None:
            served.append((await runtime.index_service.index()).embedder.id.partition(":")[0])
            assert await _found(runtime) == ["pdf-forms", "pdf-forms"]

        after = await runtime.index_service.sync(SyncCallbacks(progress=told.append, stored=stored))
        assert set(served) == {"use-multilingual-3"}
        assert set(after.added) == set(before.added)
        assert told[-1] == SyncProgress(done=len(after.added), total=len(after.added))
        index = await runtime.index_service.index()
        assert index.embedder.id.startswith("apexbridge-retriever:")
        assert await _found(runtime) == ["pdf-forms", "pdf-forms"]
        assert index.memory.dimensions == index.embedder.dimensions

    async with Runtime.open(_load(home, tmp_path)) as runtime:
        assert (await runtime.index_service.sync()).added == ()
