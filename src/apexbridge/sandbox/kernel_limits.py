"""Kernel restrictions that a process applies to itself: Landlock, seccomp, capabilities, rlimits.

Imported by the zygote, so it uses the standard library only. None of it can be undone.
"""

import contextlib
import ctypes
import os
import resource
import signal
import struct
import time
from collections.abc import Iterable, Mapping
from typing import Any

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_SECUREBITS = 1, 22, 28
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT, CAPSET = 444, 445, 446, {"x86_64": 126}
PR_SET_KEEPCAPS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 8, 47, 2
CAP_DAC_READ_SEARCH, CAP_SETPCAP = 2, 8
NOROOT_SECUREBITS = 0xEF  # no exec gives them back, and that is locked
LANDLOCK_READ = 0b1101  # execute, read files, list folders
LANDLOCK_FILE_RIGHTS = 0b0111 | 1 << 14 | 1 << 15  # what can be granted on a single file
LANDLOCK_FS_RIGHTS = 16
MIN_LANDLOCK_ABI = 6  # what is older leaves signals and abstract sockets open
PROCESS_COUNT_SECONDS = 1.0
HIDDEN_PROCESSES = 16  # we ourselves, who may not be looked at

_CAPABILITY_HEADER = struct.pack("=Ii", 0x20080522, 0)

libc: Any = ctypes.CDLL(None, use_errno=True)


def check_errno(result: int) -> int:
    """Raise OSError from errno after a failed C call."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def prctl(option: int, *arguments: int) -> int:
    """Call prctl with unsigned long arguments."""
    words = [ctypes.c_ulong(word) for word in (*arguments, 0, 0, 0, 0)[:4]]
    return check_errno(libc.prctl(ctypes.c_int(option), *words))


def landlock_abi() -> int:
    """Return the kernel's Landlock ABI version; 0 if there is none."""
    return max(libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1)), 0)


class LandlockRuleset:
    """A Landlock ruleset: paths that stay accessible, everything else denied."""

    def __init__(self) -> None:
        """Create an empty ruleset: no path, no TCP port, no abstract socket, no signal outside."""
        self._rights = (1 << LANDLOCK_FS_RIGHTS) - 1
        attributes = struct.pack("=3Q", self._rights, 0b11, 0b11)
        size = ctypes.c_size_t(len(attributes))
        self._number = check_errno(
            libc.syscall(LANDLOCK_CREATE, attributes, size, ctypes.c_uint(0))
        )

    def grant(self, read: Iterable[str], write: Iterable[str]) -> None:
        """Add paths to the ruleset; OSError if one is not there."""
        for paths, rights in ((read, LANDLOCK_READ), (write, self._rights)):
            for path in paths:
                self._add(path, rights)

    def _add(self, path: str, rights: int) -> None:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not os.path.isdir(path):
            rights &= LANDLOCK_FILE_RIGHTS
        rule = struct.pack("=Qi", rights, place)
        number, kind = ctypes.c_int(self._number), ctypes.c_int(1)
        check_errno(libc.syscall(LANDLOCK_ADD, number, kind, rule, ctypes.c_uint(0)))
        os.close(place)

    def enforce(self) -> None:
        """Enforce the ruleset; it cannot be undone."""
        check_errno(libc.syscall(LANDLOCK_RESTRICT, ctypes.c_int(self._number), ctypes.c_uint(0)))
        os.close(self._number)


def drop_capabilities(kept: int = 0) -> None:
    """Drop all capabilities but those of a mask, which an exec passes on; irrevocably."""
    raising = kept | 1 << CAP_SETPCAP
    if kept:
        _set_capabilities(raising, kept)
        for number in range(kept.bit_length()):
            if kept >> number & 1:
                prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number)
    prctl(PR_SET_SECUREBITS, NOROOT_SECUREBITS)
    _set_capabilities(kept, kept)


def _set_capabilities(effective: int, inheritable: int) -> None:
    words = struct.pack("=6I", effective, effective, inheritable, 0, 0, 0)
    check_errno(libc.syscall(CAPSET.get(os.uname().machine, 91), _CAPABILITY_HEADER, words))


def has_capability(number: int) -> bool:
    """Return whether this process has a capability; a container's root may lack it."""
    words = ctypes.create_string_buffer(24)
    call = CAPSET.get(os.uname().machine, 91) - 1
    check_errno(libc.syscall(call, _CAPABILITY_HEADER, words))
    return bool(struct.unpack("=6I", words.raw)[0] >> number & 1)


class SeccompFilter:
    """A seccomp BPF program in the kernel's layout."""

    def __init__(self, program: bytes) -> None:
        self._code = ctypes.create_string_buffer(program, len(program))
        self._head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(self._code))

    def install(self) -> None:
        """Install the filter; it cannot be undone."""
        check_errno(libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(2), self._head, 0, 0))


def set_rlimits(limits: Mapping[str, int]) -> None:
    """Set rlimits, as far as the hard limits permit."""
    for name, value in limits.items():
        number = getattr(resource, name)
        most = resource.getrlimit(number)[1]
        if most != resource.RLIM_INFINITY:
            value = min(value, most)
        resource.setrlimit(number, (value, value))


class ProcessCounter:
    """Count the processes and threads of our user, which RLIMIT_NPROC counts together."""

    def __init__(self) -> None:
        self._moment = -PROCESS_COUNT_SECONDS
        self._count = 0

    def count(self) -> int:
        """Return the count, cached for a moment; hidden processes are estimated."""
        if time.monotonic() - self._moment > PROCESS_COUNT_SECONDS:
            user, self._count = os.geteuid(), HIDDEN_PROCESSES
            for name in os.listdir("/proc"):
                if name.isdecimal():
                    with contextlib.suppress(OSError):
                        if os.stat(f"/proc/{name}").st_uid == user:
                            self._count += os.stat(f"/proc/{name}/task").st_nlink - 2
            self._moment = time.monotonic()
        return self._count


def switch_user(number: int, group: int, *, keeps_capabilities: bool = False) -> None:
    """Switch to another UID and GID without supplementary groups.

    Capabilities are lost with root, unless `drop_capabilities` is called next and keeps some.
    """
    os.setgroups([])
    os.setresgid(group, group, group)
    prctl(PR_SET_KEEPCAPS, int(keeps_capabilities))
    os.setresuid(number, number, number)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user has cleared it
