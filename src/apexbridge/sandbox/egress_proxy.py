"""Egress proxy: an allow-list HTTP proxy for a sandbox without network, with an SSRF guard.

The sandbox sees one Unix socket. A request must be CONNECT or plain HTTP to a granted host. The
name is resolved once, every address must be public, and the checked address is the one dialled,
which rules out DNS rebinding. An empty list grants nothing.
"""

import contextlib
import ipaddress
import os
import selectors
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from apexbridge import ssrf

_HEAD_BYTES = 16 * 1024
_HEAD_SECONDS = 10
_DIAL_SECONDS = 10
_IDLE_SECONDS = 60
_MAX_CONNECTIONS = 32
_CHUNK = 1 << 16
_DEFAULT_PORTS = (80, 443)

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


@dataclass(frozen=True, slots=True)
class HostRule:
    """A granted host: `example.org`, `*.example.org`, `example.org:8443`."""

    name: str
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> "HostRule":
        """Parse the written form.

        Raises:
            ValueError: If it names no host, or is an address: only names can be granted.
        """
        name, _, port = text.strip().lower().rstrip(".").partition(":")
        bare = name.removeprefix("*.")
        if not bare or "*" in bare or "/" in bare or _is_ip_literal(bare):
            raise ValueError(f"{text!r} names no host")
        ascii_name = name if name.startswith("*") else name.encode("idna").decode()
        return cls(ascii_name, int(port) if port else None)

    def matches(self, host: str, port: int) -> bool:
        """Match a host and port."""
        if port != self.port if self.port else port not in _DEFAULT_PORTS:
            return False
        wanted = host.lower().rstrip(".")
        if self.name.startswith("*."):
            return wanted.endswith(self.name[1:])
        return wanted == self.name


def _is_ip_literal(text: str) -> bool:
    """Detect IP literals in every spelling of resolvers: `127.1`, `0x7f.1`, `2130706433`, `::1`."""
    try:
        socket.inet_aton(text)
    except OSError:
        return ":" in text or text.startswith("[")
    return True


class _ProxyRefusalError(Exception):  # it never leaves this module
    """A refused request, with the HTTP status for the client."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class AllowListProxy:
    """Forward requests to granted hosts; answer everything else with an error status.

    Threads and blocking sockets: the proxy belongs to one run and must end with it at once.
    """

    def __init__(self, hosts: Sequence[str], is_allowed: IsAllowed = is_public) -> None:
        self._rules = tuple(map(HostRule.parse, hosts))
        self._is_allowed = is_allowed
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
                    with contextlib.suppress(OSError):
                        held.shutdown(socket.SHUT_RDWR)
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
            server = self._dial(host, port)
        except _ProxyRefusalError as refusal:
            _send_status(client, refusal.status)
            return
        with self._held(server):
            if forward:
                server.sendall(forward + rest)
            else:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            _relay(client, server)

    def _dial(self, host: str, port: int) -> socket.socket:
        if not any(rule.matches(host, port) for rule in self._rules):
            raise _ProxyRefusalError("403 Host not granted")
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            raise _ProxyRefusalError("502 Host not found") from None
        addresses = [str(entry[4][0]) for entry in found]
        # One private address among public ones is an SSRF attempt (DNS rebinding).
        if not addresses or not all(map(self._is_allowed, addresses)):
            raise _ProxyRefusalError("403 Address not public")
        try:
            return socket.create_connection((addresses[0], port), _DIAL_SECONDS)
        except OSError:
            raise _ProxyRefusalError("502 Host not reached") from None


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
    try:
        method, target, version = line.split(" ")
        if method == "CONNECT":
            host, _, port = target.rpartition(":")
            return host.strip("[]"), int(port), b""
        address = urlsplit(target)
        port = address.port or 80
    except ValueError:
        raise _ProxyRefusalError("400 Bad request") from None
    if address.scheme != "http" or not address.hostname or address.username is not None:
        raise _ProxyRefusalError("400 Bad request")
    path = address._replace(scheme="", netloc="").geturl() or "/"
    kept = [f for f in fields.split("\r\n") if not f.lower().startswith(_DROPPED_HEADERS)]
    lines = [f"{method} {path} {version}", f"Host: {address.netloc}", "Connection: close", *kept]
    return address.hostname, port, "\r\n".join(lines).encode("latin-1")


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
