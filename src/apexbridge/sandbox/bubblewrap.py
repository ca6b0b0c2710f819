"""Bubblewrap: every namespace, a file system with only what was granted, and a call filter."""

import errno
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from apexbridge.sandbox import doorkeeper, interpreters, seccomp, spawn
from apexbridge.sandbox.base import MIB, ExecRequest, ExecutionResult
from apexbridge.sandbox.cgroup import Cgroups, joined
from apexbridge.sandbox.network import AllowListProxy
from apexbridge.sandbox.plain import limit_words
from apexbridge.sandbox.process import Verdict, describe, exit_code_of, refuse_nul, run_started
from apexbridge.sandbox.runner import Ended
from apexbridge.sandbox.spawn import Command

_SYSTEM_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SYSTEM_FILES = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
_KERNEL_KNOBS = (
    "/proc/sys",
    "/proc/sysrq-trigger",
    "/proc/irq",
    "/proc/bus",
    "/proc/acpi",
    "/proc/scsi",
    "/proc/fs",
)
_SHARED_MEMORY_BYTES = 16 * MIB
_MESSAGES = {os.strerror(code): name for code, name in errno.errorcode.items()}


def interpreter_prefixes() -> tuple[Path, ...]:
    """Where this Python and what it links to live, if not below /usr."""
    places = {Path(sys.base_prefix).resolve(), Path(sys.executable).resolve().parent.parent}
    return tuple(sorted(place for place in places if not place.is_relative_to("/usr")))


class BubblewrapSandbox:
    """Runs commands in bubblewrap."""

    name = "bubblewrap"

    def __init__(self, program: str | None = None, groups: Cgroups | None = None) -> None:
        self._groups = groups
        self._program = program or shutil.which("bwrap") or "bwrap"
        machine = seccomp.MACHINES.get(platform.machine())
        self._filter = seccomp.build(machine) if machine else None

    async def run(self, request: ExecRequest) -> ExecutionResult:
        """Run one command to its end, or to its limits."""
        refuse_nul(request)
        with joined(self._groups, request.limits) as groups:
            if not request.access.hosts:
                return await self._run(request, groups)
            with TemporaryDirectory(prefix="apexbridge-door-") as named:
                place = Path(named)
                with AllowListProxy(request.access.hosts).serve(place / "proxy"):
                    return await self._run(_through_the_door(request, place), groups)

    async def _run(self, request: ExecRequest, groups: tuple[str, ...]) -> ExecutionResult:
        status_read, status_write = os.pipe()
        filter_fd = _memory_file(self._filter or b"")
        try:
            words = [*_joining(groups), *self._words(request, status_write, filter_fd)]
            command = Command(
                argv=words,
                env={"PATH": "/usr/bin:/bin"},
                cwd="/",
                has_stdin=bool(request.stdin),
                descriptors=(status_write, filter_fd),
            )
            ended = await run_started(lambda: spawn.start(command), request)
            os.close(status_write)
            status_write = -1
            return describe(ended, _verdict(ended, _read_all(status_read)), self.name)
        finally:
            for descriptor in (status_read, status_write, filter_fd):
                if descriptor >= 0:
                    os.close(descriptor)

    def _words(self, request: ExecRequest, status: int, filter_fd: int) -> list[str]:
        words = [*limit_words(request.limits), self._program]
        words += ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent"]
        words += ["--new-session", "--cap-drop", "ALL", "--clearenv", "--hostname", "sandbox"]
        words += ["--uid", "1000", "--gid", "1000", "--json-status-fd", str(status)]
        if self._filter is not None:
            words += ["--seccomp", str(filter_fd)]
        words += _file_system(request)
        for name, value in request.env.items():
            words += ["--setenv", name, value]
        return [*words, "--chdir", str(request.cwd), "--", *request.argv]


def _through_the_door(request: ExecRequest, place: Path) -> ExecRequest:
    """The command behind a doorkeeper, which sees the proxy's socket."""
    python = interpreters.find("python")
    program = str(python.program) if python else "python3"
    keeper = Path(doorkeeper.__file__)
    words = (program, "-I", "-S", str(place / "keeper.py"), str(place / "proxy"))
    shutil.copyfile(keeper, place / "keeper.py")
    place.chmod(0o755)
    prefix = python.prefix if python else ()
    access = replace(request.access, read=(*request.access.read, *prefix, place))
    return replace(request, argv=(*words, *request.argv), access=access)


def _joining(groups: tuple[str, ...]) -> list[str]:
    """Words that make what follows join the groups before it is anything else."""
    if not groups:
        return []
    script = 'n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ > "$1"; shift; n=$((n-1)); done; '
    return ["/bin/sh", "-c", script + 'exec "$@"', "sh", str(len(groups)), *groups]


def _file_system(request: ExecRequest) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _SYSTEM_LINKS:
        path = Path(name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), name)
        elif path.is_dir():
            yield from ("--ro-bind", name, name)
    for name in _SYSTEM_FILES:
        yield from ("--ro-bind-try", name, name)
    yield from ("--proc", "/proc", "--dev", "/dev")
    # Bubblewrap means to cover these, but not when root runs it: then their owner is inside.
    for name in _KERNEL_KNOBS:
        yield from ("--ro-bind-try", name, name)
    yield from ("--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm")
    yield from ("--size", str(request.limits.temporary_bytes), "--tmpfs", "/tmp")
    for path in (*interpreter_prefixes(), *request.access.read):
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


def _verdict(ended: Ended, status: bytes) -> Verdict:
    """Bubblewrap tells an exit code only of a command that it could start."""
    for line in status.splitlines():
        told = json.loads(line)
        if "exit-code" in told:
            return Verdict(exit_code=int(told["exit-code"]))
    is_ours = ended.status is None or (ended.status > 0 and b"child-pid" not in status)
    if ended.error or is_ours or ended.status == 1:
        return Verdict(exit_code=None, error=ended.error or _why(ended.stderr))
    return Verdict(exit_code=exit_code_of(ended.status))


def _why(complaint: bytes) -> str:
    text = complaint.decode("utf-8", "replace").strip()
    message = text.rpartition(": ")[2]
    return _MESSAGES.get(message, text or "unknown")
