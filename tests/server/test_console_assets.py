"""Static files of the console: public, with a Content-Security-Policy, without path traversal."""

import socket
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from anyio.from_thread import start_blocking_portal

from apexbridge.server.console.routes import CONTENT_SECURITY_POLICY, router
from apexbridge.settings import Config, load
from tests.server.live_server import live_server

CONSOLE = Path(__file__).parents[2] / "src" / "apexbridge" / "server" / "console" / "static"
FILES = sorted(str(path.relative_to(CONSOLE)) for path in CONSOLE.rglob("*") if path.is_file())


def _loaded(place: Path, **server: object) -> Config:
    (place / "project").mkdir()
    environment = {"HOME": str(place), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    return load(project=place / "project", environment=environment, flags={"server": server})


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx.Client]:
    loaded = _loaded(tmp_path_factory.mktemp("files"))
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(live_server(loaded, router.routes)) as served,
        httpx.Client(base_url=served.url) as made,
    ):
        yield made


@pytest.mark.parametrize("path", ["/", "/console"])
def test_the_bare_address_leads_to_the_console(client: httpx.Client, path: str) -> None:
    reply = client.get(path)
    assert (reply.status_code, reply.headers["location"]) == (302, "/console/")


def test_every_file_is_served_as_what_it_is(client: httpx.Client) -> None:
    kinds = {
        "html": "text/html",
        "css": "text/css",
        "js": "text/javascript",
        "svg": "image/svg+xml",
    }
    assert len(FILES) > 40
    for name in FILES:
        reply = client.get(f"/console/{name}")
        assert reply.status_code == 200, name
        assert reply.content == (CONSOLE / name).read_bytes()
        assert reply.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
        assert reply.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert reply.headers["cache-control"] == "no-cache"
    assert client.get("/console/").content == (CONSOLE / "index.html").read_bytes()


def test_nothing_foreign_may_act_in_the_page() -> None:
    rules = {
        rule.partition(" ")[0]: rule.partition(" ")[2]
        for rule in CONTENT_SECURITY_POLICY.split("; ")
    }
    assert rules == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


def test_a_browser_that_has_a_file_is_not_sent_it_again(client: httpx.Client) -> None:
    first = client.get("/console/js/main.js")
    etag = first.headers["etag"]
    for known in (etag, f'"other", W/{etag}'):
        again = client.get("/console/js/main.js", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert again.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    other = client.get("/console/js/main.js", headers={"If-None-Match": '"other"'})
    assert other.status_code == 200
    assert client.head("/console/js/main.js").headers["etag"] == etag


@pytest.mark.parametrize(
    "path",
    [
        "/console/nothing.js",
        "/console/js",
        "/console/js/",
        "/console//index.html",
        "/console/../base.py",
        "/console/js/../../base.py",
        "/console/%2e%2e/base.py",
        "/console/..%2fbase.py",
        "/console/js%2fmain.js%00.css",
        "/console/INDEX.HTML",
        "/console/index.html/",
        "/console/__init__.py",
        "/console/%c0%ae%c0%ae/base.py",
        "/console/" + "a" * 5_000,
    ],
    ids=range(14),
)
def test_no_other_path_leads_to_a_file(client: httpx.Client, path: str) -> None:
    parts = urlsplit(str(client.base_url))
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as raw:
        head = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n"
        raw.sendall(head.encode())
        reply = b"".join(iter(lambda: raw.recv(65_536), b""))
    assert reply.split(b" ", 2)[1] in {b"404", b"400"}
    assert b"import" not in reply


def test_only_reading_is_possible(client: httpx.Client) -> None:
    sent = client.post("/console/index.html", json={})
    assert sent.status_code == 405


def test_a_server_without_a_console_has_none(tmp_path: Path) -> None:
    loaded = _loaded(tmp_path, console=False)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(live_server(loaded, router.routes)) as served,
        httpx.Client(base_url=served.url) as client,
    ):
        for path in ("/", "/console/", "/console/js/main.js"):
            reply = client.get(path)
            assert (reply.status_code, reply.json()["error"]["code"]) == (404, "route_unknown")
