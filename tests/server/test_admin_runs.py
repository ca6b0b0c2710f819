"""Script runs over HTTP, for operators."""

from pathlib import Path

import pytest

from apexbridge.testing import make_skill
from tests.server.admin_server import admin_server, tool_request

pytestmark = pytest.mark.anyio


@pytest.mark.needs("bubblewrap")
async def test_runs_are_listed_and_shown_whichever_way_they_came_in(home: Path) -> None:
    script = "import sys; print('hi', len(sys.argv)); open('a.txt', 'w').write('x')"
    make_skill(home / ".claude/skills", "runner", files={"scripts/main.py": script})
    async with admin_server(home) as at:
        assert (await at.get("/v1/runs")) == {"object": "list", "data": [], "has_more": False}
        await at.runtime.execute_skill("runner", ["secret"])
        reply = await at.ask(tool_request("SkillScript", skill="runner", arguments=[]), session="s")
        assert "hi 1" in reply["text"]
        page = await at.get("/v1/runs", limit=1)
        assert page["has_more"]
        by_chat = page["data"][0]
        last = await at.get("/v1/runs", limit=1, before=by_chat["id"])
        assert not last["has_more"]
        run = await at.get(f"/v1/runs/{last['data'][0]['id']}")
        assert {key: run[key] for key in last["data"][0]} == last["data"][0]
        assert (run["skill"], run["script"], run["outcome"]) == ("runner", "scripts/main.py", "ok")
        assert (run["stdout"], run["stderr"], run["exit_code"]) == ("hi 2\n", "", 0)
        assert (run["files"], run["argument_chars"]) == (["a.txt"], [6])
        assert run["limits"]["wall_seconds"] > 0
        assert (run["isolation"], run["truncated"], run["error"]) == ("bubblewrap", False, "")
        skill = at.runtime.catalog.get("runner")
        assert skill.fingerprint is not None
        assert run["sha256"] == skill.fingerprint.sha256


async def test_unknown_runs_and_callers_without_scope_are_refused(home: Path) -> None:
    async with admin_server(home) as at:
        assert await at.refused("/v1/runs/nothing") == (404, "record_unknown")
        assert await at.refused("/v1/runs", before="nothing") == (404, "record_unknown")
        assert await at.refused("/v1/runs", limit=201) == (400, "request_invalid")
        for path in ("/v1/runs", "/v1/runs/x"):
            assert await at.refused(path, at.key_for("chat", "exec")) == (403, "scope_missing")


async def test_a_store_that_cannot_be_read_is_an_error_and_the_server_goes_on(home: Path) -> None:
    async with admin_server(home) as at:
        (at.runtime.config.data / "runs.db").mkdir()
        assert await at.refused("/v1/runs") == (500, "storage_failed")
        assert (await at.get("/v1/turns"))["data"] == []


@pytest.mark.needs("bubblewrap")
async def test_the_doctor_tries_every_sandbox_also_after_scripts_have_run(home: Path) -> None:
    async with admin_server(home) as opened:
        chosen = await opened.runtime.script_runner.select_sandbox()
        checks = (await opened.get("/v1/doctor"))["checks"]
        names = [check["name"] for check in checks if check["name"].startswith("Sandbox: ")]
        assert names == ["Sandbox: bubblewrap", "Sandbox: landlock"]
        assert (await opened.runtime.script_runner.select_sandbox()) is chosen
