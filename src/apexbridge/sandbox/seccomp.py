"""seccomp filter: a BPF program that denies system calls which scripts do not need.

Defence in depth behind namespaces or Landlock: a deny-list of foreign socket families, new
namespaces and kernel interfaces with a history of exploits. The numbers are in syscalls.toml.
"""

import errno
import struct
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass

from apexbridge.sandbox.base import read_data

_AND = 0x54
_TYPE_BITS = 0xF
_STREAM_TYPES = (1, 5)
"""SOCK_STREAM, SOCK_SEQPACKET: their partner is the only one they can talk to."""
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _ARGUMENT = 0, 4, 16
_X32_BIT = 0x40000000
_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag
_TERMINAL_INJECTIONS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
LOCAL_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: harmless in a network of one's own
NO_SOCKETS = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyscallTable:
    """System call numbers of one architecture."""

    audit: int
    denied: Mapping[str, int]
    clone: int
    clone3: int
    socket: int
    ioctl: int
    shared_memory: tuple[int, ...]
    fallocate: int
    inotify: tuple[int, ...]
    socketpair: int
    on_others: Mapping[int, int]
    """Calls that change another process, and the index of the PID argument; zero is the caller."""
    has_x32: bool = False


_TABLES = tomllib.loads(read_data("syscalls.toml"))


def _table(machine: str) -> SyscallTable:
    numbers = dict(_TABLES[machine])
    denied = numbers.pop("denied") | _TABLES["since_5"]
    others = {int(call): argument for call, argument in numbers.pop("on_others").items()}
    lists = {key: tuple(numbers.pop(key)) for key in ("shared_memory", "inotify")}
    return SyscallTable(denied=denied, on_others=others, **lists, **numbers)


X86_64, ARM64 = _table("x86_64"), _table("arm64")
SYSCALL_TABLES: Mapping[str, SyscallTable] = {"x86_64": X86_64, "aarch64": ARM64, "arm64": ARM64}


def build_filter(
    machine: SyscallTable, families: tuple[int, ...] = LOCAL_FAMILIES, *, strict: bool = False
) -> bytes:
    """Assemble the filter; `families` are the permitted socket families.

    `strict` is for backends without namespaces: it also denies System V shared memory, inotify on
    foreign directories, datagram sockets, and changing another process's limits or priority.
    """
    program = [
        _load(_ARCH),
        _jump(_JUMP_EQUAL, machine.audit, yes=1, no=0),
        _return(_KILL),
        _load(_NUMBER),
    ]
    if machine.has_x32:
        program += [_jump(_JUMP_AT_LEAST, _X32_BIT, yes=0, no=1), _deny(errno.ENOSYS)]
    shared = (*machine.shared_memory, *machine.inotify) if strict else ()
    for number in (*machine.denied.values(), *shared):
        program += [_jump(_JUMP_EQUAL, number, yes=0, no=1), _deny(errno.EPERM)]
    # fallocate takes space faster than the quota can be counted.
    program += [_jump(_JUMP_EQUAL, machine.fallocate, yes=0, no=1), _deny(errno.EOPNOTSUPP)]
    if strict:
        for number, argument in machine.on_others.items():
            program += _for_syscall(number, _allow_only((0,), argument, errno.EPERM))
        program += _for_syscall(machine.socketpair, _allow_socket_types(_STREAM_TYPES))
    program += [_jump(_JUMP_EQUAL, machine.clone3, yes=0, no=1), _deny(errno.ENOSYS)]
    program += _for_syscall(
        machine.clone,
        [_load(_ARGUMENT), _jump(_JUMP_SET, _NEW_NAMESPACES, yes=0, no=1), _deny(errno.EPERM)],
    )
    program += _for_syscall(machine.socket, _allow_only(families))
    program += _for_syscall(machine.ioctl, _deny_values(_TERMINAL_INJECTIONS))
    return b"".join((*program, _return(_ALLOW)))


def _for_syscall(number: int, body: list[bytes]) -> list[bytes]:
    """Emit instructions for one system call; what they let pass is allowed."""
    body = [*body, _return(_ALLOW)]
    return [_jump(_JUMP_EQUAL, number, yes=0, no=len(body)), *body]


def _allow_only(
    values: tuple[int, ...], argument: int = 0, code: int = errno.EAFNOSUPPORT
) -> list[bytes]:
    """Deny a call unless the argument is one of these."""
    checks = [_load(_ARGUMENT + 8 * argument)]
    for position, value in enumerate(values):
        checks.append(_jump(_JUMP_EQUAL, value, yes=len(values) - position, no=0))
    return [*checks, _deny(code)]


def _allow_socket_types(values: tuple[int, ...]) -> list[bytes]:
    """Deny socketpair unless the type is one of these, whatever its flags."""
    load, *checks = _allow_only(values, argument=1, code=errno.EPERM)
    return [load, struct.pack("=HBBI", _AND, 0, 0, _TYPE_BITS), *checks]


def _deny_values(values: tuple[int, ...]) -> list[bytes]:
    """Deny a call whose second argument is one of these."""
    checks = [_load(_ARGUMENT + 8)]
    for value in values:
        checks += [_jump(_JUMP_EQUAL, value, yes=0, no=1), _deny(errno.EPERM)]
    return checks


def _load(offset: int) -> bytes:
    return struct.pack("=HBBI", _LOAD, 0, 0, offset)


def _jump(kind: int, value: int, *, yes: int, no: int) -> bytes:
    return struct.pack("=HBBI", kind, yes, no, value)


def _return(value: int) -> bytes:
    return struct.pack("=HBBI", _RETURN, 0, 0, value)


def _deny(code: int) -> bytes:
    return _return(_ERRNO | code)
