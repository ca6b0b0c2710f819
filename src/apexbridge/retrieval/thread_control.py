"""Thread tuning: single-threaded BLAS, and a shorter GIL switch interval."""

import sys
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Protocol

import numpy as np
from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]

_ = np.__version__  # numpy is imported first, because only loaded BLAS libraries are found


_discovery_lock = threading.Lock()


class _BlasLibrary(Protocol):
    @property
    def num_threads(self) -> int: ...
    def set_num_threads(self, num_threads: int) -> object: ...


class _BlasThreadLimit:
    """Process-wide limit, reference-counted: the first user sets it, the last one restores it.

    The libraries are called directly: threadpoolctl's own context manager takes longer than a small
    matrix product.
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
    """Release the control of a library, which newer versions bind to one thread.

    The last user may be another thread than the first; its call would be ignored silently, and the
    limit would stay for good.
    """
    clear = getattr(library, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


@cache
def _blas_thread_limit() -> _BlasThreadLimit:
    return _BlasThreadLimit()


def single_threaded_blas() -> AbstractContextManager[None]:
    """Keep BLAS to the calling thread: two are many times slower than one on a busy machine."""
    with _discovery_lock:  # two limits at once would save each other's value as the original
        return _blas_thread_limit()


_INTERVAL_SECONDS = 0.0005


class _SwitchInterval:
    """Intervals that users want, and the one before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wanted = list[float]()
        self.usual = 0.0


_switch_interval = _SwitchInterval()


@contextmanager
def shortened_gil_switch_interval(seconds: float = _INTERVAL_SECONDS) -> Generator[None]:
    """Shorten the GIL switch interval: inference threads would wait for the one that parses texts.

    It is process-wide: of several users the shortest counts, and the last one restores the
    original.
    """
    state = _switch_interval
    with state.lock:
        if not state.wanted:
            state.usual = sys.getswitchinterval()
        state.wanted.append(seconds)
        sys.setswitchinterval(min([state.usual, *state.wanted]))
    try:
        yield
    finally:
        with state.lock:
            state.wanted.remove(seconds)
            sys.setswitchinterval(min([state.usual, *state.wanted]))
