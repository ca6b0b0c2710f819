"""What grows is the same as if it had been there at once, and is given back when let go."""

import gc
from pathlib import Path

import numpy as np
import pytest

from apexbridge.retrieval.mmap_arrays import MmapColumn, mmap_array


def test_a_room_is_zeros_that_can_be_written_to() -> None:
    numbers = mmap_array(1_000, np.float32)
    assert (numbers.dtype, numbers.shape, numbers.any()) == (np.float32, (1_000,), np.False_)
    numbers[:] = 7
    assert numbers.sum() == 7_000
    assert mmap_array(0, np.uint8).shape == (0,)


@pytest.mark.parametrize("sizes", [[0], [1, 0, 2], [5, 500, 50_000, 1]])
def test_what_is_added_stands_after_what_was_there(sizes: list[int]) -> None:
    column, expected = MmapColumn(np.int64), list[int]()
    for size in sizes:
        part = np.arange(len(expected), len(expected) + size)
        column.extend([part[: size // 2], part[size // 2 :]])
        expected += part.tolist()
        assert column.values.tolist() == expected
        assert len(column) == len(expected)


def test_an_older_answer_stays_what_it_was() -> None:
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


def test_room_that_is_not_used_takes_no_memory_and_what_is_let_go_is_given_back() -> None:
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
