"""System calls of a process, counted by strace, which injects an error or a kill."""

import ctypes
import re
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.fault_injection import Order

CALLS = (
    "open", "openat", "creat", "rename", "renameat", "renameat2", "link", "linkat", "symlink",
    "symlinkat", "mkdir", "mkdirat", "unlink", "unlinkat", "rmdir", "write", "pwrite64", "writev",
    "pwritev", "fsync", "fdatasync", "ftruncate", "truncate", "fallocate", "chmod", "fchmod",
    "fchmodat", "chown", "fchown", "fchownat", "utimensat", "copy_file_range", "sendfile",
)  # fmt: skip
"""All that change a disk; of those that open, the ones that may make a file."""
_LINE = re.compile(r"(?:\d+ +)?([a-z0-9_]+)\((.*)")
_TOLD = '{\\"ended\\"'
"""By this the process reports; what comes after it is no part of the operation."""


@dataclass(slots=True)
class Trace:
    """One process under strace."""

    log: Path
    order: Order | None
    strace: list["subprocess.Popen[str]"] = field(default_factory=list["subprocess.Popen[str]"])

    def attach(self, process: int) -> None:
        """Watch a process that waits; returns when every further call is counted."""
        command = ["strace", "-f", "-s", "64", "-o", str(self.log), "-p", str(process)]
        if self.order is None:
            command += ["-e", f"trace={','.join(f'?{call}' for call in CALLS)}"]
        else:
            fault = self.order.fault
            effect = "signal=KILL" if fault == "kill" else f"error={fault}"
            call = self.order.call
            command += ["-e", f"trace={call}"]
            command += ["-e", f"inject={call}:{effect}:when={self.order.at}"]
        started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8")
        self.strace.append(started)
        assert started.stderr is not None
        reported = started.stderr.readline()
        assert "attached" in reported, f"strace: {reported}"

    def end(self) -> None:
        """Wait for strace, which ends with the process."""
        for started in self.strace:
            started.communicate(timeout=60)

    def calls(self) -> Iterator[str]:
        """What changed the disk, each as the call and the how-manieth of its kind it was."""
        self.end()
        counts = dict[str, int]()
        for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
            if _TOLD in line:
                return
            found = _LINE.match(line)
            if found is None:
                continue
            call, rest = found.groups()
            counts[call] = counts.get(call, 0) + 1
            if "open" not in call or "O_CREAT" in rest or "O_TRUNC" in rest:
                yield f"{call} {counts[call]}"


@contextmanager
def tracing(log: Path, order: Order | None = None) -> Generator[Trace]:
    """Count what a process does or, with an order, interrupt it."""
    trace = Trace(log, order)
    try:
        yield trace
    finally:
        trace.end()


@contextmanager
def nothing() -> Generator[None]:
    """No strace."""
    yield


def allow_watching() -> None:
    """Let a process that is no ancestor trace this one, where the kernel asks for that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(2**64 - 1), 0, 0, 0)
