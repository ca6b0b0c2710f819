"""Environments of skills: first build, starts beside a script without packages, shared disk.

Builds from the package index that this machine is configured with; without one it says so.
"""

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import anyio
import anyio.to_thread

from apexbridge.environments.selection import select
from apexbridge.errors import DependencyError
from apexbridge.runtime import Runtime
from apexbridge.sandbox import interpreters
from apexbridge.sandbox.backends import BubblewrapSandbox
from apexbridge.sandbox.cgroup import Cgroups
from apexbridge.sandbox.interpreters import Interpreter
from apexbridge.sandbox.launcher import Launcher
from apexbridge.sandbox.script_executor import ScriptExecutor, ScriptJob
from apexbridge.sandbox.warm_pool import WarmPool
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.settings import load
from apexbridge.skills.model import Skill
from apexbridge.testing import make_skill

ROUNDS = 40
SKILLS = 4
PACKAGES = "defusedxml\nlxml\nopenpyxl\n"
"""What public skills for office files need."""
GOALS = "goals: cold 1.1 of a script without packages, warm 0.5 of bare python"
_SETTLE_SECONDS = 0.25
_MIB = 1024 * 1024

Start = Callable[[], Awaitable[float]]


def main() -> None:
    """Print the figures."""
    if shutil.which("bwrap") is None:
        print("\nEnvironments: no bubblewrap, so nothing can be built")
        return
    anyio.run(_main)


async def _main() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        place = Path(folder)
        variables = {**os.environ, "HOME": folder}
        print(f"\nEnvironments, {ROUNDS} interleaved rounds; {GOALS}")
        async with Runtime.open(load(project=place, environment=variables)) as runtime:
            try:
                await _measure(runtime, place)
            except DependencyError as error:
                print(f"nothing was built: {error}")


async def _measure(runtime: Runtime, place: Path) -> None:
    skills = [await _install(runtime, place, f"office-{number}") for number in range(SKILLS)]
    for number, skill in enumerate(skills, 1):
        began = time.perf_counter()
        await runtime.dependencies.build(skill)
        print(f"build of skill {number} of {SKILLS}: {time.perf_counter() - began:.2f} s")
    (built,) = runtime.dependencies.store.all()
    real = _disk(runtime.dependencies.store.path(""))
    print(
        f"disk: {SKILLS} skills apparently {SKILLS * built.size / _MIB:.0f} MiB, "
        f"really {real / _MIB:.0f} MiB"
    )
    await _starts(place, built.path)


async def _install(runtime: Runtime, place: Path, name: str) -> Skill:
    files = {"requirements.txt": PACKAGES, "scripts/main.py": f"# {name}\n"}
    return (await runtime.manager.install(make_skill(place / "from", name, files=files))).skill


def _disk(place: Path) -> int:
    seen = {(status.st_dev, status.st_ino): status.st_blocks * 512
            for path in place.rglob("*") for status in [path.lstat()]}  # fmt: skip
    return sum(seen.values())


async def _starts(place: Path, environment: Path) -> None:
    python = interpreters.find("python")
    if python is None:
        return
    script = place / "start.py"
    script.write_text("pass\n", "utf-8")
    chosen = select(python, {"python": environment})
    with ExitStack() as stack:
        launcher = stack.enter_context(closing(Launcher(Cgroups.detect())))
        backend = BubblewrapSandbox(launcher)
        workspaces = Workspaces(place / "workspaces")
        pool = stack.enter_context(closing(WarmPool(backend, workspaces)))
        cold, warm = ScriptExecutor(backend, workspaces), ScriptExecutor(backend, workspaces, pool)
        plain = ScriptJob(interpreter=python, script=script, read=(script,))
        own = ScriptJob(
            interpreter=chosen.interpreter, script=script, read=(script,), env=chosen.env
        )
        times = await _interleaved(
            {
                "bare python": lambda: _bare(python, script),
                "cold, no packages": lambda: _run(cold, plain),
                "cold, environment": lambda: _run(cold, own),
                "warm, no packages": lambda: _run_warm(warm, pool, plain),
                "warm, environment": lambda: _run_warm(warm, pool, own),
            }
        )
    _print(times)


async def _interleaved(starts: Mapping[str, Start]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in starts}
    for number in range(ROUNDS + 2):
        for name, start in starts.items():
            seconds = await start()
            if number > 1:  # the first rounds start the zygote and fill the caches
                times[name].append(seconds)
    return times


def _print(times: Mapping[str, list[float]]) -> None:
    bare, plain = times["bare python"], times["cold, no packages"]
    print(f"{'':22}{'min ms':>9}{'median ms':>11}{'of bare':>9}{'of no packages':>16}")
    for name, spans in times.items():
        least, median = min(spans), statistics.median(spans)
        print(
            f"{name:22}{least * 1e3:>9.1f}{median * 1e3:>11.1f}"
            f"{least / min(bare):>9.2f}{least / min(plain):>16.2f}"
        )


async def _bare(python: Interpreter, script: Path) -> float:
    argv = (str(python.program), str(script))

    def run() -> None:
        subprocess.run(argv, capture_output=True, check=True, env={})

    began = time.perf_counter()
    await anyio.to_thread.run_sync(run)
    return time.perf_counter() - began


async def _run(executor: ScriptExecutor, job: ScriptJob) -> float:
    began = time.perf_counter()
    result = await executor.run(job)
    seconds = time.perf_counter() - began
    if result.outcome != "ok":
        raise RuntimeError(result.stderr.decode() or result.error)
    return seconds


async def _run_warm(executor: ScriptExecutor, pool: WarmPool, job: ScriptJob) -> float:
    """Run once a sandbox waits for this kind of run."""
    program = str(job.interpreter.program)
    while not any(key.interpreter.program == program for key in pool.idle_keys()):
        if not pool.idle_count():
            await executor.run(job)
        await anyio.sleep(_SETTLE_SECONDS)
    await anyio.sleep(_SETTLE_SECONDS)  # what has just started would compete for the CPU
    return await _run(executor, job)
