"""Check the detached signature of an archive or folder before it is installed.

A signature is over the bytes of the archive, or over the content hash of the skill, which is the
same for a folder, a repacked archive and an upload. A wrong one is always refused. One of a key
that nobody trusts proves nothing: it is reported, like none at all, and refused only if the
settings require a signature.
"""

import logging
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from apexbridge.errors import SignatureError, StorageError
from apexbridge.lifecycle.zip.limits import ArchiveLimits, limit_exceeded
from apexbridge.paths import replace_bytes, storage_errors
from apexbridge.signatures import (
    MAX_BYTES,
    SUFFIX,
    PublicKey,
    Signature,
    find_key,
    parse_signature,
)

log = logging.getLogger(__name__)

_COPY = ".signed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignaturePolicy:
    """The trusted keys, and whether a skill without a signature of one of them is refused."""

    trusted_keys: tuple[PublicKey, ...] = ()
    is_required: bool = False


class SignatureCheck(BaseModel):
    """Result of a check that did not refuse the skill."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    status: Literal["valid", "untrusted", "absent"] = "absent"
    key: str = ""
    """Id of the key; for an untrusted one, the id that the signature claims."""
    comment: str = ""
    """Comment that the key signed; empty if it is not verified."""

    def under(self, policy: SignaturePolicy) -> "SignatureCheck":
        """Return the check as it counts now: a key may be trusted no longer."""
        if self.status == "valid" and self.key not in {key.name for key in policy.trusted_keys}:
            return SignatureCheck(status="untrusted", key=self.key)
        return self


UNSIGNED = SignatureCheck()


def content_message(sha256: str) -> bytes:
    """Return what is signed of a skill's content hash."""
    return f"apexbridge skill sha256:{sha256}\n".encode()


def find_signature(path: Path) -> str:
    """Read the signature beside an archive or folder (`NAME.minisig`); empty if there is none.

    Raises:
        SignatureError: If it is empty, or not a small regular file.
    """
    whole = path.resolve() if path.is_dir() else path
    if not whole.name:
        return ""
    place = whole.with_name(whole.name + SUFFIX)
    try:
        if place.is_dir():
            return ""
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            data = file.read(MAX_BYTES + 1) if is_regular else b""
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise SignatureError(error.strerror or str(error), name=place.name) from None
    if not data:
        raise SignatureError("it is empty, or no regular file", name=place.name)
    if len(data) > MAX_BYTES:
        raise SignatureError(f"it has more than {MAX_BYTES} bytes", name=place.name)
    return data.decode("utf-8", "replace")


def copy_archive(path: Path, staging: Path, limits: ArchiveLimits) -> Path:
    """Copy an archive into the staging folder: what is verified must be what is unpacked (TOCTOU).

    Raises:
        ArchiveError: If it is larger than the limit.
    """
    folder = staging / _COPY
    folder.mkdir(mode=0o700)
    target = folder / "archive"
    with path.open("rb") as old, target.open("xb") as new:
        if path.stat().st_size > limits.packed_bytes:
            raise limit_exceeded(f"more than {limits.packed_bytes} bytes")
        shutil.copyfileobj(old, new)
    return target


def check_signature(
    text: str, archive: Path | None, sha256: str, policy: SignaturePolicy, name: str
) -> SignatureCheck:
    """Verify a signature against an archive and the content hash of its skill.

    Raises:
        SignatureError: `signature_invalid`; if one is required, `signature_missing` or
            `signature_untrusted`.
    """
    if not text:
        if policy.is_required:
            raise SignatureError(code="signature_missing", name=name)
        return UNSIGNED
    try:
        signature = parse_signature(text)
    except SignatureError as error:
        raise SignatureError(str(error.details["detail"]), name=name) from None
    key = find_key(signature, policy.trusted_keys)
    if key is None:
        if policy.is_required:
            raise SignatureError(code="signature_untrusted", name=name, key=signature.key_name)
        return SignatureCheck(status="untrusted", key=signature.key_name)
    if not _is_signed(signature, key, archive, sha256):
        detail = f"it is not what the key {key.name} signed"
        raise SignatureError(detail, name=name)
    return SignatureCheck(status="valid", key=key.name, comment=signature.comment)


def _is_signed(signature: Signature, key: PublicKey, archive: Path | None, sha256: str) -> bool:
    if sha256 and signature.verify(content_message(sha256), key):
        return True
    return archive is not None and signature.verify(archive.read_bytes(), key)


class SignatureStore:
    """Checked signatures of installed skills, one JSON file for each content hash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, sha256: str) -> SignatureCheck:
        """Return the signature that a content hash was installed with."""
        try:
            data = (self.folder / f"{sha256}.json").read_bytes()
            return SignatureCheck.model_validate_json(data)
        except (OSError, ValidationError):
            return UNSIGNED

    def put(self, sha256: str, check: SignatureCheck) -> None:
        """Store a signature; a storage error is logged, since the skill is installed."""
        if check.status == "absent":
            return
        try:
            with storage_errors(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            data = check.model_dump_json().encode()
            replace_bytes(self.folder / f"{sha256}.json", data, new_mode=0o600)
        except StorageError as error:
            log.warning("Signature not stored: %s", error)
