"""TLS interception: swap placeholders for secrets in HTTPS requests to the hosts of a grant.

The proxy answers as the host, with a certificate that only this run trusts, and speaks TLS with the
real host, whose certificate it checks against the system's store. In between it reads and writes
whole HTTP/1.1 messages with h11: what is forwarded is written anew, with one framing and one
`Host`, so that no second reading of the script's bytes is possible (request smuggling).
"""

import contextlib
import socket
import ssl
import zlib
from collections.abc import Callable, Iterator, Sequence

import h11

from apexbridge.sandbox.interceptor import Hold
from apexbridge.sandbox.placeholders import PLACEHOLDER, RunSecret
from apexbridge.sandbox.redaction import Redactor, StreamRedactor
from apexbridge.sandbox.request_swap import Header, RefusedRequestError, RequestSwap, end_to_end
from apexbridge.sandbox.run_certificates import RunCertificates

_CHUNK = 1 << 16
_IDLE_SECONDS = 60
_HEAD_BYTES = 1 << 16
_WHOLE_BODY = 1 << 20
"""Bodies up to this size are held until they are complete; swapping needs all of one."""
_PLACEHOLDER_BYTES = 64
_DECODERS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}

Report = Callable[[str, str], None]
"""Called with host and reason of each refusal; from the proxy's threads."""


def create_upstream_context() -> ssl.SSLContext:
    """Create the context for real hosts: the system's store, names checked, HTTP/1.1 only."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


class TlsInterceptor:
    """The secrets of one run, and what the egress proxy does with them."""

    def __init__(
        self, run_secrets: Sequence[RunSecret], report: Report, is_granted: Callable[[], bool]
    ) -> None:
        self.secrets = tuple(run_secrets)
        self.report, self._is_granted = report, is_granted
        self.redactor = Redactor(run_secrets)
        self._certificates = RunCertificates()
        self._upstream = create_upstream_context()

    def bundle(self) -> bytes:
        """Return the certificates that the sandbox must trust, as PEM."""
        return self._certificates.bundle()

    def covers(self, host: str, port: int) -> bool:
        """Return whether a host has a secret; all others are tunnelled and never read."""
        return any(secret.is_for(host, port) for secret in self.secrets)

    def refuses(self, head: bytes, host: str) -> bool:
        """Return whether a request in plain text, or for a tunnel, holds a placeholder."""
        if PLACEHOLDER.search(head) is None:
            return False
        self.report(host, "plain_text")
        return True

    def connect(self, server: socket.socket, host: str) -> socket.socket:
        """Begin TLS with the real host.

        Raises:
            OSError: If its certificate is not valid for that name, or it speaks no TLS.
        """
        return self._upstream.wrap_socket(server, server_hostname=host)

    def exchange(
        self, client: socket.socket, server: socket.socket, host: str, port: int, hold: Hold
    ) -> None:
        """Serve the requests of a client that was told that its tunnel is open."""
        context = self._certificates.server_context(host)
        context.sni_callback = self._check_server_name(host)
        client.settimeout(_IDLE_SECONDS)
        server.settimeout(_IDLE_SECONDS)
        with hold(context.wrap_socket(client, server_side=True)) as plain:
            swap = RequestSwap(self.secrets, host, port, self._is_granted)
            relay = _HttpRelay(plain, server, swap, self.redactor)
            try:
                relay.run()
            except RefusedRequestError as refusal:
                if refusal.status < 500:  # the rest is the host's fault
                    self.report(host, refusal.reason)
                relay.refuse(refusal)
            # Messages of these errors may quote what was sent: they go nowhere.
            except (h11.ProtocolError, zlib.error, OSError):
                relay.refuse(RefusedRequestError(502, "protocol"))

    def _check_server_name(
        self, host: str
    ) -> Callable[[ssl.SSLObject | ssl.SSLSocket, str | None, ssl.SSLContext], int | None]:
        def check(_: object, name: str | None, __: object) -> int | None:
            if name is None or name.lower() == host:
                return None
            self.report(host, "server_name")
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

        return check


class _HttpRelay:
    """Requests of one client connection to one server connection, one after the other."""

    def __init__(
        self, client: socket.socket, server: socket.socket, swap: RequestSwap, redactor: Redactor
    ) -> None:
        self._client, self._server = client, server
        self._swap, self._redactor = swap, redactor
        self._down = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._up = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)

    def run(self) -> None:
        """Relay until one side closes."""
        while True:
            request = _next_event(self._down, self._client)
            if not isinstance(request, h11.Request):
                return
            self._forward_request(request)
            self._forward_response()
            sides = (self._down, self._up)
            if any(s.our_state is not h11.DONE or s.their_state is not h11.DONE for s in sides):
                return
            self._down.start_next_cycle()
            self._up.start_next_cycle()

    def refuse(self, refusal: RefusedRequestError) -> None:
        """Answer with an error, if no answer has begun."""
        if self._down.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        text = f"refused: {refusal.reason}\n".encode()
        fields = [
            (b"content-length", str(len(text)).encode()),
            (b"content-type", b"text/plain"),
            (b"connection", b"close"),
        ]
        with contextlib.suppress(OSError, h11.ProtocolError):
            self._send_down(h11.Response(status_code=refusal.status, headers=fields))
            self._send_down(h11.Data(data=text))
            self._send_down(h11.EndOfMessage())

    def _forward_request(self, request: h11.Request) -> None:
        fields = [(bytes(name), bytes(value)) for name, value in request.headers]
        target = self._swap.target(request.method, request.target)
        headers = self._swap.headers(fields)
        pieces = self._body_pieces()
        start = self._read_start(pieces)
        is_whole = self._down.their_state is not h11.SEND_BODY
        if is_whole:
            start = self._swap.body(fields, start)
            has_body = start or any(name in _FRAMING for name, _ in fields)
            framing = [(b"content-length", str(len(start)).encode())] if has_body else []
        else:
            self._swap.refuse_placeholder(start)
            given = [field for field in fields if field[0] == b"content-length"]
            framing = given or [(b"transfer-encoding", b"chunked")]
        head = h11.Request(method=request.method, target=target, headers=[*headers, *framing])
        self._send_up(head)
        # A host may answer and close before it has read the body: its answer counts.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if start:
                self._send_up(h11.Data(data=start))
            for piece in self._checked(start, pieces):
                self._send_up(h11.Data(data=piece))
            self._send_up(h11.EndOfMessage())

    def _body_pieces(self) -> Iterator[bytes]:
        while True:
            if self._down.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[])
                self._send_down(go_on)
            event = _next_event(self._down, self._client)
            if isinstance(event, h11.EndOfMessage):
                return
            if not isinstance(event, h11.Data):
                raise RefusedRequestError(400, "body")
            yield bytes(event.data)

    def _read_start(self, pieces: Iterator[bytes]) -> bytes:
        held = bytearray()
        for piece in pieces:
            held += piece
            if len(held) > _WHOLE_BODY:
                break
        return bytes(held)

    def _checked(self, start: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
        tail = start[-_PLACEHOLDER_BYTES:]
        for piece in pieces:
            self._swap.refuse_placeholder(tail + piece)
            tail = (tail + piece)[-_PLACEHOLDER_BYTES:]
            yield piece

    def _forward_response(self) -> None:
        response = self._response_head()
        fields = [(bytes(name), bytes(value)) for name, value in response.headers]
        decode = _decoder(fields)
        headers = self._response_headers(response, fields)
        reason = self._redactor.redact(response.reason, parts=True)
        status = response.status_code
        self._send_down(h11.Response(status_code=status, headers=headers, reason=reason))
        redacted = StreamRedactor(self._redactor, parts=True)
        while True:
            event = _next_event(self._up, self._server)
            if isinstance(event, h11.EndOfMessage):
                break
            if not isinstance(event, h11.Data):
                raise ConnectionError
            for piece in decode(bytes(event.data)):
                self._send_data(redacted.feed(piece))
        self._send_data(redacted.finish())
        self._send_down(h11.EndOfMessage())

    def _response_head(self) -> h11.Response:
        while True:
            event = _next_event(self._up, self._server)
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise RefusedRequestError(502, "no_answer")

    def _response_headers(self, response: h11.Response, fields: list[Header]) -> list[Header]:
        """Write the headers anew; the length of a body changes when it is redacted."""
        kept = [
            (name, self._redactor.redact(value, parts=True))
            for name, value in end_to_end(fields)
            if name not in _RESPONSE_DROPPED and not self._redactor.is_in(name)
        ]
        words = {value.strip().lower() for name, value in fields if name == b"connection"}
        is_last = response.http_version < b"1.1" or b"close" in words
        return [*kept, (b"connection", b"close")] if is_last else kept

    def _send_data(self, data: bytes) -> None:
        if data:
            self._send_down(h11.Data(data=data))

    def _send_down(self, event: h11.Event) -> None:
        self._client.sendall(self._down.send(event) or b"")

    def _send_up(self, event: h11.Event) -> None:
        self._server.sendall(self._up.send(event) or b"")


_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_RESPONSE_DROPPED = frozenset({b"content-encoding", b"alt-svc", b"accept-ranges"})


def _next_event(connection: h11.Connection, stream: socket.socket) -> object:
    try:
        while True:
            event = connection.next_event()
            if event is h11.PAUSED:
                break
            if event is not h11.NEED_DATA:
                return event
            connection.receive_data(stream.recv(_CHUNK))
    except h11.RemoteProtocolError:
        pass
    raise RefusedRequestError(400 if connection.our_role is h11.SERVER else 502, "protocol")


def _decoder(fields: list[Header]) -> Callable[[bytes], Iterator[bytes]]:
    """Return what undoes the content encoding, which we did not ask for.

    Raises:
        RefusedRequestError: For one that cannot be undone: its content could not be redacted.
    """
    names = [value.strip().lower() for name, value in fields if name == b"content-encoding"]
    if not names or names == [b"identity"]:
        return lambda data: iter((data,))
    if len(names) > 1 or names[0] not in _DECODERS:
        raise RefusedRequestError(502, "content_encoding")
    window = _DECODERS[names[0]]
    inflater = zlib.decompressobj(window)

    def decode(data: bytes) -> Iterator[bytes]:
        nonlocal inflater
        while True:
            piece = inflater.decompress(data, _CHUNK)
            yield piece
            data = inflater.unconsumed_tail
            if inflater.eof and inflater.unused_data:  # gzip files may follow each other
                data, inflater = inflater.unused_data, zlib.decompressobj(window)
            elif not data and len(piece) < _CHUNK:
                return

    return decode
