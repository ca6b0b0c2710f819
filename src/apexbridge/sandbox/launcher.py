"""Our side of the zygote: hand it an order, watch what it started.

Every process that isolates on Linux is started this way. Its supervisor hears at once when we are
gone, from the first moment on: there is no time in which a killed server leaves something behind.
"""

import contextlib
import errno
import json
import os
import platform
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from apexbridge.sandbox import child_process, interpreters, seccomp, zygote
from apexbridge.sandbox.base import ExecRequest, SandboxLimits
from apexbridge.sandbox.cgroup import Cgroups
from apexbridge.sandbox.child_process import RunningProcess, SpawnCommand
from apexbridge.sandbox.uid_pool import LeasedUid, UidPool

FIRST_INHERITED_FD = zygote.FIRST_INHERITED_FD
"""The number under which a command finds the first descriptor it was given."""

_READABLE_PATHS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives",
             "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/certs",
             "/etc/ssl/openssl.cnf", "/dev/urandom", "/dev/random",
             "/dev/zero")  # fmt: skip
_WRITABLE_PATHS = ("/dev/null",)


_SOURCE_ROOT = str(Path(zygote.__file__).parents[2])
_BOOTSTRAP = """
import sys
sys.path.append(sys.argv.pop(1))
from apexbridge.sandbox import zygote
zygote.main()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What is started: the command as it is, with everything that is to hold for it."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    limits: SandboxLimits
    needs: tuple[Path, ...] | None = None
    """What another user must be able to reach to run it in our place; None if nobody else can."""
    workspace: Path | None = None
    """A folder of its own, whose owner may be changed."""
    is_confined: bool = False
    """Whether Landlock and the strict call filter are turned on, with these paths."""
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    has_stdin: bool = False
    descriptors: tuple[int, ...] = ()
    """Descriptors it inherits, numbered from `FIRST_KEPT`."""


class Launcher:
    """A zygote that is started when needed, and again when it died."""

    def __init__(self, groups: Cgroups | None = None, users: UidPool | None = None) -> None:
        self._groups = groups
        self._users = users
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._line: socket.socket | None = None
        self._process: child_process.Popen | None = None

    def start(self, launch: Launch) -> RunningProcess:
        """Have a command started.

        Raises:
            OSError: If the zygote cannot be reached.
        """
        with ExitStack() as on_failure:
            slot = self._slot(launch)
            if slot is not None:
                on_failure.callback(slot.close)
            with ExitStack() as sent:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                on_failure.callback(ours.close)
                sent.callback(theirs.close)
                written = os.memfd_create("order")
                sent.callback(os.close, written)
                os.write(written, _encode_order(launch, slot))
                stdin = _pipe(reads=False, wanted=launch.has_stdin)
                pipes = [stdin, _pipe(reads=True), _pipe(reads=True)]
                for mine, given in pipes:
                    sent.callback(os.close, given)
                    if mine >= 0:
                        on_failure.callback(os.close, mine)
                given = [pipe[1] for pipe in pipes]
                numbers = [*given, theirs.fileno(), written, *launch.descriptors]
                self._send(self._bounds(launch.limits), numbers)
            on_failure.pop_all()
        return _watched_process(ours, [pipe[0] for pipe in pipes], slot)

    def _slot(self, launch: Launch) -> LeasedUid | None:
        if self._users is None or launch.needs is None:
            return None
        return self._users.lend(launch.needs, launch.workspace)

    def _bounds(self, limits: SandboxLimits) -> bytes:
        return json.dumps(list(self._groups.values(limits)) if self._groups else []).encode()

    def _send(self, bounds: bytes, descriptors: list[int]) -> None:
        with self._lock:
            line = self._ready()
            try:
                socket.send_fds(line, [bounds], descriptors)
            except OSError:
                self._forget()
                raise

    def _ready(self) -> socket.socket:
        if self._owner != os.getpid():  # after a fork the zygote stays the parent's
            self._line = self._process = None
            self._owner = os.getpid()
        if self._line is not None and self._process is not None and self._process.poll() is None:
            return self._line
        self._forget()
        program = str(interpreters.base_python().program)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [program, "-I", "-S", "-c", _BOOTSTRAP, _SOURCE_ROOT, str(theirs.fileno())]
            self._process = child_process.popen(
                SpawnCommand(
                    argv=[*words, _config(self._groups)],
                    env={},
                    cwd="/",
                    descriptors=(theirs.fileno(),),
                )
            )
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
        """End the zygote. What it started ends with the last descriptor we hold of it."""
        with self._lock:
            if self._owner == os.getpid():
                self._forget()


def required_paths(request: ExecRequest) -> tuple[Path, ...] | None:
    """What a user must be able to reach to run this; None if it is to write what is not its own."""
    if set(request.access.write) - {request.workspace}:
        return None
    program = request.argv[0]
    paths = {*request.access.read, request.cwd, Path(program if program.startswith("/") else "/")}
    return tuple(paths - {request.workspace})


def _config(groups: Cgroups | None) -> str:
    machine = seccomp.SYSCALL_TABLES.get(platform.machine())
    program = seccomp.build_filter(machine, seccomp.NO_SOCKETS, strict=True) if machine else b""
    homes = [str(home) for home in groups.homes] if groups else []
    reads, writes = (
        [p for p in paths if Path(p).exists()] for paths in (_READABLE_PATHS, _WRITABLE_PATHS)
    )
    return json.dumps({"read": reads, "write": writes, "filter": program.hex(), "homes": homes})


def _encode_order(launch: Launch, slot: LeasedUid | None) -> bytes:
    return json.dumps(
        {
            "argv": launch.argv,
            "env": dict(launch.env),
            "cwd": launch.cwd,
            "limits": dict(_rlimits(launch.limits)),
            "user": slot.number if slot else None,
            "confined": launch.is_confined,
            "read": [str(path) for path in launch.read],
            "write": [str(path) for path in launch.write],
        }
    ).encode("utf-8", "surrogateescape")


def _rlimits(limits: SandboxLimits) -> Iterator[tuple[str, int]]:
    """RLIMIT_DATA bounds memory: RLIMIT_AS would break node."""
    yield "RLIMIT_DATA", limits.memory_bytes
    yield "RLIMIT_FSIZE", limits.file_bytes
    yield "RLIMIT_CPU", limits.cpu_seconds
    yield "RLIMIT_NOFILE", limits.open_files
    yield "RLIMIT_NPROC", limits.processes
    yield "RLIMIT_CORE", 0
    yield "RLIMIT_MEMLOCK", 0


def _pipe(*, reads: bool, wanted: bool = True) -> tuple[int, int]:
    """Our end and theirs; an unwanted stdin is empty at once."""
    if not wanted:
        return -1, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    reader, writer = os.pipe()
    return (reader, writer) if reads else (writer, reader)


def _watched_process(
    control: socket.socket, pipes: list[int], slot: LeasedUid | None
) -> RunningProcess:
    """A command that its supervisor watches: closing our end of the line ends it."""

    def kill() -> None:
        with contextlib.suppress(OSError):
            control.shutdown(socket.SHUT_WR)

    def finish(_: bytes) -> tuple[int | None, str]:
        with control:
            report = control.recv(256)
        if slot is not None:
            slot.close()
        told = json.loads(report) if report else {"errno": 0}
        if "status" in told and told["status"] is not None:
            return int(told["status"]), ""
        code = int(told.get("errno") or 0)
        return None, errno.errorcode.get(code, "the supervisor was killed")

    return RunningProcess(
        stdin=pipes[0],
        stdout=pipes[1],
        stderr=pipes[2],
        end=os.dup(control.fileno()),
        kill=kill,
        finish=finish,
    )
