"""Every isolating backend, cold and warm, each with its own targets."""

from collections.abc import Generator
from contextlib import closing

import pytest
from _pytest.mark import ParameterSet

from apexbridge.sandbox.backends import BubblewrapSandbox, LandlockSandbox
from apexbridge.sandbox.cgroup import Cgroups
from apexbridge.sandbox.launcher import Launcher
from apexbridge.sandbox.uid_pool import UidPool
from tests.hostile.attack_setup import Field, WarmSandbox, field
from tests.hostile.attacks import kind_of

COLD, WARM, OWN = "", " warm", " as a user of its own"


def _backends(*ways: str) -> list[ParameterSet]:
    names = [f"{kind}{way}" for way in ways for kind in ("bubblewrap", "landlock")]
    return [
        pytest.param(name, marks=[pytest.mark.needs(need) for need in _needs(name)])
        for name in names
    ]


def _needs(name: str) -> tuple[str, ...]:
    return (kind_of(name), "root") if name.endswith(OWN) else (kind_of(name),)


@pytest.fixture(params=_backends(COLD, WARM, OWN))
def ground(request: pytest.FixtureRequest) -> Generator[Field]:
    yield from _field(request.param)


@pytest.fixture(params=_backends(COLD))
def cold(request: pytest.FixtureRequest) -> Generator[Field]:
    """Where it makes no difference whether anything waited, nor who runs it."""
    yield from _field(request.param)


def _field(name: str) -> Generator[Field]:
    users = UidPool.detect() if name.endswith(OWN) else None
    with closing(Launcher(Cgroups.detect(), users)) as launcher:
        kind = BubblewrapSandbox if kind_of(name) == "bubblewrap" else LandlockSandbox
        backend = kind(launcher)
        with field(name, WarmSandbox(backend) if name.endswith(WARM) else backend) as ready:
            yield ready
