"""One thread for matrix products: on a busy machine two are many times slower than one."""

import threading
from contextlib import AbstractContextManager
from functools import cache
from typing import Protocol

import numpy as np
from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]

_ = np.__version__  # the libraries to be found are those that numpy has loaded


_finding = threading.Lock()


class _Library(Protocol):
    @property
    def num_threads(self) -> int: ...
    def set_num_threads(self, num_threads: int) -> object: ...


class _Limit:
    """The limit is the whole process's: the first who asks sets it, the last lifts it again.

    The libraries are asked directly: to be told by threadpoolctl takes longer than a small product.
    """

    def __init__(self) -> None:
        found = ThreadpoolController().select(user_api="blas")  # pyright: ignore[reportUnknownMemberType]
        self._libraries: list[_Library] = found.lib_controllers  # pyright: ignore[reportUnknownMemberType]
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
            _give_up_control(library)
            library.set_num_threads(count)
            _give_up_control(library)


def _give_up_control(library: _Library) -> None:
    """Newer versions heed one thread alone, and the last who leaves may be another than the first.

    That thread would otherwise be ignored without a word, and the limit stay for good.
    """
    clear = getattr(library, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@cache
def _limit() -> _Limit:
    return _Limit()


def one_thread() -> AbstractContextManager[None]:
    """Inside the block, a matrix product keeps to the thread that asks for it."""
    with _finding:  # of two limits at once, one would take the other's for what was there before
        return _limit()
