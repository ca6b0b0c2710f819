"""What every test gets: one async backend, an empty home, and what it needs or a skip."""

import functools
import gc
import os
import platform
import shutil
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path

import anyio
import coverage
import pytest
from hypothesis import HealthCheck, settings

from apexbridge.sandbox.backend_selection import run_canary
from apexbridge.sandbox.backends import BubblewrapSandbox, LandlockSandbox
from apexbridge.sandbox.cgroup import Cgroups
from apexbridge.sandbox.launcher import Launcher
from tests.hostile.attacks import APART, ROWS, kind_of

# `make fuzz` chooses the other.
settings.register_profile("quick", max_examples=30, deadline=None)
settings.register_profile(
    "fuzz", max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("quick")

# Fixtures of a whole module have no `home` yet: places of the machine must not be theirs.
for _name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
    os.environ.pop(_name, None)

_MEASURING = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, help="how often tests/crash kills")
    parser.addoption("--measure-all", action="store_true", help="let no test be unmeasured")
    parser.addoption("--pictures", action="store_true", help="keep the screens in build/screens")


def pytest_configure(config: pytest.Config) -> None:
    """What only hands tests out to workers runs nothing of ours: there is nothing to measure."""
    measured = coverage.Coverage.current()
    if measured is not None and config.getoption("numprocesses", default=None):
        measured.stop()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests stay to the end: garbage is not looked for among them.

    Every worker imports the same: what that runs is measured in the first of them alone.
    """
    gc.disable()
    is_first = os.environ.get("PYTEST_XDIST_WORKER", "gw0") == "gw0"
    measured = None if is_first else coverage.Coverage.current()
    if measured is not None:
        measured.stop()
    try:
        return (yield)
    finally:
        if measured is not None:
            measured.start()
        gc.freeze()
        gc.enable()


def pytest_sessionfinish() -> None:
    """A worker that is slow to end is killed: what it measured is safe before that."""
    measured = coverage.Coverage.current()
    if measured is not None:
        measured.save()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Pause the measuring in a test that is marked: to trace takes as long as to run."""
    measured = coverage.Coverage.current()
    is_marked = item.get_closest_marker("unmeasured") is not None
    if measured is None or not is_marked or item.config.getoption("--measure-all"):
        return (yield)
    measured.stop()
    for_processes = {name: os.environ.pop(name) for name in _MEASURING if name in os.environ}
    try:
        return (yield)
    finally:
        os.environ.update(for_processes)
        measured.start()


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How many random moments of a crash are tried."""
    chosen: int | None = request.config.getoption("--rounds")
    return chosen or 4


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
    with closing(Launcher(Cgroups.detect())) as ready:
        yield ready


@functools.cache
def _why_not(need: str) -> str:
    """Why this machine has not what a test needs, by trying; empty if it has."""
    if need in {"bubblewrap", "landlock"}:
        kind = BubblewrapSandbox if need == "bubblewrap" else LandlockSandbox
        with closing(Launcher()) as launcher:
            return anyio.run(run_canary, kind(launcher)).reason
    if need == "sandbox":
        return _why_not("bubblewrap") and _why_not("landlock")
    if need == "writable project":  # under Landlock none of root's is written
        is_root = os.geteuid() == 0
        return _why_not("bubblewrap") and (_why_not("landlock") or is_root * "we are root")
    if need == "root":
        return "" if os.geteuid() == 0 else "only root can turn runs into other users"
    if need == "x86_64":
        return "" if platform.machine() == need else f"this is {platform.machine()}"
    return "" if shutil.which(need) else "it is not installed; scripts/system-packages tries to"


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.user_properties.extend(("row", played) for played in _played(item))
    for mark in item.iter_markers("needs"):
        reason = _why_not(mark.args[0])
        if reason:
            pytest.skip(f"{mark.args[0]}: {reason}")


def _played(item: pytest.Item) -> Iterator[str]:
    """The attacks on the sandbox that a test plays, as `backend:number`."""
    callspec = getattr(item, "callspec", None)
    params: dict[str, str] = callspec.params if callspec is not None else {}
    backend = params.get("ground", params.get("cold", ""))
    for mark in item.iter_markers("row"):
        for number in mark.args:
            yield f"{mark.kwargs.get('on', backend)}:{number}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many of the attacks were withstood, on each backend."""
    rows: dict[str, dict[int, bool]] = defaultdict(dict)
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            for name, value in getattr(report, "user_properties", ()):
                if name == "row":
                    backend, _, number = str(value).partition(":")
                    before = rows[backend].get(int(number), True)
                    rows[backend][int(number)] = before and outcome == "passed"
    for backend, played in sorted(rows.items()):
        apart = APART.get(kind_of(backend), {})
        withstood = sum(done for number, done in played.items() if number not in apart)
        all_of_them = len(ROWS) if backend == kind_of(backend) else len(played.keys() - apart)
        terminalreporter.write_line(
            f"attacks on {backend}: {withstood} of {all_of_them} withstood, {len(apart)} apart "
            f"(the server is user {os.getuid()})"
        )
