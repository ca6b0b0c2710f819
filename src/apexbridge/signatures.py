"""Detached signatures in the format of minisign: Ed25519, with a public key of one line.

Signatures of `minisign` are verified here, and those made here by `minisign`. Keys with a password
are for that program alone.
"""

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

from apexbridge.errors import SignatureError

SUFFIX = ".minisig"
"""Appended to the name of the signed file."""
MAX_BYTES = 16_384

_PURE, _HASHED, _KEY = b"Ed", b"ED", b"Ed"
_NO_PASSWORD, _CHECKSUM = b"\0\0", b"B2"
_ID_BYTES, _KEY_BYTES, _SIGNATURE_BYTES = 8, 32, 64
_PARAMETER_BYTES = 48
"""Salt and limits of the password hash in a secret key."""
_UNTRUSTED, _TRUSTED = "untrusted comment: ", "trusted comment: "


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key: its id, and the 32 bytes of Ed25519."""

    id: bytes
    raw: bytes

    @property
    def name(self) -> str:
        """The id as minisign prints it."""
        return _id_name(self.id)

    @property
    def text(self) -> str:
        """The key as one line: `RWQ…`."""
        return _encode(_KEY + self.id + self.raw)

    @classmethod
    def parse(cls, text: str) -> "PublicKey":
        """Read a key: one line, or a file of minisign with its comment.

        Raises:
            SignatureError: `signing_key_invalid`.
        """
        lines = [line for line in text.split("\n") if line.strip()]
        data = _decode(lines[-1]) if len(lines) in {1, 2} else b""
        if len(data) != len(_KEY) + _ID_BYTES + _KEY_BYTES or not data.startswith(_KEY):
            raise SignatureError("it is not a public key", code="signing_key_invalid")
        return cls(data[2:10], data[10:])

    def file(self) -> str:
        """Return the contents of a public key file."""
        return f"{_UNTRUSTED}minisign public key {self.name}\n{self.text}\n"


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A secret key without a password."""

    id: bytes
    seed: bytes

    @classmethod
    def generate(cls) -> "SecretKey":
        """Make a new key."""
        return cls(os.urandom(_ID_BYTES), os.urandom(_KEY_BYTES))

    @classmethod
    def parse(cls, text: str) -> "SecretKey":
        """Read a secret key file of minisign (`minisign -G -W`).

        Raises:
            SignatureError: `signing_key_invalid`; a key with a password too.
        """
        lines = [line for line in text.split("\n") if line.strip()]
        data = _decode(lines[-1]) if lines else b""
        at = len(_KEY + _NO_PASSWORD + _CHECKSUM) + _PARAMETER_BYTES
        key_id, seed, public = data[at:][:8], data[at + 8 :][:32], data[at + 40 :][:32]
        if len(data) != at + _ID_BYTES + 3 * _KEY_BYTES or not data.startswith(_KEY):
            raise SignatureError("it is not a secret key", code="signing_key_invalid")
        if data[2:4] != _NO_PASSWORD:
            detail = "it has a password; sign with minisign itself"
            raise SignatureError(detail, code="signing_key_invalid")
        # minisign has no checksum of a key without a password; the public half proves the other.
        found = cls(key_id, seed)
        if data[4:6] != _CHECKSUM or found.public.raw != public:
            raise SignatureError("it is damaged", code="signing_key_invalid")
        return found

    @property
    def public(self) -> PublicKey:
        """The public key that belongs to it."""
        # Imported late, here and below: settings parse public keys at every start.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.from_private_bytes(self.seed)
        return PublicKey(self.id, key.public_key().public_bytes_raw())

    def file(self) -> str:
        """Return the contents of a secret key file."""
        head = _KEY + _NO_PASSWORD + _CHECKSUM + bytes(_PARAMETER_BYTES)
        data = _encode(head + self.id + self.seed + self.public.raw + bytes(_KEY_BYTES))
        return f"{_UNTRUSTED}minisign secret key {self.public.name}\n{data}\n"

    def sign(self, data: bytes, comment: str) -> str:
        """Return the signature of some bytes; the comment is signed with it."""
        said = " ".join(comment.split())
        signature = self._sign(_prehash(data))
        over_comment = self._sign(signature + said.encode())
        return (
            f"{_UNTRUSTED}signature of the key {self.public.name}\n"
            f"{_encode(_HASHED + self.id + signature)}\n"
            f"{_TRUSTED}{said}\n"
            f"{_encode(over_comment)}\n"
        )

    def _sign(self, data: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed).sign(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A parsed signature file, not yet verified."""

    key_id: bytes
    raw: bytes
    is_hashed: bool
    comment: str
    over_comment: bytes

    @property
    def key_name(self) -> str:
        """The id of the key that it claims, as minisign prints it."""
        return _id_name(self.key_id)

    def verify(self, data: bytes, key: PublicKey) -> bool:
        """Return whether the key signed these bytes, and the comment."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        public = Ed25519PublicKey.from_public_bytes(key.raw)
        try:
            public.verify(self.raw, _prehash(data) if self.is_hashed else data)
            public.verify(self.over_comment, self.raw + self.comment.encode())
        except InvalidSignature:
            return False
        return self.key_id == key.id


def parse_signature(text: str) -> Signature:
    """Parse the four lines of a signature.

    Raises:
        SignatureError: `signature_invalid`.
    """
    lines = [line.removesuffix("\r") for line in text.strip("\r\n").split("\n")]
    if len(lines) != 4 or not lines[2].startswith(_TRUSTED):
        raise SignatureError("it does not have the four lines of a minisign signature")
    data, over_comment = _decode(lines[1]), _decode(lines[3])
    is_complete = len(data) == len(_PURE) + _ID_BYTES + _SIGNATURE_BYTES
    if not is_complete or data[:2] not in {_PURE, _HASHED}:
        raise SignatureError("it is not an Ed25519 signature")
    if len(over_comment) != _SIGNATURE_BYTES:
        raise SignatureError("its comment is not signed")
    return Signature(
        key_id=data[2:10],
        raw=data[10:],
        is_hashed=data[:2] == _HASHED,
        comment=lines[2].removeprefix(_TRUSTED),
        over_comment=over_comment,
    )


def find_key(signature: Signature, keys: Iterable[PublicKey]) -> PublicKey | None:
    """Return the trusted key whose id a signature has."""
    return next((key for key in keys if key.id == signature.key_id), None)


def _prehash(data: bytes) -> bytes:
    return hashlib.blake2b(data).digest()


def _id_name(key_id: bytes) -> str:
    return f"{int.from_bytes(key_id, 'little'):X}"


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""
