"""Policy of the seccomp filter: what each system call and ioctl request is answered, and why.

The numbers are in syscall_numbers.txt, the answers and their reasons in syscalls.toml.
"""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apexbridge.sandbox.base import read_data

ALLOW = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallGroup:
    """System calls that get one answer, for one reason."""

    reason: str
    answer: str
    """`ALLOW`, or the name of an errno."""
    shared: str
    """The answer where the kernel's objects are shared with others: no namespaces."""
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestGroup:
    """Requests of ioctl that get one answer, for one reason."""

    reason: str
    answer: str
    values: tuple[int, ...]


@functools.cache
def _policy() -> Mapping[str, Any]:
    return tomllib.loads(read_data("syscalls.toml"))


@functools.cache
def call_groups() -> tuple[CallGroup, ...]:
    """Return the groups of system calls; each known call is in exactly one."""
    return tuple(
        CallGroup(
            reason=group["reason"],
            answer=group["answer"],
            shared=group.get("shared", group["answer"]),
            calls=tuple(group["calls"].split()),
        )
        for group in _policy()["groups"]
    )


@functools.cache
def request_groups() -> tuple[RequestGroup, ...]:
    """Return the groups of ioctl requests; one that is in none is unknown to every file."""
    return tuple(
        RequestGroup(**group | {"values": tuple(group["values"])})
        for group in _policy()["requests"]
    )


@functools.cache
def audit_number(machine: str) -> int:
    """Return the kernel's AUDIT_ARCH number of an architecture."""
    return _policy()["audit"][machine]


@functools.cache
def call_numbers(machine: str) -> Mapping[str, int]:
    """Return the number of each system call that an architecture has."""
    _, *lines = read_data("syscall_numbers.txt").splitlines()
    rows = [line.split() for line in lines]
    column = {"x86_64": 1, "arm64": 2}[machine]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}
