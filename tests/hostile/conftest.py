"""Every backend that isolates, each on a field of its own."""

from collections.abc import Generator

import pytest

from apexbridge.sandbox.bubblewrap import BubblewrapSandbox
from apexbridge.sandbox.cgroup import Cgroups
from apexbridge.sandbox.landlock import LandlockSandbox
from tests.hostile.sandbox_field import Field, field

BACKENDS = [
    pytest.param("bubblewrap", marks=pytest.mark.needs("bubblewrap")),
    pytest.param("landlock", marks=pytest.mark.needs("landlock")),
]


@pytest.fixture(params=BACKENDS)
def ground(request: pytest.FixtureRequest) -> Generator[Field]:
    groups = Cgroups.detect()
    if request.param == "bubblewrap":
        with field(BubblewrapSandbox(groups=groups)) as ready:
            yield ready
    else:
        sandbox = LandlockSandbox(groups)
        try:
            with field(sandbox) as ready:
                yield ready
        finally:
            sandbox.close()
