"""Model files: find and verify them by hash, import optional packages, wrap their errors."""

import ctypes
import hashlib
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

from apexbridge.errors import EmbedderUnavailableError, RetrievalError

_MAX_DETAIL = 300


def find_model(folder: Path, *, name: str) -> Path:
    """Find the one ONNX model in a folder; EmbedderUnavailableError if the choice is not clear."""
    for usual in ("model_int8.onnx", "model.onnx"):
        if (folder / usual).is_file():
            return folder / usual
    models = sorted(folder.glob("*.onnx"))
    if len(models) == 1:
        return models[0]
    if not folder.is_dir():
        raise EmbedderUnavailableError(f"there is no folder {folder}", name=name)
    what = "no model.onnx" if not models else "several .onnx files, none of them model.onnx,"
    raise EmbedderUnavailableError(f"there is {what} in {folder}", name=name)


def fingerprint(files: Iterable[Path]) -> str:
    """Hash the existing files to twelve hexadecimal digits."""
    there = sorted(path for path in files if path.is_file())
    return combine_digests({path.name: _sha256(path) for path in there})


def combine_digests(digests: Mapping[str, str]) -> str:
    """Hash the names and digests of files, in the given order."""
    whole = hashlib.sha256()
    for name, digest in digests.items():
        whole.update(f"{name}\0{digest}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()[:12]


def verify_sha256(path: Path, digest: str) -> None:
    """Verify the SHA-256 of a file: ValueError if it differs, OSError if it cannot be read."""
    if _sha256(path) != digest:
        raise ValueError(f"{path.name} is not the file it should be")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def import_package(package: str, *, install: str, name: str) -> ModuleType:
    """Import an optional package lazily; EmbedderUnavailableError says what to install."""
    try:
        return import_module(package)
    except ImportError as error:
        detail = f"{package} cannot be imported: pip install {install}"
        raise EmbedderUnavailableError(detail, name=name) from error


def trim_heap() -> None:
    """Return freed memory to the OS, where the C library is glibc.

    Loading a model allocates its file twice, and glibc keeps what is freed for later allocations,
    which never come: some 8 MB for each model.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)


@contextmanager
def embedder_errors(what: str, name: str) -> Generator[None]:
    """Convert any exception of a library to EmbedderUnavailableError, its message after ours."""
    try:
        yield
    except RetrievalError:
        raise
    except Exception as error:
        detail = f"{what}: {str(error) or type(error).__name__}"[:_MAX_DETAIL]
        raise EmbedderUnavailableError(detail, name=name) from error
