"""Bubblewrap: every namespace, a file system with only what was granted, and a call filter."""

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

from apexbridge.sandbox import doorkeeper, interpreters, seccomp
from apexbridge.sandbox.base import ExecRequest, ExecutionResult
from apexbridge.sandbox.launcher import FIRST_KEPT, Launch, Launcher, needed
from apexbridge.sandbox.network import AllowListProxy
from apexbridge.sandbox.process import run_on
from apexbridge.sandbox.runner import Started

_SYSTEM_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/localtime")
_SYSTEM_FILES = ("/etc/alternatives", "/etc/ld.so.cache")
_NETWORK_FILES = ("/etc/ssl/certs", "/etc/ssl/openssl.cnf")
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
_MESSAGES = {os.strerror(code): name for code, name in errno.errorcode.items()}


class BubblewrapSandbox:
    """Runs commands in bubblewrap."""

    name = "bubblewrap"

    def __init__(self, launcher: Launcher, program: str | None = None) -> None:
        self._launcher = launcher
        self._program = program or shutil.which("bwrap") or "bwrap"
        machine = seccomp.MACHINES.get(platform.machine())
        self._filter = seccomp.build(machine) if machine else None

    async def run(self, request: ExecRequest) -> ExecutionResult:
        """Run one command to its end, or to its limits."""
        return await run_on(self, request)

    def start(self, request: ExecRequest, *, has_stdin: bool) -> Started:
        """Start the command; whoever asked watches it, and feeds it if it has an stdin.

        Raises:
            OSError: If it cannot be started.
        """
        with ExitStack() as held, ExitStack() as sent:
            if request.access.hosts:
                request = _through_the_door(request, held)
            status, status_write = os.pipe()
            held.callback(os.close, status)
            sent.callback(os.close, status_write)
            program = _memory_file(self._filter or b"")
            sent.callback(os.close, program)
            launch = Launch(
                argv=self._words(request),
                env={"PATH": "/usr/bin:/bin"},
                cwd="/",
                limits=request.limits,
                needs=needed(request),
                workspace=request.workspace,
                has_stdin=has_stdin,
                descriptors=(status_write, program),
            )
            started = self._launcher.start(launch)
            return _told(started, status, held.pop_all())

    def _words(self, request: ExecRequest) -> list[str]:
        words = [self._program]
        words += ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"]
        words += ["--new-session", "--cap-drop", "ALL", "--clearenv", "--hostname", "sandbox"]
        words += ["--uid", "1000", "--gid", "1000", "--json-status-fd", str(FIRST_KEPT)]
        if self._filter is not None:
            words += ["--seccomp", str(FIRST_KEPT + 1)]
        words += _file_system(request)
        for name, value in request.env.items():
            words += ["--setenv", name, value]
        return [*words, "--chdir", str(request.cwd), "--", *request.argv]


def _through_the_door(request: ExecRequest, held: ExitStack) -> ExecRequest:
    """The command behind a doorkeeper, which sees the socket of a proxy of its own."""
    place = Path(held.enter_context(TemporaryDirectory(prefix="apexbridge-door-")))
    held.enter_context(AllowListProxy(request.access.hosts).serve(place / "proxy"))
    python = interpreters.find("python")
    program = str(python.program) if python else "python3"
    keeper = Path(doorkeeper.__file__)
    words = (program, "-I", "-S", str(place / "keeper.py"), str(place / "proxy"))
    shutil.copyfile(keeper, place / "keeper.py")
    place.chmod(0o755)
    prefix = python.prefix if python else ()
    access = replace(request.access, read=(*request.access.read, *prefix, place))
    return replace(request, argv=(*words, *request.argv), access=access)


def _file_system(request: ExecRequest) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _SYSTEM_LINKS:
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.exists():
            yield from ("--ro-bind", name, name)
    for name in (*_SYSTEM_FILES, *(_NETWORK_FILES if request.access.hosts else ())):
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


def _memory_file(data: bytes) -> int:
    descriptor = os.memfd_create("seccomp")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _read_all(descriptor: int) -> bytes:
    pieces = list[bytes]()
    while piece := os.read(descriptor, 4096):
        pieces.append(piece)
    return b"".join(pieces)


def _told(started: Started, status: int, held: ExitStack) -> Started:
    """The same, with what bubblewrap itself says of the command."""
    finish = started.finish

    def judge(stderr: bytes) -> tuple[int | None, str]:
        with held:
            code, error = finish(stderr)
            return _verdict(code, error, _read_all(status), stderr)

    return replace(started, finish=judge)


def _verdict(code: int | None, error: str, status: bytes, stderr: bytes) -> tuple[int | None, str]:
    """Bubblewrap tells an exit code only of a command that it could start."""
    for line in status.splitlines():
        told = json.loads(line)
        if "exit-code" in told:
            return _signal_or_code(int(told["exit-code"])), ""
    is_ours = code is None or (code > 0 and b"child-pid" not in status)
    if error or is_ours or code == 1:
        return None, error or _why(stderr)
    return code, ""


def _signal_or_code(code: int) -> int:
    """Bubblewrap says 128 + n of a signal, as shells do; a script may say so itself."""
    return 128 - code if 128 < code <= 128 + signal.NSIG else code


def _why(complaint: bytes) -> str:
    text = complaint.decode("utf-8", "replace").strip()
    message = text.rpartition(": ")[2]
    return _MESSAGES.get(message, text or "unknown")
