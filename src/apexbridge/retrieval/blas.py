"""One thread for matrix products: on a busy machine two are many times slower than one."""

import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]

_ = np.__version__  # the libraries to be found are those that numpy has loaded


class _Limit:
    """The limit is the whole process's: the first who asks sets it, the last lifts it again."""

    def __init__(self) -> None:
        self._controller = ThreadpoolController()
        self._lock = threading.Lock()
        self._users = 0
        self._held = ExitStack()

    @contextmanager
    def hold(self) -> Generator[None]:
        with self._lock:
            if not self._users:
                self._held.enter_context(
                    self._controller.limit(limits=1, user_api="blas")  # pyright: ignore[reportUnknownMemberType]
                )
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._held.close()


@cache
def _limit() -> _Limit:
    return _Limit()


def one_thread() -> AbstractContextManager[None]:
    """Inside the block, a matrix product keeps to the thread that asks for it."""
    return _limit().hold()
