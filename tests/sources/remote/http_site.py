"""HTTP server on loopback with prepared responses, valid and faulty ones."""

import datetime
import hashlib
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from apexbridge.sources.base import SkillSource
from apexbridge.sources.remote.discovery import SCHEMA, WELL_KNOWN
from apexbridge.sources.remote.download_cache import PinStore
from apexbridge.sources.remote.http_client import FetchLimits
from apexbridge.sources.remote.source import RemoteLocations, remote_sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is sent; a body in pieces is sent piece by piece, without a length."""

    body: bytes | Iterable[bytes] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "text/plain"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """A request that the server received."""

    path: str
    headers: Mapping[str, str]


def redirect(to: str, status: int = 302) -> Answer:
    return Answer(status=status, headers={"Location": to})


class Site:
    """Serves `answers` by path while its block runs, and records the requests."""

    def __init__(
        self, host: str = "127.0.0.1", port: int = 0, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[RecordedRequest] = []
        self.closing = threading.Event()
        self._host = host
        self._scheme = "https" if tls else "http"
        self._server = _Server((host, port), _handler_of(self))
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def url(self, path: str = "", *, host: str = "") -> str:
        return f"{self._scheme}://{host or self._host}:{self.port}{path}"

    def paths(self) -> list[str]:
        return [asked.path for asked in self.requests]

    def trickle(self) -> Iterator[bytes]:
        """A byte now and then, for ever."""
        while not self.closing.wait(0.01):
            yield b"x"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self.closing.is_set():
            return
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def publish(site: Site, skills: Mapping[str, Mapping[str, bytes]], **index: object) -> None:
    """Let a site offer skills, each with its files, and an index of them."""
    entries = list[dict[str, object]]()
    for name, files in skills.items():
        for path, data in files.items():
            site.answers[f"/.well-known/agent-skills/{name}/{path}"] = Answer(body=data)
        listed = [{"path": path, "digest": digest(data)} for path, data in files.items()]
        about = {"name": name, "type": "skill-md", "description": "…", "files": listed}
        entries.append({**about, "url": f"{name}/SKILL.md", "digest": digest(files["SKILL.md"])})
    publish_index(site, {"$schema": SCHEMA, "skills": entries, **index})


def publish_index(site: Site, index: object) -> None:
    headers = {"Content-Type": "application/json"}
    site.answers[WELL_KNOWN] = Answer(body=json.dumps(index).encode(), headers=headers)


def remote_over_http(skills: Mapping[str, Mapping[str, bytes]], folder: Path) -> SkillSource:
    """The source of an index; closing it closes the site as well."""
    site = Site()
    publish(site.__enter__(), skills)
    limits = FetchLimits.from_cidr(seconds=20, max_bytes=100_000, allow_networks=["127.0.0.1/32"])
    places = RemoteLocations(indexes=(site.url(),))
    (source,) = remote_sources(places, limits, PinStore(folder / "pins"))
    return _WithSite(source, site)


class _WithSite:
    def __init__(self, source: SkillSource, site: Site) -> None:
        self._source = source
        self._site = site
        self.id, self.roots = source.id, source.roots
        self.scan, self.content, self.resource = source.scan, source.content, source.resource

    async def close(self) -> None:
        await self._source.close()
        self._site.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no fault of ours."""


def _handler_of(site: Site) -> type[BaseHTTPRequestHandler]:
    class Answering(BaseHTTPRequestHandler):
        timeout = 10  # a client that neither reads nor hangs up does not keep us

        def do_GET(self) -> None:
            site.requests.append(
                RecordedRequest(path=self.path, headers=dict(self.headers.items()))
            )
            missing = Answer(status=404)
            answer = site.answers.get(self.path, site.answers.get("*", missing))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            whole = answer.body if isinstance(answer.body, bytes) else None
            if answer.status in {204, 304}:
                whole = b""
            if whole is not None and "Content-Length" not in answer.headers:
                self.send_header("Content-Length", str(len(whole)))
            self.send_header("Connection", "close")
            self.end_headers()
            for piece in [whole] if whole is not None else answer.body:
                self.wfile.write(piece)  # pyright: ignore[reportArgumentType]
                self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Answering


def certificates(folder: Path, *names: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a certificate for these names, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([_general(each) for each in names]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    file = folder / "server.pem"
    file.write_bytes(pem + secret)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cadata=pem.decode("ascii"))


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
