"""Liveness, readiness and Prometheus metrics."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from apexbridge.events import CatalogChanged, ToolFinished, TurnFinished
from apexbridge.server import health
from apexbridge.server.metrics import Metrics
from apexbridge.settings import load
from apexbridge.testing import make_skill
from tests.server.live_server import LiveServer, live_server
from tests.server.raw_http import send_request

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[LiveServer]:
    (tmp_path / "project").mkdir()
    make_skill(tmp_path / ".claude/skills", "very-private")
    environment = {"HOME": str(tmp_path), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    loaded = load(project=tmp_path / "project", environment=environment)
    async with live_server(loaded, health.router.routes) as made:
        yield made


async def test_it_lives_and_is_ready_unless_it_begins_or_ends(server: LiveServer) -> None:
    async def said(path: str) -> tuple[int, str]:
        answer = await send_request(server.url, path)
        return answer.status, answer.json["status"]

    assert await said("/healthz") == (200, "ok")
    assert await said("/readyz") == (200, "ready")
    server.state.concurrency.is_starting = True
    assert await said("/readyz") == (503, "starting")
    server.state.concurrency.stop()
    assert await said("/readyz") == (503, "stopping")
    assert await said("/healthz") == (200, "ok")
    refused = await send_request(server.url, "/v1/models")
    assert (refused.status, refused.code) == (503, "server_stopping")


async def test_metric_labels_have_no_skill_names_and_no_client_made_paths(
    server: LiveServer,
) -> None:
    await server.state.runtime.search("anything")
    await send_request(server.url, "/healthz")
    await send_request(server.url, "/secret-address")
    await send_request(server.url, "/healthz", method="BREW")
    answer = await send_request(server.url, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = answer.body.decode()
    assert 'apexbridge_requests_total{method="GET",route="/healthz",status="200"} 1.0' in text
    assert 'route="other",status="404"' in text
    assert 'apexbridge_request_seconds_count{route="/healthz"}' in text
    assert "apexbridge_requests_going 1.0" in text
    assert "process_resident_memory_bytes" in text
    skills = len(server.state.runtime.catalog.skills)
    assert f"apexbridge_skills {float(skills)}" in text
    assert f"apexbridge_index_entries {float(skills)}" in text
    for private in ("very-private", "secret-address", "BREW"):
        assert private not in text


async def test_the_sandbox_gauge_is_set_once_selected(server: LiveServer) -> None:
    assert "apexbridge_sandbox{" not in (await send_request(server.url, "/metrics")).body.decode()
    choice = await server.state.runtime.script_runner.select_sandbox()
    kind = choice.sandbox.name if choice.sandbox else "none"
    metrics_text = (await send_request(server.url, "/metrics")).body.decode()
    assert f'apexbridge_sandbox{{kind="{kind}"}} 1.0' in metrics_text


def test_turns_tools_tokens_and_runs_are_counted() -> None:
    metrics = Metrics()
    metrics.on_event(
        TurnFinished(
            session_id="s", turn_id="t", finish="stop", text="", input_tokens=7, output_tokens=3
        )
    )
    for fails in (True, False, False):
        metrics.on_event(
            ToolFinished(session_id="s", call_id="c", tool="Mine", seconds=1, is_error=fails)
        )
    metrics.on_event(CatalogChanged(added=("very-private",), cause="install"))
    metrics.record_run("timeout")
    text = metrics.render().decode()
    for line in (
        'apexbridge_turns_total{finish="stop"} 1.0',
        'apexbridge_tokens_total{direction="input"} 7.0',
        'apexbridge_tokens_total{direction="output"} 3.0',
        'apexbridge_tool_calls_total{outcome="ok"} 2.0',
        'apexbridge_tool_calls_total{outcome="error"} 1.0',
        'apexbridge_runs_total{outcome="timeout"} 1.0',
    ):
        assert line in text
    assert "Mine" not in text
    assert "very-private" not in text
