"""Secrets over HTTP, MCP and chat: the same grant, the same errors, and no value anywhere."""

import json
import subprocess
import sys
from urllib.parse import parse_qs, unquote, urlsplit

import anyio
import pytest

from apexbridge.errors import PermissionDeniedError
from apexbridge.sandbox.placeholders import PLACEHOLDER
from apexbridge.testing import ScriptedServer
from tests.journeys.chat_client import call, calling, saying, talk
from tests.mcp_server.mcp_fixtures import mcp_endpoint
from tests.secrets.conftest import VALUE, Ground
from tests.server.skills_server import skills_server

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]

_USE = 'print(KEY, fetch(f"https://{API}/", {"Authorization": KEY}), file=sys.stderr); print(KEY)'


async def _prepare(ground: Ground) -> None:
    ground.api.answer = lambda request: [
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(request), request)
    ]
    ground.skill(_USE)
    await ground.grant()


def test_over_http(ground: Ground) -> None:
    anyio.run(_prepare, ground)
    body = {"arguments": ground.addresses}
    with skills_server(ground.config) as server:
        reply = server.post("/v1/skills/client/run", body)
        ground.store.revoke("client")
        refused = server.post("/v1/skills/client/run", body)
    assert reply.status_code == 200, reply.text
    assert PLACEHOLDER.search(reply.content)
    assert VALUE.encode() in ground.api.everything
    ground.assert_nothing_in(reply.content)
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "secret_not_granted"
    assert "apexbridge secrets grant client" in refused.json()["error"]["hint"]


async def test_over_mcp(ground: Ground) -> None:
    await _prepare(ground)
    asked = {"name": "client", "arguments": list(ground.addresses)}
    flags = {"secret_key_file": ground.config.settings.sandbox.secret_key_file}
    async with (
        mcp_endpoint(ground.home, sandbox=flags) as endpoint,
        endpoint.client() as client,
    ):
        reply = await client.call_tool("run_skill", asked)
        ground.store.revoke("client")
        refused = await client.call_tool("run_skill", asked)
    text = reply.model_dump_json().encode()
    assert not reply.is_error, reply
    assert PLACEHOLDER.search(text)
    assert VALUE.encode() in ground.api.everything
    ground.assert_nothing_in(text)
    assert refused.is_error
    assert "apexbridge secrets grant client" in refused.model_dump_json()


async def test_over_chat(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    await _prepare(ground)
    chosen = ground.config.settings.sandbox.secret_key_file
    monkeypatch.setenv("APEXBRIDGE_SANDBOX__SECRET_KEY_FILE", chosen)
    monkeypatch.setenv("APEXBRIDGE_DATA_DIR", str(ground.config.data))
    script = call("SkillScript", skill="client", arguments=list(ground.addresses))
    replies = [calling(script), calling(script), saying("done")]
    async with ScriptedServer() as model:
        model.play(*replies)
        async with talk(model, ground.config.project) as conversation:
            await conversation.ask("run it")
            told = json.dumps(model.requests[1:]).encode()
            ground.store.revoke("client")
            model.play(calling(script), saying("done"))
            await conversation.ask("again")
            last = json.dumps(model.requests[-1])
    assert VALUE.encode() in ground.api.everything
    assert PLACEHOLDER.search(told)
    ground.assert_nothing_in(told, last.encode())
    assert "apexbridge secrets grant client" in last


async def test_the_models_tools_cannot_read_the_store(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ground.config.project / ".data"
    monkeypatch.setenv("APEXBRIDGE_DATA_DIR", str(data))
    data.mkdir()
    for name in ("secrets.json", "secrets.key", "other.md"):
        (data / name).write_text("marked-content", encoding="utf-8")
    reads = [call("Read", file_path=str(data / name)) for name in ("secrets.json", "secrets.key")]
    async with ScriptedServer() as model:
        model.play(*(calling(one) for one in reads))
        model.play(calling(call("Grep", pattern="marked-c", path=str(data), output_mode="content")))
        model.play(saying("done"))
        async with talk(model, ground.config.project) as conversation:
            await conversation.ask("read them")
        said = json.dumps(model.requests[-1]["messages"])
    assert said.count("marked-content") == 1
    assert "other.md" in said


async def test_the_same_error_from_python(ground: Ground) -> None:
    await _prepare(ground)
    ground.store.revoke("client")
    with pytest.raises(PermissionDeniedError, match="was not granted"):
        await ground.run()


async def test_an_optional_secret_is_not_asked_for(ground: Ground) -> None:
    ground.skill("print(repr(KEY))", secrets={"API_KEY": {"required": "false"}})
    assert (await ground.run()).stdout == b"''\n"


async def test_places_that_were_granted_are_swapped(ground: Ground) -> None:
    await ground.play(
        """
body = json.dumps({"key": KEY}).encode()
print(fetch(f"https://{API}/bot{KEY}/x?key={KEY}", {"Content-Type": "application/json"}, body))
form = {"Content-Type": "application/x-www-form-urlencoded"}
print(fetch(f"https://{API}/form", form, f"a=b&key={KEY}".encode()))
""",
        places=("header", "query", "path", "body"),
    )
    first, second = ground.api.received
    target = urlsplit(first.split(b" ")[1].decode())
    assert unquote(target.path) == f"/bot{VALUE}/x"
    assert parse_qs(target.query) == {"key": [VALUE]}
    assert json.loads(first.partition(b"\r\n\r\n")[2]) == {"key": VALUE}
    assert parse_qs(second.partition(b"\r\n\r\n")[2].decode()) == {"a": ["b"], "key": [VALUE]}


async def test_keep_alive_streams_and_expectations_work(ground: Ground) -> None:
    parts = [b"data: %d\n\n" % number for number in range(3)]
    stream = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    whole = [stream, *(b"%x\r\n%s\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n"]
    ground.api.answer = lambda _: whole
    said = await ground.play("""
import http.client
proxy = os.environ["https_proxy"].rpartition("/")[2]
host, port = API.split(":")
client = http.client.HTTPSConnection(proxy)
client.set_tunnel(host, int(port))
for number in range(3):
    client.request("POST", f"/{number}", body=iter([b"x" * 700_000] * 3), headers={
        "Authorization": KEY, "Expect": "100-continue", "Transfer-Encoding": "chunked"},
        encode_chunked=True)
    print(client.getresponse().read())
client.request("HEAD", "/head")
print(client.getresponse().status)
""")
    assert said.count("data: 2") == 3
    assert said.strip().endswith("200")
    assert len(ground.api.received) == 4
    assert ground.api.everything.count(b"x" * 100) >= 3


def test_a_run_without_secrets_loads_nothing_of_this() -> None:
    code = (
        "import sys, apexbridge.runtime.script_runner, apexbridge.runtime.container\n"
        "print(sorted({'cryptography', 'h11', 'keyring'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True
    )
    assert done.stdout == "[]\n"
