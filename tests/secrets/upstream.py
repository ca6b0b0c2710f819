"""TLS servers on the loopback interface, with names of their own and what they received."""

import datetime
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM
Answer = Callable[[bytes], Sequence[bytes]]
"""From a whole request, the pieces of the response, each sent for itself."""


def ok(body: bytes = b"ok", *headers: bytes) -> list[bytes]:
    head = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *headers]
    return [b"\r\n".join(head) + b"\r\n\r\n" + body]


class Authority:
    """A certificate authority that stands for the system's."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test")])
        self.certificate = self._sign(self._name, self._key.public_key(), "", is_authority=True)

    def pem(self) -> bytes:
        return self.certificate.public_bytes(PEM)

    def server_context(self, host: str, folder: Path) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        certificate = self._sign(name, key.public_key(), host, is_authority=False)
        private = key.private_bytes(
            PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = folder / f"{host}.pem"
        file.write_bytes(private + certificate.public_bytes(PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, host: str, *, is_authority: bool
    ) -> x509.Certificate:
        now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - day)
            .not_valid_after(now + day)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if host:
            names = x509.SubjectAlternativeName([x509.DNSName(host)])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())


@dataclass
class Upstream:
    """One server: what it received, and what it answers."""

    host: str
    port: int = 0
    received: list[bytes] = field(default_factory=list[bytes])
    answer: Answer = lambda _: ok()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def everything(self) -> bytes:
        return b"".join(self.received)


@contextmanager
def serving(upstream: Upstream, context: ssl.SSLContext | None) -> Generator[Upstream]:
    """Serve on a free port until the block ends; plain HTTP without a context."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        upstream.port = listener.getsockname()[1]

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(
                    target=_serve, args=(client, upstream, context), daemon=True
                ).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield upstream
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(client: socket.socket, upstream: Upstream, context: ssl.SSLContext | None) -> None:
    try:
        client.settimeout(20)
        with context.wrap_socket(client, server_side=True) if context else client as stream:
            data = b""
            while True:
                while not _is_whole(data):
                    piece = stream.recv(65536)
                    if not piece:
                        if data:
                            upstream.received.append(data)
                        return
                    data += piece
                upstream.received.append(data)
                for part in upstream.answer(data):
                    stream.sendall(part)
                data = b""
    except OSError:
        return


def _is_whole(data: bytes) -> bool:
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
        if line.startswith(b"transfer-encoding:"):
            return body.endswith(b"0\r\n\r\n")
    return True
