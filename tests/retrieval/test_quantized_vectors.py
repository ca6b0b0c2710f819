"""Quantized vectors: accuracy within the stated error bound."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.quantized_vectors import QuantizedVectors

SEEDS = st.integers(0, 2**32 - 1)
SIZES = st.sampled_from([1, 2, 7, 64, 384, 385])


def _unit(chance: np.random.Generator, rows: int, size: int, *, peak: float = 0) -> Matrix:
    """Rows of unit length; the higher the peak, the more one number outweighs the others."""
    found = chance.standard_normal((rows, size))
    found[:, 0] += peak
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def _held(rows: Matrix) -> QuantizedVectors:
    vectors = QuantizedVectors(rows.shape[1])
    vectors.extend([rows])
    return vectors


@given(seed=SEEDS, size=SIZES, peak=st.sampled_from([0.0, 3.0, 300.0]))
def test_texts_round_trip(seed: int, size: int, peak: float) -> None:
    rows = _unit(np.random.default_rng(seed), 20, size, peak=peak)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    off = np.abs(_held(rows)[:] - rows)
    assert (off <= largest / 127 / 254 / 2 * 1.01 + 1e-7).all()


@given(seed=SEEDS, size=SIZES, peak=st.sampled_from([0.0, 3.0, 300.0]))
def test_a_coarse_scan_stays_within_its_error_bound(seed: int, size: int, peak: float) -> None:
    chance = np.random.default_rng(seed)
    rows, query = _unit(chance, 50, size, peak=peak), _unit(chance, 1, size, peak=peak)[0]
    vectors = _held(rows)
    true = rows.astype(np.float64) @ query.astype(np.float64)
    near, off = vectors.scan(query)  # of few rows a rough look is a good one
    assert off == 0
    assert (np.abs(near - true) <= 1e-4).all()
    with patch("apexbridge.retrieval.quantized_vectors._FLOAT32_ROWS", 0):
        near, off = vectors.scan(query)
    assert (np.abs(near - true) <= off).all()
    assert 0 < off < 0.2
    assert (np.abs(vectors.rescore(np.arange(50), query) - true) <= 1e-4).all()


def test_rescored_cosines_are_exact_to_millionths() -> None:
    chance = np.random.default_rng(3)
    rows, query = _unit(chance, 5_000, 384), _unit(chance, 1, 384)[0]
    vectors = _held(rows)
    true = rows.astype(np.float64) @ query.astype(np.float64)
    off = np.abs(vectors.rescore(np.arange(len(rows)), query) - true)
    assert off.max() < 1e-5
    rough, bound = vectors.scan(query)
    assert np.abs(rough - true).max() < 4e-3
    assert bound < 0.03


def test_rows_come_in_parts_and_of_any_number() -> None:
    chance = np.random.default_rng(4)
    rows = _unit(chance, 9_000, 16)
    vectors = QuantizedVectors(16)
    vectors.extend([rows[:1], rows[1:1]])
    vectors.extend([])
    vectors.extend([rows[1:5_000], rows[5_000:]])
    assert len(vectors) == 9_000
    assert vectors[:] == pytest.approx(_held(rows)[:], abs=0)
    for row in range(3):  # what was seen before others came is not all there is
        few = _held(rows[:row]) if row else QuantizedVectors(16)
        few.scan(rows[0])
        few.extend([rows[row : row + 1]])
        assert len(few.scan(rows[0])[0]) == row + 1
    some = np.array([8_999, 0, 4_096])
    assert vectors.take(some)[:] == pytest.approx(vectors[some], abs=0)


def test_zero_rows_have_no_direction() -> None:
    vectors = QuantizedVectors(3)
    assert vectors.scan(np.ones(3, np.float32))[0].tolist() == []
    vectors.add_zeros(2)
    vectors.extend([np.zeros((1, 3), np.float32)])
    near, _ = vectors.scan(np.array([0, 1, 0], np.float32))
    assert near.tolist() == [0, 0, 0]
    assert vectors[:].tolist() == [[0, 0, 0]] * 3
    assert vectors.scan(np.zeros(3, np.float32))[1] == 0


def test_very_small_and_very_large_components_are_quantized() -> None:
    rows = np.array([[1e-30, -1e-30], [3e10, 1e10]], np.float32)
    vectors = _held(rows)
    assert vectors[:] == pytest.approx(rows, rel=1e-4)
