"""No isolation: limits and a process group only. Off unless an operator switches it on."""

import errno
import json
import os
import platform
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from apexbridge.sandbox import child_process, interpreters, proxy_bridge, seccomp
from apexbridge.sandbox.base import ExecRequest, ExecutionResult, SandboxLimits
from apexbridge.sandbox.child_process import RunningProcess, SpawnCommand
from apexbridge.sandbox.egress_proxy import AllowListProxy
from apexbridge.sandbox.execution import run_backend
from apexbridge.sandbox.kernel_limits import ProcessCounter
from apexbridge.sandbox.launcher import FIRST_INHERITED_FD, Launch, Launcher, required_paths

# One shell counts processes with -u, another with -p; RLIMIT_AS would break node.
_ULIMIT_SCRIPT = """\
ulimit -c 0; ulimit -d "$1"; ulimit -f "$2"; ulimit -t "$3"; ulimit -n "$4"
{ ulimit -u "$5" || ulimit -p "$5"; } 2>/dev/null; shift 5; exec "$@\""""


def ulimit_argv(limits: SandboxLimits) -> list[str]:
    """Words that bound what follows them, on every system with a shell."""
    counts = (
        limits.memory_bytes // 1024,
        limits.file_bytes // 512,
        limits.cpu_seconds,
        limits.open_files,
        limits.processes + ProcessCounter().take() if Path("/proc/self/task").is_dir() else "none",
    )
    return ["/bin/sh", "-c", _ULIMIT_SCRIPT, "sh", *map(str, counts)]


class UnsandboxedBackend:
    """Runs commands with the rights of this process."""

    name = "plain"

    async def run(self, request: ExecRequest) -> ExecutionResult:
        """Run one command to its end, or to its limits."""
        return await run_backend(self, request)

    def start(self, request: ExecRequest, *, has_stdin: bool) -> RunningProcess:
        """Start the command; whoever asked watches it, and feeds it if it has an stdin.

        Raises:
            OSError: If it cannot be started.
        """
        # A shell would hide why a program cannot be started: that is found out without it.
        can_start = shutil.which(request.argv[0], path=request.env.get("PATH")) is not None
        words = ulimit_argv(request.limits) if can_start else []
        return child_process.start(
            SpawnCommand(
                argv=[*words, *request.argv],
                env=request.env,
                cwd=str(request.cwd),
                has_stdin=has_stdin,
            )
        )


NO_EGRESS = "network_unavailable: this sandbox cannot let single hosts through"


class LandlockSandbox:
    """Runs commands under Landlock."""

    name = "landlock"

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    async def run(self, request: ExecRequest) -> ExecutionResult:
        """Run one command to its end, or to its limits."""
        return await run_backend(self, request)

    def start(self, request: ExecRequest, *, has_stdin: bool) -> RunningProcess:
        """Start the command; whoever asked watches it, and feeds it if it has an stdin.

        Raises:
            OSError: If it cannot be started.
        """
        if request.access.hosts:  # without a network of its own there is no door to put in it
            raise OSError(NO_EGRESS)
        launch = Launch(
            argv=request.argv,
            env=request.env,
            cwd=str(request.cwd),
            limits=request.limits,
            is_confined=True,
            needs=required_paths(request),
            workspace=request.workspace,
            read=request.access.read,
            write=request.access.write,
            has_stdin=has_stdin,
        )
        return self._launcher.start(launch)


SEATBELT_PROGRAM = "/usr/bin/sandbox-exec"
SEATBELT_NO_EGRESS = "network_unavailable: this sandbox cannot let single hosts through"

_SEATBELT_BASE = """\
(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow file-read-metadata)
(allow file-read*
    (literal "/")
    (subpath "/usr") (subpath "/bin") (subpath "/sbin") (subpath "/System") (subpath "/Library")
    (subpath "/private/var/db/dyld") (subpath "/private/var/db/timezone")
    (literal "/private/etc/localtime") (subpath "/private/etc/ssl"))
(allow file-read* file-write-data
    (literal "/dev/null") (literal "/dev/zero") (literal "/dev/dtracehelper"))
(allow file-read* (literal "/dev/random") (literal "/dev/urandom"))
(allow file-read* file-write-data (subpath "/dev/fd"))
"""
_SEATBELT_READ = '(allow file-read* (subpath (param "READ_{number}")))\n'
_SEATBELT_WRITE = '(allow file-read* file-write* (subpath (param "WRITE_{number}")))\n'


def seatbelt_profile(reads: int, writes: int) -> str:
    """The profile for so many readable and writable paths; what they are is said beside it."""
    grants = [_SEATBELT_READ.format(number=number) for number in range(reads)]
    grants += [_SEATBELT_WRITE.format(number=number) for number in range(writes)]
    return _SEATBELT_BASE + "".join(grants)


class SeatbeltSandbox:
    """Runs commands under a seatbelt profile."""

    name = "seatbelt"

    async def run(self, request: ExecRequest) -> ExecutionResult:
        """Run one command to its end, or to its limits."""
        return await run_backend(self, request)

    def start(self, request: ExecRequest, *, has_stdin: bool) -> RunningProcess:
        """Start the command; whoever asked watches it, and feeds it if it has an stdin.

        Raises:
            OSError: If it cannot be started.
        """
        if request.access.hosts:
            raise OSError(SEATBELT_NO_EGRESS)
        return child_process.start(
            SpawnCommand(
                argv=[*ulimit_argv(request.limits), *seatbelt_argv(request), *request.argv],
                env=request.env,
                cwd=str(request.cwd),
                has_stdin=has_stdin,
            )
        )


def seatbelt_argv(request: ExecRequest) -> list[str]:
    """Words that confine what follows them."""
    reads, writes = (_resolved(paths) for paths in (request.access.read, request.access.write))
    words = [SEATBELT_PROGRAM, "-p", seatbelt_profile(len(reads), len(writes))]
    for kind, paths in (("READ", reads), ("WRITE", writes)):
        for number, path in enumerate(paths):
            words += ["-D", f"{kind}_{number}={path}"]
    return [*words, "--"]


def _resolved(paths: tuple[Path, ...]) -> list[Path]:
    """The kernel asks about real paths: `/tmp` is a link there."""
    return [path.resolve() for path in paths]


_SYSTEM_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/localtime")
_SYSTEM_PATHS = ("/etc/alternatives", "/etc/ld.so.cache")
_TLS_PATHS = ("/etc/ssl/certs", "/etc/ssl/openssl.cnf")
"""Of use only to who can reach anyone; every mount takes its time."""
_DEVICES = ("null", "zero", "urandom")
_DEVICE_LINKS = {
    "random": "urandom",
    "shm": "/tmp",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_ERRNO_BY_MESSAGE = {os.strerror(code): name for code, name in errno.errorcode.items()}


class BubblewrapSandbox:
    """Runs commands in bubblewrap."""

    name = "bubblewrap"

    def __init__(self, launcher: Launcher, program: str | None = None) -> None:
        self._launcher = launcher
        self._program = program or shutil.which("bwrap") or "bwrap"
        machine = seccomp.SYSCALL_TABLES.get(platform.machine())
        self._filter = seccomp.build_filter(machine) if machine else None

    async def run(self, request: ExecRequest) -> ExecutionResult:
        """Run one command to its end, or to its limits."""
        return await run_backend(self, request)

    def start(self, request: ExecRequest, *, has_stdin: bool) -> RunningProcess:
        """Start the command; whoever asked watches it, and feeds it if it has an stdin.

        Raises:
            OSError: If it cannot be started.
        """
        with ExitStack() as held, ExitStack() as sent:
            if request.access.hosts:
                request = _with_egress_proxy(request, held)
            status, status_write = os.pipe()
            held.callback(os.close, status)
            sent.callback(os.close, status_write)
            program = _memfd(self._filter or b"")
            sent.callback(os.close, program)
            launch = Launch(
                argv=self._words(request),
                env={"PATH": "/usr/bin:/bin"},
                cwd="/",
                limits=request.limits,
                needs=required_paths(request),
                workspace=request.workspace,
                has_stdin=has_stdin,
                descriptors=(status_write, program),
            )
            started = self._launcher.start(launch)
            return _with_bwrap_status(started, status, held.pop_all())

    def _words(self, request: ExecRequest) -> list[str]:
        words = [self._program]
        words += ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"]
        words += ["--new-session", "--cap-drop", "ALL", "--clearenv", "--hostname", "sandbox"]
        words += ["--uid", "1000", "--gid", "1000", "--json-status-fd", str(FIRST_INHERITED_FD)]
        if self._filter is not None:
            words += ["--seccomp", str(FIRST_INHERITED_FD + 1)]
        words += _mount_arguments(request)
        for name, value in request.env.items():
            words += ["--setenv", name, value]
        return [*words, "--chdir", str(request.cwd), "--", *request.argv]


def _with_egress_proxy(request: ExecRequest, held: ExitStack) -> ExecRequest:
    """The command behind a doorkeeper, which sees the socket of a proxy of its own."""
    place = Path(held.enter_context(TemporaryDirectory(prefix="apexbridge-door-")))
    held.enter_context(AllowListProxy(request.access.hosts).serve(place / "proxy"))
    python = interpreters.find("python")
    program = str(python.program) if python else "python3"
    keeper = Path(proxy_bridge.__file__)
    words = (program, "-I", "-S", str(place / "keeper.py"), str(place / "proxy"))
    shutil.copyfile(keeper, place / "keeper.py")
    place.chmod(0o755)
    prefix = python.prefix if python else ()
    access = replace(request.access, read=(*request.access.read, *prefix, place))
    return replace(request, argv=(*words, *request.argv), access=access)


def _mount_arguments(request: ExecRequest) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _SYSTEM_LINKS:
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.exists():
            yield from ("--ro-bind", name, name)
    for name in (*_SYSTEM_PATHS, *(_TLS_PATHS if request.access.hosts else ())):
        yield from ("--ro-bind-try", name, name)
    # Read-only, for root may write what /proc/sys holds: its owner is inside when root runs this.
    yield from ("--proc", "/proc", "--remount-ro", "/proc", "--dir", "/dev")
    for name in _DEVICES:
        yield from ("--dev-bind-try", f"/dev/{name}", f"/dev/{name}")
    for name, target in _DEVICE_LINKS.items():
        yield from ("--symlink", target, f"/dev/{name}")
    yield from ("--size", str(request.limits.temporary_bytes), "--tmpfs", "/tmp")
    for path in dict.fromkeys(request.access.read):
        yield from ("--ro-bind", str(path), str(path))
    for path in request.access.write:
        yield from ("--bind", str(path), str(path))
    yield from ("--remount-ro", "/")


def _memfd(data: bytes) -> int:
    descriptor = os.memfd_create("seccomp")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _read_all(descriptor: int) -> bytes:
    pieces = list[bytes]()
    while piece := os.read(descriptor, 4096):
        pieces.append(piece)
    return b"".join(pieces)


def _with_bwrap_status(started: RunningProcess, status: int, held: ExitStack) -> RunningProcess:
    """The same, with what bubblewrap itself says of the command."""
    finish = started.finish

    def judge(stderr: bytes) -> tuple[int | None, str]:
        with held:
            code, error = finish(stderr)
            return _exit_status(code, error, _read_all(status), stderr)

    return replace(started, finish=judge)


def _exit_status(
    code: int | None, error: str, status: bytes, stderr: bytes
) -> tuple[int | None, str]:
    """Bubblewrap tells an exit code only of a command that it could start."""
    for line in status.splitlines():
        told = json.loads(line)
        if "exit-code" in told:
            return _signal_or_code(int(told["exit-code"])), ""
    is_ours = code is None or (code > 0 and b"child-pid" not in status)
    if error or is_ours or code == 1:
        return None, error or _errno_from_message(stderr)
    return code, ""


def _signal_or_code(code: int) -> int:
    """Bubblewrap says 128 + n of a signal, as shells do; a script may say so itself."""
    return 128 - code if 128 < code <= 128 + signal.NSIG else code


def _errno_from_message(complaint: bytes) -> str:
    text = complaint.decode("utf-8", "replace").strip()
    message = text.rpartition(": ")[2]
    return _ERRNO_BY_MESSAGE.get(message, text or "unknown")
