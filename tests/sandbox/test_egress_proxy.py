"""The egress proxy: the host allow-list, the SSRF guard, and no other network."""

import ipaddress
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteStream, SocketAttribute

from apexbridge.sandbox import interpreters
from apexbridge.sandbox.backends import BubblewrapSandbox, LandlockSandbox
from apexbridge.sandbox.base import Access, ExecRequest, SandboxLimits
from apexbridge.sandbox.egress_proxy import AllowListProxy, HostRule, is_public
from apexbridge.sandbox.launcher import Launcher
from tests.hostile.attacks import row

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254",
     "100.64.0.1", "224.0.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1", "ff02::1",
     "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "nonsense", "",
     "168.63.129.16", "192.0.0.192", "::7f00:1", "fec0::1", "64:ff9b:1::1", "192.88.99.1"],
)  # fmt: skip
async def test_an_address_of_this_machine_or_its_neighbours_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"])
async def test_a_public_address_is(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    ("rule", "host", "port", "expected"),
    [
        ("example.org", "example.org", 443, True),
        ("Example.ORG.", "EXAMPLE.org.", 80, True),
        ("example.org", "example.org", 22, False),
        ("example.org:8443", "example.org", 8443, True),
        ("example.org:8443", "example.org", 443, False),
        ("example.org", "evil-example.org", 443, False),
        ("example.org", "example.org.evil.net", 443, False),
        ("*.example.org", "a.example.org", 443, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "evilexample.org", 443, False),
        ("bücher.example", "xn--bcher-kva.example", 443, True),
    ],
)
async def test_a_rule_means_that_host_and_no_other(
    rule: str, host: str, port: int, expected: bool
) -> None:
    assert HostRule.parse(rule).matches(host, port) is expected


@pytest.mark.parametrize(
    "text", ["", "*", "*.", "127.0.0.1", "0x7f.1", "2130706433", "a/b", "[::1]"]
)
async def test_only_names_can_be_granted(text: str) -> None:
    with pytest.raises(ValueError, match="names no host"):
        HostRule.parse(text)


@asynccontextmanager
async def _upstream() -> AsyncGenerator[tuple[int, list[bytes]]]:
    """A server that notes what it gets and says hello."""
    received = list[bytes]()

    async def greet(client: ByteStream) -> None:
        async with client:
            received.append(await client.receive())
            await client.send(
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
            )

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, greet)
        yield port, received
        tasks.cancel_scope.cancel()


async def _ask(path: Path, request: bytes) -> bytes:
    with anyio.fail_after(10):
        async with await anyio.connect_unix(path) as stream:
            await stream.send(request)
            return b"".join([piece async for piece in stream])


@pytest.mark.promise("X10")
async def test_a_granted_host_is_reachable_by_connect_and_plain_http(tmp_path: Path) -> None:
    async with _upstream() as (port, received):
        proxy = AllowListProxy([f"localhost:{port}"], is_allowed=lambda _: True)
        with proxy.serve(tmp_path / "s"):
            request = (
                f"GET http://localhost:{port}/a?b HTTP/1.1\r\nHost: evil.net\r\n"
                "Proxy-Authorization: x\r\nX-Mine: y\r\n\r\n"
            )
            assert (await _ask(tmp_path / "s", request.encode())).endswith(b"hello")
            tunnel = f"CONNECT localhost:{port} HTTP/1.1\r\n\r\n".encode()
            async with await anyio.connect_unix(tmp_path / "s") as stream:
                await stream.send(tunnel)
                assert (await stream.receive()).startswith(b"HTTP/1.1 200 ")
                await stream.send(b"anything")
                assert (await stream.receive()).endswith(b"hello")
    first, second = received
    assert first.startswith(f"GET /a?b HTTP/1.1\r\nHost: localhost:{port}\r\n".encode())
    assert b"evil.net" not in first
    assert b"Proxy-" not in first
    assert b"X-Mine: y" in first
    assert second == b"anything"


@row(68, on="bubblewrap")
@pytest.mark.promise("X10")
@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("CONNECT example.com:443", b"403 Host not granted"),
        ("CONNECT localhost:22", b"403 Host not granted"),
        ("CONNECT localhost:443", b"403 Address not public"),
        ("GET http://localhost/", b"403 Address not public"),
        ("GET http://127.0.0.1/", b"403 Host not granted"),
        ("CONNECT 169.254.169.254:80", b"403 Host not granted"),
        ("CONNECT [::1]:443", b"403 Host not granted"),
        ("GET https://localhost/", b"400 Bad request"),
        ("GET http://user@localhost/", b"400 Bad request"),
        ("GET /relative", b"400 Bad request"),
        ("CONNECT localhost:http", b"400 Bad request"),
        ("nonsense", b"400 Bad request"),
        ("CONNECT evil\0.localhost:443", b"400 Bad request"),
        ("CONNECT localhost\0:443", b"400 Bad request"),
        ("CONNECT -localhost:443", b"400 Bad request"),
        ("CONNECT local%68ost:443", b"400 Bad request"),
        ("CONNECT localhost:+443", b"400 Bad request"),
        ("CONNECT localhost:4_43", b"400 Bad request"),
        ("GET http://localhost\0.evil/", b"400 Bad request"),
        ("GET http://localhost#@evil.example/", b"403 Address not public"),
        ("GET http://localhost/\nX: y", b"400 Bad request"),
    ],
)
async def test_68_what_is_not_granted_or_not_public_is_refused(
    tmp_path: Path, request_line: str, status: bytes
) -> None:
    proxy = AllowListProxy(["localhost"])
    with proxy.serve(tmp_path / "s"):
        answer = await _ask(tmp_path / "s", f"{request_line} HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("fields", ["X: a\nHost: b", "X: a\r\n Host: b", "X: a\rY: b", "X: \0"])
async def test_fields_that_servers_read_differently_are_refused(
    tmp_path: Path, fields: str
) -> None:
    async with _upstream() as (port, received):
        proxy = AllowListProxy([f"localhost:{port}"], is_allowed=lambda _: True)
        with proxy.serve(tmp_path / "s"):
            request = f"GET http://localhost:{port}/ HTTP/1.1\r\n{fields}\r\n\r\n"
            answer = await _ask(tmp_path / "s", request.encode())
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert not received


async def test_the_name_that_was_compared_is_the_one_that_is_dialled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled = list[str]()

    def resolve(host: str, *_: object, **__: object) -> list[object]:
        dialled.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 443))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with AllowListProxy(["bücher.example"]).serve(tmp_path / "s"):
        for name in ("XN--Bcher-KVA.Example", "xn--bcher-kva.example."):
            await _ask(tmp_path / "s", f"CONNECT {name}:443 HTTP/1.1\r\n\r\n".encode())
    assert dialled == ["xn--bcher-kva.example"] * 2


async def test_68_a_name_with_one_private_address_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def both(*_: object, **__: object) -> list[object]:
        entries = ("93.184.216.34", "127.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (a, 443)) for a in entries]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    with AllowListProxy(["rebinding.example"]).serve(tmp_path / "s"):
        answer = await _ask(tmp_path / "s", b"CONNECT rebinding.example:443 HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 Address not public")


async def test_an_unknown_host_name_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with AllowListProxy(["unknown.example"]).serve(tmp_path / "s"):
        answer = await _ask(tmp_path / "s", b"CONNECT unknown.example:443 HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 Host not found")


async def test_a_head_without_end_is_refused(tmp_path: Path) -> None:
    with AllowListProxy(["localhost"]).serve(tmp_path / "s"):
        answer = await _ask(tmp_path / "s", b"GET " + b"x" * 40_000)
    assert answer.startswith(b"HTTP/1.1 431")


async def test_69_an_empty_list_lets_nothing_through(tmp_path: Path) -> None:
    with AllowListProxy([]).serve(tmp_path / "s"):
        answer = await _ask(tmp_path / "s", b"CONNECT localhost:443 HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 Host not granted")


_FETCH = """
import os, socket, sys, urllib.request
for address in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(address, timeout=5).read().decode())
    except Exception as error:
        print(getattr(error, "code", type(error).__name__))
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1].rpartition(":")[2].rstrip("/"))), 1)
    print("directly")
except OSError:
    print("not directly")
"""


@pytest.mark.needs("bubblewrap")
@pytest.mark.promise("X10")
async def test_a_sandboxed_script_reaches_granted_hosts_only(
    tmp_path: Path, launcher: Launcher
) -> None:
    loopback = tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "::1/128")))
    python = interpreters.find("python")
    assert python is not None
    async with _upstream() as (port, _):
        words = (f"http://localhost:{port}/", f"http://localhost:{port + 1}/")
        request = ExecRequest(
            argv=(str(python.program), "-I", "-c", _FETCH, *words),
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin"},
            limits=SandboxLimits(wall_seconds=30),
            access=Access(
                read=python.prefix,
                write=(tmp_path,),
                hosts=(f"localhost:{port}",),
                private_networks=loopback,
            ),
        )
        result = await BubblewrapSandbox(launcher).run(request)
        public = replace(request, access=replace(request.access, private_networks=()))
        refused = await BubblewrapSandbox(launcher).run(public)
    assert result.stdout.decode().splitlines() == ["hello", "403", "not directly"], result
    assert refused.stdout.decode().splitlines() == ["403", "403", "not directly"], refused


@pytest.mark.needs("root")
def test_another_user_of_the_machine_cannot_use_the_proxy() -> None:
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
        "s.sendall(b'CONNECT localhost:443 HTTP/1.1\\r\\n\\r\\n'); print(s.recv(99))"
    )
    place = Path(tempfile.mkdtemp())  # the parents of tmp_path are for root only
    place.chmod(0o755)
    with AllowListProxy(["localhost"]).serve(place / "s"):
        for user, is_served in ((0, True), (65534, False)):
            words = ["/usr/bin/python3", "-c", code, str(place / "s")]
            done = subprocess.run(words, user=user, capture_output=True, timeout=20)
            assert (b"403" in done.stdout) is is_served, done
    shutil.rmtree(place)


async def test_a_sandbox_without_a_network_of_its_own_says_so(
    tmp_path: Path, launcher: Launcher
) -> None:
    request = ExecRequest(argv=("true",), cwd=tmp_path, access=Access(hosts=("example.org",)))
    result = await LandlockSandbox(launcher).run(request)
    assert result.outcome == "not_started"
    assert (result.error or "").startswith("network_unavailable")
