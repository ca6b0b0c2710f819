"""Control groups: the only bound on all of a run's processes together, where we may make them.

Limits of single processes do not add up: ten processes hold ten times the memory, and root is
exempt from the number of processes altogether. Version 2 and the older version 1 are both known;
whether one works is found out by making a group and removing it.
"""

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from apexbridge.sandbox.base import SandboxLimits

_MOUNT = Path("/sys/fs/cgroup")
_OURS = "apexbridge"
_SPARE_PROCESSES = 4
"""The launcher's own processes are counted too."""
_REMOVE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The group of one run, as the folders that the kernel shows for it."""

    places: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """What a process writes its number to."""
        return tuple(str(place / "cgroup.procs") for place in self.places)

    def remove(self) -> None:
        """End what is left in it, and take it away."""
        for place in self.places:
            _remove(place)


class Cgroups:
    """Makes one group a run."""

    def __init__(self, homes: tuple[Path, ...], *, is_v2: bool) -> None:
        self._homes = homes
        self._is_v2 = is_v2

    @classmethod
    def detect(cls) -> "Cgroups | None":
        """The kind that works here, by trying; None where none does."""
        for found in (cls._v2(), cls._v1()):
            if found is not None:
                with contextlib.suppress(OSError):
                    found.make(SandboxLimits()).remove()
                    return found
        return None

    @classmethod
    def _v2(cls) -> "Cgroups | None":
        home = _MOUNT / _OURS
        try:
            _put(_MOUNT / "cgroup.subtree_control", "+memory +pids")
            home.mkdir(exist_ok=True)
            _put(home / "cgroup.subtree_control", "+memory +pids")
        except OSError:
            return None
        return cls((home,), is_v2=True)

    @classmethod
    def _v1(cls) -> "Cgroups | None":
        homes = tuple(_MOUNT / kind / _OURS for kind in ("memory", "pids"))
        try:
            for home in homes:
                home.mkdir(exist_ok=True)
        except OSError:
            return None
        return cls(homes, is_v2=False)

    def make(self, limits: SandboxLimits) -> Group:
        """A group with these limits.

        Raises:
            OSError: If it cannot be made.
        """
        name = uuid.uuid4().hex
        group = Group(places=tuple(home / name for home in self._homes))
        try:
            for place in group.places:
                place.mkdir()
            for path, value in self._values(group.places, limits):
                _put(path, str(value))
        except OSError:
            group.remove()
            raise
        return group

    def _values(
        self, places: tuple[Path, ...], limits: SandboxLimits
    ) -> Iterator[tuple[Path, int]]:
        processes = limits.processes + _SPARE_PROCESSES
        if self._is_v2:
            yield places[0] / "memory.max", limits.memory_bytes
            yield places[0] / "memory.swap.max", 0
            yield places[0] / "memory.oom.group", 1
            yield places[0] / "pids.max", processes
        else:
            yield places[0] / "memory.limit_in_bytes", limits.memory_bytes
            yield places[1] / "pids.max", processes


def _put(path: Path, value: str) -> None:
    """Write to a file of the kernel's; where it is not one, none is made."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode("ascii"))
    finally:
        os.close(descriptor)


def join(groups: Cgroups | None, limits: SandboxLimits) -> Group:
    """A group where groups can be had, else one without anything to join.

    Raises:
        OSError: If it cannot be made.
    """
    return Group() if groups is None else groups.make(limits)


def _remove(place: Path) -> None:
    """Remove a group; its last processes may be on their way out at this moment."""
    deadline = time.monotonic() + _REMOVE_SECONDS
    while place.exists():
        try:
            place.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                return
            _kill_left(place)
            time.sleep(0.001)


def _kill_left(place: Path) -> None:
    with contextlib.suppress(OSError):
        for number in (place / "cgroup.procs").read_text(encoding="ascii").split():
            os.kill(int(number), 9)
