"""Landlock and seccomp, by a launcher in pure Python: isolation where namespaces are forbidden.

What it cannot do is said openly: it does not hide that files exist, and it cannot keep a script
from changing the mode or times of files it may only read.
"""

import contextlib
import errno
import json
import os
import platform
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from apexbridge.sandbox import interpreters, seccomp, spawn, zygote
from apexbridge.sandbox.base import ExecRequest, ExecutionResult, SandboxLimits
from apexbridge.sandbox.cgroup import Cgroups, joined
from apexbridge.sandbox.process import Verdict, describe, exit_code_of, refuse_nul, run_started
from apexbridge.sandbox.runner import Started
from apexbridge.sandbox.spawn import Command

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives",
           "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/certs",
           "/etc/ssl/openssl.cnf", "/dev/urandom", "/dev/random",
           "/dev/zero")  # fmt: skip
_DEVICES = ("/dev/null", "/dev/full")


NO_DOOR = "network_unavailable: this sandbox cannot let single hosts through"


class LandlockSandbox:
    """Runs commands under Landlock; its zygote starts with the first one."""

    name = "landlock"

    def __init__(self, groups: Cgroups | None = None) -> None:
        self._groups = groups
        machine = seccomp.MACHINES.get(platform.machine())
        self._filter = seccomp.build(machine, seccomp.NO_SOCKETS, strict=True) if machine else b""
        self._zygote = Zygote()

    async def run(self, request: ExecRequest) -> ExecutionResult:
        """Run one command to its end, or to its limits."""
        refuse_nul(request)
        if request.access.hosts:  # without a network of its own there is no door to put in it
            return ExecutionResult(
                outcome="not_started", exit_code=None, error=NO_DOOR, isolation=self.name
            )
        has_stdin = bool(request.stdin)
        with joined(self._groups, request.limits) as groups:
            order = self._order(request, groups)
            ended = await run_started(
                lambda: self._zygote.start(order, has_stdin=has_stdin), request
            )
        verdict = Verdict(exit_code=exit_code_of(ended.status), error=ended.error)
        return describe(ended, verdict, self.name)

    def _order(self, request: ExecRequest, groups: tuple[str, ...]) -> bytes:
        reads = (*_SYSTEM, *request.access.read)
        writes = (*_DEVICES, *request.access.write)
        return json.dumps(
            {
                "argv": request.argv,
                "env": dict(request.env),
                "cwd": str(request.cwd),
                "read": [str(path) for path in reads],
                "write": [str(path) for path in writes],
                "limits": dict(_limits(request.limits)),
                "filter": self._filter.hex(),
                "groups": groups,
            }
        ).encode("utf-8", "surrogateescape")

    def close(self) -> None:
        """Let the zygote go."""
        self._zygote.close()


def _limits(limits: SandboxLimits) -> Iterator[tuple[str, int]]:
    yield "RLIMIT_DATA", limits.memory_bytes
    yield "RLIMIT_FSIZE", limits.file_bytes
    yield "RLIMIT_CPU", limits.cpu_seconds
    yield "RLIMIT_NOFILE", limits.open_files
    yield "RLIMIT_NPROC", limits.processes
    yield "RLIMIT_CORE", 0
    yield "RLIMIT_MEMLOCK", 0


class Zygote:
    """Our side of the zygote: started when needed, started again when it died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        self._process: spawn.Popen | None = None

    def start(self, order: bytes, *, has_stdin: bool) -> Started:
        """Have a command started.

        Raises:
            OSError: If there is no Landlock here, or the zygote cannot be reached.
        """
        with self._lock:
            line = self._ready()
            written = os.memfd_create("order")
            os.write(written, order)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pipes = [_pipe(reads=False, wanted=has_stdin), _pipe(reads=True), _pipe(reads=True)]
            given = [pipe[1] for pipe in pipes]
            try:
                socket.send_fds(line, [b"order"], [*given, theirs.fileno(), written])
            except OSError:
                self._forget()
                raise
            finally:
                theirs.close()
                for descriptor in (*given, written):
                    os.close(descriptor)
        return _started(ours, [pipe[0] for pipe in pipes])

    def _ready(self) -> socket.socket:
        if self._line is not None and self._process is not None and self._process.poll() is None:
            return self._line
        self._forget()
        python = interpreters.find("python")
        program = str(python.program) if python else "python3"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [program, "-I", "-S", str(Path(zygote.__file__)), str(theirs.fileno())]
            self._process = spawn.popen(
                Command(argv=words, env={}, cwd="/", descriptors=(theirs.fileno(),))
            )
        abi = int(ours.recv(16) or b"0")
        if abi < 1:
            ours.close()
            raise OSError(95, "this kernel has no Landlock")
        self._line = ours
        return ours

    def _forget(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
            self._process = None

    def close(self) -> None:
        """End the zygote; what it started ends with it."""
        with self._lock:
            self._forget()


def _pipe(*, reads: bool, wanted: bool = True) -> tuple[int, int]:
    """Our end and theirs; an unwanted stdin is empty at once."""
    if not wanted:
        return -1, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    reader, writer = os.pipe()
    return (reader, writer) if reads else (writer, reader)


def _started(control: socket.socket, pipes: list[int]) -> Started:
    """A command that its supervisor watches: closing our end of the line ends it."""

    def kill() -> None:
        with contextlib.suppress(OSError):
            control.shutdown(socket.SHUT_WR)

    def finish() -> tuple[int | None, str]:
        with control:
            report = control.recv(256)
        told = json.loads(report) if report else {"errno": 0}
        if "status" in told and told["status"] is not None:
            return int(told["status"]), ""
        code = int(told.get("errno") or 0)
        return None, errno.errorcode.get(code, "the supervisor was killed")

    return Started(
        stdin=pipes[0],
        stdout=pipes[1],
        stderr=pipes[2],
        end=os.dup(control.fileno()),
        kill=kill,
        finish=finish,
    )
