"""Launcher: client of the zygote process, which starts every isolated process on Linux.

The supervisor of a command detects at once when this process dies, from the first moment on: a
killed server never leaves processes behind.
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
"""Number of the first inherited file descriptor."""

_READABLE_PATHS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache",
    "/etc/localtime", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/dev/urandom", "/dev/random",
    "/dev/zero",
)  # fmt: skip
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
    """A command to launch, with the restrictions that apply to it."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    limits: SandboxLimits
    needs: tuple[Path, ...] = ()
    """Paths that another UID must be able to read to run it."""
    written: tuple[Path, ...] = ()
    """Folders that it changes besides its workspace: they keep their owner."""
    workspace: Path | None = None
    """Private directory whose owner may be changed."""
    is_confined: bool = False
    """True to apply Landlock and the strict seccomp filter, with these paths."""
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    has_stdin: bool = False
    descriptors: tuple[int, ...] = ()
    """Inherited file descriptors, numbered from `FIRST_INHERITED_FD`."""


class Launcher:
    """A zygote that is started on demand, and restarted if it died."""

    def __init__(self, groups: Cgroups | None = None, uids: UidPool | None = None) -> None:
        self._groups = groups
        self._uids = uids
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._channel: socket.socket | None = None
        self._process: child_process.Popen | None = None

    def start(self, launch: Launch) -> RunningProcess:
        """Launch a command; OSError if the zygote cannot be reached.

        SandboxUnavailableError if only root could run it, and nothing would hide root's files.
        """
        with ExitStack() as on_failure:
            uid = self._lease(launch)
            if uid is not None:
                on_failure.callback(uid.close)
            with ExitStack() as sent:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                on_failure.callback(ours.close)
                sent.callback(theirs.close)
                written = os.memfd_create("order")
                sent.callback(os.close, written)
                os.write(written, _encode_order(launch, uid))
                stdin = _pipe(reads=False, wanted=launch.has_stdin)
                pipes = [stdin, _pipe(reads=True), _pipe(reads=True)]
                for mine, given in pipes:
                    sent.callback(os.close, given)
                    if mine >= 0:
                        on_failure.callback(os.close, mine)
                given = [pipe[1] for pipe in pipes]
                numbers = [*given, theirs.fileno(), written, *launch.descriptors]
                bounds = list(self._groups.values(launch.limits)) if self._groups else []
                self._send(json.dumps([launch.limits.memory_bytes, bounds]).encode(), numbers)
            on_failure.pop_all()
        return _watched_process(ours, [pipe[0] for pipe in pipes], uid)

    def _lease(self, launch: Launch) -> LeasedUid | None:
        """Lease a UID for a command; None if it runs as ours."""
        own = launch.workspace is not None or not launch.written
        if launch.is_confined and own and os.geteuid() == 0:  # Landlock does not see modes
            pool = self._uids or UidPool()
            return pool.lease_unprivileged(launch.needs, launch.workspace, launch.written)
        if self._uids is None or launch.written:
            return None
        return self._uids.lease(launch.needs, launch.workspace)

    def _send(self, bounds: bytes, descriptors: list[int]) -> None:
        with self._lock:
            channel = self._connect()
            try:
                socket.send_fds(channel, [bounds], descriptors)
            except OSError:
                self._disconnect()
                raise

    def _connect(self) -> socket.socket:
        if self._owner != os.getpid():  # after a fork the zygote stays the parent's
            self._channel = self._process = None
            self._owner = os.getpid()
        if self._channel is not None and self._process is not None and self._process.poll() is None:
            return self._channel
        self._disconnect()
        program = str(interpreters.base_python().program)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [program, "-I", "-S", "-c", _BOOTSTRAP, _SOURCE_ROOT, str(theirs.fileno())]
            argv, descriptors = [*words, _config(self._groups)], (theirs.fileno(),)
            command = SpawnCommand(argv=argv, env={}, cwd="/", descriptors=descriptors)
            self._process = child_process.popen(command)
        self._channel = ours
        return ours

    def _disconnect(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
            self._process = None

    def close(self) -> None:
        """Stop the zygote. Its commands end when our last file descriptor of them is closed."""
        with self._lock:
            if self._owner == os.getpid():
                self._disconnect()


def required_paths(request: ExecRequest) -> tuple[Path, ...]:
    """Return the paths that a leased UID must read.

    The workspace and what is in it are given to that UID.
    """
    own = request.workspace
    program = request.argv[0]
    paths = {*request.access.read, request.cwd, Path(program if program.startswith("/") else "/")}
    paths -= set(request.access.write)
    return tuple(path for path in paths if own is None or not path.is_relative_to(own))


def written_paths(request: ExecRequest) -> tuple[Path, ...]:
    """Return the folders that a command may change besides its workspace."""
    return tuple(path for path in request.access.write if path != request.workspace)


def _config(groups: Cgroups | None) -> str:
    machine = seccomp.SYSCALL_TABLES.get(platform.machine())
    program = seccomp.build_filter(machine, seccomp.NO_SOCKETS, strict=True) if machine else b""
    homes = [str(home) for home in groups.homes] if groups else []
    reads, writes = (list(filter(os.path.exists, p)) for p in (_READABLE_PATHS, _WRITABLE_PATHS))
    return json.dumps({"read": reads, "write": writes, "filter": program.hex(), "homes": homes})


def _encode_order(launch: Launch, uid: LeasedUid | None) -> bytes:
    return json.dumps(
        {
            "argv": launch.argv,
            "env": dict(launch.env),
            "cwd": launch.cwd,
            "limits": dict(_rlimits(launch.limits)),
            "user": uid.number if uid else None,
            "group": uid.group if uid else None,
            "is_dedicated": uid is not None and uid.lock is not None,
            "searches": uid is not None and uid.searches,
            "confined": launch.is_confined,
            "read": [str(path) for path in launch.read],
            "write": [str(path) for path in launch.write],
        }
    ).encode("utf-8", "surrogateescape")


def _rlimits(limits: SandboxLimits) -> Iterator[tuple[str, int]]:
    """Return rlimits; memory is RLIMIT_DATA, because RLIMIT_AS breaks node."""
    yield "RLIMIT_DATA", limits.memory_bytes
    yield "RLIMIT_FSIZE", limits.file_bytes
    yield "RLIMIT_CPU", limits.cpu_seconds
    yield "RLIMIT_NOFILE", limits.open_files
    yield "RLIMIT_NPROC", limits.processes
    yield "RLIMIT_CORE", 0
    yield "RLIMIT_MEMLOCK", 0


def _pipe(*, reads: bool, wanted: bool = True) -> tuple[int, int]:
    """Create a pipe: our end and theirs; an unwanted stdin is at EOF."""
    if not wanted:
        return -1, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    reader, writer = os.pipe()
    return (reader, writer) if reads else (writer, reader)


def _watched_process(
    control: socket.socket, pipes: list[int], uid: LeasedUid | None
) -> RunningProcess:
    """Build the handle of a supervised command: closing the control socket kills it."""

    def kill() -> None:
        with contextlib.suppress(OSError):
            control.shutdown(socket.SHUT_WR)

    def finish(_: bytes) -> tuple[int | None, str]:
        with control:
            report = control.recv(256)
        if uid is not None:
            uid.close()
        result = json.loads(report) if report else {"errno": 0}
        if "status" in result and result["status"] is not None:
            return int(result["status"]), ""
        code = int(result.get("errno") or 0)
        return None, errno.errorcode.get(code, "the supervisor was killed")

    return RunningProcess(
        stdin=pipes[0],
        stdout=pipes[1],
        stderr=pipes[2],
        exit_fd=os.dup(control.fileno()),
        kill=kill,
        finish=finish,
    )
