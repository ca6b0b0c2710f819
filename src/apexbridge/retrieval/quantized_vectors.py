"""Unit vectors in two bytes a number: one that every search walks over, one for what it finds.

The first byte tells a number to one in 127 of the row's largest, so that ten thousand skills fit
into a cache beside the encoder's weights. The second tells the rest: cosines of both together are
right to a few millionths. How far the first alone can be off is known for certain, so that nothing
it could have hidden is passed over.
"""

from collections.abc import Sequence

import numpy as np
import simsimd
from numpy.typing import NDArray

from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.mmap_arrays import MmapColumn

_COARSE_STEPS = 127
_FINE_STEPS = 254
"""Steps of the second byte in one of the first."""
_CHUNK_ROWS = 4_096
"""Rows taken apart or put together at once, so that what is made on the way stays small."""
_ROUNDING = 1e-5
"""How far single precision can be off, added up over a row."""
_FLOAT32_ROWS = 2_000
"""Rows up to which all are kept in single precision too: they fit into any cache."""

RowIndices = NDArray[np.intp]
_Bytes = NDArray[np.int8]


def dot_products(rows: Matrix, vector: Matrix) -> Matrix:
    """Each row times a vector, on the thread that asks; for few rows the quickest way there is."""
    if not rows.size:
        return np.zeros(len(rows), np.float32)
    return np.asarray(simsimd.cdist(vector[None], rows, metric="dot"))[0].astype(np.float32)


class QuantizedVectors:
    """Rows that are added at the end; one of zeros lies in no direction."""

    def __init__(self, dimensions: int = 0) -> None:
        self.dimensions = dimensions
        self._coarse = MmapColumn(np.int8)
        self._fine = MmapColumn(np.int8)
        self._steps = MmapColumn(np.float32)
        """What one of the first byte's steps is worth, of each row."""
        self._off = 0.0
        """How far the first byte alone is from any row, at most."""
        self._whole: Matrix | None = None
        """All rows in single precision, where they are few."""

    def __len__(self) -> int:
        return len(self._steps)

    def add_zeros(self, count: int) -> None:
        """Add rows that lie nowhere."""
        self._whole = None
        self._steps.more(count)
        for column in (self._coarse, self._fine):
            column.more(count * self.dimensions)

    def extend(self, parts: Sequence[Matrix]) -> None:
        """Add rows, all of this size."""
        every = np.concatenate([np.zeros((0, self.dimensions), np.float32), *parts])
        first = len(self)
        self.add_zeros(len(every))
        for at in range(0, len(every), _CHUNK_ROWS):
            self._write(first + at, every[at : at + _CHUNK_ROWS])

    def _write(self, first: int, rows: Matrix) -> None:
        place = slice(first, first + len(rows))
        largest = np.abs(rows).max(axis=1, initial=0.0)
        steps = np.where(largest > 0, largest / _COARSE_STEPS, 1.0).astype(np.float32)[:, None]
        told = rows / steps
        coarse = np.rint(told)
        rest = told - coarse
        self._coarse_rows[place] = coarse
        self._fine_rows[place] = np.rint(rest * _FINE_STEPS)
        self._steps.values[place] = steps[:, 0]
        off = np.linalg.norm(rest * steps, axis=1).max(initial=0.0)
        self._off = max(self._off, float(off))

    def taken(self, rows: RowIndices) -> "QuantizedVectors":
        """Some rows, as they are."""
        fresh = QuantizedVectors(self.dimensions)
        fresh.add_zeros(len(rows))
        np.take(self._coarse_rows, rows, axis=0, out=fresh._coarse_rows, mode="clip")
        np.take(self._fine_rows, rows, axis=0, out=fresh._fine_rows, mode="clip")
        np.take(self._steps.values, rows, out=fresh._steps.values, mode="clip")
        fresh._off = self._off
        return fresh

    def __getitem__(self, rows: "slice | RowIndices") -> Matrix:
        """In single precision."""
        fine = self._fine_rows[rows].astype(np.float32)
        fine /= _FINE_STEPS
        fine += self._coarse_rows[rows]
        fine *= self._steps.values[rows][:, None]
        return fine

    def scan(self, query: Matrix) -> tuple[Matrix, float]:
        """Every row's nearness to a query by the first byte, and how far off it can be at most.

        Few rows are told by all that is known of them.
        """
        if len(self) <= _FLOAT32_ROWS:
            if self._whole is None:
                self._whole = self[:]
            return dot_products(self._whole, query), 0.0
        largest = float(np.abs(query).max())
        if not largest:
            return np.zeros(len(self), np.float32), 0.0
        step = largest / _COARSE_STEPS
        coarse = np.rint(query / step).astype(np.int8)
        # Whole numbers below 2**53: what the library adds up is exact.
        found = np.asarray(simsimd.cdist(coarse[None], self._coarse_rows, metric="dot"))[0]
        length = float(np.linalg.norm(query))
        left_out = float(np.linalg.norm(query - coarse * step))
        off = length * self._off + left_out * (1 + self._off)
        near = np.multiply(found, self._steps.values * np.float32(step), dtype=np.float32)
        return near, off + _ROUNDING * length

    def near(self, rows: RowIndices, query: Matrix) -> Matrix:
        """Some rows' nearness to a query, by all that is known of them."""
        found = np.empty(len(rows), np.float32)
        for at in range(0, len(rows), _CHUNK_ROWS):
            part = slice(at, at + _CHUNK_ROWS)
            found[part] = dot_products(self[rows[part]], query)
        return found

    @property
    def _coarse_rows(self) -> _Bytes:
        return self._coarse.values.reshape(len(self), self.dimensions)

    @property
    def _fine_rows(self) -> _Bytes:
        return self._fine.values.reshape(len(self), self.dimensions)
