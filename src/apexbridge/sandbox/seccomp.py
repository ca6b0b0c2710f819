"""seccomp filter: a BPF program that allows the system calls which scripts need.

Defence in depth behind namespaces or Landlock: an allow list, in syscalls.toml, so that a call of
a newer kernel is denied until somebody has looked at it. What is allowed has its arguments checked
here, where they decide: modes, socket families, namespaces, ioctl requests, other processes.
"""

import errno
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from apexbridge.sandbox import syscall_policy

_AND = 0x54
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _ARGUMENT = 0, 4, 16

_TYPE_BITS = 0xF
_STREAM_TYPES = (1, 5)
"""SOCK_STREAM, SOCK_SEQPACKET: their partner is the only one they can talk to."""
_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag
_SET_ID_MODES = 0o6000
_CREATES = 0x40 | 0x400000  # O_CREAT, __O_TMPFILE: without them the kernel does not read the mode
_LEASE_COMMANDS = (1024, 1026)  # F_SETLEASE, F_NOTIFY: others wait for the holder, or are watched
_UNIX = 1
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1

LOCAL_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: harmless in a network of one's own
NO_SOCKETS = ()

_MODE_ARGUMENTS = {
    "chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2,
}  # fmt: skip
"""Calls that give a file a mode, and the index of that argument. mkdir ignores set-id modes."""
_PID_ARGUMENTS = {
    "prlimit64": 0, "sched_setparam": 0, "sched_setscheduler": 0, "sched_setaffinity": 0,
    "sched_setattr": 0,
}  # fmt: skip
"""Calls that change another process, and the index of the PID argument; zero is the caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyscallTable:
    """The system calls of one architecture."""

    machine: str

    @property
    def audit(self) -> int:
        """The kernel's AUDIT_ARCH number."""
        return syscall_policy.audit_number(self.machine)

    @property
    def numbers(self) -> Mapping[str, int]:
        """Number of each call, by name."""
        return syscall_policy.call_numbers(self.machine)


X86_64, ARM64 = SyscallTable(machine="x86_64"), SyscallTable(machine="arm64")
SYSCALL_TABLES: Mapping[str, SyscallTable] = {"x86_64": X86_64, "aarch64": ARM64, "arm64": ARM64}


def build_filter(
    machine: SyscallTable, families: tuple[int, ...] = LOCAL_FAMILIES, *, strict: bool = False
) -> bytes:
    """Assemble the filter; `families` are the permitted socket families.

    `strict` is for backends without namespaces: it also denies System V objects, message queues,
    inotify and changes of extended attributes, datagram sockets, and changing another process's
    limits or priority.
    """
    numbers = machine.numbers
    program = [
        _load(_ARCH),
        _jump(_JUMP_EQUAL, machine.audit, yes=1, no=0),
        _return(_KILL),
        _load(_NUMBER),
    ]
    for name, checks in _argument_checks(families, strict=strict):
        if name in numbers:
            program += [_jump(_JUMP_EQUAL, numbers[name], yes=0, no=len(checks)), *checks]
    answers = {
        numbers[name]: _answer(group.shared if strict else group.answer)
        for group in syscall_policy.call_groups()
        for name in group.calls
        if name in numbers
    }
    # Libraries take ENOSYS for an older kernel, and use what that had.
    return b"".join((*program, *_switch(answers, _deny(errno.ENOSYS))))


def _argument_checks(
    families: tuple[int, ...], *, strict: bool
) -> Iterator[tuple[str, list[bytes]]]:
    """Yield calls whose answer depends on their arguments, and instructions that end in it."""
    allow = _return(_ALLOW)
    # The most frequent first: the kernel remembers no answer that depends on arguments.
    for name, flags in (("openat", 2), ("open", 1)):
        mode = _must_lack(flags + 1, _SET_ID_MODES)
        creates = _jump(_JUMP_SET, _CREATES, yes=0, no=len(mode))
        yield name, [_load_argument(flags), creates, *mode, allow]
    yield "clone", [*_must_lack(0, _NEW_NAMESPACES), allow]
    yield "socket", _one_of(0, families, errno.EAFNOSUPPORT)
    yield "ioctl", _ioctl_checks()
    leases: dict[int, bytes] = dict.fromkeys(_LEASE_COMMANDS, _deny(errno.EPERM))
    yield "fcntl", [_load_argument(1), *_switch(leases, allow)]
    for name, index in _MODE_ARGUMENTS.items():
        yield name, [*_must_lack(index, _SET_ID_MODES), allow]
    pair = _must_be(0, _UNIX, errno.EAFNOSUPPORT)
    if not strict:
        yield "socketpair", [*pair, allow]
        return
    kind, *types = _one_of(1, _STREAM_TYPES, errno.EPERM)
    yield "socketpair", [*pair, kind, struct.pack("=HBBI", _AND, 0, 0, _TYPE_BITS), *types]
    for name, index in _PID_ARGUMENTS.items():
        yield name, _one_of(index, (0,), errno.EPERM)
    for name, kind_of_who in (("setpriority", _PRIO_PROCESS), ("ioprio_set", _IOPRIO_WHO_PROCESS)):
        yield name, [*_must_be(0, kind_of_who, errno.EPERM), *_one_of(1, (0,), errno.EPERM)]


def _ioctl_checks() -> list[bytes]:
    """Allow the requests of the list; a file system's own can take space or make files stay."""
    answers = {
        value: _answer(group.answer)
        for group in syscall_policy.request_groups()
        for value in group.values
    }
    return [_load_argument(1), *_switch(answers, _deny(errno.ENOTTY))]


def _one_of(index: int, values: tuple[int, ...], code: int) -> list[bytes]:
    """Allow a call if the argument is one of these, else deny it."""
    answers = dict.fromkeys(values, _return(_ALLOW))
    return [_load_argument(index), *_switch(answers, _deny(code))]


def _must_be(index: int, value: int, code: int) -> list[bytes]:
    """Deny a call unless the argument has this value; go on if it has."""
    return [_load_argument(index), _jump(_JUMP_EQUAL, value, yes=1, no=0), _deny(code)]


def _must_lack(index: int, bits: int) -> list[bytes]:
    """Deny a call if the argument has one of these bits; go on if it has none."""
    return [_load_argument(index), _jump(_JUMP_SET, bits, yes=0, no=1), _deny(errno.EPERM)]


def _switch(answers: Mapping[int, bytes], otherwise: bytes) -> list[bytes]:
    """Return the answer to the loaded value, found by binary search over ranges of values.

    The kernel walks the filter once for each call when it is installed: a list would be slower.
    """
    starts = {0: otherwise}
    for value in sorted(answers):
        starts |= {value: answers[value], value + 1: otherwise}
    ranges = [next(same) for _, same in groupby(starts.items(), key=itemgetter(1))]
    return _search(ranges)


def _search(ranges: list[tuple[int, bytes]]) -> list[bytes]:
    if len(ranges) == 1:
        return [ranges[0][1]]
    half = len(ranges) // 2
    low, high = _search(ranges[:half]), _search(ranges[half:])
    return [_jump(_JUMP_AT_LEAST, ranges[half][0], yes=len(low), no=0), *low, *high]


def _load_argument(index: int) -> bytes:
    """Load the lower half: the kernel reads no more of an int, of a mode and of these flags."""
    return _load(_ARGUMENT + 8 * index)


def _answer(name: str) -> bytes:
    return _return(_ALLOW) if name == syscall_policy.ALLOW else _deny(getattr(errno, name))


def _load(offset: int) -> bytes:
    return struct.pack("=HBBI", _LOAD, 0, 0, offset)


def _jump(kind: int, value: int, *, yes: int, no: int) -> bytes:
    return struct.pack("=HBBI", kind, yes, no, value)


def _return(value: int) -> bytes:
    return struct.pack("=HBBI", _RETURN, 0, 0, value)


def _deny(code: int) -> bytes:
    return _return(_ERRNO | code)
