"""What every test gets: one async backend, an empty home, and what it needs or a skip."""

import functools
import shutil
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from apexbridge.sandbox.bubblewrap import BubblewrapSandbox
from apexbridge.sandbox.ladder import attempt
from apexbridge.sandbox.landlock import LandlockSandbox
from apexbridge.sandbox.launcher import Launcher


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and no settings of the machine the tests run on."""
    place = tmp_path / "home"
    place.mkdir()
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "LC_ALL", "LC_MESSAGES", "APEXBRIDGE_LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("LANG", "C.UTF-8")
    return place


@pytest.fixture
def launcher() -> Generator[Launcher]:
    with closing(Launcher()) as ready:
        yield ready


@functools.cache
def _why_not(need: str) -> str:
    """Why this machine has not what a test needs, by trying; empty if it has."""
    if need in {"bubblewrap", "landlock"}:
        kind = BubblewrapSandbox if need == "bubblewrap" else LandlockSandbox
        with closing(Launcher()) as launcher:
            return anyio.run(attempt, kind(launcher)).reason
    if need == "sandbox":
        return _why_not("bubblewrap") and _why_not("landlock")
    return "" if shutil.which(need) else "it is not installed; scripts/system-packages tries to"


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        reason = _why_not(mark.args[0])
        if reason:
            pytest.skip(f"{mark.args[0]}: {reason}")
