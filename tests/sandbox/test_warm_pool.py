"""The warm pool: each sandbox is used once, for its key only, and expires when idle."""

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import pytest

from apexbridge.sandbox import interpreters
from apexbridge.sandbox.backends import BubblewrapSandbox, LandlockSandbox
from apexbridge.sandbox.base import ExecRequest, ExecutionResult, SandboxLimits
from apexbridge.sandbox.child_process import RunningProcess
from apexbridge.sandbox.execution import Backend
from apexbridge.sandbox.interpreters import WarmInterpreter
from apexbridge.sandbox.launcher import Launcher
from apexbridge.sandbox.script_executor import ScriptExecutor, ScriptJob
from apexbridge.sandbox.warm_pool import PoolKey, WarmPool
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.testing import RecordingSandbox

pytestmark = pytest.mark.anyio

LIMITS = SandboxLimits(wall_seconds=20)


@dataclass(slots=True)
class Bench:
    """A backend that counts what it starts, with a pool and a executor on it."""

    backend: Backend
    home: Path
    started: int = 0

    @property
    def name(self) -> str:
        return self.backend.name

    def start(self, request: ExecRequest, *, has_stdin: bool) -> RunningProcess:
        self.started += 1
        return self.backend.start(request, has_stdin=has_stdin)

    async def run(self, request: ExecRequest) -> ExecutionResult:
        raise AssertionError("a executor starts its runs itself")

    def places(self) -> list[Path]:
        return list(self.home.glob("*/work"))


@pytest.fixture(
    params=[
        pytest.param(BubblewrapSandbox, marks=pytest.mark.needs("bubblewrap"), id="bubblewrap"),
        pytest.param(LandlockSandbox, marks=pytest.mark.needs("landlock"), id="landlock"),
    ]
)
def bench(request: pytest.FixtureRequest, launcher: Launcher, tmp_path: Path) -> Bench:
    return Bench(request.param(launcher), tmp_path / "workspaces")


async def _ready(pool: WarmPool, count: int = 1) -> None:
    with anyio.fail_after(10):
        while pool.idle_count() != count:
            await anyio.sleep(0.01)


def _job(place: Path, source: str, name: str = "python", **more: object) -> ScriptJob:
    found = interpreters.find(name)
    assert found is not None
    script = place / "script"
    if not script.exists() or script.read_text(encoding="utf-8") != source:
        script.write_text(source, encoding="utf-8")
    made = ScriptJob(interpreter=found, script=script, read=(place,), limits=LIMITS)
    return replace(made, env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, **more)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("python", "import os, sys; print(sys.argv[1:], os.getcwd(), sys.stdin.read())\n"
                   "print(open('in').read()); open('out', 'w').write(os.environ['HOME'])"),
        pytest.param("node", "const fs = require('fs');"
                     "console.log(process.argv.slice(2), process.cwd(), `${fs.readFileSync(0)}`);"
                     "console.log(fs.readFileSync('in', 'utf8'));"
                     "fs.writeFileSync('out', process.env.HOME)", marks=pytest.mark.needs("node")),
        ("bash", 'echo "$@" "$PWD" "$(cat)"; cat in; printf %s "$HOME" > out'),
    ],
)  # fmt: skip
async def test_a_second_run_gets_a_warm_sandbox_with_the_same_result(
    bench: Bench, tmp_path: Path, name: str, source: str
) -> None:
    workspaces = Workspaces(bench.home)
    with closing(WarmPool(bench, workspaces)) as pool:
        executor = ScriptExecutor(bench, workspaces, pool)
        job = _job(tmp_path, source, name, arguments=("a b", "é"), stdin=b"given")
        job = replace(job, inputs={"in": b"put"})
        cold = await executor.run(job)
        await _ready(pool)
        (place,) = bench.places()
        warm = await executor.run(job)
        assert (cold.outcome, warm.outcome) == ("ok", "ok"), (cold, warm)
        assert warm.produced == {"out": str(place).encode()}
        before = cold.produced["out"]
        assert cold.stdout.replace(before, b"") == warm.stdout.replace(str(place).encode(), b"")
        assert warm.isolation == bench.name
        assert not place.exists()
        await _ready(pool)  # the next one already waits
        assert bench.started == 3
    assert bench.places() == []


async def test_a_sandbox_is_used_once(bench: Bench, tmp_path: Path) -> None:
    workspaces = Workspaces(bench.home)
    with closing(WarmPool(bench, workspaces)) as pool:
        executor = ScriptExecutor(bench, workspaces, pool)
        job = _job(tmp_path, "import os; print(os.listdir('.')); open('left', 'w').close()")
        for _ in range(3):
            assert (await executor.run(job)).stdout == b"[]\n"
            await _ready(pool)


async def test_only_what_it_was_made_for_gets_it(bench: Bench, tmp_path: Path) -> None:
    workspaces = Workspaces(bench.home)
    with closing(WarmPool(bench, workspaces)) as pool:
        executor = ScriptExecutor(bench, workspaces, pool)
        job = _job(tmp_path, "print(open('/'.join(__import__('sys').argv[1:])).read())")
        await executor.run(job)
        await _ready(pool)
        other = tmp_path.parent / f"{tmp_path.name}-other"
        other.mkdir()
        (other / "a").write_text("granted", encoding="utf-8")
        granted = replace(job, read=(tmp_path, other), arguments=(str(other), "a"))
        started = bench.started
        assert (await executor.run(granted)).stdout == b"granted\n"
        assert bench.started > started  # a new one, with the grant
        await _ready(pool, 2)
        refused = replace(job, arguments=(str(other), "a"))
        assert (await executor.run(refused)).outcome == "failed"


async def test_a_folder_that_was_replaced_is_seen_anew(bench: Bench, tmp_path: Path) -> None:
    workspaces, skill = Workspaces(bench.home), tmp_path / "skill"
    skill.mkdir()
    with closing(WarmPool(bench, workspaces)) as pool:
        executor = ScriptExecutor(bench, workspaces, pool)
        assert (await executor.run(_job(skill, "print('old')"))).stdout == b"old\n"
        await _ready(pool)
        skill.rename(tmp_path / "before")
        skill.mkdir()
        assert (await executor.run(_job(skill, "print('new')"))).stdout == b"new\n"
        await _ready(pool, 2)
        edited = _job(skill, "print('edited')")
        assert (await executor.run(edited)).stdout == b"edited\n"


async def test_limits_hold_and_a_cancelled_run_leaves_nothing(bench: Bench, tmp_path: Path) -> None:
    workspaces = Workspaces(bench.home)
    with closing(WarmPool(bench, workspaces)) as pool:
        executor = ScriptExecutor(bench, workspaces, pool)
        limits = SandboxLimits(wall_seconds=1, workspace_bytes=1_000_000)
        job = replace(_job(tmp_path, "import time; time.sleep(60)"), limits=limits)
        await executor.run(replace(job, script=_job(tmp_path, "0").script))
        await _ready(pool)
        job = replace(_job(tmp_path, "import time; time.sleep(60)"), limits=limits)
        assert (await executor.run(job)).outcome == "timeout"
        await _ready(pool)
        with anyio.move_on_after(0.3) as scope:
            await executor.run(job)
        assert scope.cancelled_caught
        await _ready(pool)
        _job(tmp_path, "open('big', 'wb').write(bytes(3_000_000))")
        assert (await executor.run(job)).outcome == "workspace_limit"
    assert bench.places() == []


async def test_a_dead_sandbox_is_not_leased(bench: Bench, tmp_path: Path) -> None:
    workspaces = Workspaces(bench.home)
    with closing(WarmPool(bench, workspaces)) as pool:
        executor = ScriptExecutor(bench, workspaces, pool)
        job = _job(tmp_path, "print('ran')")
        await executor.run(job)
        await _ready(pool)
        (lease,) = (idle for entry in pool._entries.values() for idle in entry.idle)  # pyright: ignore[reportPrivateUsage]
        assert lease.started is not None
        lease.started.kill()
        with anyio.fail_after(5):
            while lease.is_alive():
                await anyio.sleep(0.01)
        assert (await executor.run(job)).stdout == b"ran\n"


async def test_the_pool_never_exceeds_its_capacity(bench: Bench, tmp_path: Path) -> None:
    workspaces = Workspaces(bench.home)
    with closing(WarmPool(bench, workspaces, capacity=2)) as pool:
        keys = [_key(tmp_path, number) for number in range(4)]
        for key in keys:
            assert pool.acquire(key) is None
            await anyio.sleep(0.01)
        most = 0
        with anyio.fail_after(20):
            while pool.idle_keys() != keys[2:]:  # older ones are evicted
                most = max(most, pool.idle_count(), len(bench.places()))
                await anyio.sleep(0.005)
        assert most <= 3  # one on its way out
        await anyio.sleep(0.2)
        assert (pool.idle_keys(), len(bench.places())) == (keys[2:], 2)


async def test_idle_sandboxes_expire_and_the_thread_ends(bench: Bench, tmp_path: Path) -> None:
    workspaces = Workspaces(bench.home)
    with closing(WarmPool(bench, workspaces, idle_seconds=0.8)) as pool:
        pool.acquire(_key(tmp_path))
        await _ready(pool)
        assert len(bench.places()) == 1
        await _ready(pool, 0)
        with anyio.fail_after(5):
            while bench.places() or pool._thread is not None:  # pyright: ignore[reportPrivateUsage]
                await anyio.sleep(0.01)


async def test_what_cannot_be_started_is_not_tried_again_and_again(
    tmp_path: Path,
) -> None:
    class Broken:
        name = "broken"
        tried = 0

        def start(self, request: ExecRequest, *, has_stdin: bool) -> RunningProcess:
            del request, has_stdin
            self.tried += 1
            raise OSError("no")

    broken = Broken()
    with closing(WarmPool(broken, Workspaces(tmp_path / "w"))) as pool:
        pool.acquire(_key(tmp_path))
        await anyio.sleep(0.6)
        assert (broken.tried, pool.idle_count()) == (1, 0)
    assert [path for path in (tmp_path / "w").iterdir() if path.is_dir()] == []


async def test_a_sandbox_of_another_kind_runs_jobs_too(tmp_path: Path) -> None:
    sandbox = RecordingSandbox()
    result = await ScriptExecutor(sandbox, Workspaces(tmp_path / "w")).run(_job(tmp_path, "0"))
    (request,) = sandbox.requests
    assert (result.outcome, request.workspace, request.cwd.parent.parent) == (
        "ok",
        request.cwd,
        tmp_path / "w",
    )
    assert list((tmp_path / "w").iterdir()) == []


def _key(place: Path, number: int = 0) -> PoolKey:
    found = interpreters.find("python")
    assert found is not None
    waiter = WarmInterpreter(kind="python", program=str(found.program))
    return PoolKey.create(waiter, (place, *found.prefix), {"N": str(number)}, LIMITS)
