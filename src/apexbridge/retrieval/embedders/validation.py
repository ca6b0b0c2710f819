"""Validation of embedder input (encodable text) and output (finite unit vectors)."""

import re
from collections.abc import Container, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike

from apexbridge.errors import EmbedderOutputError, EmbedderUnavailableError, RetrievalError
from apexbridge.retrieval.base import Embedder, Matrix, TextKind

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CHINESE_RUN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]+")
_MAX_WORD_CHARS = 4


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return _LONE_SURROGATES.sub("\ufffd", text)


def word_tokens(text: str) -> Iterator[str]:
    """Split into lower-case words, and Chinese into character bigrams."""
    start = 0
    lower = text.lower()
    for run in _CHINESE_RUN.finditer(lower):
        yield from re.findall(r"\w+", lower[start : run.start()])
        start = run.end()
        found = run.group()
        yield from (found[at : at + 2] for at in range(max(1, len(found) - 1)))
    yield from re.findall(r"\w+", lower[start:])


def segment_chinese(text: str, known: Container[str]) -> str:
    """Split camelCase, and segment Chinese by longest match in a vocabulary."""
    split = _CAMEL.sub(" ", text)
    return _CHINESE_RUN.sub(
        lambda run: f" {' '.join(_longest_matches(run.group(), known))} ", split
    )


def _longest_matches(run: str, known: Container[str]) -> Iterator[str]:
    start = 0
    while start < len(run):
        sizes = range(min(_MAX_WORD_CHARS, len(run) - start), 1, -1)
        size = next((size for size in sizes if run[start : start + size] in known), 1)
        yield run[start : start + size]
        start += size


_UNIT_TOLERANCE = 1e-6
_MIN_NORM = 1e-12
"""A shorter vector is rounding noise and has no direction."""


async def embed_validated(embedder: Embedder, texts: Sequence[str], *, kind: TextKind) -> Matrix:
    """Embed texts and validate the result: finite unit vectors, one for each text.

    Raises:
        EmbedderOutputError: If the output is invalid.
        EmbedderUnavailableError: If the embedder raised anything else.
    """
    try:
        if not texts:
            return np.zeros((0, embedder.dimensions), np.float32)
        rows = await embedder.embed(texts, kind=kind)
        name, dimensions = embedder.id, embedder.dimensions
    except RetrievalError:
        raise
    except Exception as error:
        detail = str(error) or type(error).__name__
        raise EmbedderUnavailableError(detail, name=_embedder_name(embedder)) from error
    return normalized_rows(rows, count=len(texts), dimensions=dimensions, name=name)


def normalized_rows(rows: ArrayLike, *, count: int, dimensions: int, name: str) -> Matrix:
    """Normalize rows to unit length; EmbedderOutputError if invalid, `dimensions` 0 is any size."""
    given = _as_array(rows, name)
    if given.ndim != 2 or len(given) != count:
        raise EmbedderOutputError(f"shape {given.shape} for {count} texts", name=name)
    size = given.shape[1]
    if size == 0 or (dimensions and size != dimensions):
        expected = f"{dimensions} were expected" if dimensions else "there must be some"
        raise EmbedderOutputError(f"vectors of {size} numbers where {expected}", name=name)
    # In double precision no square of a float32 overflows, and unit rows stay bit-identical.
    exact = given.astype(np.float64)
    # Every query comes here with unit rows, twice: one product tells, and NaN is not within bounds.
    if given.dtype == np.float32 and (np.abs(np.vecdot(exact, exact) - 1) <= _UNIT_TOLERANCE).all():
        return given.astype(np.float32, order="C")
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(exact, axis=1)
    if not np.isfinite(lengths).all():
        raise EmbedderOutputError("a vector with NaN or infinity in it", name=name)
    if (lengths < _MIN_NORM).any():
        raise EmbedderOutputError("a zero vector", name=name)
    lengths[np.abs(lengths - 1) <= _UNIT_TOLERANCE] = 1
    return np.ascontiguousarray(exact / lengths[:, None], dtype=np.float32)


def _as_array(rows: ArrayLike, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    try:
        given = np.asarray(rows)
    except (TypeError, ValueError) as error:
        raise EmbedderOutputError("rows of different sizes", name=name) from error
    if given.dtype.kind not in "fiu":
        raise EmbedderOutputError(f"{given.dtype} instead of numbers", name=name)
    return given


def _embedder_name(embedder: Embedder) -> str:
    try:
        return embedder.id
    except Exception:  # noqa: BLE001 - a strange embedder may not even know its name
        return type(embedder).__name__
