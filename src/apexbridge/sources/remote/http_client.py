"""HTTP client with SSRF protection: downloads within time and size limits.

Every redirect is checked like the first URL: the host is resolved once, all addresses must be
allowed, and the connection is pinned to them (no DNS rebinding). A public server cannot redirect
into a private network, whatever the operator allows.
"""

import errno
import hashlib
import ipaddress
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urljoin

import aiohttp
import anyio
from aiohttp.abc import AbstractResolver, ResolveResult

from apexbridge.errors import SourceError
from apexbridge.paths import storage_errors
from apexbridge.sources.remote.content_types import (
    SNIFF_BYTES,
    ExpectedType,
    body_problem,
    type_problem,
)
from apexbridge.ssrf import (
    CheckedUrl,
    IPAddress,
    IPNetwork,
    check_addresses,
    check_url,
    display_url,
    url_refused,
)

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolve host and port to IP addresses."""
Write = Callable[[bytes], Awaitable[object]]
"""Receives a body piece by piece."""

_MAX_REDIRECTS = 5
_OK = 200
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LOGIN = frozenset({401, 403, 407, 511})
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "apexbridge"}


_AddrInfo = tuple[int, int, int, str, tuple[object, ...]]
"""Result of getaddrinfo: family, type, protocol, canonical name, socket address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """Time, size and allowed private networks of a request. Empty allows none."""

    seconds: float = 15
    """Deadline of DNS, redirects and body together."""
    max_bytes: int = 1024 * 1024
    archive_bytes: int = 10_000_000
    """Maximum size of an archive of a whole skill."""
    allow_networks: tuple[IPNetwork, ...] = ()

    @classmethod
    def from_cidr(
        cls,
        *,
        seconds: float,
        max_bytes: int,
        archive_bytes: int = 10_000_000,
        allow_networks: Iterable[str] = (),
    ) -> "FetchLimits":
        """Parse networks in CIDR notation: `10.0.0.0/8`; ValueError if one is no network."""
        networks = tuple(map(ipaddress.ip_network, allow_networks))
        return cls(
            seconds=seconds,
            max_bytes=max_bytes,
            archive_bytes=archive_bytes,
            allow_networks=networks,
        )

    def after(self, *, is_private: bool) -> "FetchLimits":
        """Drop private networks after a public hop: no redirect leads from public to private."""
        return self if is_private else replace(self, allow_networks=())


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Resolve with the system's resolver."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(entry[4][0] for entry in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Transport:
    """Resolver and TLS context of the client."""

    resolve: Resolver = system_resolve
    tls: ssl.SSLContext | None = None
    """CA certificates; by default the system's."""


DEFAULT_TRANSPORT = Transport()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Downloaded bytes and the final URL after redirects."""

    data: bytes = field(repr=False)
    url: str
    is_private: bool
    """True if every hop was on an allowed private network."""


async def fetch(
    url: str,
    limits: FetchLimits,
    *,
    expected: ExpectedType = "text",
    transport: Transport = DEFAULT_TRANSPORT,
) -> bytes:
    """Download a file.

    Raises:
        SourceError: `remote_refused` for a URL that may not be requested, `remote_unreachable` on
            timeouts and connection errors, `remote_unusable` for an unexpected response.
    """
    return (await retrieve(url, limits, expected=expected, transport=transport)).data


async def retrieve(
    url: str,
    limits: FetchLimits,
    *,
    expected: ExpectedType = "text",
    transport: Transport = DEFAULT_TRANSPORT,
) -> Fetched:
    """Download a file with its final URL; raises what `fetch` raises."""
    try:
        with anyio.fail_after(limits.seconds):
            return await _follow(url, limits, expected, transport)
    except TimeoutError:
        raise _unreachable(url, f"no response within {limits.seconds:g} s") from None


async def download(
    url: str,
    into: Path,
    limits: FetchLimits,
    *,
    expected: ExpectedType = "archive",
    transport: Transport = DEFAULT_TRANSPORT,
) -> str:
    """Download to a new file without holding it in memory, and return its SHA-256.

    Raises what `fetch` raises; on an error the file may be there, incomplete.
    """
    digest = hashlib.sha256()
    with storage_errors(into):
        async with await anyio.open_file(into, "xb") as file:

            async def write(chunk: bytes) -> None:
                digest.update(chunk)
                await file.write(chunk)

            try:
                with anyio.fail_after(limits.seconds):
                    await _follow(url, limits, expected, transport, write)
            except TimeoutError:
                raise _unreachable(url, f"no response within {limits.seconds:g} s") from None
    return digest.hexdigest()


async def _follow(
    url: str,
    limits: FetchLimits,
    expected: ExpectedType,
    transport: Transport,
    write: Write | None = None,
) -> Fetched:
    """Follow redirects to the end; the body goes to `write`, or into the result."""
    target, seen = check_url(url), set[str]()
    for _ in range(_MAX_REDIRECTS + 1):
        addresses, is_private = await resolve_and_check(target, limits, transport)
        body, to = await _request(target, addresses, limits, expected, transport, write)
        if not to:
            return Fetched(data=body, url=target.url, is_private=is_private)
        seen.add(target.url)
        next_target = _redirect_target(target, to)
        if target.scheme == "https" and next_target.scheme == "http":
            detail = f"{display_url(target.url)} redirects from https to http"
            raise url_refused(next_target.url, detail)
        if next_target.url in seen:
            raise _unusable(url, "redirect loop")
        target, limits = next_target, limits.after(is_private=is_private)
    raise _unusable(url, f"it has more than {_MAX_REDIRECTS} redirects")


def _redirect_target(target: CheckedUrl, written: str) -> CheckedUrl:
    try:
        return check_url(urljoin(target.url, written))
    except ValueError:
        detail = f"{display_url(target.url)} redirects to it, and it is not a valid URL"
        raise url_refused(written, detail) from None


async def resolve_and_check(
    target: CheckedUrl, limits: FetchLimits, transport: Transport
) -> tuple[tuple[IPAddress, ...], bool]:
    """Resolve a host and check its addresses; return them and whether all are allowed private."""
    if target.address is not None:
        return check_addresses(target, (target.host,), limits.allow_networks)
    try:
        found = await transport.resolve(target.host, target.port)
    except (OSError, UnicodeError):
        raise _unreachable(target.url, "its host cannot be resolved") from None
    return check_addresses(target, found, limits.allow_networks)


async def _request(
    target: CheckedUrl,
    addresses: tuple[IPAddress, ...],
    limits: FetchLimits,
    expected: ExpectedType,
    transport: Transport,
    write: Write | None,
) -> tuple[bytes, str]:
    """Return the body, or the URL of a redirect as it was written."""
    async with _session(addresses, transport) as session:
        try:
            async with session.get(target.url, allow_redirects=False) as response:
                location = response.headers.get("Location")
                if response.status in _REDIRECTS and location:
                    return b"", location
                _check_head(target, response, limits, expected)
                body = await _read_body(target, response, limits, write)
        except aiohttp.ClientError as error:
            raise _unreachable(target.url, _error_reason(error)) from None
    if detail := body_problem(body, expected):
        raise _unusable(target.url, detail)
    return body, ""


async def post(
    url: str, body: bytes, limits: FetchLimits, *, transport: Transport = DEFAULT_TRANSPORT
) -> tuple[int, bytes]:
    """POST JSON to a checked URL; return the status code and the body.

    Redirects are not followed: the payload is for that URL alone.

    Raises:
        SourceError: `remote_refused`, `remote_unreachable` or `remote_unusable`, as for `fetch`.
    """
    target = check_url(url)
    try:
        with anyio.fail_after(limits.seconds):
            addresses, _ = await resolve_and_check(target, limits, transport)
            headers = {"Content-Type": "application/json"}
            async with (
                _session(addresses, transport) as session,
                session.post(
                    target.url, data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                return response.status, await _read_body(target, response, limits)
    except TimeoutError:
        raise _unreachable(url, f"no response within {limits.seconds:g} s") from None
    except aiohttp.ClientError as error:
        raise _unreachable(url, _error_reason(error)) from None


def _session(addresses: tuple[IPAddress, ...], transport: Transport) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=pinned_connector(addresses, transport.tls),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None),  # the caller sets the deadline
        headers=_HEADERS,
        auto_decompress=False,
        trust_env=False,
    )


def pinned_connector(
    addresses: Iterable[IPAddress], tls: ssl.SSLContext | None = None
) -> aiohttp.TCPConnector:
    """Build a connector that connects to these IP addresses only, whatever the host.

    The resolver returns them, and the socket factory rejects all others: a host that is an address
    literal is never resolved.
    """
    allowed = tuple(addresses)

    def make_socket(found: _AddrInfo) -> socket.socket:
        family, kind, protocol, _, target = found
        if ipaddress.ip_address(str(target[0])) not in allowed:
            raise PermissionError(errno.EPERM, "not a checked address")
        return socket.socket(family, kind, protocol)

    return aiohttp.TCPConnector(
        resolver=_PinnedResolver(allowed),
        socket_factory=make_socket,
        use_dns_cache=False,
        force_close=True,
        ssl=tls or True,
    )


class _PinnedResolver(AbstractResolver):
    """Resolver that returns the checked addresses."""

    def __init__(self, addresses: Iterable[IPAddress]) -> None:
        self._numbers = tuple(addresses)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the checked addresses for any host."""
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._numbers
        ]

    async def close(self) -> None:
        """No-op: nothing is open."""


def _check_head(
    target: CheckedUrl,
    response: aiohttp.ClientResponse,
    limits: FetchLimits,
    expected: ExpectedType,
) -> None:
    if response.status in _LOGIN:
        raise _unusable(target.url, f"it requires a login (status {response.status})")
    if response.status != _OK:
        raise _unreachable(target.url, f"status {response.status}", status=response.status)
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in {"", "identity"}:
        raise _unusable(target.url, "it is compressed, which was not requested")
    written = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if detail := type_problem(written, expected):
        raise _unusable(target.url, detail)
    if (response.content_length or 0) > limits.max_bytes:
        raise _unusable(target.url, f"it has more than {limits.max_bytes} bytes")


async def _read_body(
    target: CheckedUrl,
    response: aiohttp.ClientResponse,
    limits: FetchLimits,
    write: Write | None = None,
) -> bytes:
    """Read the body; with `write` only its start is kept in memory."""
    body, size = bytearray(), 0
    while chunk := await response.content.readany():
        size += len(chunk)
        if size > limits.max_bytes:
            raise _unusable(target.url, f"it has more than {limits.max_bytes} bytes")
        if write is None:
            body += chunk
        else:
            body += chunk[: max(0, SNIFF_BYTES - len(body))]
            await write(chunk)
    return bytes(body)


def _error_reason(error: aiohttp.ClientError) -> str:
    """Describe the error without aiohttp's message, which may hold what a server sent."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    if isinstance(error, aiohttp.ClientSSLError):
        return "the TLS handshake failed"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the response is incomplete"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection"
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno else "the connection failed"
    return "it is not an HTTP server"


def _unreachable(url: str, detail: str, **details: object) -> SourceError:
    return SourceError(detail, code="remote_unreachable", url=display_url(url), **details)


def _unusable(url: str, detail: str) -> SourceError:
    return SourceError(detail, code="remote_unusable", url=display_url(url))
