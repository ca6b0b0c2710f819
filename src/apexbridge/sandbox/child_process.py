"""Child processes: spawn, watch to the end, enforce the deadline and the output limit.

A child that keeps a pipe open, ignores signals or floods the output changes nothing: the process
itself is waited for, and reads are bounded. PR_SET_PDEATHSIG is tied to the thread that spawns, so
one thread that never ends does it. There is no preexec_fn and no change of user in the child: the
spawn stays a vfork, which costs the same however large this process is.
"""

import contextlib
import errno
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO

from apexbridge.sandbox.base import TRUNCATED, SandboxLimits

_CHUNK = 1 << 16
_GRACE_SECONDS = 0.5
"""Time for a pipe to reach EOF after the process has exited."""
_QUOTA_SECONDS = 0.05
_MAX_QUOTA_SECONDS = 1.0

OutputSink = Callable[[int, bytes], None]


@dataclass(slots=True, kw_only=True)
class RunningProcess:
    """A running process: file descriptors owned by us, and how to kill and reap it."""

    stdout: int
    stderr: int
    exit_fd: int
    """Becomes readable when the process exits (a pidfd or a pipe)."""
    stdin: int = -1
    kill: Callable[[], None]
    """Start to kill the process tree; may be called at any time, more than once."""
    finish: Callable[[bytes], tuple[int | None, str]]
    """Reap the whole tree, given its stderr, and release its resources. Returns the exit code or
    minus the signal, or None and why it never started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """Raw result of a process."""

    status: int | None
    """Exit code, or minus the signal; None if it never started."""
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    error: str = ""
    timed_out: bool = False
    truncated: bool = False
    is_oversized: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Specification of one run."""

    start: Callable[[], RunningProcess]
    """Raises OSError if the process cannot be started."""
    limits: SandboxLimits
    stdin: bytes = b""
    on_output: OutputSink | None = None
    is_oversized: Callable[[], bool] | None = None
    """Quota check, polled while the process runs."""


def run(spec: RunSpec, cancel: int) -> ProcessResult:
    """Run to the end, a limit, or until the file descriptor `cancel` becomes readable. Blocks."""
    began = time.monotonic()
    try:
        started = spec.start()
    except OSError as error:
        return ProcessResult(status=None, error=errno_name(error))
    watch = _ProcessWatcher(started, spec, began + spec.limits.wall_seconds)
    try:
        watch.watch(cancel)
    finally:
        started.kill()
        status, error = started.finish(bytes(watch.outputs[1]))
        watch.close()
    return ProcessResult(
        status=status,
        error=error,
        stdout=bytes(watch.outputs[0]),
        stderr=bytes(watch.outputs[1]),
        seconds=time.monotonic() - began,
        timed_out=watch.timed_out,
        truncated=watch.truncated,
        is_oversized=watch.is_oversized,
    )


def kill_process(started: RunningProcess) -> None:
    """Kill and reap a process that is not watched."""
    started.kill()
    started.finish(b"")
    _close(started)


def _close(started: RunningProcess) -> None:
    for descriptor in (started.stdin, started.stdout, started.stderr, started.exit_fd):
        if descriptor >= 0:
            os.close(descriptor)


def errno_name(error: OSError) -> str:
    """Return the errno name such as `ENOENT`, or the message if there is none."""
    return errno.errorcode.get(error.errno or 0, str(error))


class _ProcessWatcher:
    """State of a watched process: selector, buffers, deadline."""

    def __init__(self, started: RunningProcess, spec: RunSpec, deadline: float) -> None:
        self._started = started
        self._deadline = deadline
        self._on_output = spec.on_output
        self._stdin = memoryview(spec.stdin)
        self._quota = spec.is_oversized
        self._next_check = time.monotonic() + _QUOTA_SECONDS
        self._output_budget = spec.limits.output_bytes
        self._selector = selectors.DefaultSelector()
        self._open = 0
        self.outputs = (bytearray(), bytearray())
        self.timed_out = False
        self.truncated = False
        self.is_oversized = False

    def watch(self, cancel: int) -> None:
        """Watch until the process exits, then until EOF on its pipes or the end of the grace."""
        self._selector.register(self._started.exit_fd, selectors.EVENT_READ, "end")
        self._selector.register(cancel, selectors.EVENT_READ, "cancel")
        for number, pipe in enumerate((self._started.stdout, self._started.stderr)):
            os.set_blocking(pipe, False)
            self._selector.register(pipe, selectors.EVENT_READ, number)
            self._open += 1
        if self._started.stdin >= 0:
            os.set_blocking(self._started.stdin, False)
            self._selector.register(self._started.stdin, selectors.EVENT_WRITE, "stdin")
        self._loop()
        self._check_quota()  # a run may end between two checks

    def _loop(self) -> None:
        is_over = False
        while self._open or not is_over:
            now = time.monotonic()
            if now >= self._deadline:
                if is_over:
                    return  # a descendant keeps the pipe open; the process itself has exited
                self.timed_out = self.timed_out or not (self.truncated or self.is_oversized)
                self._kill_within_grace(now)
            if now >= self._next_check:
                self._check_quota()
                later = time.monotonic()
                pause = min(max(_QUOTA_SECONDS, 10 * (later - now)), _MAX_QUOTA_SECONDS)
                self._next_check = later + pause
            for key, _ in self._selector.select(max(self._wake() - now, 0)):
                if key.data == "end":
                    is_over = True
                    self._selector.unregister(key.fd)
                    self._kill_within_grace(time.monotonic())
                else:
                    self._handle(key)

    def _wake(self) -> float:
        is_watched = self._quota is not None and not self.is_oversized
        return min(self._deadline, self._next_check) if is_watched else self._deadline

    def _check_quota(self) -> None:
        if self._quota is not None and not self.is_oversized and self._quota():
            self.is_oversized = True
            self._kill_within_grace(time.monotonic())

    def _kill_within_grace(self, now: float) -> None:
        self._started.kill()
        self._deadline = now + _GRACE_SECONDS

    def _handle(self, key: selectors.SelectorKey) -> None:
        match key.data:
            case "cancel":
                self._selector.unregister(key.fd)
                self._started.kill()
            case "stdin":
                self._feed(key.fd)
            case number:
                self._read(key.fd, number)

    def _feed(self, pipe: int) -> None:
        try:
            self._stdin = self._stdin[os.write(pipe, self._stdin[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # EPIPE: it does not read its stdin
            self._stdin = memoryview(b"")
        if not self._stdin:
            self._selector.unregister(pipe)
            os.close(pipe)
            self._started.stdin = -1

    def _read(self, pipe: int, number: int) -> None:
        with contextlib.suppress(BlockingIOError):
            piece = os.read(pipe, _CHUNK)
            if not piece:
                self._selector.unregister(pipe)
                self._open -= 1
                return
            self._append(piece, number)

    def _append(self, piece: bytes, number: int) -> None:
        taken = piece[: self._output_budget]
        self.outputs[number].extend(taken)
        if taken and self._on_output is not None:
            self._on_output(number + 1, taken)
        if len(piece) > self._output_budget and not self.truncated:
            self.truncated = True
            self.outputs[number].extend(TRUNCATED)
            if self._on_output is not None:  # who sees it live must not take it for the whole
                self._on_output(number + 1, TRUNCATED)
            self._kill_within_grace(time.monotonic())
        self._output_budget = max(self._output_budget - len(piece), 0)

    def close(self) -> None:
        """Close our file descriptors."""
        self._selector.close()
        _close(self._started)


Popen = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnCommand:
    """A command to spawn, with the file descriptors it inherits."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    has_stdin: bool = False
    descriptors: tuple[int, ...] = ()


class _SpawnerThread:
    def __init__(self) -> None:
        self._orders: SimpleQueue[tuple[Callable[[], Popen], Future[Popen]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._pid = 0

    def popen(self, order: Callable[[], Popen]) -> Popen:
        with self._lock:
            if self._pid != os.getpid():  # threads do not survive a fork
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
            except BaseException as error:  # noqa: BLE001  # re-raised in the calling thread
                future.set_exception(error)


_spawner = _SpawnerThread()


def is_supported() -> bool:
    """Return True if processes can be watched on this platform: not on Windows yet."""
    return os.name == "posix"


def popen(command: SpawnCommand) -> Popen:
    """Spawn a process with pipes, in its own process group; OSError if it cannot be started."""
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


def start(command: SpawnCommand) -> RunningProcess:
    """Spawn a process to be watched; OSError if it cannot be started."""
    process = popen(command)
    is_over = threading.Event()

    def kill() -> None:
        # A process group id is reserved while it has members; after `finish` it may be reused.
        if not is_over.is_set():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def finish(_: bytes) -> tuple[int | None, str]:
        status = process.wait()
        is_over.set()
        return status, ""

    stdin, stdout, stderr = map(_detach, (process.stdin, process.stdout, process.stderr))
    return RunningProcess(
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        exit_fd=_exit_descriptor(process),
        kill=kill,
        finish=finish,
    )


def _exit_descriptor(process: Popen) -> int:
    """Return a file descriptor that becomes readable when the process exits."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(process.pid)
    reader, writer = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(writer)

    threading.Thread(target=wait, daemon=True).start()
    return reader


def _detach(pipe: IO[bytes] | None) -> int:
    """Duplicate a pipe's file descriptor, so that the file object can be dropped."""
    if pipe is None:
        return -1
    descriptor = os.dup(pipe.fileno())
    pipe.close()
    return descriptor
