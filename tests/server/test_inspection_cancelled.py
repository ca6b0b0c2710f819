"""Uploads of clients that leave: the work for them ends."""

from collections.abc import Generator

import anyio
import httpx2
import pytest

from apexbridge.lifecycle.scan_process import FolderScanner
from apexbridge.scanner.report import Report
from tests.server.skills_server import (
    FORM_TYPE,
    SkillsServer,
    make_config,
    skill_zip,
    skills_server,
)


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[SkillsServer]:
    with skills_server(make_config(tmp_path_factory.mktemp("leaving"))) as running:
        yield running


@pytest.mark.parametrize("path", ["/v1/skills", "/v1/skills/inspect", "/v1/skills/there/versions"])
def test_the_scan_ends_with_the_client(
    server: SkillsServer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.install("there")
    ended = list[bool]()

    async def scan(*_: object) -> Report:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)
        raise AssertionError

    monkeypatch.setattr(FolderScanner, "scan", scan)
    form = {"files": ("a.zip", skill_zip("there" if "there" in path else "new"), FORM_TYPE)}
    with pytest.raises(httpx2.ReadTimeout):
        server.client.post(path, files=form, timeout=1)

    async def idle() -> None:
        with anyio.fail_after(30):
            while len(server.serving.state.concurrency):
                await anyio.sleep(0.01)

    server.portal.call(idle)
    assert ended == [True]
    assert [entry.name for entry in (server.data / "skills/.staging").iterdir()] == [".lock"]
