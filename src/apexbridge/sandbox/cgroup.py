"""cgroups: limits on all processes of a run together, where cgroups are writable.

Rlimits are per process: ten processes hold ten times the memory (`family_memory` counts it where
there are no cgroups), and root is exempt from RLIMIT_NPROC. Versions 2 and 1 are supported,
detected by creating and removing a group. The zygote creates a group for each prepared child,
because joining one takes longer than the rest of a start.
"""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from apexbridge.sandbox.base import SandboxLimits
from apexbridge.sandbox.zygote import write_kernel_file

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_GROUP_NAME = "apexbridge"
_SPARE_PROCESSES = 4
"""Reserve for the launcher's own processes, which count too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroups:
    """Writable cgroup directories and their version."""

    homes: tuple[Path, ...]
    """One directory for each controller; with version 2 a single one."""
    is_v2: bool

    @classmethod
    def detect(cls) -> "Cgroups | None":
        """Detect a working cgroup version by trying; None if there is none."""
        for found in (_v2(), _v1()):
            if found is not None and found._works():
                return found
        return None

    def _works(self) -> bool:
        name = f"trial-{uuid.uuid4().hex}"
        try:
            for home in self.homes:
                (home / name).mkdir()
                (home / name).rmdir()
            for number, file, _ in self.values(SandboxLimits()):
                os.stat(self.homes[number] / file)
        except OSError:
            return False
        return True

    def values(self, limits: SandboxLimits) -> Iterator[tuple[int, str, int]]:
        """Return the values to write, by directory and file."""
        processes = limits.processes + _SPARE_PROCESSES
        if self.is_v2:
            yield 0, "memory.max", limits.memory_bytes
            yield 0, "memory.swap.max", 0
            yield 0, "memory.oom.group", 1
            yield 0, "pids.max", processes
        else:
            yield 0, "memory.limit_in_bytes", limits.memory_bytes
            yield 1, "pids.max", processes


def _v2() -> Cgroups | None:
    home = _CGROUP_ROOT / _GROUP_NAME
    try:
        write_kernel_file(f"{_CGROUP_ROOT}/cgroup.subtree_control", "+memory +pids")
        home.mkdir(exist_ok=True)
        write_kernel_file(f"{home}/cgroup.subtree_control", "+memory +pids")
    except OSError:
        return None
    return Cgroups(homes=(home,), is_v2=True)


def _v1() -> Cgroups | None:
    homes = tuple(_CGROUP_ROOT / kind / _GROUP_NAME for kind in ("memory", "pids"))
    try:
        for home in homes:
            home.mkdir(exist_ok=True)
    except OSError:
        return None
    return Cgroups(homes=homes, is_v2=False)
