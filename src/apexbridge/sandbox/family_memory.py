"""Memory of a process family, counted from /proc where no cgroup does: an rlimit is per process.

Imported by the zygote, so it uses the standard library only. Shared anonymous memory and memory
files (memfd) count for no rlimit at all. Counting is late by one interval, and does not see memory
files that are in flight between sockets; a cgroup has neither gap.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator

MIN_SECONDS = 0.05
MAX_SECONDS = 1.0
COST_FACTOR = 10  # pause ten times as long as a count takes
BLOCK = 512


class FamilyMemory:
    """Check whether a family of processes holds more memory than its limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.pause = MIN_SECONDS
        """Seconds until the next check."""

    def is_exceeded(self, roots: Iterable[int]) -> bool:
        """Count the processes and their descendants."""
        began = time.monotonic()
        pids = list(_family(roots))
        files = _memory_file_bytes(pids)
        # An upper bound first, because it is cheap: it counts shared pages once for each process.
        names = ("RssAnon", "RssShmem", "VmSwap")
        is_over = files + sum(sum(_counts(pid, "status", names)) for pid in pids) > self._limit
        is_over = is_over and self._proportional(pids, files) > self._limit
        taken = time.monotonic() - began
        self.pause = min(max(MIN_SECONDS, COST_FACTOR * taken), MAX_SECONDS)
        return is_over

    def _proportional(self, pids: Iterable[int], files: int) -> int:
        """Sum each process's share of its pages, so that what several share counts once."""
        private = shared = 0
        for pid in pids:
            counts = _counts(pid, "smaps_rollup", ("Pss_Anon", "SwapPss", "Pss_Shmem"))
            if not any(counts):  # it forbids to be looked at
                counts = _counts(pid, "status", ("RssAnon", "VmSwap", "RssShmem"))
            private += counts[0] + counts[1]
            shared += counts[2]
        return private + max(shared, files)  # a memory file may be mapped too


def _family(roots: Iterable[int]) -> Iterator[int]:
    pending = list(roots)
    while pending:
        pid = pending.pop()
        yield pid
        with contextlib.suppress(OSError):  # it has ended
            for thread in os.listdir(f"/proc/{pid}/task"):
                pending += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())


def _counts(pid: int, file: str, names: tuple[str, str, str]) -> list[int]:
    """Return bytes by name from a file of `Name: 12 kB` lines; zero for what is not there."""
    found = dict.fromkeys(names, 0)
    for line in _read(f"/proc/{pid}/{file}").splitlines():
        name, _, value = line.partition(":")
        if name in found:
            found[name] = int(value.split()[0]) * 1024
    return list(found.values())


def _memory_file_bytes(pids: Iterable[int]) -> int:
    """Return the size of the memory files that are open, each counted once."""
    sizes = dict[int, int]()
    for pid in pids:
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{number}"
                with contextlib.suppress(OSError):
                    if os.readlink(path).startswith("/memfd:"):
                        status = os.stat(path)
                        sizes[status.st_ino] = status.st_blocks * BLOCK
    return sum(sizes.values())


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
