"""What every test gets: one async backend, an empty home, and its system commands or a skip."""

import shutil
from pathlib import Path

import pytest


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


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        if shutil.which(mark.args[0]) is None:
            pytest.skip(f"{mark.args[0]} is not installed; scripts/system-packages tries to")
