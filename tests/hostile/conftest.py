"""Every backend that isolates, cold and warm, each on a field of its own."""

from collections.abc import Generator

import pytest

from apexbridge.sandbox.bubblewrap import BubblewrapSandbox
from apexbridge.sandbox.landlock import LandlockSandbox
from apexbridge.sandbox.launcher import Launcher
from tests.hostile.rows import kind_of
from tests.hostile.sandbox_field import Field, WarmSandbox, field

BACKENDS = [
    pytest.param(name, marks=pytest.mark.needs(kind_of(name)))
    for name in ("bubblewrap", "landlock", "bubblewrap warm", "landlock warm")
]


@pytest.fixture(params=BACKENDS)
def ground(request: pytest.FixtureRequest, launcher: Launcher) -> Generator[Field]:
    name: str = request.param
    kind = BubblewrapSandbox if kind_of(name) == "bubblewrap" else LandlockSandbox
    backend = kind(launcher)
    with field(name, WarmSandbox(backend) if name.endswith("warm") else backend) as ready:
        yield ready


@pytest.fixture(params=BACKENDS[:2])
def cold(request: pytest.FixtureRequest, launcher: Launcher) -> Generator[Field]:
    """Where it makes no difference whether anything waited."""
    name: str = request.param
    kind = BubblewrapSandbox if name == "bubblewrap" else LandlockSandbox
    with field(name, kind(launcher)) as ready:
        yield ready
