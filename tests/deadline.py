"""A bound for what could otherwise go on for ever. So wide that no slow machine meets it."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def within(seconds: float) -> Generator[None]:
    """End what takes longer, patterns in the middle of a search among it; main thread only."""

    def end(_: int, __: FrameType | None) -> None:
        raise TimeoutError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
