"""Diagnostics, settings and audit log over HTTP equal those of the command line."""

from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import orjson
import pytest
from typer.testing import CliRunner

from apexbridge.cli.main import app
from apexbridge.runtime.diagnostics import effective_settings
from apexbridge.settings import load
from tests.server.admin_server import AdminServer, admin_server

pytestmark = pytest.mark.anyio
SECRETS: dict[str, Any] = {
    "mcp": {
        "servers": {
            "far": {
                "url": "https://me:hunter2@far.example/mcp",
                "headers": {"X-Token": "hunter2"},
            }
        }
    },
    "plugins": {"config": {"mailer": {"api_token": "hunter2", "from": "me"}}},
}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def at(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[AdminServer]:
    async with admin_server(tmp_path_factory.mktemp("home")) as opened:
        yield opened


async def test_the_doctor_tells_what_it_tells_at_the_terminal(
    at: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = at.runtime.config
    monkeypatch.chdir(loaded.project)
    flags = ["--set", "index.embedder=hash", "--set", "model.base_url=http://127.0.0.1:9"]
    flags += ["--set", "model.name=m", "--set", "model.tools=native"]
    found = await at.get("/v1/doctor")
    variables = {"HOME": str(loaded.home), "LANG": "en_US.UTF-8", "LC_ALL": None}
    invoke = partial(CliRunner().invoke, app, [*flags, "doctor", "--json"], env=variables)
    done = await anyio.to_thread.run_sync(invoke)
    data = orjson.loads(done.stdout)["data"]
    assert [check["name"] for check in found["checks"]] == [c["name"] for c in data["checks"]]
    for name in ("Python", "Data folder", "Extensions", "Limits of scripts", "YAML parser"):
        here, there = (
            next(check for check in report["checks"] if check["name"] == name)
            for report in (found, data)
        )
        assert here == there
    assert found["version"] == data["version"]
    differing = {
        key
        for key, report in found["settings"].items()
        if report["value"] != data["settings"][key]["value"]
    }
    assert differing == set()


async def test_diagnostics_use_the_accept_language_header(at: AdminServer) -> None:
    headers = {**at.serving.headers, "Accept-Language": "zh-CN"}
    names = [check["name"] for check in (await at.get("/v1/doctor", headers))["checks"]]
    assert "数据文件夹" in names


async def test_settings_come_with_their_origins(at: AdminServer) -> None:
    found = (await at.get("/v1/settings"))["data"]
    assert found["model.name"] == {"value": "m", "origin": "flag"}
    assert found["index.embedder"] == {"value": "hash", "origin": "environment"}
    assert found["server.port"]["origin"] == "default"


def test_no_secret_is_among_the_settings(home: Path) -> None:
    flags = {**SECRETS, "model": {"api_key": "hunter2", "base_url": "https://a:hunter2@b.example"}}
    loaded = load(project=home, environment={"HOME": str(home)}, flags=flags)
    shown = effective_settings(loaded)
    assert b"hunter2" not in orjson.dumps(shown)
    assert shown["model.base_url"]["value"] == "https://**********@b.example"
    far = shown["mcp.servers"]["value"]["far"]
    assert far["url"] == "https://**********@far.example/mcp"
    assert shown["plugins.config"]["value"]["mailer"]["from"] == "me"


async def test_the_audit_tells_what_was_changed_and_whether_the_chain_holds(
    at: AdminServer,
) -> None:
    for number in range(3):
        at.runtime.audit.record("trial", number=number)
    found = await at.get("/v1/audit", limit=2)
    assert [line["facts"]["number"] for line in found["data"]] == ["1", "2"]
    assert (found["holds"], found["broken_at"]) == (True, None)
    total = found["records"]
    path = at.runtime.config.data / "audit.jsonl"
    whole = path.read_bytes()
    try:
        path.write_bytes(whole.replace(b'"number": 1', b'"number": 9'))
        found = await at.get("/v1/audit")
        assert (found["holds"], found["records"]) == (False, None)
        assert found["broken_at"] == total - 1
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("path", ["/v1/doctor", "/v1/settings", "/v1/audit"])
async def test_only_admin_may_look(at: AdminServer, path: str) -> None:
    headers = at.key_for("chat", "exec", "skills:read", "skills:write")
    assert await at.refused(path, headers) == (403, "scope_missing")
