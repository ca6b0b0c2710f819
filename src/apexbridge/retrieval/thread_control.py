"""One thread for matrix products: on a busy machine two are many times slower than one."""

import sys
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Protocol

import numpy as np
from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]

_ = np.__version__  # the libraries to be found are those that numpy has loaded


_discovery_lock = threading.Lock()


class _BlasLibrary(Protocol):
    @property
    def num_threads(self) -> int: ...
    def set_num_threads(self, num_threads: int) -> object: ...


class _BlasThreadLimit:
    """The limit is the whole process's: the first who asks sets it, the last lifts it again.

    The libraries are asked directly: to be told by threadpoolctl takes longer than a small product.
    """

    def __init__(self) -> None:
        found = ThreadpoolController().select(user_api="blas")  # pyright: ignore[reportUnknownMemberType]
        self._libraries: list[_BlasLibrary] = found.lib_controllers  # pyright: ignore[reportUnknownMemberType]
        self._lock = threading.Lock()
        self._users = 0
        self._before: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._before = [library.num_threads for library in self._libraries]
                self._set([1] * len(self._libraries))
            self._users += 1

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._set(self._before)

    def _set(self, counts: list[int]) -> None:
        for library, count in zip(self._libraries, counts, strict=True):
            _clear_controlling_thread(library)
            library.set_num_threads(count)
            _clear_controlling_thread(library)


def _clear_controlling_thread(library: _BlasLibrary) -> None:
    """Newer versions heed one thread alone, and the last who leaves may be another than the first.

    That thread would otherwise be ignored without a word, and the limit stay for good.
    """
    clear = getattr(library, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@cache
def _blas_thread_limit() -> _BlasThreadLimit:
    return _BlasThreadLimit()


def single_threaded_blas() -> AbstractContextManager[None]:
    """Inside the block, a matrix product keeps to the thread that asks for it."""
    with (
        _discovery_lock
    ):  # of two limits at once, one would take the other's for what was there before
        return _blas_thread_limit()


_INTERVAL_SECONDS = 0.0005


class _SwitchInterval:
    """How many want short turns, and what was usual before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.usual = 0.0


_switch_interval = _SwitchInterval()


@contextmanager
def shortened_gil_switch_interval() -> Generator[None]:
    """Let threads take turns sooner: a model's would wait for the one that reads, text by text.

    It holds for the whole process, so the last of those that want it brings back what was usual.
    """
    with _switch_interval.lock:
        _switch_interval.count += 1
        if _switch_interval.count == 1:
            _switch_interval.usual = sys.getswitchinterval()
            sys.setswitchinterval(min(_switch_interval.usual, _INTERVAL_SECONDS))
    try:
        yield
    finally:
        with _switch_interval.lock:
            _switch_interval.count -= 1
            if not _switch_interval.count:
                sys.setswitchinterval(_switch_interval.usual)
