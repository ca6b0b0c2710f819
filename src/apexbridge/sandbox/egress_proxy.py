"""Egress proxy: an allow-list HTTP proxy for a sandbox without network, with an SSRF guard.

The sandbox sees one Unix socket. A request must be CONNECT or plain HTTP to a granted host. The
name is resolved once, every address must be public, and the checked address is the one dialled,
which rules out DNS rebinding. An empty list grants nothing.
"""

import contextlib
import ipaddress
import os
import re
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from apexbridge import ssrf
from apexbridge.sandbox.host_rule import (
    DEFAULT_PORTS,
    HostRule,
    is_ip_literal,
    normalize_host,
    parse_port,
)
from apexbridge.sandbox.interceptor import Interceptor
from apexbridge.sandbox.uid_pool import is_run_uid

_HEAD_BYTES = 16 * 1024
_HEAD_SECONDS = 10
_DIAL_SECONDS = 10
_IDLE_SECONDS = 60
_MAX_CONNECTIONS = 32
_CHUNK = 1 << 16
_REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) (HTTP/1\.[01])")

IsAllowed = Callable[[str], bool]


def is_public(address: str) -> bool:
    """Return True if an IP address is public, also when embedded in an IPv6 form."""
    try:
        return ssrf.is_public(ipaddress.ip_address(address.partition("%")[0]))
    except ValueError:
        return False


def is_public_or_in(networks: Sequence[ssrf.IPNetwork]) -> IsAllowed:
    """Return a check that passes public addresses, and those of private networks."""

    def is_allowed(address: str) -> bool:
        try:
            number = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return ssrf.is_public(number) or ssrf.is_allowlisted(number, networks)

    return is_allowed


class _ProxyRefusalError(Exception):  # it never leaves this module
    """A refused request, with the HTTP status for the client."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class AllowListProxy:
    """Forward requests to granted hosts; answer everything else with an error status.

    Threads and blocking sockets: the proxy belongs to one run and must end with it at once.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        is_allowed: IsAllowed = is_public,
        interceptor: Interceptor | None = None,
        *,
        operator_hosts: Sequence[str] = (),
    ) -> None:
        self._rules = tuple(map(HostRule.parse, hosts))
        self._operator_hosts = frozenset(operator_hosts)
        self._is_allowed, self._interceptor = is_allowed, interceptor
        self._open = set[socket.socket]()
        self._room = threading.BoundedSemaphore(_MAX_CONNECTIONS)

    @contextmanager
    def serve(self, path: Path) -> Generator[None]:
        """Listen on a Unix socket while the block runs."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            path.chmod(0o666)
            listener.listen()
            thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
            thread.start()
            try:
                yield
            finally:
                for held in (listener, *self._open):
                    # Not `held.shutdown`: that of a TLS socket ends encryption first, and what
                    # another thread is about to send would leave in plain text.
                    with contextlib.suppress(OSError):
                        socket.socket.shutdown(held, socket.SHUT_RDWR)
                thread.join()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            self._room.acquire()
            try:
                client, _ = listener.accept()
            except OSError:  # the listener was shut down: the run is over
                return
            threading.Thread(target=self._handle, args=(client,), daemon=True).start()

    def _handle(self, client: socket.socket) -> None:
        try:
            with self._held(client), contextlib.suppress(OSError):
                # The socket's path and a placeholder are seen by every user of the machine (ps).
                if is_run_uid(_peer_uid(client)):
                    self._let_through(client)
        finally:
            self._room.release()

    @contextmanager
    def _held(self, stream: socket.socket) -> Generator[socket.socket]:
        """Track an open socket, so that it can be shut down when the run ends."""
        self._open.add(stream)
        try:
            with stream:
                yield stream
        finally:
            self._open.discard(stream)

    def _let_through(self, client: socket.socket) -> None:
        client.settimeout(_HEAD_SECONDS)
        try:
            head, rest = _read_head(client)
            host, port, forward = _parse(head)
            server = self._dial(host, port, head + rest)
            if not forward and self._interceptor and self._interceptor.covers(host, port):
                self._intercept(client, server, host, port, self._interceptor)
                return
        except _ProxyRefusalError as refusal:
            _send_status(client, refusal.status)
            return
        with self._held(server):
            if not forward:
                client.sendall(_ESTABLISHED)
            server.sendall(forward + rest)
            _relay(client, server)

    def _intercept(
        self,
        client: socket.socket,
        server: socket.socket,
        host: str,
        port: int,
        interceptor: Interceptor,
    ) -> None:
        """Open a tunnel that ends here, once the real host has proved its name."""
        with self._held(server):
            try:
                secure = interceptor.connect(server, host)
            except OSError:
                raise _ProxyRefusalError("502 Host's certificate not valid") from None
            with self._held(secure):
                client.sendall(_ESTABLISHED)
                interceptor.exchange(client, secure, host, port, self._held)

    def _dial(self, host: str, port: int, request: bytes) -> socket.socket:
        if self._interceptor is not None and self._interceptor.refuses(request, host):
            raise _ProxyRefusalError("403 Secret not allowed here")
        written = {f"{host}:{port}", *([host] if port in DEFAULT_PORTS else ())}
        is_operators = not written.isdisjoint(self._operator_hosts)
        if not is_operators and not any(rule.matches(host, port) for rule in self._rules):
            raise _ProxyRefusalError("403 Host not granted")
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            raise _ProxyRefusalError("502 Host not found") from None
        addresses = [str(entry[4][0]) for entry in found]
        # One private address among public ones is an SSRF attempt (DNS rebinding).
        is_safe = is_operators or all(map(self._is_allowed, addresses))
        if not addresses or not is_safe:
            raise _ProxyRefusalError("403 Address not public")
        try:
            return socket.create_connection((addresses[0], port), _DIAL_SECONDS)
        except OSError:
            raise _ProxyRefusalError("502 Host not reached") from None


def _peer_uid(client: socket.socket) -> int:
    """Return the UID of the process at the other end of a Unix socket, as the kernel knows it."""
    if not hasattr(socket, "SO_PEERCRED"):  # not Linux, where nothing runs with a proxy
        return os.geteuid()
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(credentials)[1]


_CREDENTIALS = struct.Struct("iII")
"""`struct ucred`: process, user, group."""


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        if len(data) > _HEAD_BYTES:
            raise _ProxyRefusalError("431 Header too large")
        piece = client.recv(_CHUNK)
        if not piece:
            raise _ProxyRefusalError("400 Bad request")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head + b"\r\n\r\n", rest


def _parse(head: bytes) -> tuple[str, int, bytes]:
    """Return host, port, and the bytes to forward first (nothing for CONNECT)."""
    line, _, fields = head.decode("latin-1").partition("\r\n")
    words = _REQUEST_LINE.fullmatch(line)
    if words is None or _AMBIGUOUS.search(fields):
        raise _ProxyRefusalError("400 Bad request")
    method, target, version = words.groups()
    try:
        if method == "CONNECT":
            name, _, port_text = target.rpartition(":")
            return _granted_form(name), parse_port(port_text), b""
        address = urlsplit(target)
        port = address.port or 80
    except ValueError:
        raise _ProxyRefusalError("400 Bad request") from None
    if address.scheme != "http" or not address.hostname or address.username is not None:
        raise _ProxyRefusalError("400 Bad request")
    host = _granted_form(address.hostname)
    path = address._replace(scheme="", netloc="").geturl() or "/"
    kept = [f for f in fields.split("\r\n") if not f.lower().startswith(_DROPPED_HEADERS)]
    authority = host if address.port is None else f"{host}:{port}"
    lines = [f"{method} {path} {version}", f"Host: {authority}", "Connection: close", *kept]
    return host, port, "\r\n".join(lines).encode("latin-1")


def _granted_form(name: str) -> str:
    """Normalize a host as rules are: what is compared is what is dialled.

    An address is a host, but none that can be granted: only an operator can name one.
    """
    try:
        return normalize_host(name)
    except ValueError:
        with contextlib.suppress(ValueError):  # one spelling only, which an operator may name
            return str(ipaddress.IPv4Address(name))
        status = "403 Host not granted" if is_ip_literal(name) else "400 Bad request"
        raise _ProxyRefusalError(status) from None


_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_AMBIGUOUS = re.compile(r"\0|\r(?!\n)|(?<!\r)\n|\r\n[ \t]")
"""Line ends and folded lines, which servers read in different ways."""
_DROPPED_HEADERS = ("proxy-", "connection:", "host:")
"""Replaced, because the checked name is that of the request line: another `Host` must not pass."""


def _send_status(client: socket.socket, status: str) -> None:
    body = f"{status}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    client.sendall(head.encode() + body)


def _relay(client: socket.socket, server: socket.socket) -> None:
    """Relay bytes in both directions until both ends are closed or idle for too long."""
    with selectors.DefaultSelector() as selector:
        for source, target in ((client, server), (server, client)):
            source.settimeout(_IDLE_SECONDS)
            selector.register(source, selectors.EVENT_READ, target)
        while selector.get_map():
            ready = selector.select(_IDLE_SECONDS)
            if not ready:
                return
            for key, _ in ready:
                piece = os.read(key.fd, _CHUNK)
                if piece:
                    key.data.sendall(piece)
                else:
                    selector.unregister(key.fd)
                    key.data.shutdown(socket.SHUT_WR)
