"""Every backend that isolates, each on a field of its own."""

from collections.abc import Generator

import pytest

from apexbridge.sandbox.bubblewrap import BubblewrapSandbox
from apexbridge.sandbox.cgroup import Cgroups
from apexbridge.sandbox.landlock import LandlockSandbox
from apexbridge.sandbox.launcher import Launcher
from tests.hostile.sandbox_field import Field, field

BACKENDS = [
    pytest.param("bubblewrap", marks=pytest.mark.needs("bubblewrap")),
    pytest.param("landlock", marks=pytest.mark.needs("landlock")),
]


@pytest.fixture(params=BACKENDS)
def ground(request: pytest.FixtureRequest, launcher: Launcher) -> Generator[Field]:
    kind = BubblewrapSandbox if request.param == "bubblewrap" else LandlockSandbox
    with field(kind(launcher, Cgroups.detect())) as ready:
        yield ready
