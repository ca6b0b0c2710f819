"""Console sign-in: one-time token, API key and session cookie."""

import time
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from starlette.responses import Response

from apexbridge.api_keys import SCOPES, ApiKey
from apexbridge.server.auth import SESSION_SECONDS, TOKEN_SECONDS, ConsoleSessions
from apexbridge.server.console import routes as console
from apexbridge.server.routing import RequestContext, Route
from apexbridge.settings import load
from tests.server.live_server import LiveServer, live_server
from tests.server.raw_http import HttpResponse, send_request

pytestmark = pytest.mark.anyio

PATH = "/v1/console/session"
JSON = {"Content-Type": "application/json"}


async def _hello(ctx: RequestContext) -> Response:
    return Response(ctx.caller.id)


ROUTES = (
    Route(method="GET", path="/hello", endpoint=_hello, summary="", scope="skills:write"),
    *console.router.routes,
)


class Clock:
    """A clock that is set by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_token_works_once_and_not_for_long() -> None:
    clock = Clock()
    sessions = ConsoleSessions(clock)
    token, late = sessions.issue_token(), sessions.issue_token()
    cookie = sessions.sign_in(token)
    assert cookie is not None
    assert sessions.sign_in(token) is None
    assert sessions.sign_in("") is None
    assert sessions.sign_in("\udcff") is None
    clock.now += TOKEN_SECONDS
    assert sessions.sign_in(late) is None
    found = sessions.find(cookie)
    assert found is not None
    assert found.scopes == set(SCOPES)


def test_a_session_ends_on_expiry_or_sign_out() -> None:
    clock = Clock()
    sessions = ConsoleSessions(clock)
    one, other = (sessions.sign_in(sessions.issue_token()) for _ in range(2))
    assert one is not None
    assert other is not None
    sessions.sign_out(one)
    assert sessions.find(one) is None
    assert sessions.find(other) is not None
    clock.now += SESSION_SECONDS
    assert sessions.find(other) is None


def test_sessions_do_not_pile_up() -> None:
    sessions = ConsoleSessions(Clock())
    key = ApiKey(id="k", name="k", scopes=("chat",), sha256="", created=0)
    cookies = [sessions.sign_in_with_key(key) for _ in range(1_001)]
    assert sessions.find(cookies[0]) is None
    assert sessions.find(cookies[-1]) is not None


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(
    anyio_backend: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[LiveServer]:
    home: Path = tmp_path_factory.mktemp("home")
    (home / "project").mkdir()
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    loaded = load(project=home / "project", environment=environment)
    async with live_server(loaded, ROUTES) as made:
        yield made


async def _sign_in(server: LiveServer, token: str, **headers: str) -> HttpResponse:
    body = b'{"token": "%s"}' % token.encode()
    return await send_request(
        server.url, PATH, method="POST", headers={**JSON, **headers}, body=body
    )


async def test_the_one_time_token_signs_in(server: LiveServer) -> None:
    nobody = await send_request(server.url, PATH)
    assert nobody.json == {
        "signed_in": False,
        "id": "",
        "scopes": [],
        "version": "0.1.0",
        "language": "en",
    }
    token = server.state.sessions.issue_token()
    answer = await _sign_in(server, token)
    assert answer.status == 200
    assert answer.json["scopes"] == list(SCOPES)
    assert abs(answer.json["expires"] - time.time() - SESSION_SECONDS) < 60
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Path=/" in cookie
    assert "Secure" not in cookie
    again = await _sign_in(server, token)
    assert (again.status, again.code) == (401, "token_invalid")

    mine = {"Cookie": f"other=1; {cookie.partition(';')[0]}"}
    assert (await send_request(server.url, PATH, headers=mine)).json["signed_in"] is True
    assert (await send_request(server.url, "/hello", headers=mine)).body == b"console"
    # A page at another port of this machine is of the same site, and has the cookie sent.
    page = {**mine, "Sec-Fetch-Site": "same-site", "Origin": server.url}
    assert (await send_request(server.url, "/hello", headers=page)).status == 401

    left = await send_request(server.url, PATH, method="DELETE", headers=mine)
    assert left.json == {"signed_in": False}
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert (await send_request(server.url, "/hello", headers=mine)).status == 401


async def test_a_key_signs_in_too_and_its_end_ends_the_session(server: LiveServer) -> None:
    text, key = server.state.keys.create("person", ["skills:write"])
    answer = await _sign_in(server, text)
    assert answer.json["scopes"] == ["skills:write"]
    mine = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
    assert (await send_request(server.url, "/hello", headers=mine)).body == key.id.encode()
    server.state.keys.revoke(key.id)
    assert (await send_request(server.url, "/hello", headers=mine)).status == 401
    assert (await _sign_in(server, text)).status == 401


async def test_behind_tls_the_cookie_stays_there(server: LiveServer) -> None:
    host = server.url.removeprefix("http://")
    sent_headers = {"Origin": f"http://{host}"}
    token = server.state.sessions.issue_token()
    answer = await _sign_in(server, token, **sent_headers)
    assert "Secure" not in answer.headers["set-cookie"]


@pytest.mark.parametrize("cookie", ["", "apexbridge_session", "apexbridge_session=", "a=b; ;;"])
async def test_an_unknown_cookie_is_anonymous(server: LiveServer, cookie: str) -> None:
    assert (await send_request(server.url, "/hello", headers={"Cookie": cookie})).status == 401


@pytest.mark.promise("S16")
async def test_a_wall_clock_jump_does_not_end_sessions(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = await _sign_in(server, server.state.sessions.issue_token())
    mine = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
    real = time.time
    for jump in (-3e8, 3e8):
        monkeypatch.setattr(time, "time", lambda by=jump: real() + by)
        with anyio.fail_after(30):
            assert (await send_request(server.url, "/hello", headers=mine)).status == 200
            assert (await send_request(server.url, "/hello", headers=server.headers)).status == 200
