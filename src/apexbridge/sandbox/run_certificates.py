"""Certificates of one run: a certificate authority in memory, and a certificate for each host.

Only the sandbox of that run trusts the authority. No private key is ever a file: OpenSSL reads them
from an anonymous memory file, which is closed at once.
"""

import os
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_VALID = timedelta(days=2)
_SLACK = timedelta(days=1)
"""Clocks differ, also between this machine and a library's idea of the time zone."""


class RunCertificates:
    """Certificate authority of one run."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("ApexBridge egress proxy of one run")
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.authority_pem = certificate.public_bytes(serialization.Encoding.PEM)
        self._lock = threading.Lock()
        self._contexts: dict[str, ssl.SSLContext] = {}

    def bundle(self) -> bytes:
        """Return the certificates that the sandbox may trust: the system's, and this authority."""
        places = (ssl.get_default_verify_paths().cafile, *_SYSTEM_BUNDLES)
        found = next((Path(place) for place in places if place and Path(place).is_file()), None)
        return (found.read_bytes() + b"\n" if found else b"") + self.authority_pem

    def server_context(self, host: str) -> ssl.SSLContext:
        """Return a TLS context that answers as `host`, with HTTP/1.1 only."""
        with self._lock:
            if host not in self._contexts:
                self._contexts[host] = self._create_context(host)
            return self._contexts[host]

    def _create_context(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(host[:64])  # a common name has at most 64 characters, and nobody reads it
        certificate = (
            self._builder(name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        _load_chain(context, private + certificate.public_bytes(serialization.Encoding.PEM))
        return context

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SLACK)
            .not_valid_after(now + _VALID)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(authority, critical=False)
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _load_chain(context: ssl.SSLContext, pem: bytes) -> None:
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
