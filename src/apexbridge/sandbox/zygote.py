"""The zygote: a small Python that keeps children ready, one for each order it gets.

It is run as a program of its own, so it imports nothing but the standard library and what does the
same. A few supervisors wait, each with a child ready; an order goes to one of them, as a packet
(the bounds of its control groups) with descriptors: stdin, stdout, stderr, a control socket, a file
that holds the order itself, and whatever else the command is to inherit. The supervisor is the heir
of everything its child leaves behind: it kills all of it when the child ends, when the control
socket says so or is closed, and tells the outcome on that socket.
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

from apexbridge.sandbox.kernel_limits import (
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
FIRST_INHERITED_FD = 40  # further descriptors of an order are inherited under these numbers
REST_MILLISECONDS = 30  # a run that has just begun need not share the processor with its successor
SPARE_SUPERVISORS = 2  # how many wait, each with its child ready: a fork is what costs most

LaunchOrder = dict[str, Any]
Config = dict[str, Any]

process_counter = ProcessCounter()


def place_descriptors(streams: Sequence[int], kept: Sequence[int]) -> None:
    """Give every descriptor the number under which the command finds it."""
    for number, stream in (*enumerate(streams), *enumerate(kept, FIRST_INHERITED_FD)):
        os.dup2(stream, number)


def exec_order(
    order: LaunchOrder, rules: LandlockRuleset | None, calls: SeccompFilter | None
) -> NoReturn:
    """In the child: give everything up, then turn into the command. Does not return."""
    os.setsid()
    os.chdir(order["cwd"])
    if order["user"] is not None:
        switch_user(order["user"])
    elif os.geteuid() != 0:  # who is nobody else's user shares the kernel's count with others
        order["limits"]["RLIMIT_NPROC"] += process_counter.take()
    set_rlimits(order["limits"])
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if order["confined"]:
        if rules is None:
            raise OSError(95, "this kernel has no Landlock")
        if os.geteuid() == 0:
            drop_capabilities()
        rules.grant(order["read"], order["write"])
        rules.turn_on()
        if calls is not None:
            calls.install()
    name = str(order["argv"][0])
    search = str(order["env"].get("PATH", "/usr/bin:/bin")).split(":")
    failure = FileNotFoundError(2, name)
    for path in [name] if "/" in name else [os.path.join(place, name) for place in search]:
        try:
            os.execve(path, order["argv"], order["env"])
        except OSError as error:
            failure = error if not isinstance(error, FileNotFoundError) else failure
    raise failure


def write_kernel_file(path: str, value: int) -> None:
    """Write to a file of the kernel's; where there is none, none is made."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def make_groups(homes: Sequence[str]) -> list[str]:
    """Control groups for one run, one in each home; none if they cannot be made."""
    name = f"{os.getpid()}-{time.monotonic_ns()}"
    made: list[str] = []
    try:
        for home in homes:
            os.mkdir(os.path.join(home, name))
            made.append(os.path.join(home, name))
    except OSError:
        remove_groups(made)
        return []
    return made


def remove_groups(groups: Sequence[str]) -> None:
    """Remove groups; their last processes may be on their way out at this moment."""
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


def sweep_groups(homes: Sequence[str]) -> None:
    """Remove the groups of supervisors that were killed."""
    for home in homes:
        for name in os.listdir(home):
            owner = name.partition("-")[0]
            if owner.isdecimal() and not os.path.exists(f"/proc/{owner}"):
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(home, name))


def wait_and_exec(
    line: socket.socket, tell: int, config: Config, groups: Sequence[str]
) -> NoReturn:
    """In the child: get ready, wait for the order, then turn into it, or say why not."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for group in groups:
            write_kernel_file(os.path.join(group, "cgroup.procs"), os.getpid())
        rules = LandlockRuleset() if landlock_abi() >= MIN_LANDLOCK_ABI else None
        if rules is not None:  # what every run may reach is granted before there is a hurry
            rules.grant(config["read"], config["write"])
        calls = SeccompFilter(bytes.fromhex(config["filter"])) if config["filter"] else None
        prefault()
        packet, descriptors, _, _ = socket.recv_fds(line, 16, MAX_DESCRIPTORS)
        if packet:
            set_cloexec(descriptors)
            stdin, stdout, stderr, written, *kept = descriptors
            order = json.loads(os.pread(written, os.fstat(written).st_size, 0))
            place_descriptors((stdin, stdout, stderr), kept)
            exec_order(order, rules, calls)
    except BaseException as error:  # noqa: BLE001  # whatever it was, the parent must hear
        code = error.errno if isinstance(error, OSError) else 0
        os.write(tell, struct.pack("=i", code or -1))
    os._exit(127)


class Supervisor:
    """Has a child ready, takes one order for it, inherits what it leaves, tells how it ended."""

    def __init__(self, config: Config) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._groups = make_groups(config["homes"])
        self._told, tell = os.pipe()  # closed by a successful exec, else it carries the errno
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._child = os.fork()
        if self._child == 0:
            self._line.close()
            os.close(self._told)
            wait_and_exec(theirs, tell, config, self._groups)
        theirs.close()
        os.close(tell)
        # Opened now: a command that could take our descriptors away must not save itself so.
        self._watched = os.pidfd_open(self._child)
        self._family = ProcessTree()

    def serve(self, line: socket.socket, taken: int) -> None:
        """Wait for an order, and see it through."""
        prefault()
        packet, descriptors, _, _ = socket.recv_fds(line, MAX_PACKET, MAX_DESCRIPTORS)
        line.close()
        if packet:
            os.write(taken, b"x")
            os.close(taken)
            set_cloexec(descriptors)
            control = socket.socket(fileno=descriptors.pop(3))
            report = self._fulfil(json.loads(packet), control, descriptors)
            with contextlib.suppress(OSError):
                control.send(json.dumps(report).encode())
            control.close()  # whoever waits need not wait for what follows
        self._family.end(self._child)
        remove_groups(self._groups)

    def _fulfil(
        self, bounds: list[tuple[int, str, int]], control: socket.socket, descriptors: Sequence[int]
    ) -> dict[str, int | None]:
        """Pass the order on, and watch until its end or ours."""
        try:
            for number, name, value in bounds:
                write_kernel_file(os.path.join(self._groups[number], name), value)
        except (IndexError, OSError) as error:  # without its bounds nothing is run
            return {"errno": getattr(error, "errno", None) or errno.EAGAIN}
        with contextlib.suppress(OSError):  # one that failed to get ready has said why
            socket.send_fds(self._line, [b"order"], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        failure = os.read(self._told, 4)
        watch = select.poll()
        for descriptor in (self._watched, control.fileno()):
            watch.register(descriptor, select.POLLIN)
        watch.poll()
        status = self._family.end(self._child)
        return {"errno": struct.unpack("=i", failure)[0]} if failure else {"status": status}


def prefault() -> None:
    """Touch what an order will need: the pages of a fork are copied when they are first used."""
    if os.geteuid() != 0:
        process_counter.take()
    set_cloexec([])
    ProcessTree().members()
    prctl(PR_GET_DUMPABLE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    json.loads(json.dumps({"status": 0, "words": ["a", 1, None, True]}).encode())


def set_cloexec(descriptors: Sequence[int]) -> None:
    """Received descriptors would survive an exec."""
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)


class ProcessTree:
    """All processes that are ours now, our child's orphans too."""

    def __init__(self) -> None:
        path = f"/proc/self/task/{os.getpid()}/children"
        self._list = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def members(self) -> list[int]:
        """Their numbers."""
        pieces: list[bytes] = []
        while piece := os.pread(self._list, 1 << 16, sum(map(len, pieces))):
            pieces.append(piece)
        return [int(pid) for pid in b"".join(pieces).split()]

    def end(self, child: int) -> int | None:
        """Kill and reap until nobody is left; the first child's status."""
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


def serve(line: socket.socket, config: Config) -> None:
    """Keep supervisors waiting for orders until the other side is gone."""
    noticed, taken = os.pipe()
    for _ in range(SPARE_SUPERVISORS):
        fork_supervisor(line, noticed, taken, config)
    watch = select.poll()
    watch.register(line, 0)  # only its end is of interest here
    watch.register(noticed, select.POLLIN)
    waiting = SPARE_SUPERVISORS
    while True:
        pause = None if waiting >= SPARE_SUPERVISORS else REST_MILLISECONDS if waiting > 0 else 0
        ready = dict(watch.poll(pause))
        if line.fileno() in ready:
            return
        if noticed in ready:
            waiting -= len(os.read(noticed, SPARE_SUPERVISORS))
        else:
            fork_supervisor(line, noticed, taken, config)
            waiting += 1


def fork_supervisor(line: socket.socket, noticed: int, taken: int, config: Config) -> None:
    """One more that waits."""
    if os.fork() == 0:
        code = 1
        try:
            os.close(noticed)
            Supervisor(config).serve(line, taken)
            code = 0
        finally:
            os._exit(code)


def main() -> None:
    """Get ready once, so that each fork is cheap."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prctl(PR_SET_DUMPABLE, 0)
    line = socket.socket(fileno=int(sys.argv[1]))
    line.set_inheritable(False)
    config = json.loads(sys.argv[2])
    sweep_groups(config["homes"])
    gc.disable()
    gc.freeze()  # what is here already is not copied when a child only counts references
    serve(line, config)


if __name__ == "__main__":
    main()
