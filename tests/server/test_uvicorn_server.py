"""The server as a process: binding, slow clients, connection limit, logs and keys."""

import json
import resource
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack
from pathlib import Path
from signal import SIGTERM
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest

from apexbridge.api_keys import ApiKeyStore
from apexbridge.testing import BrokenStream, RawResponse, ScriptedServer
from tests.server.process import ServerProcess, server_process
from tests.server.raw_http import (
    HttpResponse,
    open_connection,
    parse_response,
    read_all,
    read_response,
    request_head,
    send_request,
)

pytestmark = [pytest.mark.anyio, pytest.mark.unmeasured]

JSON = {"Content-Type": "application/json"}
LIMITS = {
    "APEXBRIDGE_SERVER__BODY_MB": "1",
    "APEXBRIDGE_SERVER__BODY_SECONDS": "2",
    "APEXBRIDGE_SERVER__CONCURRENCY": "8",
    "APEXBRIDGE_SERVER__DRAIN_SECONDS": "0.2",
}
SECRET = "sk-live-0123456789abcdef"  # noqa: S105  # it opens nothing


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def model(anyio_backend: str) -> AsyncGenerator[ScriptedServer]:
    async with ScriptedServer() as made:
        yield made


@pytest.fixture(scope="module")
async def server(
    model: ScriptedServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[ServerProcess]:
    """One server for all tests here, in an odd place: no locale, and a zone that there is not."""
    variables = {
        **LIMITS,
        "APEXBRIDGE_MODEL__BASE_URL": model.base_url,
        "APEXBRIDGE_MODEL__NAME": "tiny",
        "LANG": "C",
        "LC_ALL": "POSIX",
        "TZ": "Nowhere/Odd:99",
    }
    async with server_process(tmp_path_factory.mktemp("home"), **variables) as made:
        with anyio.fail_after(60):
            while (await send_request(made.url, "/readyz")).status != 200:
                await anyio.sleep(0.02)
        yield made
        assert await made.ends(SIGTERM) == 0


def _memory(server: ServerProcess) -> int:
    """What it has in memory, in bytes."""
    pages = Path(f"/proc/{server.process.pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4_096


@pytest.mark.promise("S16")
async def test_it_starts_and_answers_without_a_locale_in_an_odd_zone(
    server: ServerProcess, model: ScriptedServer
) -> None:
    model.play(RawResponse(status=500, body="糟糕".encode()))
    assert (await send_request(server.url, "/v1/models", headers=server.auth)).status == 200
    model.play([])
    answer = await server.chat("你好，世界")
    assert answer.status in {200, 400, 502}
    chinese = await send_request(server.url, "/v1/models", headers={"Accept-Language": "zh"})
    assert chinese.json["error"]["message"] == "需要 API 密钥"


async def _trickle(server: ServerProcess, first: bytes, more: bytes) -> None:
    """Send a little now and then, until the server has had enough of it."""
    async with open_connection(server.url) as stream:
        try:
            await stream.send(first)
            while True:
                await stream.send(more)
                with anyio.move_on_after(0.1):
                    await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return


@pytest.mark.promise("S07")
async def test_a_client_that_takes_its_time_is_not_waited_for(server: ServerProcess) -> None:
    async def says_nothing() -> None:
        async with open_connection(server.url) as stream:
            assert await read_all(stream) == b""

    async def sends_half_a_body() -> None:
        sent_headers = {**server.auth, **JSON, "Content-Length": "100"}
        async with open_connection(server.url) as stream:
            await stream.send(
                request_head(server.url, "POST", "/v1/chat/completions", sent_headers) + b'{"a'
            )
            answer = parse_response(await read_all(stream))
        assert (answer.status, answer.code) == (408, "request_slow")

    async def goes_on_slowly() -> None:
        """After one good request on the same connection."""
        good = request_head(server.url, "GET", "/healthz", {"Connection": ""})
        await _trickle(server, good, b"\r\n")

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(_trickle, server, b"GET / HTTP/1.1\r\nHost: x\r\n", b"X-A: b\r\n")
        tasks.start_soon(_trickle, server, b"\r\n", b"\r\n")
        tasks.start_soon(goes_on_slowly)
        tasks.start_soon(says_nothing)
        tasks.start_soon(sends_half_a_body)
        assert (await send_request(server.url, "/healthz")).status == 200


@pytest.mark.promise("S07")
async def test_a_head_without_end_is_too_large(server: ServerProcess) -> None:
    before = _memory(server)
    async with open_connection(server.url) as stream:
        await stream.send(b"GET / HTTP/1.1\r\n")
        sent = 0
        try:
            while sent < 64_000_000:
                await stream.send(b"X-A: " + b"y" * 65_000 + b"\r\n")
                sent += 65_000
        except anyio.BrokenResourceError:
            pass
    assert sent < 64_000_000
    assert _memory(server) - before < 30_000_000


@pytest.mark.promise("S07")
async def test_a_body_without_end_leaves_memory_as_it_was(server: ServerProcess) -> None:
    sent_headers = {**server.auth, **JSON, "Transfer-Encoding": "chunked", "Connection": ""}
    before = _memory(server)
    piece = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    async with open_connection(server.url) as stream:
        await stream.send(request_head(server.url, "POST", "/v1/chat/completions", sent_headers))
        for _ in range(24):
            await stream.send(piece)
        answer = await read_response(stream)
        assert (answer.status, answer.code) == (413, "body_too_large")
        try:  # a client that goes on is read for a moment, kept nowhere, and then left
            with anyio.move_on_after(20):
                while True:
                    await stream.send(piece)
        except anyio.BrokenResourceError:
            pass
    assert _memory(server) - before < 30_000_000


@pytest.mark.promise("S09")
async def test_a_thousand_streams_at_once_do_not_bring_it_down(
    server: ServerProcess, model: ScriptedServer, many_files: None
) -> None:
    model.play(*([BrokenStream(then="hang")] * 8))
    body = b'{"messages": [{"role": "user", "content": "go"}], "stream": true}'
    sent_headers = {**server.auth, **JSON, "Content-Length": str(len(body))}
    sent = request_head(server.url, "POST", "/v1/chat/completions", sent_headers) + body
    address = (urlsplit(server.url).hostname or "", urlsplit(server.url).port or 0)

    def begin(stack: ExitStack, count: int) -> list[socket.socket]:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.settimeout(60)
            one.connect(address)
            one.sendall(sent)
        return sockets

    with ExitStack() as taken, ExitStack() as others:
        begin(taken, 8)  # these are worked on, until their clients leave
        with anyio.fail_after(60):
            while b"requests_going 9.0" not in (await send_request(server.url, "/metrics")).body:
                await anyio.sleep(0.05)
        sockets = await anyio.to_thread.run_sync(begin, others, 992)
        answers = await anyio.to_thread.run_sync(lambda: [_read_all(one) for one in sockets])
        assert {answer.status for answer in answers} == {503}
        assert {answer.code for answer in answers} == {"server_busy"}
        assert all(int(answer.headers["retry-after"]) > 0 for answer in answers)
        assert (await send_request(server.url, "/healthz")).status == 200
    with anyio.fail_after(60):  # a closed connection frees a slot
        while b"requests_going 1.0" not in (await send_request(server.url, "/metrics")).body:
            await anyio.sleep(0.05)
    assert (await send_request(server.url, "/v1/models", headers=server.auth)).status == 200


def _read_all(one: socket.socket) -> HttpResponse:
    data = b""
    while piece := one.recv(65_536):
        data += piece
    return parse_response(data)


@pytest.fixture
def many_files() -> Generator[None]:
    """As many open files as a thousand clients have."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < 4_096:
        pytest.skip(f"no more than {before[1]} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 4_096), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.promise("S12")
async def test_no_secret_is_in_a_reply_or_in_the_log(
    server: ServerProcess, model: ScriptedServer
) -> None:
    error_json = json.dumps(
        {"error": {"message": f"Incorrect API key provided: {SECRET}."}}
    ).encode()
    model.play(RawResponse(status=401, body=error_json))
    answer = await server.chat()
    assert answer.status >= 400
    assert SECRET.encode() not in answer.body
    await send_request(server.url, f"/v1/models?api_key={SECRET}", headers=server.auth)
    await send_request(server.url, f"/v1/models/{SECRET}", headers=server.auth)
    await send_request(server.url, "/v1/models", headers={"Authorization": f"Bearer {SECRET}"})
    await send_request(server.url, "/v1/models", headers={"x-api-key": "apx_not-a-key-of-ours"})
    lines = await _logged(server, "/v1/models/[hidden]")
    text = json.dumps(lines)
    assert SECRET not in text
    assert server.key not in text
    assert server.token not in text
    assert "apx_not-a-key-of-ours" not in text
    assert "?" not in "".join(str(line.get("path", "")) for line in lines)


@pytest.mark.promise("S14")
async def test_names_cannot_steer_the_log(server: ServerProcess) -> None:
    name = "%0a%7B%22level%22:%22error%22%7D%1b%5B2J%7f%C2%9B%E2%80%AEevil"
    await send_request(server.url, f"/v1/skills/{name}", headers=server.auth)
    lines = await _logged(server, "evil")
    assert any("\n" in str(line.get("path")) for line in lines)  # written out, and read back
    raw = server.log.decode("ascii")  # nothing else is in it
    assert not [letter for letter in raw if not letter.isprintable() and letter != "\n"]
    assert all(line["level"] in {"info", "warning"} for line in lines)


async def _logged(server: ServerProcess, text: str) -> list[dict[str, object]]:
    """The log, as soon as something is in it."""
    with anyio.fail_after(30):
        while text not in server.log.decode("ascii"):
            await anyio.sleep(0.02)
    return server.lines


async def test_each_line_of_a_request_has_its_id(server: ServerProcess) -> None:
    await send_request(server.url, "/healthz", headers={"X-Request-Id": "find-me"})
    lines = await _logged(server, "find-me")
    (line,) = [line for line in lines if line.get("request_id") == "find-me"]
    assert (line["method"], line["path"], line["status"], line["key"]) == (
        "GET", "/healthz", 200, "",
    )  # fmt: skip


async def test_the_console_opens_with_the_token_that_was_printed(server: ServerProcess) -> None:
    body = json.dumps({"token": server.token}).encode()
    answer = await send_request(
        server.url, "/v1/console/session", method="POST", headers=JSON, body=body
    )
    assert answer.status == 200


@pytest.mark.promise("S01")
async def test_a_key_that_another_process_revokes_opens_nothing_any_more(
    server: ServerProcess,
) -> None:
    keys = ApiKeyStore(server.data / "keys.json")
    text, key = keys.create("friend", ["chat"])
    sent_headers = {"Authorization": f"Bearer {text}"}
    with anyio.fail_after(30):  # a look at the file is good for a blink
        while (await send_request(server.url, "/v1/models", headers=sent_headers)).status != 200:
            await anyio.sleep(0.01)
    keys.revoke(key.id)
    with anyio.fail_after(30):
        while (
            answer := await send_request(server.url, "/v1/models", headers=sent_headers)
        ).status == 200:
            await anyio.sleep(0.01)
    assert (answer.status, answer.code) == (401, "key_invalid")
