"""Damaged state beside a running server: clear errors without paths, and `/readyz` reports it."""

from pathlib import Path

import anyio
import pytest

from apexbridge.server.routes import ROUTES
from tests.server.admin_server import TIMEOUT_SECONDS, admin_server, make_config, tool_request
from tests.server.live_server import LiveServer, live_server
from tests.server.raw_http import send_request

pytestmark = pytest.mark.anyio
GARBAGE = b"\x00garbage" * 1_000


async def _fails(server: LiveServer, path: str, name: str, home: Path) -> None:
    """What needs the file fails, and so does the readiness probe."""
    reply = await send_request(server.url, path, headers=server.headers)
    text = reply.body.decode()
    assert (reply.status, reply.code) == (503, "state_damaged"), text
    assert (name in text, str(home) in text) == (True, False), text
    await _is_not_ready(server, name)


async def _is_not_ready(server: LiveServer, name: str) -> None:
    ready = await send_request(server.url, "/readyz")
    assert (ready.status, ready.json) == (503, {"status": "broken"})
    assert (server.state.runtime.config.data / name).read_bytes() == GARBAGE


@pytest.mark.parametrize(
    ("name", "path"), [("sessions.db", "/v1/sessions"), ("runs.db", "/v1/runs")]
)
async def test_a_server_starts_beside_a_damaged_database_and_is_not_ready(
    home: Path, name: str, path: str
) -> None:
    loaded = make_config(home)
    loaded.data.mkdir(parents=True)
    (loaded.data / name).write_bytes(GARBAGE)
    async with live_server(loaded, ROUTES) as server:
        await _fails(server, path, name, home)
        assert (await send_request(server.url, "/v1/skills", headers=server.headers)).status == 200


async def test_no_list_of_skills_without_their_states(home: Path) -> None:
    async with live_server(make_config(home), ROUTES) as server:
        assert (await send_request(server.url, "/readyz")).status == 200
        (server.state.runtime.config.data / "states.json").write_bytes(GARBAGE)
        await _fails(server, "/v1/skills", "states.json", home)


async def test_a_damaged_key_file_lets_nobody_in_and_tells_nobody(home: Path) -> None:
    async with live_server(make_config(home), ROUTES) as server:
        (server.state.runtime.config.data / "keys.json").write_bytes(GARBAGE)
        headers = {"Authorization": "Bearer apx_unknown"}
        with anyio.fail_after(TIMEOUT_SECONDS):
            while True:  # keys are looked up without a stat call for some milliseconds
                reply = await send_request(server.url, "/v1/skills", headers=headers)
                if reply.status != 401:
                    break
        assert (reply.status, reply.code) == (500, "server_failed")
        await _is_not_ready(server, "keys.json")


async def test_an_always_that_cannot_be_stored_is_not_given(home: Path) -> None:
    async with admin_server(home) as at, anyio.create_task_group() as tasks:
        place = at.runtime.config.project / "a.txt"
        text = tool_request("Write", file_path=str(place), content="x")

        async def ask() -> None:
            await at.ask(text, session="s", approvals="wait")

        tasks.start_soon(ask)
        with anyio.fail_after(TIMEOUT_SECONDS):
            while not (pending := (await at.get("/v1/approvals"))["data"]):
                await anyio.sleep(0.01)
        approvals = at.runtime.config.data / "approvals.json"
        approvals.write_bytes(b"{")
        where = f"/v1/approvals/{pending[0]['id']}"
        for answer, status in (("always", 503), ("once", 200)):
            reply = await at.http.post(where, json={"answer": answer}, headers=at.serving.headers)
            assert reply.status_code == status, reply.text
            assert str(home) not in reply.text
        assert approvals.read_bytes() == b"{"
