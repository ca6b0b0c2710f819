"""How long a thread keeps the interpreter while others wait for it."""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager

_SECONDS = 0.0005


class _Turns:
    """How many want short turns, and what was usual before the first of them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.usual = 0.0


_turns = _Turns()


@contextmanager
def taking_turns() -> Generator[None]:
    """Let threads take turns sooner: a model's would wait for the one that reads, text by text.

    It holds for the whole process, so the last of those that want it brings back what was usual.
    """
    with _turns.lock:
        _turns.count += 1
        if _turns.count == 1:
            _turns.usual = sys.getswitchinterval()
            sys.setswitchinterval(min(_turns.usual, _SECONDS))
    try:
        yield
    finally:
        with _turns.lock:
            _turns.count -= 1
            if not _turns.count:
                sys.setswitchinterval(_turns.usual)
