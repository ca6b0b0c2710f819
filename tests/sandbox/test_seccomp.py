"""The seccomp filter, run in a BPF interpreter: every path ends in the right verdict."""

import errno
import struct

import pytest

from apexbridge.sandbox import seccomp
from apexbridge.sandbox.seccomp import ARM64, X86_64, SyscallTable, build_filter

ALLOW, KILL = 0x7FFF0000, 0x80000000


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


@pytest.mark.parametrize("machine", [X86_64, ARM64], ids=["x86-64", "arm64"])
def test_what_is_denied_is_denied_and_the_rest_is_allowed(machine: SyscallTable) -> None:
    program = build_filter(machine)
    for name, number in machine.denied.items():
        assert _judge(program, machine, number) == _denied(errno.EPERM), name
    assert _judge(program, machine, machine.clone3) == _denied(errno.ENOSYS)
    assert _judge(program, machine, machine.clone, 17) == ALLOW
    for flag in (0x20000, 0x2000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x80):
        assert _judge(program, machine, machine.clone, flag | 17) == _denied(errno.EPERM)
    assert _judge(program, machine, 0) == ALLOW
    assert _judge(program, machine, 5_000) == ALLOW


@pytest.mark.parametrize("machine", [X86_64, ARM64], ids=["x86-64", "arm64"])
def test_only_the_named_families_of_sockets_open(machine: SyscallTable) -> None:
    local, none = build_filter(machine), build_filter(machine, seccomp.NO_SOCKETS, strict=True)
    for family in range(50):
        expected = ALLOW if family in (1, 2, 10) else _denied(errno.EAFNOSUPPORT)
        assert _judge(local, machine, machine.socket, family) == expected
        assert _judge(none, machine, machine.socket, family) == _denied(errno.EAFNOSUPPORT)


@pytest.mark.parametrize("machine", [X86_64, ARM64], ids=["x86-64", "arm64"])
def test_nothing_is_typed_into_a_terminal_and_shared_memory_is_for_the_loose(
    machine: SyscallTable,
) -> None:
    local, strict = build_filter(machine), build_filter(machine, strict=True)
    assert _judge(local, machine, machine.ioctl, 0, 0x5401) == ALLOW
    for request in (0x5412, 0x541C):
        assert _judge(local, machine, machine.ioctl, 0, request) == _denied(errno.EPERM)
    for number in machine.shared_memory:
        assert _judge(local, machine, number) == ALLOW
        assert _judge(strict, machine, number) == _denied(errno.EPERM)


def test_another_architecture_is_killed_and_x32_is_denied() -> None:
    assert _judge(build_filter(X86_64), ARM64, 0) == KILL
    assert _judge(build_filter(X86_64), X86_64, 0x40000000 + 39) == _denied(errno.ENOSYS)
