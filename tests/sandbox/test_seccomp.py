"""The seccomp filter, run in a BPF interpreter: every path ends in the right verdict."""

import errno
import os
import re
import struct
from pathlib import Path

import pytest

from apexbridge.sandbox import seccomp, syscall_policy
from apexbridge.sandbox.seccomp import ARM64, X86_64, SyscallTable, build_filter

ALLOW, KILL = 0x7FFF0000, 0x80000000
HIGH_BITS = 0xDEADBEEF << 32
SET_IDS = (0o4755, 0o2755, 0o6000)
HEADER = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")

both = pytest.mark.parametrize("machine", [X86_64, ARM64], ids=["x86-64", "arm64"])
strictness = pytest.mark.parametrize("strict", [False, True], ids=["namespaces", "shared"])


def _judge(program: bytes, machine: SyscallTable, number: int, *arguments: int) -> int:
    """Interpret the filter as the kernel does."""
    data = struct.pack("=IIQ6Q", number, machine.audit, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    position, loaded = 0, 0
    while True:
        kind, yes, no, value = code[position]
        position += 1
        match kind:
            case 0x20:
                loaded = struct.unpack_from("=I", data, value)[0]
            case 0x54:
                loaded &= value
            case 0x15:
                position += yes if loaded == value else no
            case 0x35:
                position += yes if loaded >= value else no
            case 0x45:
                position += yes if loaded & value else no
            case 0x06:
                return value
            case _:
                raise AssertionError(kind)


def _denied(code: int) -> int:
    return 0x00050000 | code


def _answer(name: str) -> int:
    return ALLOW if name == syscall_policy.ALLOW else _denied(getattr(errno, name))


class Filter:
    """A filter that is asked by the names of calls."""

    def __init__(self, machine: SyscallTable, *, strict: bool = False) -> None:
        families = seccomp.NO_SOCKETS if strict else seccomp.LOCAL_FAMILIES
        self._program, self._machine = build_filter(machine, families, strict=strict), machine

    def __call__(self, name: str, *arguments: int) -> int:
        return _judge(self._program, self._machine, self._machine.numbers[name], *arguments)


@both
def test_every_call_is_in_one_group_that_says_why(machine: SyscallTable) -> None:
    groups = syscall_policy.call_groups()
    grouped = [name for group in groups for name in group.calls]
    assert sorted(grouped) == sorted(set(grouped))
    assert set(grouped) == {*X86_64.numbers, *ARM64.numbers}
    assert len(set(machine.numbers.values())) == len(machine.numbers)
    for group in (*groups, *syscall_policy.request_groups()):
        assert re.fullmatch(r"[A-Z].{15,}\.", group.reason), group.reason


@both
@strictness
def test_every_call_gets_the_answer_of_its_group(machine: SyscallTable, strict: bool) -> None:
    verdict = Filter(machine, strict=strict)
    # With these arguments, the calls that look at them allow what their group allows.
    harmless = {
        "socketpair": (1, 1), "ioctl": (0, 0x5401), "ioprio_set": (1,), "clone": (17,),
    }  # fmt: skip
    for group in syscall_policy.call_groups():
        for name in group.calls:
            if name in machine.numbers and (name, strict) != ("socket", True):
                arguments = harmless.get(name, (1,) if name == "socket" else ())
                expected = _answer(group.shared if strict else group.answer)
                assert verdict(name, *arguments) == expected, name


@both
@strictness
def test_what_is_in_no_group_is_unknown(machine: SyscallTable, strict: bool) -> None:
    program = build_filter(machine, strict=strict)
    known = set(machine.numbers.values())
    for number in (*range(1024), 5_000, 0x40000000 + 39, 0x40000000 + 521, 0xFFFFFFFF):
        if number not in known:
            assert _judge(program, machine, number) == _denied(errno.ENOSYS), number


@pytest.mark.skipif(not HEADER.exists(), reason="the kernel's headers are not installed")
def test_the_numbers_are_the_kernels() -> None:
    found = re.findall(r"^#define __NR_(\w+) (\d+)$", HEADER.read_text("utf-8"), re.MULTILINE)
    theirs = {name: int(number) for name, number in found}
    assert len(theirs) > 300
    # A newer header may have calls that nobody has looked at yet: those get ENOSYS.
    assert {name: X86_64.numbers.get(name, number) for name, number in theirs.items()} == theirs


@both
@strictness
def test_the_program_is_one_that_the_kernel_takes(machine: SyscallTable, strict: bool) -> None:
    program = build_filter(machine, strict=strict)
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    assert len(code) <= 4096
    for position, (kind, yes, no, _) in enumerate(code):
        if kind in {0x15, 0x35, 0x45}:
            assert position + 1 + max(yes, no) < len(code)
    assert code[-1][0] == 0x06


@both
@strictness
def test_no_new_namespaces(machine: SyscallTable, strict: bool) -> None:
    verdict = Filter(machine, strict=strict)
    assert verdict("clone", 17) == verdict("clone", 0x3D0F00) == ALLOW  # fork, pthread_create
    for flag in (0x20000, 0x2000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x80):
        assert verdict("clone", flag | 17) == _denied(errno.EPERM)
    for name in ("clone3", "openat2"):  # their flags cannot be read by a filter
        assert verdict(name) == _denied(errno.ENOSYS)


@both
def test_only_the_named_families_of_sockets_open(machine: SyscallTable) -> None:
    local, none = Filter(machine), Filter(machine, strict=True)
    for family in range(50):
        expected = ALLOW if family in (1, 2, 10) else _denied(errno.EAFNOSUPPORT)
        assert local("socket", HIGH_BITS | family) == expected
        assert none("socket", HIGH_BITS | family) == _denied(errno.EAFNOSUPPORT)


@both
def test_pairs_of_sockets_are_local_and_without_others(machine: SyscallTable) -> None:
    local, shared = Filter(machine), Filter(machine, strict=True)
    for family in (0, *range(2, 50)):
        for verdict in (local, shared):
            assert verdict("socketpair", family, 1) == _denied(errno.EAFNOSUPPORT)
    for kind in (1, 5, 1 | os.O_CLOEXEC, 5 | os.O_NONBLOCK):
        assert local("socketpair", 1, kind) == shared("socketpair", 1, kind) == ALLOW
    for kind in (2, 3, 2 | os.O_CLOEXEC):
        assert local("socketpair", 1, kind) == ALLOW
        assert shared("socketpair", 1, kind) == _denied(errno.EPERM)


@both
@strictness
def test_ioctl_knows_the_requests_of_its_list_only(machine: SyscallTable, strict: bool) -> None:
    verdict = Filter(machine, strict=strict)
    listed = {
        value: group.answer for group in syscall_policy.request_groups() for value in group.values
    }
    assert sum(len(group.values) for group in syscall_policy.request_groups()) == len(listed)
    for value, answer in listed.items():
        assert verdict("ioctl", 3, HIGH_BITS | value) == _answer(answer), hex(value)
    foreign = {
        "FS_IOC_RESVSP": 0x40305828, "FS_IOC_RESVSP64": 0x4030582A, "XFS_IOC_ALLOCSP": 0x4030580A,
        "FS_IOC_ZERO_RANGE": 0x40305839, "FS_IOC_FSSETXATTR": 0x401C5820,
        "FS_IOC_SETFLAGS": 0x40086602, "TIOCSETD": 0x5423, "TIOCCONS": 0x541D, "NS_GET_PARENT":
        0xB702, "PIDFD_GET_NET_NAMESPACE": 0xFF04, "SIOCSIFADDR": 0x8916,
    }  # fmt: skip
    near = {value + step for value in listed for step in (-1, 1)} - set(listed)
    for value in (*foreign.values(), *near, 0, 0xFFFFFFFF):
        assert verdict("ioctl", 3, value) == _denied(errno.ENOTTY), hex(value)
    for value in (0x5412, 0x541C):  # TIOCSTI, TIOCLINUX
        assert verdict("ioctl", 0, value) == _denied(errno.EPERM)


@both
@strictness
def test_no_lease_is_taken(machine: SyscallTable, strict: bool) -> None:
    verdict = Filter(machine, strict=strict)
    for command in range(1100):
        expected = _denied(errno.EPERM) if command in (1024, 1026) else ALLOW
        assert verdict("fcntl", 3, HIGH_BITS | command) == expected


@both
@strictness
def test_no_file_gets_a_mode_that_changes_the_user(machine: SyscallTable, strict: bool) -> None:
    verdict = Filter(machine, strict=strict)
    before = {
        "chmod": (0,), "fchmod": (3,), "fchmodat": (3, 0), "fchmodat2": (3, 0), "creat": (0,),
        "mknod": (0,), "mknodat": (3, 0), "open": (0, 0o101), "openat": (3, 0, 0o101),
    }  # fmt: skip
    for name, first in before.items():
        if name in machine.numbers:
            for mode in (0, 0o777, 0o1777, 0o100644):
                assert verdict(name, *first, HIGH_BITS | mode) == ALLOW, name
            for mode in SET_IDS:
                assert verdict(name, *first, HIGH_BITS | mode) == _denied(errno.EPERM), name


@both
def test_a_mode_counts_only_where_a_file_is_made(machine: SyscallTable) -> None:
    verdict, garbage = Filter(machine), 0o7777
    made = (os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_TMPFILE | os.O_RDWR, HIGH_BITS | os.O_CREAT)
    for name, first in (("open", (0,)), ("openat", (3, 0))):
        if name in machine.numbers:
            for flags in (os.O_RDONLY, os.O_RDWR | os.O_TRUNC, os.O_DIRECTORY | os.O_CLOEXEC):
                assert verdict(name, *first, flags, garbage) == ALLOW
            for flags in made:
                assert verdict(name, *first, flags, garbage) == _denied(errno.EPERM)


@both
def test_where_processes_are_shared_only_the_caller_is_changed(machine: SyscallTable) -> None:
    local, shared = Filter(machine), Filter(machine, strict=True)
    for name in ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setattr"):
        assert shared(name, HIGH_BITS) == ALLOW
        assert shared(name, 4242) == _denied(errno.EPERM)
        assert local(name, 4242) == ALLOW
    for name, process in (("setpriority", 0), ("ioprio_set", 1)):
        assert shared(name, HIGH_BITS | process, HIGH_BITS) == ALLOW
        for who in ((process, 4242), (process + 1, 0), (process + 2, 0), (3, 0)):
            assert shared(name, *who) == _denied(errno.EPERM), (name, who)
        assert local(name, process, 4242) == ALLOW


def test_another_architecture_is_killed() -> None:
    assert _judge(build_filter(X86_64), ARM64, 0) == KILL
    assert _judge(build_filter(ARM64), X86_64, 0) == KILL
