"""HTTP client against a real server: redirects, limits, SSRF and DNS rebinding."""

import gzip
import ipaddress
import itertools
import os
import socket
import ssl
from collections.abc import AsyncIterator, Sequence

import aiohttp
import anyio
import anyio.abc
import pytest

from apexbridge.errors import SourceError
from apexbridge.sources.remote.http_client import (
    ExpectedType,
    FetchLimits,
    Transport,
    fetch,
    pinned_connector,
    retrieve,
    system_resolve,
)
from tests.sources.remote.http_site import Answer, Site, certificates, redirect

pytestmark = pytest.mark.anyio

LIMITS = FetchLimits.from_cidr(seconds=5, max_bytes=1_000, allow_networks=["127.0.0.1/32"])
TWO = FetchLimits.from_cidr(
    seconds=5, max_bytes=1_000, allow_networks=["127.0.0.1/32", "127.0.0.2/32"]
)


class Names:
    """A name server that gives its prepared answers in turn, the last one for ever."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self._answers = {name: list(each) for name, each in answers.items()}
        self.requests: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.requests.append(host)
        name = host.partition(".")[0]
        if name not in self._answers:
            raise socket.gaierror(socket.EAI_NONAME, "no such host")
        turns = self._answers[name]
        return turns.pop(0) if len(turns) > 1 else turns[0]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    with Site() as serving:
        yield serving


async def _refusal(
    url: str, limits: FetchLimits = LIMITS, transport: Transport | None = None
) -> SourceError:
    with anyio.fail_after(20), pytest.raises(SourceError) as caught:
        await fetch(url, limits, transport=transport or Transport())
    return caught.value


async def test_a_file_is_fetched_whole(site: Site) -> None:
    site.answers["/a/SKILL.md?x=1"] = Answer(body="甲".encode())
    found = await retrieve(site.url("/a/SKILL.md?x=1#part"), LIMITS)
    assert found.data.decode() == "甲"
    assert found.url == site.url("/a/SKILL.md?x=1")
    assert found.is_private


async def test_a_request_says_little_and_asks_for_no_compression(site: Site) -> None:
    site.answers["*"] = Answer(body=b"x")
    await fetch(site.url("/a"), LIMITS)
    headers = site.requests[0].headers
    assert headers["Accept-Encoding"] == "identity"
    known = {"host", "accept", "accept-encoding", "connection", "user-agent"}
    assert {name.lower() for name in headers} == known


@pytest.mark.promise("R01")
@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::1]", "0", "0x7f.1", "2130706433", "127.1",
     "[::ffff:169.254.169.254]", "[::ffff:127.0.0.1]", "169.254.169.254"],
)  # fmt: skip
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_ssrf_loopback_is_refused(site: Site, scheme: str, host: str) -> None:
    closed = FetchLimits(seconds=5, max_bytes=1_000)
    error = await _refusal(f"{scheme}://{host}:{site.port}/a", closed)
    assert error.code == "remote_refused"
    assert site.requests == []


@pytest.mark.promise("R02")
@pytest.mark.parametrize(
    "target",
    ["http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://127.0.0.2/",
     "https://10.0.0.1/", "http://0x7f.1/", "//127.0.0.2/x", "file:///etc/passwd", "ftp://a/",
     "http://u:p@127.0.0.1/", "https://[x", "http://\x7f/", "data:text/plain,x"],
)  # fmt: skip
async def test_ssrf_a_redirect_is_checked_like_the_first_url(site: Site, target: str) -> None:
    site.answers["/a"] = redirect(target)
    error = await _refusal(site.url("/a"))
    assert error.code == "remote_refused"
    assert site.paths() == ["/a"]


@pytest.mark.promise("R02")
async def test_an_opened_network_is_no_way_into_another_one() -> None:
    with Site("127.0.0.1") as private, Site("127.0.0.2") as other:
        other.answers["/a"] = redirect(private.url("/b"))
        private.answers["/b"] = Answer(body=b"x")
        assert await fetch(other.url("/a"), TWO) == b"x"
        one = FetchLimits.from_cidr(seconds=5, max_bytes=99, allow_networks=["127.0.0.2/32"])
        assert (await _refusal(other.url("/a"), one)).code == "remote_refused"
        assert private.paths() == ["/b"]


@pytest.mark.promise("R02")
async def test_after_a_public_step_no_private_network_is_open() -> None:
    assert LIMITS.after(is_private=False) == FetchLimits(seconds=5, max_bytes=1_000)
    assert LIMITS.after(is_private=True) == LIMITS


async def test_redirects_are_followed_by_relative_and_absolute_addresses(site: Site) -> None:
    site.answers["/a"] = redirect("b/c", 301)
    site.answers["/b/c"] = redirect("/d", 307)
    site.answers["/d"] = redirect(site.url("/%E6%96%87%E4%BB%B6"), 308)
    site.answers["/%E6%96%87%E4%BB%B6"] = Answer(body=b"found")
    found = await retrieve(site.url("/a"), LIMITS)
    assert (found.data, found.url) == (b"found", site.url("/%E6%96%87%E4%BB%B6"))


@pytest.mark.promise("R06")
async def test_redirects_end(site: Site) -> None:
    site.answers["/a"] = redirect("/b")
    site.answers["/b"] = redirect("/a")
    assert "redirect loop" in (await _refusal(site.url("/a"))).message
    for number in range(9):
        site.answers[f"/{number}"] = redirect(f"/{number + 1}")
    site.requests.clear()
    error = await _refusal(site.url("/0"))
    assert (error.code, "more than 5 redirects" in error.message) == ("remote_unusable", True)
    assert site.paths() == ["/0", "/1", "/2", "/3", "/4", "/5"]


async def test_a_redirect_without_a_target_is_no_answer(site: Site) -> None:
    site.answers["/a"] = Answer(status=302)
    assert "status 302" in (await _refusal(site.url("/a"))).message


@pytest.mark.promise("R03")
async def test_dns_rebinding_a_host_is_resolved_once_and_the_connection_pinned() -> None:
    with Site("127.0.0.1") as good, Site("127.0.0.2", good.port) as evil:
        good.answers["*"] = Answer(body=b"good")
        evil.answers["*"] = Answer(body=b"evil")
        names = Names(rebind=[["127.0.0.1"], ["127.0.0.2"]])
        url = good.url("/a", host="rebind.example")
        assert await fetch(url, TWO, transport=Transport(resolve=names)) == b"good"
        assert names.requests == ["rebind.example"]
        assert evil.requests == []
        assert good.requests[0].headers["Host"] == f"rebind.example:{good.port}"


@pytest.mark.promise("R03")
async def test_ssrf_a_host_with_one_private_address_is_refused(site: Site) -> None:
    for numbers in (["127.0.0.1", "127.0.0.9"], ["127.0.0.9", "127.0.0.1"], ["fe80::1%lo"], []):
        names = Names(mixed=[numbers])
        error = await _refusal(
            site.url("/a", host="mixed.example"), transport=Transport(resolve=names)
        )
        assert error.code == "remote_refused"
    assert site.requests == []


@pytest.mark.promise("R03")
async def test_ssrf_each_redirect_is_resolved_and_checked(site: Site) -> None:
    site.answers["/a"] = redirect(site.url("/b", host="second.example"))
    names = Names(first=[["127.0.0.1"]], second=[["10.0.0.1"]])
    error = await _refusal(site.url("/a", host="first.example"), transport=Transport(resolve=names))
    assert error.code == "remote_refused"
    assert names.requests == ["first.example", "second.example"]
    assert site.paths() == ["/a"]


@pytest.mark.promise("R03")
async def test_ssrf_the_connector_rejects_unchecked_addresses(site: Site) -> None:
    site.answers["*"] = Answer(body=b"x")
    connector = pinned_connector([ipaddress.ip_address("127.0.0.2")])
    async with aiohttp.ClientSession(connector=connector) as session:
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(site.url("/literal"))
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(site.url("/named", host="localhost"))
    assert site.requests == []


@pytest.mark.promise("R05")
async def test_a_body_is_cut_off_at_the_limit(site: Site) -> None:
    site.answers["/exact"] = Answer(body=bytes(1_000))
    site.answers["/over"] = Answer(body=bytes(1_001))
    site.answers["/endless"] = Answer(body=itertools.repeat(bytes(65_536)))
    site.answers["/lies"] = Answer(
        body=bytes(5), headers={"Content-Length": "99999999999", "Content-Type": "text/plain"}
    )
    assert len(await fetch(site.url("/exact"), LIMITS)) == 1_000
    for path in ("/over", "/endless", "/lies"):
        error = await _refusal(site.url(path))
        assert (error.code, "more than 1000 bytes" in error.message) == ("remote_unusable", True)


@pytest.mark.promise("R05")
async def test_a_slow_response_times_out(site: Site) -> None:
    limits = FetchLimits.from_cidr(seconds=0.3, max_bytes=1_000, allow_networks=["127.0.0.0/8"])
    site.answers["/slow"] = Answer(body=site.trickle())
    error = await _refusal(site.url("/slow"), limits)
    assert (error.code, "within 0.3 s" in error.message) == ("remote_unreachable", True)
    silent = socket.create_server(("127.0.0.1", 0))
    with silent:
        error = await _refusal(f"http://127.0.0.1:{silent.getsockname()[1]}/", limits)
    assert error.code == "remote_unreachable"


@pytest.mark.promise("R05")
async def test_a_dns_lookup_without_response_times_out() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await anyio.sleep_forever()
        return ()

    limits = FetchLimits(seconds=0.1)
    error = await _refusal("https://a.example/", limits, Transport(resolve=never))
    assert error.code == "remote_unreachable"


@pytest.mark.promise("R05")
@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "identity, gzip"])
async def test_a_compressed_answer_is_refused(site: Site, encoding: str) -> None:
    headers = {"Content-Type": "text/plain", "Content-Encoding": encoding}
    site.answers["/a"] = Answer(body=gzip.compress(bytes(10_000_000))[:900], headers=headers)
    error = await _refusal(site.url("/a"))
    assert (error.code, "compressed" in error.message) == ("remote_unusable", True)


@pytest.mark.promise("R06")
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html", b"# fine"),
        ("Text/HTML; charset=utf-8", b"x"),
        ("application/xhtml+xml", b"x"),
        ("text/plain", b"<!DOCTYPE html><html>Log in</html>"),
        ("text/markdown", b"\xef\xbb\xbf \n<!-- hi --> <HTML lang='en'>"),
        ("application/octet-stream", b"<html>"),
    ],
)
async def test_an_html_page_is_not_a_skill(site: Site, kind: str, body: bytes) -> None:
    site.answers["/a"] = Answer(body=body, headers={"Content-Type": kind})
    error = await _refusal(site.url("/a"))
    assert (error.code, "HTML page" in error.message) == ("remote_unusable", True)


@pytest.mark.promise("R06")
@pytest.mark.parametrize(
    ("expected", "kind", "is_taken"),
    [
        ("text", "text/markdown; charset=utf-8", True),
        ("text", "", True),
        ("text", "binary/octet-stream", True),
        ("text", "image/png", False),
        ("text", "application/zip", False),
        ("json", "application/json", True),
        ("json", "application/ld+json", True),
        ("json", "text/plain", True),
        ("json", "text/css", False),
        ("zip", "application/zip", True),
        ("zip", "text/plain", False),
    ],
)
async def test_what_a_server_says_it_sends_must_fit(
    site: Site, expected: ExpectedType, kind: str, is_taken: bool
) -> None:
    site.answers["/a"] = Answer(body=b"{}", headers={"Content-Type": kind} if kind else {})
    if is_taken:
        assert await fetch(site.url("/a"), LIMITS, expected=expected) == b"{}"
        return
    with pytest.raises(SourceError, match=f"not {expected}"):
        await fetch(site.url("/a"), LIMITS, expected=expected)


@pytest.mark.promise("R06")
@pytest.mark.parametrize(
    ("status", "says"),
    [(401, "login"), (403, "login"), (404, "status 404"), (500, "status 500"),
     (204, "status 204"), (206, "status 206"), (304, "status 304")],
)  # fmt: skip
async def test_only_a_whole_answer_is_one(site: Site, status: int, says: str) -> None:
    site.answers["/a"] = Answer(status=status, body=b"---\n")
    assert says in (await _refusal(site.url("/a"))).message


async def test_connection_errors_do_not_quote_the_server(site: Site) -> None:
    site.answers["/cut"] = Answer(
        body=b"x", headers={"Content-Type": "text/plain", "Content-Length": "500"}
    )
    assert "incomplete" in (await _refusal(site.url("/cut"))).message
    site.close()
    assert "refused" in (await _refusal(site.url("/gone"))).message.lower()
    unknown = await _refusal("https://unknown.example/", transport=Transport(resolve=Names()))
    assert (unknown.code, "cannot be resolved" in unknown.message) == ("remote_unreachable", True)


async def _raw(answer: bytes) -> SourceError:
    """What is said of a server that sends these bytes and hangs up."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)

    async def speak(client: anyio.abc.SocketStream) -> None:
        async with client:
            await client.receive()
            if answer:
                await client.send(answer)

    said = list[SourceError]()
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, speak)
        said += [await _refusal(f"http://127.0.0.1:{port}/")]
        tasks.cancel_scope.cancel()
    return said[0]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"", "closed the connection"),
        (b"SSH-2.0-OpenSSH_9\r\n\r\n", "not an HTTP server"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", "not an HTTP server"),
    ],
    ids=["nothing", "another-protocol", "huge-header"],
)
async def test_a_server_that_is_not_http_is_reported(answer: bytes, says: str) -> None:
    error = await _raw(answer)
    assert error.code == "remote_unreachable"
    assert says in error.message
    assert "SSH" not in error.message


async def test_secrets_in_a_url_are_redacted(site: Site) -> None:
    error = await _refusal(site.url("/a?token=geheim"))
    assert "geheim" not in error.message + str(error.details)


async def test_no_proxy_and_no_cookie_is_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert os.environ["ALL_PROXY"]
    site.answers["/a"] = Answer(status=302, headers={"Location": "/b", "Set-Cookie": "a=b"})
    site.answers["/b"] = Answer(body=b"x")
    assert await fetch(site.url("/a"), LIMITS) == b"x"
    assert "Cookie" not in site.requests[1].headers


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    return certificates(tmp_path_factory.mktemp("tls"), "skills.example")


async def test_a_pinned_connection_still_checks_the_name(
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    server, client = tls
    names = Names(skills=[["127.0.0.1"]], other=[["127.0.0.1"]])
    with Site(tls=server) as site:
        site.answers["*"] = Answer(body=b"safe")
        transport = Transport(resolve=names, tls=client)
        assert (
            await fetch(site.url("/a", host="skills.example"), LIMITS, transport=transport)
            == b"safe"
        )
        error = await _refusal(site.url("/a", host="other.example"), transport=transport)
        assert "certificate" in error.message
        error = await _refusal(
            site.url("/a", host="skills.example"), transport=Transport(resolve=names)
        )
        assert "certificate" in error.message
        assert site.paths() == ["/a"]


@pytest.mark.promise("R02")
async def test_a_redirect_never_leaves_encryption(
    tls: tuple[ssl.SSLContext, ssl.SSLContext], site: Site
) -> None:
    server, client = tls
    transport = Transport(resolve=Names(skills=[["127.0.0.1"]]), tls=client)
    with Site(tls=server) as safe:
        safe.answers["/down"] = redirect(site.url("/plain"))
        error = await _refusal(safe.url("/down", host="skills.example"), transport=transport)
        assert (error.code, "https to http" in error.message) == ("remote_refused", True)
        assert site.requests == []
        site.answers["/up"] = redirect(safe.url("/safe", host="skills.example"))
        safe.answers["/safe"] = Answer(body=b"safe")
        assert await fetch(site.url("/up"), LIMITS, transport=transport) == b"safe"


async def test_a_failed_tls_handshake_is_reported(site: Site) -> None:
    error = await _refusal(site.url("/a").replace("http:", "https:"))
    assert "TLS handshake" in error.message


async def test_the_system_knows_the_loopback() -> None:
    assert set(await system_resolve("localhost", 80)) <= {"127.0.0.1", "::1"}


def test_a_network_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="host bits"):
        FetchLimits.from_cidr(seconds=1, max_bytes=1, allow_networks=["10.0.0.1/8"])
