"""Middleware over a socket: guard, authentication, limits, security headers, access log."""

import json
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from apexbridge.server import health
from apexbridge.server.console import routes as console
from apexbridge.server.routing import RequestContext, Route
from apexbridge.settings import load
from tests.server.live_server import LiveServer, live_server
from tests.server.raw_http import (
    open_connection,
    parse_response,
    read_all,
    read_response,
    request_head,
    send_request,
)

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}


async def _echo(ctx: RequestContext) -> Response:
    return Response(await ctx.request.body(), media_type="application/json")


async def _hello(ctx: RequestContext) -> Response:
    return Response(b"{}", media_type="application/json")


async def _fails(ctx: RequestContext) -> Response:
    raise ZeroDivisionError("the secret is sk-verysecret0123456789")


async def _listen(ctx: RequestContext) -> Response:
    async def events() -> AsyncGenerator[bytes]:
        yield b"data: 1\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


async def _late_fault(ctx: RequestContext) -> Response:
    async def pieces() -> AsyncGenerator[bytes]:
        yield b"begun"
        raise ZeroDivisionError

    return StreamingResponse(pieces(), media_type="text/plain")


async def _mounted(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(b"mounted")(scope, receive, send)


ROUTES = (
    Route(method="POST", path="/echo", endpoint=_echo, summary="", scope="chat"),
    Route(method="PATCH", path="/echo", endpoint=_echo, summary="", scope="chat"),
    Route(method="POST", path="/up", endpoint=_echo, summary="", scope="chat", multipart=True),
    Route(method="GET", path="/hello", endpoint=_hello, summary="", scope="chat"),
    Route(method="GET", path="/console/", endpoint=_hello, summary="", scope=None),
    Route(method="GET", path="/fails", endpoint=_fails, summary="", scope=None),
    Route(method="GET", path="/late", endpoint=_late_fault, summary="", scope=None),
    Route(method="GET", path="/events", endpoint=_listen, summary="", scope="chat"),
    *console.router.routes,
    *health.router.routes,
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[LiveServer]:
    home: Path = tmp_path_factory.mktemp("home")
    (home / "project").mkdir()
    chosen = {
        "allowed_hosts": ["chat.example.org", "[fe80::1]", "exact.example.org:444"],
        "allowed_origins": ["https://pages.example.org/"],
        "body_mb": 0.1,
    }
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    flags = {"server": chosen, "install": {"zip_mb": 0.3}}
    loaded = load(project=home / "project", environment=environment, flags=flags)
    async with live_server(loaded, ROUTES, mounts={"/mcp": _mounted}) as made:
        yield made


@pytest.mark.promise("S01")
async def test_a_good_key_opens_and_no_other_does(server: LiveServer) -> None:
    keys = server.state.keys
    good, _ = keys.create("good", ["chat"])
    poor, _ = keys.create("poor", ["skills:read"])
    old, _ = keys.create("old", ["chat"], expires=time.time() - 1)
    gone, key = keys.create("gone", ["chat"])

    async def got(**headers: str) -> tuple[int, str]:
        answer = await send_request(server.url, "/hello", headers=headers)
        return answer.status, "" if answer.status == 200 else answer.code

    assert await got(Authorization=f"Bearer {good}") == (200, "")
    assert await got(Authorization=f"bearer {good}") == (200, "")
    assert await got(**{"x-api-key": good}) == (200, "")
    assert await got(Authorization=f"Bearer {gone}") == (200, "")
    keys.revoke(key.id)
    assert await got(Authorization=f"Bearer {gone}") == (401, "key_invalid")
    assert await got(Authorization=f"Bearer {old}") == (401, "key_invalid")
    assert await got(Authorization=f"Bearer {good}x") == (401, "key_invalid")
    assert await got(Authorization=good) == (401, "key_invalid")
    assert await got(Authorization="Bearer ") == (401, "key_missing")
    assert await got(Authorization="Bearer \xff") == (401, "key_invalid")
    assert await got() == (401, "key_missing")
    assert await got(Authorization=f"Bearer {poor}") == (403, "scope_missing")
    refused = await send_request(server.url, "/hello")
    assert refused.headers["www-authenticate"].startswith("Bearer")


async def test_keys_that_cannot_be_read_open_nothing_and_tell_no_path(server: LiveServer) -> None:
    place = server.state.runtime.config.data / "keys.json"
    before = place.read_bytes()
    place.write_bytes(b"{broken")
    try:
        await anyio.sleep(0.03)  # a look at the file is good for a blink
        answer = await send_request(server.url, "/hello", headers=server.headers)
        assert (answer.status, answer.code) == (500, "server_failed")
        assert b"keys.json" not in answer.body
        ready = await send_request(server.url, "/readyz")
        assert (ready.status, ready.json) == (503, {"status": "broken"})
    finally:
        place.write_bytes(before)


@pytest.mark.promise("S02")
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("LocalHost:{port}", 200),
        ("[::1]:{port}", 200),
        ("chat.example.org", 200),
        ("chat.example.org:8443", 200),
        ("[fe80::1]", 200),
        ("[fe80::1]:99", 200),
        ("exact.example.org:444", 200),
        ("exact.example.org:443", 421),
        ("evil.com", 421),
        ("evil.com:{port}", 421),
        ("127.0.0.1", 421),
        ("127.0.0.1:1", 421),
        ("localhost.evil.com:{port}", 421),
        ("127.0.0.1:{port}@evil.com", 421),
        ("chat.example.org.evil.com", 421),
        ("x" * 5000, 421),
        ("\xff\x1b[2J", 421),
        ("", 421),
    ],
)
async def test_only_its_own_names_are_answered_for(
    server: LiveServer, host: str, status: int
) -> None:
    name = host.format(port=server.url.rpartition(":")[2])
    answer = await send_request(server.url, "/hello", headers={**server.headers, "Host": name})
    assert answer.status in {status, 400 if "\x1b" in host else status}
    if answer.status == 421:
        assert answer.code == "host_unknown"


async def test_a_header_that_decides_may_not_stand_twice(server: LiveServer) -> None:
    sent_headers = request_head(server.url, "GET", "/hello", server.headers)
    twice = sent_headers.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer x\r\n\r\n")
    async with open_connection(server.url) as stream:
        await stream.send(twice)
        assert parse_response(await read_all(stream)).status == 400


@pytest.mark.promise("S03")
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("{own}", 200),
        ("https://pages.example.org", 200),
        ("https://evil.com", 403),
        ("null", 403),
        ("http://localhost.evil.com", 403),
        ("http://localhost:1", 403),
        ("https://{netloc}", 403),
        ("{own}.evil.com", 403),
        ("file://", 403),
        ("", 200),
    ],
)
async def test_pages_of_others_may_not_call(server: LiveServer, origin: str, status: int) -> None:
    text = origin.format(own=server.url, netloc=server.url.removeprefix("http://"))
    answer = await send_request(server.url, "/hello", headers={**server.headers, "Origin": text})
    assert answer.status == status
    assert "access-control-allow-origin" not in answer.headers
    asked = {"Origin": text or "https://evil.com", "Access-Control-Request-Method": "POST"}
    preflight = await send_request(server.url, "/echo", method="OPTIONS", headers=asked)
    assert preflight.status in {403, 405}
    assert "access-control-allow-origin" not in preflight.headers


async def test_a_chosen_name_may_stand_behind_tls(server: LiveServer) -> None:
    sent_headers = {
        **server.headers,
        "Host": "chat.example.org",
        "Origin": "https://chat.example.org",
    }
    assert (await send_request(server.url, "/hello", headers=sent_headers)).status == 200


async def test_what_a_browser_says_of_its_page_counts(server: LiveServer) -> None:
    async def got(path: str, **fetch: str) -> int:
        sent_headers = {f"Sec-Fetch-{name.title()}": value for name, value in fetch.items()}
        return (
            await send_request(server.url, path, headers={**server.headers, **sent_headers})
        ).status

    assert await got("/hello", site="same-origin") == 200
    assert await got("/hello", site="none") == 200
    assert await got("/hello", site="cross-site") == 403
    assert await got("/hello", site="same-site") == 403
    assert await got("/console/", site="cross-site", mode="navigate", dest="document") == 200
    assert await got("/console/", site="cross-site", mode="navigate", dest="iframe") == 403
    assert await got("/hello", site="cross-site", mode="navigate", dest="document") == 403


@pytest.mark.promise("S04")
@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("text/plain", 415),
        ("text/plain; application/json", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/jsonx", 415),
        ("", 415),
    ],
)
async def test_only_json_is_json(server: LiveServer, method: str, kind: str, status: int) -> None:
    sent_headers = {**server.headers, "Content-Type": kind}
    answer = await send_request(
        server.url, "/echo", method=method, headers=sent_headers, body=b"{}"
    )
    assert answer.status == status
    if status == 415:
        assert answer.code == "content_type_unsupported"


async def test_multipart_is_accepted_on_upload_routes_only(server: LiveServer) -> None:
    sent_headers = {**server.headers, "Content-Type": "multipart/form-data; boundary=x"}
    body = b"x" * 200_000  # more than other bodies may have
    assert (
        await send_request(server.url, "/up", method="POST", headers=sent_headers, body=body)
    ).status == 200
    too_much = b"x" * 400_000
    answer = await send_request(
        server.url, "/up", method="POST", headers=sent_headers, body=too_much
    )
    assert (answer.status, answer.code) == (413, "body_too_large")


async def test_a_request_without_a_body_needs_no_type(server: LiveServer) -> None:
    assert (
        await send_request(server.url, "/echo", method="POST", headers=server.headers)
    ).status == 200


@pytest.mark.promise("S05")
@pytest.mark.parametrize("origin", ["https://evil.com", "null", ""])
@pytest.mark.parametrize("path", ["/events", "/mcp", "/mcp/", "/"])
async def test_a_web_socket_is_refused(server: LiveServer, origin: str, path: str) -> None:
    sent_headers = {
        **server.headers,
        "Origin": origin,
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    answer = await send_request(server.url, path, headers=sent_headers)
    assert answer.status == 403


@pytest.mark.promise("S05")
@pytest.mark.parametrize("path", ["/events", "/mcp", "/mcp/more"])
async def test_streams_and_mcp_are_not_for_pages_of_others(server: LiveServer, path: str) -> None:
    ours = await send_request(server.url, path, headers=server.headers)
    assert ours.status == 200
    theirs = await send_request(
        server.url, path, headers={**server.headers, "Origin": "https://evil.com"}
    )
    assert (theirs.status, theirs.code) == (403, "origin_refused")
    strangers = await send_request(server.url, path)
    assert (strangers.status, strangers.code) == (401, "key_missing")


@pytest.mark.promise("S07")
async def test_a_body_is_counted_as_it_comes_whatever_its_head_says(server: LiveServer) -> None:
    sent_headers = {**server.headers, **JSON}
    large = await send_request(
        server.url, "/echo", method="POST", headers=sent_headers, body=b"x" * 200_000
    )
    assert (large.status, large.code) == (413, "body_too_large")
    chunked = {**sent_headers, "Transfer-Encoding": "chunked", "Connection": ""}
    async with open_connection(server.url) as stream:
        await stream.send(request_head(server.url, "POST", "/echo", chunked))
        for _ in range(20):
            await stream.send(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
        await stream.send(b"0\r\n\r\n")
        answer = await read_response(stream)
        assert (answer.status, answer.code) == (413, "body_too_large")
        await stream.send(request_head(server.url, "GET", "/hello", server.headers))
        assert (await read_response(stream)).status == 200  # the connection is as good as before


@pytest.mark.promise("S07")
@pytest.mark.parametrize("coding", ["gzip", "br", "deflate, gzip", "zstd"])
async def test_a_packed_body_is_not_unpacked(server: LiveServer, coding: str) -> None:
    sent_headers = {**server.headers, **JSON, "Content-Encoding": coding}
    answer = await send_request(
        server.url, "/echo", method="POST", headers=sent_headers, body=b"\x1f\x8b"
    )
    assert (answer.status, answer.code) == (415, "content_type_unsupported")
    plain = {**server.headers, **JSON, "Content-Encoding": "identity"}
    assert (
        await send_request(server.url, "/echo", method="POST", headers=plain, body=b"1")
    ).status == 200


@pytest.mark.parametrize("path", ["/hello?" + "q" * 8_300, "/" + "p" * 8_300])
async def test_an_address_has_an_end(server: LiveServer, path: str) -> None:
    answer = await send_request(server.url, path, headers=server.headers)
    assert (answer.status, answer.code) == (414, "address_too_long")


async def test_every_response_has_the_security_headers(server: LiveServer) -> None:
    for path, status in (("/hello", 200), ("/nothing", 404), ("/fails", 500)):
        answer = await send_request(server.url, path, headers=server.headers)
        assert answer.status == status
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-request-id"]


async def test_a_client_may_name_its_request(server: LiveServer) -> None:
    async def named(given: str) -> str:
        sent_headers = {**server.headers, "X-Request-Id": given}
        return (await send_request(server.url, "/hello", headers=sent_headers)).headers[
            "x-request-id"
        ]

    assert await named("my-request.1") == "my-request.1"
    for insane in ("a b", "x" * 65, "a\tb", "<script>"):
        assert await named(insane) not in {insane, ""}
    assert await named("") != await named("")


async def test_unexpected_exceptions_are_logged_and_not_disclosed(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await send_request(server.url, "/fails")
    assert (answer.status, answer.code) == (500, "server_failed")
    assert b"secret" not in answer.body
    assert "Unhandled exception in a request" in caplog.text


async def test_a_fault_after_the_beginning_cuts_the_answer_off(server: LiveServer) -> None:
    async with open_connection(server.url) as stream:
        await stream.send(request_head(server.url, "GET", "/late", {}))
        data = await read_all(stream)
    assert b"begun" in data
    assert not data.endswith(b"0\r\n\r\n")  # nobody takes it for the whole


async def test_faults_speak_the_clients_language(server: LiveServer) -> None:
    answer = await send_request(server.url, "/hello", headers={"Accept-Language": "zh-CN"})
    assert answer.json["error"]["message"] == "需要 API 密钥"
    wrong = await send_request(server.url, "/hello", method="DELETE", headers=server.headers)
    assert (wrong.status, wrong.code) == (405, "method_not_allowed")
    assert "GET" in wrong.headers["allow"]
    nowhere = await send_request(server.url, "/nowhere", headers=server.headers)
    assert (nowhere.status, nowhere.code) == (404, "route_unknown")


async def test_a_rate_limited_caller_gets_retry_after(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    environment = {"HOME": str(tmp_path), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    flags = {"server": {"rate_limit": 3}}
    loaded = load(project=tmp_path / "project", environment=environment, flags=flags)
    async with live_server(loaded, ROUTES) as server:
        first = [await send_request(server.url, "/hello", headers=server.headers) for _ in range(4)]
        assert [answer.status for answer in first] == [200, 200, 200, 429]
        assert first[-1].code == "rate_limited"
        assert 1 <= int(first[-1].headers["retry-after"]) <= 20
        other = {"x-api-key": server.key_for("chat")}
        assert (await send_request(server.url, "/hello", headers=other)).status == 200
        assert (await send_request(server.url, "/healthz")).status == 200


async def test_the_log_has_one_line_for_a_request(
    server: LiveServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="apexbridge.requests")
    sent_headers = {**server.headers, "X-Request-Id": "mine"}
    await send_request(server.url, "/hello?token=apx_0123456789", headers=sent_headers)
    (record,) = [r for r in caplog.records if r.name == "apexbridge.requests"]
    fields = json.loads(json.dumps(vars(record)["fields"]))
    assert fields.pop("seconds") >= 0
    assert fields.pop("key") in {key.id for key in server.state.keys.all()}
    assert fields == {"method": "GET", "path": "/hello", "status": 200}
