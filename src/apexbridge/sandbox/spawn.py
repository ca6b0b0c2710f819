"""Start a process from one thread that lives as long as we do.

The kernel ties "die with your parent" to the thread that spawned, so that thread must not end.
No preexec_fn and no change of user in the child: the spawn stays a vfork, which costs the same
however large this process is.
"""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO

from apexbridge.sandbox.runner import Started

Popen = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is started, with the descriptors it inherits."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    has_stdin: bool = False
    descriptors: tuple[int, ...] = ()


class _Spawner:
    def __init__(self) -> None:
        self._orders: SimpleQueue[tuple[Callable[[], Popen], Future[Popen]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._pid = 0

    def popen(self, order: Callable[[], Popen]) -> Popen:
        with self._lock:
            if self._pid != os.getpid():  # also after a fork, where the thread is gone
                self._pid = os.getpid()
                threading.Thread(target=self._serve, name="spawner", daemon=True).start()
        future: Future[Popen] = Future()
        self._orders.put((order, future))
        return future.result()

    def _serve(self) -> None:
        while True:
            order, future = self._orders.get()
            try:
                future.set_result(order())
            except BaseException as error:  # noqa: BLE001  # whoever asked must hear of it
                future.set_exception(error)


_spawner = _Spawner()


def is_supported() -> bool:
    """Say whether processes can be watched here at all: they cannot on Windows yet."""
    return os.name == "posix"


def popen(command: Command) -> Popen:
    """Start a process with pipes, in a process group of its own.

    Raises:
        OSError: If it cannot be started.
    """
    return _spawner.popen(
        lambda: subprocess.Popen(
            command.argv,
            stdin=subprocess.PIPE if command.has_stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(command.env),
            cwd=command.cwd,
            pass_fds=command.descriptors,
            process_group=0,
        )
    )


def start(command: Command) -> Started:
    """Start a process to be watched.

    Raises:
        OSError: If it cannot be started.
    """
    process = popen(command)

    is_over = threading.Event()

    def kill() -> None:
        # The group keeps its number while anybody is in it; after `finish` it may be a stranger's.
        if not is_over.is_set():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def finish(_: bytes) -> tuple[int | None, str]:
        status = process.wait()
        is_over.set()
        return status, ""

    stdin, stdout, stderr = (
        _take(pipe) for pipe in (process.stdin, process.stdout, process.stderr)
    )
    return Started(
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        end=_end(process),
        kill=kill,
        finish=finish,
    )


def _end(process: Popen) -> int:
    """A descriptor that becomes readable when the process is gone."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(process.pid)
    reader, writer = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(writer)

    threading.Thread(target=wait, daemon=True).start()
    return reader


def _take(pipe: IO[bytes] | None) -> int:
    """A descriptor of our own for a pipe; the file object around it is not needed."""
    if pipe is None:
        return -1
    descriptor = os.dup(pipe.fileno())
    pipe.close()
    return descriptor
