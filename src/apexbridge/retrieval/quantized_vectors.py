"""Scalar quantization: unit vectors as int8 for the scan, with a second int8 for re-scoring.

The coarse byte has 127 steps of the row's largest component, so that ten thousand skills fit into
the CPU cache beside the encoder's weights. The fine byte refines it: cosines of both are exact to
a few millionths. The error of the coarse scan has a proven bound, so that re-scoring all rows
within it gives exactly the result of a full scan.
"""

from collections.abc import Sequence

import numpy as np
import simsimd
from numpy.typing import NDArray

from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.mmap_arrays import MmapColumn

_COARSE_STEPS = 127
_FINE_STEPS = 254
"""Steps of the fine byte in one step of the coarse byte."""
_CHUNK_ROWS = 4_096
"""Rows converted at once, so that temporary arrays stay small."""
_ROUNDING = 1e-5
"""Accumulated rounding error of single precision over a row."""
_FLOAT32_ROWS = 2_000
"""Up to this number the rows are cached in single precision too: they fit into any CPU cache."""

RowIndices = NDArray[np.intp]
_Bytes = NDArray[np.int8]


def dot_products(rows: Matrix, vector: Matrix) -> Matrix:
    """Multiply each row by a vector on this thread: for few rows faster than BLAS."""
    if not rows.size:
        return np.zeros(len(rows), np.float32)
    return np.asarray(simsimd.cdist(vector[None], rows, metric="dot"))[0].astype(np.float32)


class QuantizedVectors:
    """Append-only quantized rows; a row of zeros has no direction and matches nothing."""

    def __init__(self, dimensions: int = 0) -> None:
        self.dimensions = dimensions
        self._coarse = MmapColumn(np.int8)
        self._fine = MmapColumn(np.int8)
        self._steps = MmapColumn(np.float32)
        """Quantization step of each row."""
        self._max_error = 0.0
        """Upper bound of the distance between a row and its coarse approximation."""
        self._float32: Matrix | None = None
        """All rows in single precision, if they are few."""

    def __len__(self) -> int:
        return len(self._steps)

    def add_zeros(self, count: int) -> None:
        """Append rows of zeros."""
        self._float32 = None
        self._steps.grow(count)
        for column in (self._coarse, self._fine):
            column.grow(count * self.dimensions)

    def extend(self, parts: Sequence[Matrix]) -> None:
        """Append rows."""
        every = np.concatenate([np.zeros((0, self.dimensions), np.float32), *parts])
        first = len(self)
        self.add_zeros(len(every))
        for at in range(0, len(every), _CHUNK_ROWS):
            self._write(first + at, every[at : at + _CHUNK_ROWS])

    def _write(self, first: int, rows: Matrix) -> None:
        place = slice(first, first + len(rows))
        largest = np.abs(rows).max(axis=1, initial=0.0)
        steps = np.where(largest > 0, largest / _COARSE_STEPS, 1.0).astype(np.float32)[:, None]
        scaled = rows / steps
        coarse = np.rint(scaled)
        remainder = scaled - coarse
        self._coarse_rows[place] = coarse
        self._fine_rows[place] = np.rint(remainder * _FINE_STEPS)
        self._steps.values[place] = steps[:, 0]
        error_bound = np.linalg.norm(remainder * steps, axis=1).max(initial=0.0)
        self._max_error = max(self._max_error, float(error_bound))

    def take(self, rows: RowIndices) -> "QuantizedVectors":
        """Copy some rows without requantizing them."""
        copy = QuantizedVectors(self.dimensions)
        copy.add_zeros(len(rows))
        np.take(self._coarse_rows, rows, axis=0, out=copy._coarse_rows, mode="clip")
        np.take(self._fine_rows, rows, axis=0, out=copy._fine_rows, mode="clip")
        np.take(self._steps.values, rows, out=copy._steps.values, mode="clip")
        copy._max_error = self._max_error
        return copy

    def __getitem__(self, rows: "slice | RowIndices") -> Matrix:
        """Dequantize rows."""
        fine = self._fine_rows[rows].astype(np.float32)
        fine /= _FINE_STEPS
        fine += self._coarse_rows[rows]
        fine *= self._steps.values[rows][:, None]
        return fine

    def scan(self, query: Matrix) -> tuple[Matrix, float]:
        """Compute approximate cosines of all rows, and a bound of their error.

        Few rows are computed exactly.
        """
        if len(self) <= _FLOAT32_ROWS:
            if self._float32 is None:
                self._float32 = self[:]
            return dot_products(self._float32, query), 0.0
        largest = float(np.abs(query).max())
        if not largest:
            return np.zeros(len(self), np.float32), 0.0
        step = largest / _COARSE_STEPS
        coarse = np.rint(query / step).astype(np.int8)
        # Integers below 2**53, so that the library's sum in doubles is exact.
        found = np.asarray(simsimd.cdist(coarse[None], self._coarse_rows, metric="dot"))[0]
        length = float(np.linalg.norm(query))
        query_error = float(np.linalg.norm(query - coarse * step))
        error_bound = length * self._max_error + query_error * (1 + self._max_error)
        cosines = np.multiply(found, self._steps.values * np.float32(step), dtype=np.float32)
        return cosines, error_bound + _ROUNDING * length

    def rescore(self, rows: RowIndices, query: Matrix) -> Matrix:
        """Compute the cosines of some rows from both bytes."""
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
