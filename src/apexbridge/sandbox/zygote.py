"""The zygote: a small Python that waits, and forks a confined child for each order it gets.

It is run as a program of its own (`python -I -S zygote.py`), so it imports nothing but the standard
library. An order comes as a packet with four descriptors: stdin, stdout, stderr and a control
socket, and a fifth that holds the order itself. For each order a supervisor is forked; it becomes
the reaper of everything its child leaves behind, kills all of it when the child ends, when the
control socket says so or is closed, and tells the outcome on that socket.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT, CAPSET = 444, 445, 446, {"x86_64": 126}
LAST_CAPABILITY = 40
READ = 0b1101  # execute, read files, list folders
FILE_ONLY = 0b0111 | 1 << 14 | 1 << 15  # what can be granted on a single file
FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
MAX_LEFT = 10_000

Order = dict[str, Any]

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


def confine_files(read: Sequence[str], write: Sequence[str], abi: int) -> None:
    """From now on only these paths can be reached, and no TCP port, socket or outside process."""
    rights = (1 << FS_RIGHTS.get(abi, 16)) - 1
    fields = [rights, 0b11, 0b11][: 1 if abi < 4 else 2 if abi < 6 else 3]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    size = ctypes.c_size_t(len(attributes))
    rules = check(libc.syscall(LANDLOCK_CREATE, attributes, size, ctypes.c_uint(0)))
    for paths, granted in ((read, READ), (write, rights)):
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                grant(rules, path, granted & rights)
    check(libc.syscall(LANDLOCK_RESTRICT, ctypes.c_int(rules), ctypes.c_uint(0)))
    os.close(rules)


def grant(rules: int, path: str, rights: int) -> None:
    """Allow these rights below a path."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not os.path.isdir(path):
        rights &= FILE_ONLY
    rule = struct.pack("=Qi", rights, place)
    check(libc.syscall(LANDLOCK_ADD, ctypes.c_int(rules), ctypes.c_int(1), rule, ctypes.c_uint(0)))
    os.close(place)


def drop_capabilities() -> None:
    """Give up every power of root, for good."""
    for capability in range(LAST_CAPABILITY + 1):
        with contextlib.suppress(OSError):
            prctl(PR_CAPBSET_DROP, capability)
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


def become(order: Order, streams: Sequence[int]) -> NoReturn:
    """In the child: give everything up, then turn into the command. Does not return."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for path in order["groups"]:
        with open(path, "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    os.chdir(order["cwd"])
    limit(order["limits"])
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if os.geteuid() == 0:
        drop_capabilities()
    confine_files(order["read"], order["write"], landlock_abi())
    if order["filter"]:
        install_filter(bytes.fromhex(order["filter"]))
    name = str(order["argv"][0])
    search = str(order["env"].get("PATH", "/usr/bin:/bin")).split(":")
    failure = FileNotFoundError(2, name)
    for path in [name] if "/" in name else [os.path.join(place, name) for place in search]:
        try:
            os.execve(path, order["argv"], order["env"])
        except OSError as error:
            failure = error if not isinstance(error, FileNotFoundError) else failure
    raise failure


def supervise(order: Order, streams: Sequence[int], control: socket.socket) -> None:
    """Be the parent and the heir of one command; tell how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    told, tell = os.pipe()  # closed by a successful exec, else it carries the errno
    child = os.fork()
    if child == 0:
        try:
            control.close()
            os.close(told)
            become(order, streams)
        except BaseException as error:  # noqa: BLE001  # whatever it was, the parent must hear
            code = error.errno if isinstance(error, OSError) else 0
            os.write(tell, struct.pack("=i", code or -1))
        finally:
            os._exit(127)
    for descriptor in (tell, *streams):
        os.close(descriptor)
    failure = os.read(told, 4)
    watched = os.pidfd_open(child)
    select.select([watched, control], [], [])
    status = end_everyone(child)
    report = {"errno": struct.unpack("=i", failure)[0]} if failure else {"status": status}
    with contextlib.suppress(OSError):
        control.send(json.dumps(report).encode())


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


def serve(line: socket.socket) -> None:
    """Take orders until the other side is gone."""
    while True:
        packet, descriptors, _, _ = socket.recv_fds(line, 16, 5)
        if not packet:
            return
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        if os.fork() == 0:
            line.close()
            code = 1
            try:
                *streams, control, written = descriptors
                with os.fdopen(written, "rb") as file:
                    file.seek(0)
                    order = json.load(file)
                supervise(order, streams, socket.socket(fileno=control))
                code = 0
            finally:
                os._exit(code)
        for descriptor in descriptors:
            os.close(descriptor)


def main() -> None:
    """Get ready once, so that each fork is cheap."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prctl(PR_SET_DUMPABLE, 0)
    line = socket.socket(fileno=int(sys.argv[1]))
    line.send(str(landlock_abi()).encode())
    serve(line)


if __name__ == "__main__":
    main()
