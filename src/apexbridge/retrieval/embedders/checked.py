"""No vector that cannot be right gets past here, whoever made it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from apexbridge.errors import EmbedderOutputError, EmbedderUnavailableError, RetrievalError
from apexbridge.retrieval.base import Embedder, Kind, Matrix

_UNIT_TOLERANCE = 1e-6
_SHORTEST = 1e-12
"""A shorter vector is rounding noise: it has no direction."""


async def embed_checked(embedder: Embedder, texts: Sequence[str], *, kind: Kind) -> Matrix:
    """Embed, and give unit rows only.

    Raises:
        EmbedderOutputError: If the answer cannot be right.
        EmbedderUnavailableError: If there is none, whatever the embedder raised.
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
        raise EmbedderUnavailableError(detail, name=_name(embedder)) from error
    return unit_rows(rows, count=len(texts), dimensions=dimensions, name=name)


def unit_rows(rows: ArrayLike, *, count: int, dimensions: int, name: str) -> Matrix:
    """Check an answer and make its rows unit length; `dimensions` 0 takes any size.

    Raises:
        EmbedderOutputError: If it cannot be right.
    """
    given = _numbers(rows, name)
    if given.ndim != 2 or len(given) != count:
        raise EmbedderOutputError(f"shape {given.shape} for {count} texts", name=name)
    size = given.shape[1]
    if size == 0 or (dimensions and size != dimensions):
        expected = f"{dimensions} were expected" if dimensions else "there must be some"
        raise EmbedderOutputError(f"vectors of {size} numbers where {expected}", name=name)
    # In double precision no square of a float32 overflows, and unit rows come out bit for bit.
    exact = given.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(exact, axis=1)
    if not np.isfinite(lengths).all():
        raise EmbedderOutputError("a vector with NaN or infinity in it", name=name)
    if (lengths < _SHORTEST).any():
        raise EmbedderOutputError("a zero vector", name=name)
    lengths[np.abs(lengths - 1) <= _UNIT_TOLERANCE] = 1
    return np.ascontiguousarray(exact / lengths[:, None], dtype=np.float32)


def _numbers(rows: ArrayLike, name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    try:
        given = np.asarray(rows)
    except (TypeError, ValueError) as error:
        raise EmbedderOutputError("rows of different sizes", name=name) from error
    if given.dtype.kind not in "fiu":
        raise EmbedderOutputError(f"{given.dtype} instead of numbers", name=name)
    return given


def _name(embedder: Embedder) -> str:
    try:
        return embedder.id
    except Exception:  # noqa: BLE001 - a strange embedder may not even know its name
        return type(embedder).__name__
