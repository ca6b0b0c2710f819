"""Deadline by SIGALRM for code that could loop forever; generous, for slow machines."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def within(seconds: float) -> Generator[None]:
    """Raise TimeoutError after so many seconds, also inside a regex search; main thread only."""

    def end(_: int, __: FrameType | None) -> None:
        raise TimeoutError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
