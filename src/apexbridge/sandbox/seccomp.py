"""seccomp filter: a BPF program that denies system calls which scripts do not need.

Defence in depth behind namespaces or Landlock: a deny-list of foreign socket families, new
namespaces and kernel interfaces with a history of exploits. Pure: it only assembles bytes.
"""

import errno
import struct
from collections.abc import Mapping
from dataclasses import dataclass

_AND = 0x54
_TYPE_BITS = 0xF
_STREAM_TYPES = (
    1,
    5,
)  # SOCK_STREAM, SOCK_SEQPACKET: their partner is the only one they can talk to
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


_SINCE_5 = {
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443,
    "memfd_secret": 447,
}  # fmt: skip

X86_64 = SyscallTable(
    audit=0xC000003E,
    denied={
        "ptrace": 101, "syslog": 103, "uselib": 134, "ustat": 136, "sysfs": 139, "vhangup": 153,
        "modify_ldt": 154, "pivot_root": 155, "adjtimex": 159, "chroot": 161, "acct": 163,
        "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168,
        "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
        "init_module": 175, "delete_module": 176, "quotactl": 179, "nfsservctl": 180,
        "lookup_dcookie": 212, "clock_settime": 227, "mbind": 237, "set_mempolicy": 238,
        "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250,
        "migrate_pages": 256, "unshare": 272, "move_pages": 279, "perf_event_open": 298,
        "fanotify_init": 300, "name_to_handle_at": 303, "open_by_handle_at": 304,
        "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311,
        "kcmp": 312, "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
        **_SINCE_5,
    },
    clone=56, clone3=435, socket=41, ioctl=16, has_x32=True,
    shared_memory=(29, 30, 31, 64, 65, 66, 67, 68, 69, 70, 71, 220),
    fallocate=285, inotify=(253, 254, 294), socketpair=53,
    on_others={302: 0, 141: 1, 251: 1, 142: 0, 144: 0, 203: 0, 314: 0},
)  # fmt: skip

ARM64 = SyscallTable(
    audit=0xC00000B7,
    denied={
        "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "nfsservctl": 42,
        "chroot": 51, "vhangup": 58, "quotactl": 60, "acct": 89, "unshare": 97, "kexec_load": 104,
        "init_module": 105, "delete_module": 106, "clock_settime": 112, "syslog": 116,
        "ptrace": 117, "reboot": 142, "sethostname": 161, "setdomainname": 162,
        "settimeofday": 170, "adjtimex": 171, "add_key": 217, "request_key": 218, "keyctl": 219,
        "swapon": 224, "swapoff": 225, "mbind": 235, "set_mempolicy": 237, "migrate_pages": 238,
        "move_pages": 239, "perf_event_open": 241, "fanotify_init": 262,
        "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268,
        "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273,
        "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294,
        **_SINCE_5,
    },
    clone=220, clone3=435, socket=198, ioctl=29, shared_memory=tuple(range(186, 198)),
    fallocate=47, inotify=(26, 27), socketpair=199,
    on_others={261: 0, 140: 1, 30: 1, 118: 0, 119: 0, 122: 0, 274: 0},
)  # fmt: skip

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
    return [load, _and(_TYPE_BITS), *checks]


def _and(mask: int) -> bytes:
    return struct.pack("=HBBI", _AND, 0, 0, mask)


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
