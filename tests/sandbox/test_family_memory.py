"""The memory of a family of processes, where there is no cgroup."""

import tempfile
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from apexbridge.sandbox import interpreters
from apexbridge.sandbox.backends import BubblewrapSandbox, LandlockSandbox
from apexbridge.sandbox.base import (
    MIB,
    Access,
    ExecRequest,
    ExecutionResult,
    Sandbox,
    SandboxLimits,
)
from apexbridge.sandbox.launcher import Launcher
from apexbridge.sandbox.workspace import Workspaces

pytestmark = [pytest.mark.anyio, pytest.mark.unmeasured]


@pytest.fixture(
    params=[
        pytest.param(BubblewrapSandbox, marks=pytest.mark.needs("bubblewrap"), id="bubblewrap"),
        pytest.param(LandlockSandbox, marks=pytest.mark.needs("landlock"), id="landlock"),
    ]
)
def sandbox(request: pytest.FixtureRequest) -> Generator[Sandbox]:
    kind: Callable[[Launcher], Sandbox] = request.param
    with closing(Launcher()) as launcher:  # no control groups on purpose
        yield kind(launcher)


@pytest.fixture
def place() -> Generator[Path]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        yield Path(made)


async def _run(sandbox: Sandbox, place: Path, source: str) -> ExecutionResult:
    python = interpreters.find("python")
    assert python is not None
    with Workspaces(place / "w").lease() as workspace:
        request = ExecRequest(
            argv=(str(python.program), "-I", "-S", "-c", "import mmap, os, time\n" + source),
            cwd=workspace,
            limits=SandboxLimits(wall_seconds=30, memory_bytes=200 * MIB),
            access=Access(read=python.prefix, write=(workspace,)),
            workspace=workspace,
        )
        with anyio.fail_after(25):
            return await sandbox.run(request)


@pytest.mark.parametrize(
    "hog",
    [
        'bytearray(b"x" * 60_000_000)',
        '(m := mmap.mmap(-1, 60_000_000)).write(b"x" * 60_000_000), m',
        'os.write(os.memfd_create("hog"), b"x" * 60_000_000)',
    ],
    ids=["private", "shared", "memory file"],
)
@pytest.mark.parametrize("is_daemon", [False, True])
async def test_processes_share_one_limit(
    sandbox: Sandbox, place: Path, hog: str, *, is_daemon: bool
) -> None:
    source = f"""
for _ in range(6):
    if os.fork() == 0:
        if {is_daemon}:
            os.setsid()
            if os.fork():
                os._exit(0)
        hog = {hog}
        time.sleep(60)
time.sleep(60)
"""
    result = await _run(sandbox, place, source)
    assert (result.outcome, result.exit_code) == ("killed", 137), result


async def test_one_process_is_limited_in_shared_memory_too(sandbox: Sandbox, place: Path) -> None:
    source = """
held = []
for _ in range(8):
    held.append(mmap.mmap(-1, 60_000_000))
    held[-1].write(b"x" * 60_000_000)
time.sleep(60)
"""
    result = await _run(sandbox, place, source)
    assert (result.outcome, result.exit_code) == ("killed", 137), result


async def test_pages_that_processes_share_count_once(sandbox: Sandbox, place: Path) -> None:
    source = """
held = bytearray(b"x" * 60_000_000), mmap.mmap(-1, 60_000_000)
held[1].write(b"x" * 60_000_000)
end = time.monotonic() + 1
children = []
for _ in range(4):
    if 0 not in children:
        children.append(os.fork())
while time.monotonic() < end:
    sum(held[0][::4096]), sum(held[1][::4096])
if 0 not in children:
    for child in children:
        os.waitpid(child, 0)
    print("all there")
"""
    result = await _run(sandbox, place, source)
    assert (result.outcome, result.stdout) == ("ok", b"all there\n"), result
