"""The zygote: a small Python that keeps children ready, one for each order it gets.

It is run as a program of its own (`python -I -S zygote.py SOCKET CONFIG`), so it imports nothing
but the standard library. A few supervisors wait, each with a child ready; an order goes to one of
them, as a packet with descriptors: stdin, stdout, stderr, a control socket, a file that holds the
order itself, and whatever else the command is to inherit. The supervisor is the heir of everything
its child leaves behind: it kills all of it when the child ends, when the control socket says so or
is closed, and tells the outcome on that socket.
"""

import contextlib
import ctypes
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_SECUREBITS = 1, 4, 22, 28
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT, CAPSET = 444, 445, 446, {"x86_64": 126}
NO_POWERS_FOR_ROOT = 0xEF  # no exec gives them back, and that is locked
READ = 0b1101  # execute, read files, list folders
FILE_ONLY = 0b0111 | 1 << 14 | 1 << 15  # what can be granted on a single file
FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
MAX_LEFT = 10_000
MAX_DESCRIPTORS = 8
FIRST_KEPT = 40  # further descriptors of an order are inherited under these numbers
SPARE = 2  # how many wait, each with its child ready: a fork is what costs most

Order = dict[str, Any]
Config = dict[str, Any]

libc: Any = ctypes.CDLL(None, use_errno=True)


def check(result: int) -> int:
    """Raise what a C call left in errno."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def prctl(option: int, *arguments: int) -> int:
    """Call prctl with its arguments as the kernel wants them."""
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    return check(libc.prctl(ctypes.c_int(option), *words))


def landlock_abi() -> int:
    """The newest Landlock rules this kernel knows; 0 for none."""
    return max(libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1)), 0)


class Rules:
    """What a process may reach from the moment it turns these on: paths, and nothing outside."""

    def __init__(self, abi: int) -> None:
        """Begin with nothing: no path, no TCP port, no abstract socket, no outside process."""
        self._rights = (1 << FS_RIGHTS.get(abi, 16)) - 1
        fields = [self._rights, 0b11, 0b11][: 1 if abi < 4 else 2 if abi < 6 else 3]
        attributes = struct.pack(f"={len(fields)}Q", *fields)
        size = ctypes.c_size_t(len(attributes))
        self._number = check(libc.syscall(LANDLOCK_CREATE, attributes, size, ctypes.c_uint(0)))

    def grant(self, read: Iterable[str], write: Iterable[str]) -> None:
        """Allow these; one that is not there grants nothing."""
        for paths, rights in ((read, READ), (write, self._rights)):
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    self._add(path, rights & self._rights)

    def _add(self, path: str, rights: int) -> None:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not os.path.isdir(path):
            rights &= FILE_ONLY
        rule = struct.pack("=Qi", rights, place)
        number, kind = ctypes.c_int(self._number), ctypes.c_int(1)
        check(libc.syscall(LANDLOCK_ADD, number, kind, rule, ctypes.c_uint(0)))
        os.close(place)

    def turn_on(self) -> None:
        """There is no way back."""
        check(libc.syscall(LANDLOCK_RESTRICT, ctypes.c_int(self._number), ctypes.c_uint(0)))
        os.close(self._number)


def drop_capabilities() -> None:
    """Give up every power of root, for good."""
    prctl(PR_SET_SECUREBITS, NO_POWERS_FOR_ROOT)
    header = struct.pack("=Ii", 0x20080522, 0)
    number = CAPSET.get(os.uname().machine, 91)
    check(libc.syscall(number, header, bytes(24)))


def install_filter(program: bytes) -> None:
    """Hand the kernel the call filter."""
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    check(libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(2), head, 0, 0))


def limit(limits: Mapping[str, int]) -> None:
    """Set what `resource` can bound."""
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))


def arrange(streams: Sequence[int], kept: Sequence[int]) -> None:
    """Give every descriptor the number under which the command finds it."""
    for number, stream in (*enumerate(streams), *enumerate(kept, FIRST_KEPT)):
        os.dup2(stream, number)


def turn_into_user(number: int) -> None:
    """Become a user that owns nothing here, with a group of its own and no other."""
    os.setgroups([])
    os.setresgid(number, number, number)
    os.setresuid(number, number, number)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user has cleared it


def become(order: Order, rules: Rules | None, program: bytes) -> NoReturn:
    """In the child: give everything up, then turn into the command. Does not return."""
    os.setsid()
    for path in order["groups"]:
        with open(path, "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    os.chdir(order["cwd"])
    if order["user"] is not None:
        turn_into_user(order["user"])
    limit(order["limits"])
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if order["confined"]:
        if rules is None:
            raise OSError(95, "this kernel has no Landlock")
        if os.geteuid() == 0:
            drop_capabilities()
        rules.grant(order["read"], order["write"])
        rules.turn_on()
        if program:
            install_filter(program)
    name = str(order["argv"][0])
    search = str(order["env"].get("PATH", "/usr/bin:/bin")).split(":")
    failure = FileNotFoundError(2, name)
    for path in [name] if "/" in name else [os.path.join(place, name) for place in search]:
        try:
            os.execve(path, order["argv"], order["env"])
        except OSError as error:
            failure = error if not isinstance(error, FileNotFoundError) else failure
    raise failure


def wait_and_become(line: socket.socket, tell: int, config: Config) -> NoReturn:
    """In the child: get ready, wait for the order, then turn into it, or say why not."""
    try:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        abi = landlock_abi()
        rules = Rules(abi) if abi else None
        if rules is not None:  # what every run may reach is granted before there is a hurry
            rules.grant(config["read"], config["write"])
        program = bytes.fromhex(config["filter"])
        packet, descriptors, _, _ = socket.recv_fds(line, 16, MAX_DESCRIPTORS)
        if packet:
            seal(descriptors)
            stdin, stdout, stderr, written, *kept = descriptors
            with os.fdopen(written, "rb") as file:
                file.seek(0)
                order = json.load(file)
            arrange((stdin, stdout, stderr), kept)
            become(order, rules, program)
    except BaseException as error:  # noqa: BLE001  # whatever it was, the parent must hear
        code = error.errno if isinstance(error, OSError) else 0
        os.write(tell, struct.pack("=i", code or -1))
    os._exit(127)


def supervise(line: socket.socket, taken: int, config: Config) -> None:
    """Have a child ready, take one order for it, inherit what it leaves, tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    told, tell = os.pipe()  # closed by a successful exec, else it carries the errno
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        for held in (line, ours):
            held.close()
        os.close(told)
        wait_and_become(theirs, tell, config)
    theirs.close()
    os.close(tell)
    packet, descriptors, _, _ = socket.recv_fds(line, 16, MAX_DESCRIPTORS)
    line.close()
    if not packet:
        return
    os.write(taken, b"x")
    os.close(taken)
    seal(descriptors)
    control = socket.socket(fileno=descriptors.pop(3))
    socket.send_fds(ours, [packet], descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    failure = os.read(told, 4)
    watched = os.pidfd_open(child)
    select.select([watched, control], [], [])
    status = end_everyone(child)
    report = {"errno": struct.unpack("=i", failure)[0]} if failure else {"status": status}
    with contextlib.suppress(OSError):
        control.send(json.dumps(report).encode())


def seal(descriptors: Sequence[int]) -> None:
    """Received descriptors would survive an exec."""
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)


def end_everyone(child: int) -> int | None:
    """Kill and reap until nobody is left; the first child's status."""
    status = None
    for _ in range(MAX_LEFT):
        for pid in children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, raw = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        if pid == child:
            status = os.waitstatus_to_exitcode(raw)
    return status


def children() -> list[int]:
    """The processes that are ours now."""
    with (
        contextlib.suppress(OSError),
        open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file,
    ):
        return [int(pid) for pid in file.read().split()]
    return []


def serve(line: socket.socket, config: Config) -> None:
    """Keep supervisors waiting for orders until the other side is gone."""
    noticed, taken = os.pipe()
    for _ in range(SPARE):
        fork_supervisor(line, noticed, taken, config)
    watch = select.poll()
    watch.register(line, 0)  # only its end is of interest here
    watch.register(noticed, select.POLLIN)
    while True:
        ready = dict(watch.poll())
        if line.fileno() in ready:
            return
        os.read(noticed, 1)
        fork_supervisor(line, noticed, taken, config)


def fork_supervisor(line: socket.socket, noticed: int, taken: int, config: Config) -> None:
    """One more that waits."""
    if os.fork() == 0:
        code = 1
        try:
            os.close(noticed)
            supervise(line, taken, config)
            code = 0
        finally:
            os._exit(code)


def main() -> None:
    """Get ready once, so that each fork is cheap."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prctl(PR_SET_DUMPABLE, 0)
    line = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    gc.freeze()  # what is here already is not copied when a child only counts references
    serve(line, json.loads(sys.argv[2]))


if __name__ == "__main__":
    main()
