"""Sandbox backends: bubblewrap, Landlock, macOS seatbelt, and none (limits only).

Bubblewrap has every namespace, a mount namespace with only what was granted, and a seccomp filter.
Landlock with seccomp works where user namespaces are forbidden; it does not hide that files exist,
and cannot stop a script from changing mode or times of files it may only read. Seatbelt is written
from its documentation and tested as text only. Unsandboxed is off unless an operator enables it.
"""

import errno
import json
import os
import platform
import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from apexbridge.sandbox import child_process, interpreters, proxy_bridge, seccomp
from apexbridge.sandbox.base import ExecRequest, ExecutionResult, SandboxLimits, read_data
from apexbridge.sandbox.child_process import RunningProcess, SpawnCommand
from apexbridge.sandbox.egress_proxy import AllowListProxy, is_public_or_in
from apexbridge.sandbox.execution import run_backend
from apexbridge.sandbox.kernel_limits import ProcessCounter
from apexbridge.sandbox.launcher import (
    FIRST_INHERITED_FD,
    Launch,
    Launcher,
    required_paths,
    written_paths,
)

# One shell counts processes with -u, another with -p; RLIMIT_AS would break node.
_ULIMIT_SCRIPT = """\
ulimit -c 0; ulimit -d "$1"; ulimit -f "$2"; ulimit -t "$3"; ulimit -n "$4"
{ ulimit -u "$5" || ulimit -p "$5"; } 2>/dev/null; shift 5; exec "$@\""""


def ulimit_argv(limits: SandboxLimits) -> list[str]:
    """Build an argv prefix that sets ulimits, on every system with a POSIX shell."""
    counts = (
        limits.memory_bytes // 1024,
        limits.file_bytes // 512,
        limits.cpu_seconds,
        limits.open_files,
        limits.processes + ProcessCounter().count() if Path("/proc/self/task").is_dir() else "none",
    )
    return ["/bin/sh", "-c", _ULIMIT_SCRIPT, "sh", *map(str, counts)]


class _ProcessBackend(ABC):
    name: str

    async def run(self, request: ExecRequest) -> ExecutionResult:
        """Run one command to its end or its limits."""
        return await run_backend(self, request)

    @abstractmethod
    def start(self, request: ExecRequest, *, has_stdin: bool) -> RunningProcess: ...


def _spawn(request: ExecRequest, argv: list[str], *, has_stdin: bool) -> RunningProcess:
    cwd = str(request.cwd)
    return child_process.start(
        SpawnCommand(argv=argv, env=request.env, cwd=cwd, has_stdin=has_stdin)
    )


class UnsandboxedBackend(_ProcessBackend):
    """Run commands with the privileges of this process: rlimits and a process group only."""

    name = "plain"

    def start(self, request: ExecRequest, *, has_stdin: bool) -> RunningProcess:
        """Start the command."""
        # The shell would hide the errno of a failed exec: a missing program is started without it.
        can_start = shutil.which(request.argv[0], path=request.env.get("PATH")) is not None
        words = ulimit_argv(request.limits) if can_start else []
        return _spawn(request, [*words, *request.argv], has_stdin=has_stdin)


NO_EGRESS = "network_unavailable: this sandbox cannot let single hosts through"


class LandlockSandbox(_ProcessBackend):
    """Landlock and a strict seccomp filter, applied by the launcher in pure Python."""

    name = "landlock"

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher

    def start(self, request: ExecRequest, *, has_stdin: bool) -> RunningProcess:
        """Start the command."""
        if request.access.has_network:  # without a network namespace there is no proxy bridge
            raise OSError(NO_EGRESS)
        launch = Launch(
            argv=request.argv,
            env=request.env,
            cwd=str(request.cwd),
            limits=request.limits,
            is_confined=True,
            needs=required_paths(request),
            written=written_paths(request),
            workspace=request.workspace,
            read=request.access.read,
            write=request.access.write,
            has_stdin=has_stdin,
        )
        return self._launcher.start(launch)


SEATBELT_PROGRAM = "/usr/bin/sandbox-exec"

_SEATBELT_READ = '(allow file-read* (subpath (param "READ_{number}")))\n'
_SEATBELT_WRITE = '(allow file-read* file-write* (subpath (param "WRITE_{number}")))\n'
_SEATBELT_LAST = "(deny file-write-setugid)\n"  # part of file-write*, and the last rule decides


def seatbelt_profile(reads: int, writes: int) -> str:
    """Build the seatbelt profile; paths are parameters (`-D`), so that none can inject syntax."""
    grants = [_SEATBELT_READ.format(number=number) for number in range(reads)]
    grants += [_SEATBELT_WRITE.format(number=number) for number in range(writes)]
    return read_data("programs/seatbelt.sb") + "".join((*grants, _SEATBELT_LAST))


class SeatbeltSandbox(_ProcessBackend):
    """macOS seatbelt: a profile that denies what it does not name."""

    name = "seatbelt"

    def start(self, request: ExecRequest, *, has_stdin: bool) -> RunningProcess:
        """Start the command."""
        if request.access.has_network:
            raise OSError(NO_EGRESS)
        words = [*ulimit_argv(request.limits), *seatbelt_argv(request), *request.argv]
        return _spawn(request, words, has_stdin=has_stdin)


def seatbelt_argv(request: ExecRequest) -> list[str]:
    """Build the argv prefix that applies the seatbelt profile."""
    reads, writes = request.access.read, request.access.write
    words = [SEATBELT_PROGRAM, "-p", seatbelt_profile(len(reads), len(writes))]
    for kind, paths in (("READ", reads), ("WRITE", writes)):
        for number, path in enumerate(paths):
            # Seatbelt checks real paths, and `/tmp` is a symlink on macOS.
            words += ["-D", f"{kind}_{number}={path.resolve()}"]
    return [*words, "--"]


_SYSTEM_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/localtime")
_SYSTEM_PATHS = ("/etc/alternatives", "/etc/ld.so.cache")
_TLS_PATHS = ("/etc/ssl/certs", "/etc/ssl/openssl.cnf")
"""Mounted only with network access; every mount costs time."""
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


class BubblewrapSandbox(_ProcessBackend):
    """Bubblewrap: Linux namespaces, a minimal mount namespace and a seccomp filter."""

    name = "bubblewrap"

    def __init__(self, launcher: Launcher, program: str | None = None) -> None:
        self._launcher = launcher
        self._program = program or shutil.which("bwrap") or "bwrap"
        machine = seccomp.SYSCALL_TABLES.get(platform.machine())
        self._filter = seccomp.build_filter(machine) if machine else None

    def start(self, request: ExecRequest, *, has_stdin: bool) -> RunningProcess:
        """Start the command."""
        with ExitStack() as held, ExitStack() as sent:
            if request.access.has_network:
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
                written=written_paths(request),
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
    """Wrap the command in the proxy bridge, connected to an egress proxy for this run."""
    place = Path(held.enter_context(TemporaryDirectory(prefix="apexbridge-egress-")))
    access = request.access
    proxy = AllowListProxy(
        access.hosts,
        is_public_or_in(access.private_networks),
        access.interceptor,
        operator_hosts=access.operator_hosts,
    )
    held.enter_context(proxy.serve(place / "proxy"))
    python = interpreters.find("python")
    program = str(python.program) if python else "python3"
    bridge = place / "proxy_bridge.py"
    words = (program, "-I", "-S", str(bridge), str(place / "proxy"))
    shutil.copyfile(proxy_bridge.__file__, bridge)
    place.chmod(0o755)
    prefix = python.prefix if python else ()
    access = replace(request.access, read=(*request.access.read, *prefix, place))
    env = dict(request.env)
    if request.access.interceptor is not None:
        certificates = place / "certificates.pem"
        certificates.write_bytes(request.access.interceptor.bundle())
        env |= dict.fromkeys(_CERTIFICATE_VARIABLES, str(certificates))
    return replace(request, argv=(*words, *request.argv), access=access, env=env)


_CERTIFICATE_VARIABLES = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO", "PIP_CERT", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "DENO_CERT",
    "npm_config_cafile", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
)  # fmt: skip
"""Where clients look for certificates to trust, by their own documentation."""


def _mount_arguments(request: ExecRequest) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _SYSTEM_LINKS:
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.exists():
            yield from ("--ro-bind", name, name)
    for name in (*_SYSTEM_PATHS, *(_TLS_PATHS if request.access.has_network else ())):
        yield from ("--ro-bind-try", name, name)
    # Read-only: if root runs this, the owner of /proc/sys is inside the sandbox and could write it.
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


def _with_bwrap_status(started: RunningProcess, status: int, held: ExitStack) -> RunningProcess:
    """Add the exit status that bubblewrap reports on its status file descriptor."""
    finish = started.finish

    def judge(stderr: bytes) -> tuple[int | None, str]:
        with held:
            code, error = finish(stderr)
            with os.fdopen(status, "rb", closefd=False) as report:
                return _exit_status(code, error, report.read(), stderr)

    return replace(started, finish=judge)


def _exit_status(
    code: int | None, error: str, status: bytes, stderr: bytes
) -> tuple[int | None, str]:
    """Combine exit codes: bubblewrap reports one only for a command that it could start."""
    for line in status.splitlines():
        report = json.loads(line)
        if "exit-code" in report:
            reported = int(report["exit-code"])
            # Bubblewrap reports a signal the way shells do, as 128 + n.
            is_signal = 128 < reported <= 128 + signal.NSIG
            return 128 - reported if is_signal else reported, ""
    is_ours = code is None or (code > 0 and b"child-pid" not in status)
    if error or is_ours or code == 1:
        return None, error or _errno_from_message(stderr)
    return code, ""


def _errno_from_message(complaint: bytes) -> str:
    text = complaint.decode("utf-8", "replace").strip()
    message = text.rpartition(": ")[2]
    return _ERRNO_BY_MESSAGE.get(message, text or "unknown")
