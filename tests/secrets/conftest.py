"""A runtime with a secret, two hosts with TLS and one without, and a search for leaks."""

import base64
import socket
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest

from apexbridge.runtime import Runtime
from apexbridge.runtime.secret_preparation import open_secret_store
from apexbridge.sandbox import backends, tls_interception
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.sandbox.run_certificates import RunCertificates
from apexbridge.secrets.run_secrets import current_sha256
from apexbridge.secrets.store import SecretGrant, SecretStore
from apexbridge.settings import Config, load
from apexbridge.testing import make_skill
from tests.secrets.upstream import Authority, Upstream, serving

VALUE = 'sk-live+7Q9xV2/mK4p"T8wZ1cR6yB3nD5'
OTHER_VALUE = "ghp_0a1b2c3d4e5f6a7b8c9d0e1f"
_SCRIPT = """
import base64, gzip, json, os, socket, ssl, sys, urllib.request
KEY = os.environ.get("API_KEY", "")
API, OTHER, PLAIN = sys.argv[1:4]
def fetch(url, headers={}, data=None, method=None):
    request = urllib.request.Request(url, headers=headers, data=data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=15) as answer:
            return f"{answer.status} {dict(answer.headers)} {answer.read()!r}"
    except Exception as error:
        detail = error.read() if hasattr(error, "read") else b""
        return f"{type(error).__name__} {error} {getattr(error, 'headers', '')} {detail!r}"
def tunnel(authority, name=None, says=""):
    host, port = os.environ["https_proxy"].rpartition("/")[2].split(":")
    raw = socket.create_connection((host, int(port)), timeout=15)
    raw.sendall(f"CONNECT {authority} HTTP/1.1\\r\\nHost: {authority}\\r\\n{says}\\r\\n".encode())
    head = raw.recv(4096)
    if b" 200 " not in head:
        print(head)
        sys.exit()
    name = name or authority.partition(":")[0]
    context = ssl.create_default_context()
    context.check_hostname = False
    return context.wrap_socket(raw, server_hostname=name)
def ask(*lines, body=""):
    send(tunnel(API), ("\\r\\n".join(lines) + "\\r\\n\\r\\n" + body).encode())
def send(stream, data):
    stream.sendall(data)
    got = b""
    try:
        while piece := stream.recv(65536):
            got += piece
            if got.endswith(b"END") or b"refused" in got:
                break
    except OSError as error:
        got += type(error).__name__.encode()
    print(got)
"""


@dataclass
class Ground:
    """Where attacks are played."""

    config: Config
    home: Path
    api: Upstream
    other: Upstream
    plain: Upstream
    values: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def store(self) -> SecretStore:
        return open_secret_store(self.config)

    def skill(self, source: str, name: str = "client", secrets: object = ()) -> None:
        declared = secrets or (f"API_KEY={self.api.address}",)
        make_skill(
            self.home / ".claude/skills",
            name,
            secrets=declared,
            files={"scripts/main.py": _SCRIPT + source},
        )

    async def grant(
        self,
        *hosts: str,
        variable: str = "API_KEY",
        name: str = "client",
        value: str = VALUE,
        places: tuple[str, ...] = ("header",),
    ) -> None:
        self.values[variable] = value
        async with Runtime.open(self.config) as runtime:
            skill = runtime.catalog.get(name)
        self.store.set(variable, value)
        one = SecretGrant(
            secret=variable,
            skill=name,
            sha256=current_sha256(skill),
            hosts=hosts or (self.api.address,),
            places=places,
        )
        self.store.grant([one])

    async def run(self, name: str = "client", *extra: str) -> ExecutionResult:
        async with Runtime.open(self.config) as runtime:
            result = await runtime.execute_skill(name, (*self.addresses, *extra))
        self.assert_no_leak(result)
        return result

    @property
    def addresses(self) -> tuple[str, str, str]:
        return self.api.address, self.other.address, self.plain.address

    async def play(self, source: str, *, places: tuple[str, ...] = ("header",)) -> str:
        """Run a script with the secret, search for leaks, and return what it printed."""
        self.skill(source)
        await self.grant(places=places)
        result = await self.run()
        assert result.outcome == "ok", result
        return result.stdout.decode()

    def assert_no_leak(self, result: ExecutionResult) -> None:
        seen = [result.stdout, result.stderr, *result.produced.values(), repr(result).encode()]
        self.assert_nothing_in(b"\0".join(seen))

    def assert_nothing_in(self, *seen: bytes) -> None:
        """Fail if a value is in any of these, or in a file of the data folder."""
        seen += tuple(path.read_bytes() for path in self.config.data.rglob("*") if path.is_file())
        for value in self.values.values():
            for form in forms(value):
                assert not any(form in data for data in seen), form

    def audit(self) -> str:
        return (self.config.data / "audit.jsonl").read_text(encoding="utf-8")


def forms(value: str) -> list[bytes]:
    """The value as text, in hex, percent-encoded, and in base64 at each alignment."""
    raw = value.encode()
    coded = [base64.b64encode(b"x" * n + raw)[4 : len(raw) // 3 * 4 - 4] for n in range(3)]
    return [raw, raw[1:-1], raw.hex().encode(), quote(value, safe="").encode(), *coded]


def _allow_loopback(_: object) -> Callable[[str], bool]:
    return lambda address: bool(address)


@pytest.fixture
def ground(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Ground]:
    authority, real = Authority(), socket.getaddrinfo

    def resolve(host: str, port: int, *rest: object, **options: object) -> object:
        local = "127.0.0.1" if host.endswith(".example") else host
        return real(local, port, *rest, **options)  # pyright: ignore[reportArgumentType]

    trusting = tls_interception.create_upstream_context()
    trusting.load_verify_locations(cadata=authority.pem().decode())
    system = RunCertificates.bundle

    def bundle(certificates: RunCertificates) -> bytes:
        return system(certificates) + authority.pem()

    monkeypatch.setattr(RunCertificates, "bundle", bundle)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(tls_interception, "create_upstream_context", lambda: trusting)
    monkeypatch.setattr(backends, "is_public_or_in", _allow_loopback)
    project = tmp_path / "project"
    project.mkdir()
    with ExitStack() as stack:
        names = ("api.example", "other.example")
        api, other = (
            stack.enter_context(serving(Upstream(n), authority.server_context(n, tmp_path)))
            for n in names
        )
        plain = stack.enter_context(serving(Upstream("plain.example"), None))
        environment = {
            "HOME": str(home),
            "APEXBRIDGE_INDEX__EMBEDDER": "hash",
            "APEXBRIDGE_SANDBOX__SECRET_KEY_FILE": str(tmp_path / "secrets.key"),
            "APEXBRIDGE_SANDBOX__HOSTS": ",".join(
                f"client={host.address}" for host in (other, plain)
            ),
        }
        config = load(project=project, environment=environment)
        yield Ground(config, home, api, other, plain)
