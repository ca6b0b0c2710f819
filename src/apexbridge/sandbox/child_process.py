"""Watch a process to its end: pipes of our own, one deadline, one output cap.

A child that holds our pipe, ignores signals or floods us changes nothing: what we wait for is the
process itself, and what we read is bounded.
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
"""How long a pipe may stay open after the process is gone."""
_MEASURE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 1.0

OutputSink = Callable[[int, bytes], None]


@dataclass(slots=True, kw_only=True)
class RunningProcess:
    """A process that runs: descriptors that are ours to close, and how to end it."""

    stdout: int
    stderr: int
    end: int
    """Becomes readable when the process is gone."""
    stdin: int = -1
    kill: Callable[[], None]
    """Begin to end the whole tree; may be called at any time, more than once."""
    finish: Callable[[bytes], tuple[int | None, str]]
    """Wait until all of it is gone, given what it wrote to stderr, and give back what it held: its
    exit code or minus its signal, or None and why it never started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessResult:
    """What a process did, in the words of the system."""

    status: int | None
    """The exit code, or minus the signal; None when it never started."""
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    error: str = ""
    timed_out: bool = False
    truncated: bool = False
    is_oversized: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What one run is given."""

    start: Callable[[], RunningProcess]
    """Raises OSError when it cannot."""
    limits: SandboxLimits
    stdin: bytes = b""
    on_output: OutputSink | None = None
    is_oversized: Callable[[], bool] | None = None
    """Whether it has written more than it may; asked again and again."""


def run(order: RunSpec, cancel: int) -> ProcessResult:
    """Run to the end, to a limit, or until the descriptor `cancel` becomes readable. Blocks."""
    began = time.monotonic()
    try:
        started = order.start()
    except OSError as error:
        return ProcessResult(status=None, error=errno_name(error))
    watch = _ProcessWatcher(started, order, began + order.limits.wall_seconds)
    try:
        watch.until_end(cancel)
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
    """End a process that nobody is going to watch."""
    started.kill()
    started.finish(b"")
    _close(started)


def _close(started: RunningProcess) -> None:
    for descriptor in (started.stdin, started.stdout, started.stderr, started.end):
        if descriptor >= 0:
            os.close(descriptor)


def errno_name(error: OSError) -> str:
    """`ENOENT` and the like; the message where the system has no such name."""
    return errno.errorcode.get(error.errno or 0, str(error))


class _ProcessWatcher:
    """The state of one run that is under way."""

    def __init__(self, started: RunningProcess, order: RunSpec, deadline: float) -> None:
        self._started = started
        self._deadline = deadline
        self._on_output = order.on_output
        self._stdin = memoryview(order.stdin)
        self._measure = order.is_oversized
        self._next_measure = time.monotonic() + _MEASURE_SECONDS
        self._room = order.limits.output_bytes
        self._selector = selectors.DefaultSelector()
        self._open = 0
        self.outputs = (bytearray(), bytearray())
        self.timed_out = False
        self.truncated = False
        self.is_oversized = False

    def until_end(self, cancel: int) -> None:
        """Watch until the process is gone, then until its pipes are, or the grace is over."""
        self._selector.register(self._started.end, selectors.EVENT_READ, "end")
        self._selector.register(cancel, selectors.EVENT_READ, "cancel")
        for number, pipe in enumerate((self._started.stdout, self._started.stderr)):
            os.set_blocking(pipe, False)
            self._selector.register(pipe, selectors.EVENT_READ, number)
            self._open += 1
        if self._started.stdin >= 0:
            os.set_blocking(self._started.stdin, False)
            self._selector.register(self._started.stdin, selectors.EVENT_WRITE, "stdin")
        self._loop()
        self._measure_now()  # also what was written too fast to be seen on the way

    def _loop(self) -> None:
        is_over = False
        while self._open or not is_over:
            now = time.monotonic()
            if now >= self._deadline:
                if is_over:
                    return  # someone holds our pipe; the process we were asked to run is gone
                self.timed_out = self.timed_out or not (self.truncated or self.is_oversized)
                self._end_within_grace(now)
            if now >= self._next_measure:
                self._measure_now()
                later = time.monotonic()
                pause = min(max(_MEASURE_SECONDS, 10 * (later - now)), _LONGEST_PAUSE_SECONDS)
                self._next_measure = later + pause
            for key, _ in self._selector.select(max(self._wake() - now, 0)):
                if key.data == "end":
                    is_over = True
                    self._selector.unregister(key.fd)
                    self._end_within_grace(time.monotonic())
                else:
                    self._handle(key)

    def _wake(self) -> float:
        is_watched = self._measure is not None and not self.is_oversized
        return min(self._deadline, self._next_measure) if is_watched else self._deadline

    def _measure_now(self) -> None:
        if self._measure is not None and not self.is_oversized and self._measure():
            self.is_oversized = True
            self._end_within_grace(time.monotonic())

    def _end_within_grace(self, now: float) -> None:
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
        except OSError:  # it does not read; that is its business
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
            self._take(piece, number)

    def _take(self, piece: bytes, number: int) -> None:
        taken = piece[: self._room]
        self.outputs[number].extend(taken)
        if taken and self._on_output is not None:
            self._on_output(number + 1, taken)
        if len(piece) > self._room and not self.truncated:
            self.truncated = True
            self.outputs[number].extend(TRUNCATED)
            self._end_within_grace(time.monotonic())
        self._room = max(self._room - len(piece), 0)

    def close(self) -> None:
        """Close what is ours."""
        self._selector.close()
        _close(self._started)


Popen = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpawnCommand:
    """What is started, with the descriptors it inherits."""

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


_spawner = _SpawnerThread()


def is_supported() -> bool:
    """Say whether processes can be watched here at all: they cannot on Windows yet."""
    return os.name == "posix"


def popen(command: SpawnCommand) -> Popen:
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


def start(command: SpawnCommand) -> RunningProcess:
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
        _detach(pipe) for pipe in (process.stdin, process.stdout, process.stderr)
    )
    return RunningProcess(
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        end=_exit_descriptor(process),
        kill=kill,
        finish=finish,
    )


def _exit_descriptor(process: Popen) -> int:
    """A descriptor that becomes readable when the process is gone."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(process.pid)
    reader, writer = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(writer)

    threading.Thread(target=wait, daemon=True).start()
    return reader


def _detach(pipe: IO[bytes] | None) -> int:
    """A descriptor of our own for a pipe; the file object around it is not needed."""
    if pipe is None:
        return -1
    descriptor = os.dup(pipe.fileno())
    pipe.close()
    return descriptor
