"""Watchdog: end a server whose event loop is stuck, so that its supervisor can start it anew.

A stuck event loop answers nobody and handles no signal, SIGTERM included. The timer is a thread in
C that needs neither the loop nor the interpreter lock (GIL).
"""

import faulthandler
import sys

import anyio

_MAX_INTERVAL = 1.0


async def watch_event_loop(seconds: float) -> None:
    """Rearm the timer for ever; once the loop has been stuck for `seconds`, the process ends.

    The tracebacks of all threads are printed to stderr, and the exit code is 1.
    """
    try:
        while True:
            # stderr of the process itself: a replacement may have no file descriptor.
            faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or 2)
            await anyio.sleep(min(_MAX_INTERVAL, seconds / 4))
    finally:
        faulthandler.cancel_dump_traceback_later()
