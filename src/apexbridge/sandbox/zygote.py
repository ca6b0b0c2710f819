"""Zygote: a small Python process that forks prepared children, one for each command.

It runs as a separate program and imports only the standard library and modules that do the same.
A few supervisors wait, each with a prepared child. An order goes to one of them as a packet (its
cgroup limits) with file descriptors by SCM_RIGHTS: stdin, stdout, stderr, a control socket, a file
with the order, and whatever the command inherits. The supervisor is the child subreaper: it kills
every descendant when the child exits or the control socket is closed, and reports the result there.
"""

import contextlib
import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from apexbridge.sandbox.family_memory import FamilyMemory
from apexbridge.sandbox.kernel_limits import (
    CAP_DAC_READ_SEARCH,
    MIN_LANDLOCK_ABI,
    PR_SET_PDEATHSIG,
    LandlockRuleset,
    ProcessCounter,
    SeccompFilter,
    drop_capabilities,
    landlock_abi,
    prctl,
    set_rlimits,
    switch_user,
)

PR_GET_DUMPABLE, PR_SET_DUMPABLE = 3, 4
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
MAX_ORPHANS = 10_000
MAX_DESCRIPTORS = 8
MAX_PACKET = 1024
FIRST_INHERITED_FD = 40  # inherited file descriptors are numbered from here
REST_MILLISECONDS = 30  # a run that has just begun should not share the CPU with the next fork
SPARE_SUPERVISORS = 2  # each with a prepared child, because fork is the most expensive step

LaunchOrder = dict[str, Any]
Config = dict[str, Any]

process_counter = ProcessCounter()


def place_descriptors(streams: Sequence[int], inherited: Sequence[int]) -> None:
    """Move each file descriptor to the number the command expects."""
    for number, stream in (*enumerate(streams), *enumerate(inherited, FIRST_INHERITED_FD)):
        os.dup2(stream, number)


def exec_order(
    order: LaunchOrder, rules: LandlockRuleset | None, system_calls: SeccompFilter | None
) -> NoReturn:
    """In the child: drop all privileges, then exec the command. Does not return."""
    os.setsid()
    os.chdir(order["cwd"])
    kept = 1 << CAP_DAC_READ_SEARCH if order["searches"] else 0
    if order["user"] is not None:
        switch_user(order["user"], order["group"], keeps_capabilities=bool(kept))
    if os.geteuid() != 0 and not order["is_dedicated"]:
        # RLIMIT_NPROC counts all processes of the UID, also those that are not of this run.
        order["limits"]["RLIMIT_NPROC"] += process_counter.count()
    set_rlimits(order["limits"])
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if order["confined"]:
        if rules is None:
            raise OSError(95, "this kernel has no Landlock")
        if kept or os.geteuid() == 0:
            drop_capabilities(kept)
        rules.grant(order["read"], order["write"])
        rules.enforce()
        if system_calls is not None:
            system_calls.install()
    name = str(order["argv"][0])
    search = str(order["env"].get("PATH", "/usr/bin:/bin")).split(":")
    failure = FileNotFoundError(2, name)
    for path in [name] if "/" in name else [os.path.join(directory, name) for directory in search]:
        try:
            os.execve(path, order["argv"], order["env"])
        except OSError as error:
            failure = error if not isinstance(error, FileNotFoundError) else failure
    raise failure


def write_kernel_file(path: str, value: int | str) -> None:
    """Write to an existing cgroup file; a missing one is not created."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def make_groups(hierarchies: Sequence[str]) -> list[str]:
    """Create the cgroups of one run, one in each hierarchy; none if that fails."""
    name = f"{os.getpid()}-{time.monotonic_ns()}"
    made: list[str] = []
    try:
        for hierarchy in hierarchies:
            os.mkdir(os.path.join(hierarchy, name))
            made.append(os.path.join(hierarchy, name))
    except OSError:
        remove_groups(made)
        return []
    return made


def remove_groups(groups: Sequence[str]) -> None:
    """Remove cgroups; their last processes may be exiting at this moment."""
    for group in groups:
        for _ in range(500):
            try:
                os.rmdir(group)
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.004)
            else:
                break


def sweep_groups(hierarchies: Sequence[str]) -> None:
    """Remove cgroups of supervisors that were killed."""
    for hierarchy in hierarchies:
        for name in os.listdir(hierarchy):
            owner = name.partition("-")[0]
            if owner.isdecimal() and not os.path.exists(f"/proc/{owner}"):
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(hierarchy, name))


def wait_and_exec(
    channel: socket.socket, errno_pipe: int, config: Config, groups: Sequence[str]
) -> NoReturn:
    """In the child: prepare, wait for the order, then exec it or report the error."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for group in groups:
            write_kernel_file(os.path.join(group, "cgroup.procs"), os.getpid())
        rules = LandlockRuleset() if landlock_abi() >= MIN_LANDLOCK_ABI else None
        if rules is not None:  # paths common to all runs are granted before the order arrives
            rules.grant(config["read"], config["write"])
        system_calls = SeccompFilter(bytes.fromhex(config["filter"])) if config["filter"] else None
        prefault()
        packet, descriptors, _, _ = socket.recv_fds(channel, 16, MAX_DESCRIPTORS)
        if packet:
            set_cloexec(descriptors)
            stdin, stdout, stderr, written, *inherited = descriptors
            order = json.loads(os.pread(written, os.fstat(written).st_size, 0))
            place_descriptors((stdin, stdout, stderr), inherited)
            exec_order(order, rules, system_calls)
    except BaseException as error:  # noqa: BLE001  # any error must be reported to the parent
        code = error.errno if isinstance(error, OSError) else 0
        os.write(errno_pipe, struct.pack("=i", code or -1))
    os._exit(127)


class Supervisor:
    """Fork a child, take one order for it, reap its descendants, report the result."""

    def __init__(self, config: Config) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._groups = make_groups(config["homes"])
        # Closed by a successful exec, else it carries the errno.
        self._errno_pipe, errno_pipe = os.pipe()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._child = os.fork()
        if self._child == 0:
            self._channel.close()
            os.close(self._errno_pipe)
            wait_and_exec(theirs, errno_pipe, config, self._groups)
        theirs.close()
        os.close(errno_pipe)
        # Opened now: a command that exhausts file descriptors must not escape the kill.
        self._pidfd = os.pidfd_open(self._child)
        self._tree = ProcessTree()

    def serve(self, channel: socket.socket, taken: int) -> None:
        """Wait for an order and carry it out."""
        prefault()
        packet, descriptors, _, _ = socket.recv_fds(channel, MAX_PACKET, MAX_DESCRIPTORS)
        channel.close()
        if packet:
            os.write(taken, b"x")
            os.close(taken)
            set_cloexec(descriptors)
            control = socket.socket(fileno=descriptors.pop(3))
            memory, bounds = json.loads(packet)
            report = self._execute(memory, bounds, control, descriptors)
            with contextlib.suppress(OSError):
                control.send(json.dumps(report).encode())
            control.close()  # the client does not wait for the cleanup
        self._tree.kill(self._child)
        remove_groups(self._groups)

    def _execute(
        self,
        memory: int,
        bounds: list[tuple[int, str, int]],
        control: socket.socket,
        descriptors: Sequence[int],
    ) -> dict[str, int | None]:
        """Forward the order to the child, and watch until its exit or our own."""
        try:
            for number, name, value in bounds:
                write_kernel_file(os.path.join(self._groups[number], name), value)
        except (IndexError, OSError) as error:  # without its cgroup limits nothing runs
            return {"errno": getattr(error, "errno", None) or errno.EAGAIN}
        with contextlib.suppress(OSError):  # a child that failed to prepare has reported its errno
            socket.send_fds(self._channel, [b"order"], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        failure = os.read(self._errno_pipe, 4)
        watch = select.poll()
        for descriptor in (self._pidfd, control.fileno()):
            watch.register(descriptor, select.POLLIN)
        if self._groups:
            watch.poll()
        else:
            self._watch_memory(watch, FamilyMemory(memory))
        status = self._tree.kill(self._child)
        return {"errno": struct.unpack("=i", failure)[0]} if failure else {"status": status}

    def _watch_memory(self, watch: select.poll, memory: FamilyMemory) -> None:
        """Wait for the end of the command, or until its processes hold too much memory."""
        while not watch.poll(memory.pause * 1000):
            if memory.is_exceeded(self._tree.members()):
                return


def prefault() -> None:
    """Touch what an order needs before the fork, to save copy-on-write page faults later."""
    if os.geteuid() != 0:
        process_counter.count()
    set_cloexec([])
    ProcessTree().members()
    prctl(PR_GET_DUMPABLE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    json.loads(json.dumps({"status": 0, "words": ["a", 1, None, True]}).encode())


def set_cloexec(descriptors: Sequence[int]) -> None:
    """Set close-on-exec on received file descriptors."""
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)


class ProcessTree:
    """All descendants of this subreaper, orphans included."""

    def __init__(self) -> None:
        path = f"/proc/self/task/{os.getpid()}/children"
        self._list = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def members(self) -> list[int]:
        """Return their PIDs."""
        pieces: list[bytes] = []
        while piece := os.pread(self._list, 1 << 16, sum(map(len, pieces))):
            pieces.append(piece)
        return [int(pid) for pid in b"".join(pieces).split()]

    def kill(self, child: int) -> int | None:
        """Kill and reap until none is left; returns the first child's status."""
        status = None
        for _ in range(MAX_ORPHANS):
            for pid in self.members():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                pid, raw = os.waitpid(-1, 0)
            except ChildProcessError:
                return status
            if pid == child:
                status = os.waitstatus_to_exitcode(raw)
        return status


def serve(channel: socket.socket, config: Config) -> None:
    """Keep supervisors ready until the other side closes the socket."""
    noticed, taken = os.pipe()
    for _ in range(SPARE_SUPERVISORS):
        fork_supervisor(channel, noticed, taken, config)
    watch = select.poll()
    watch.register(channel, 0)  # POLLHUP only
    watch.register(noticed, select.POLLIN)
    ready_count = SPARE_SUPERVISORS
    while True:
        is_full, pause = ready_count >= SPARE_SUPERVISORS, REST_MILLISECONDS * (ready_count > 0)
        ready = dict(watch.poll(None if is_full else pause))
        if channel.fileno() in ready:
            return
        if noticed in ready:
            ready_count -= len(os.read(noticed, SPARE_SUPERVISORS))
        else:
            fork_supervisor(channel, noticed, taken, config)
            ready_count += 1


def fork_supervisor(channel: socket.socket, noticed: int, taken: int, config: Config) -> None:
    """Fork one more supervisor."""
    if os.fork() == 0:
        code = 1
        try:
            os.close(noticed)
            Supervisor(config).serve(channel, taken)
            code = 0
        finally:
            os._exit(code)


def main() -> None:
    """Prepare once, so that each fork is cheap."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prctl(PR_SET_DUMPABLE, 0)
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    config = json.loads(sys.argv[2])
    sweep_groups(config["homes"])
    gc.disable()
    gc.freeze()  # reference counts of frozen objects cause no copy-on-write in children
    serve(channel, config)


if __name__ == "__main__":
    main()
