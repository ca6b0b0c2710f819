"""The `.vectorized` marker in an installed skill's folder: the content hash that is in the index.

Derived data, never trusted: it is always compared with folder and row. It is written without fsync,
because a torn marker is detected and costs one embedding.
"""

import contextlib
import os
import stat
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from apexbridge.errors import StorageError
from apexbridge.skills.model import Fingerprint
from apexbridge.skills.tree import MARKER

_MAX_BYTES = 4_096


class Marker(BaseModel):
    """Size and content hash of the folder, embedder id, and document version of the row."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    size: int
    sha256: str
    embedder: str
    generation: str

    @classmethod
    def from_fingerprint(
        cls, fingerprint: Fingerprint, *, embedder: str, generation: str
    ) -> "Marker":
        """Create the marker that a folder in this state must have."""
        return cls(
            size=fingerprint.size,
            sha256=fingerprint.sha256,
            embedder=embedder,
            generation=generation,
        )


def read_marker(root: Path) -> Marker | None:
    """Read a skill's marker; None if it is missing or invalid."""
    data = _read(root)
    return None if data is None else _parse(data)


def has_marker(root: Path, marker: Marker) -> bool:
    """Say whether a skill has exactly this marker; equal bytes need no parsing."""
    data = _read(root)
    return data is not None and (data == _to_bytes(marker) or _parse(data) == marker)


def _read(root: Path) -> bytes | None:
    try:
        descriptor = os.open(f"{root}/{MARKER}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return os.read(descriptor, _MAX_BYTES) if is_file else None
        finally:
            os.close(descriptor)
    except OSError:
        return None


def _parse(data: bytes) -> Marker | None:
    try:
        return Marker.model_validate_json(data)
    except ValidationError:
        return None


def _to_bytes(marker: Marker) -> bytes:
    return marker.model_dump_json().encode()


def write_marker(root: Path, marker: Marker) -> None:
    """Write or replace the marker.

    A new one is written in place, which takes a quarter of the time; a torn one is invalid. An
    existing one is replaced by a rename, so that readers see the old or the new.

    Raises:
        StorageError: If the folder refuses.
    """
    place, data = f"{root}/{MARKER}", _to_bytes(marker)
    try:
        try:
            _write(place, data, os.O_EXCL)
        except FileExistsError:
            _replace(root, place, data)
    except OSError as error:
        raise StorageError(error.strerror or str(error), path=root / MARKER) from error


def _replace(root: Path, place: str, data: bytes) -> None:
    staging = root.parent / ".staging"
    # Named after the skill, so that a leftover of a crash is overwritten by the next write.
    temporary = staging / f"{root.name}.marker"
    try:
        staging.mkdir(mode=0o700, exist_ok=True)
        _write(str(temporary), data, os.O_TRUNC)
        temporary.replace(place)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _write(path: str, data: bytes, how: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | how, 0o666)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
