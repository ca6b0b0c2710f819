"""`signing`: make keys, sign archives and folders, and verify signatures (minisign)."""

import tempfile
import time
from pathlib import Path

from apexbridge.cli.output import Output
from apexbridge.errors import SignatureError, StorageError
from apexbridge.lifecycle.signature_check import SignatureCheck, SignaturePolicy, content_message
from apexbridge.lifecycle.unpack_and_validate import stage_skill
from apexbridge.paths import create_bytes, replace_bytes
from apexbridge.runtime.policies import archive_limits, signature_policy
from apexbridge.signatures import MAX_BYTES, SUFFIX, PublicKey, SecretKey

_PRIVATE_MODE = 0o600


def keygen(out: Output, *, output: Path) -> None:
    """Write a secret key and its public key; neither file may exist."""
    public = output.with_suffix(".pub")
    for path in (output, public):
        if path.exists() or path.is_symlink():
            raise StorageError(code="path_exists", path=path)
    key = SecretKey.generate()
    create_bytes(output, key.file().encode(), mode=_PRIVATE_MODE)
    create_bytes(public, key.public.file().encode())

    def render() -> None:
        out.line(out.text("signing_key_made", path=output, public=public))
        print(key.public.text)

    data = {"secret": output, "public": public, "id": key.public.name, "key": key.public.text}
    out.finish(data, render)


def sign(out: Output, *, path: Path, key: Path, comment: str, yes: bool) -> None:
    """Sign an archive by its bytes, or a folder by the content hash of its skill."""
    if not path.exists():
        raise StorageError(code="path_missing", path=path)
    secret = read_secret_key(key)
    message = content_message(_content_hash(out, path)) if path.is_dir() else path.read_bytes()
    target = write_signature(secret, message, path, comment=comment, overwrites=yes)
    data = {"path": target, "key": secret.public.name}
    out.finish_line(data, "signed", path=target, key=secret.public.name)


def verify(out: Output, *, path: Path, key: str) -> None:
    """Verify the signature beside an archive or folder; without one, or with a wrong one, fail."""
    if not path.exists():
        raise StorageError(code="path_missing", path=path)
    trusted = (_public_key(key),) if key else ()
    trusted = trusted or signature_policy(out.config.settings.install).trusted_keys
    policy = SignaturePolicy(trusted_keys=trusted, is_required=True)
    limits = archive_limits(out.config.settings.install)
    with tempfile.TemporaryDirectory(prefix="apexbridge-") as place:
        staged = stage_skill(path, Path(place), renames="titles", limits=limits, signatures=policy)
    found = staged.signature
    data = {"path": path, "name": staged.skill.name, **found.model_dump()}
    out.finish_line(data, "signature_verified", path=path, said=format_signature(out, found))


def format_signature(out: Output, found: SignatureCheck) -> str:
    """Format a checked signature as one line."""
    return out.text(f"signature_{found.status}", key=found.key, comment=found.comment)


def read_secret_key(path: Path) -> SecretKey:
    """Read a secret key file.

    Raises:
        SignatureError: `signing_key_invalid`.
        StorageError: If it cannot be read.
    """
    return SecretKey.parse(_read_text(path))


def write_signature(
    key: SecretKey, message: bytes, path: Path, *, comment: str = "", overwrites: bool = False
) -> Path:
    """Write the signature of a message beside the file or folder that it is for."""
    folder = path.resolve()
    said = comment or f"timestamp:{int(time.time())} file:{folder.name}"
    target = folder.with_name(folder.name + SUFFIX)
    write = replace_bytes if overwrites else create_bytes
    write(target, key.sign(message, said).encode())
    return target


def _public_key(written: str) -> PublicKey:
    """Parse a key that is given as text, or as the file that has it."""
    try:
        return PublicKey.parse(written)
    except SignatureError:
        if not Path(written).is_file():
            raise
    return PublicKey.parse(_read_text(Path(written)))


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=path) from None


def _content_hash(out: Output, path: Path) -> str:
    limits = archive_limits(out.config.settings.install)
    with tempfile.TemporaryDirectory(prefix="apexbridge-") as place:
        staged = stage_skill(path.resolve(), Path(place), renames="titles", limits=limits)
    mark = staged.skill.fingerprint
    return mark.sha256 if mark else ""
