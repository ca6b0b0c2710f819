"""BLAS thread limit and GIL switch interval."""

import json
import sys
from threading import Barrier, Thread

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]

from apexbridge.retrieval.thread_control import (
    shortened_gil_switch_interval,
    single_threaded_blas,
)


def _threads() -> set[int]:
    assert np.__version__  # loaded, so that its libraries are found
    pools = json.loads(json.dumps(ThreadpoolController().info()))
    return {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"}


def test_the_limit_holds_inside_and_only_there() -> None:
    before = _threads()
    with single_threaded_blas():
        assert _threads() == {1}
        with single_threaded_blas():
            assert _threads() == {1}
        assert _threads() == {1}
    assert _threads() == before


def test_the_limit_holds_until_the_last_user_leaves() -> None:
    before = _threads()
    both_in, first_out = Barrier(2), Barrier(2)
    seen = list[set[int]]()

    def early() -> None:
        with single_threaded_blas():
            both_in.wait()
        first_out.wait()

    def late() -> None:
        with single_threaded_blas():
            both_in.wait()
            first_out.wait()
            seen.append(_threads())

    threads = [Thread(target=early), Thread(target=late)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [{1}]
    assert _threads() == before


def test_the_shortest_switch_interval_counts_until_its_user_leaves() -> None:
    before = sys.getswitchinterval()
    with shortened_gil_switch_interval(0.001):
        assert sys.getswitchinterval() == pytest.approx(0.001)
        with shortened_gil_switch_interval(0.0001):
            assert sys.getswitchinterval() == pytest.approx(0.0001)
            with shortened_gil_switch_interval(before * 2):
                assert sys.getswitchinterval() == pytest.approx(0.0001)
        assert sys.getswitchinterval() == pytest.approx(0.001)
    assert sys.getswitchinterval() == pytest.approx(before)
