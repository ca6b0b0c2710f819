"""mmap columns and compressed texts."""

import gc
from pathlib import Path

import numpy as np
import pytest

from apexbridge.retrieval.mmap_arrays import MmapColumn, mmap_array


def test_an_mmap_array_is_writable_zeros() -> None:
    numbers = mmap_array(1_000, np.float32)
    assert (numbers.dtype, numbers.shape, numbers.any()) == (np.float32, (1_000,), np.False_)
    numbers[:] = 7
    assert numbers.sum() == 7_000
    assert mmap_array(0, np.uint8).shape == (0,)


@pytest.mark.parametrize("sizes", [[0], [1, 0, 2], [5, 500, 50_000, 1]])
def test_extend_appends(sizes: list[int]) -> None:
    column, expected = MmapColumn(np.int64), list[int]()
    for size in sizes:
        part = np.arange(len(expected), len(expected) + size)
        column.extend([part[: size // 2], part[size // 2 :]])
        expected += part.tolist()
        assert column.values.tolist() == expected
        assert len(column) == len(expected)


def test_an_older_view_does_not_change() -> None:
    column = MmapColumn(np.uint8)
    column.extend([np.ones(3, np.uint8)])
    before = column.values
    column.grow(5_000)[:] = 2
    assert before.tolist() == [1, 1, 1]
    assert column.values.tolist() == [1, 1, 1] + [2] * 5_000


def test_rows_of_a_table_are_added_flat() -> None:
    column = MmapColumn(np.float32)
    column.extend([np.ones((2, 3), np.float32), np.zeros((0, 3), np.float32)])
    assert column.values.tolist() == [1] * 6


def test_unused_pages_take_no_memory_and_freed_memory_returns_to_the_os() -> None:
    gc.collect()
    before = _resident()
    numbers = mmap_array(64 * 1024 * 1024, np.uint8)
    assert _resident() - before < 16 * 1024 * 1024
    numbers[:] = 1
    assert _resident() - before > 48 * 1024 * 1024
    del numbers
    assert _resident() - before < 16 * 1024 * 1024


def _resident() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) * 1024
