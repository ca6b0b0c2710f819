"""Overhead of sandbox backends, as ratios to starting the same command without one."""

import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from apexbridge.sandbox import interpreters
from apexbridge.sandbox.backends import BubblewrapSandbox, LandlockSandbox
from apexbridge.sandbox.base import Access, ExecRequest, ExecutionResult, Sandbox
from apexbridge.sandbox.cgroup import Cgroups
from apexbridge.sandbox.interpreters import Interpreter
from apexbridge.sandbox.launcher import Launcher
from apexbridge.sandbox.script_executor import ScriptExecutor, ScriptJob
from apexbridge.sandbox.warm_pool import WarmPool
from apexbridge.sandbox.workspace import Workspaces

ROUNDS = 60
GOALS = """goals (least over least): python cold 1.3 landlock, 1.7 bubblewrap; python warm 0.5,
node warm 0.4; /bin/true cold 5 landlock"""
_SETTLE_SECONDS = 0.25
"""A process that was just started would still compete for the CPU."""
_ENV = {"PATH": "/usr/bin:/bin"}

Subject = Callable[[], Awaitable[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """Command, and the equivalent script for a warm interpreter."""

    title: str
    argv: tuple[str, ...]
    interpreter: Interpreter
    script: str = ""


def main() -> None:
    """Print the table."""
    anyio.run(_main)


async def _main() -> None:
    print(f"\nSandboxes, {ROUNDS} interleaved rounds; {GOALS}")
    print(f"{'':20}{'':20}{'min ms':>9}{'median ms':>11}{'min ratio':>11}{'median ratio':>14}")
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        groups = Cgroups.detect()
        print("with a control group for each run" if groups else "no control groups can be made")
        launcher = stack.enter_context(closing(Launcher(groups)))
        for subject in _subjects():
            with ExitStack() as pools:
                await _compare(subject, _contenders(subject, place, launcher, pools))


def _subjects() -> list[_Subject]:
    true = Interpreter(program=Path("/bin/true"))
    subjects = [_Subject(title="/bin/true", argv=("/bin/true",), interpreter=true)]
    for name, words, script in (
        ("python", ("-I", "-c", "pass"), "pass"),
        ("node", ("-e", "0"), "0"),
    ):
        system = Path(f"/usr/bin/{name}3")  # starts fastest, and so shows our overhead most clearly
        found = Interpreter(program=system) if system.exists() else interpreters.find(name)
        if found is not None:
            argv = (str(found.program), *words)
            title = " ".join((name, *words))
            subjects.append(_Subject(title=title, argv=argv, interpreter=found, script=script))
    return subjects


def _contenders(
    subject: _Subject, place: Path, launcher: Launcher, pools: ExitStack
) -> dict[str, Subject]:
    kinds = [LandlockSandbox, BubblewrapSandbox] if shutil.which("bwrap") else [LandlockSandbox]
    contenders: dict[str, Subject] = {"bare": lambda: _bare(subject.argv, place)}
    for kind in kinds:
        backend = kind(launcher)
        name = backend.name
        contenders[name] = _cold(backend, subject, place)
        workspaces = Workspaces(place / name)
        pool = pools.enter_context(closing(WarmPool(backend, workspaces)))
        workshop = ScriptExecutor(backend, workspaces, pool)
        contenders[f"{name} warm"] = _warm(workshop, pool, subject, place)
    return contenders


async def _compare(subject: _Subject, contenders: dict[str, Subject]) -> None:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(ROUNDS + 2):
        for name, run in contenders.items():
            seconds = await run()
            if number > 1:  # the first rounds start the zygote and warm the caches
                times[name].append(seconds)
    base = times["bare"]
    for name, spans in times.items():
        least, median = min(spans), statistics.median(spans)
        ratios = f"{least / min(base):>11.2f}{median / statistics.median(base):>14.2f}"
        print(f"{subject.title:20}{name:20}{least * 1e3:>9.1f}{median * 1e3:>11.1f}{ratios}")


async def _bare(argv: tuple[str, ...], place: Path) -> float:
    """Start the same command with pipes, without a sandbox, in a thread."""

    def run() -> None:
        subprocess.run(argv, cwd=place, capture_output=True, check=True, env=_ENV)

    start = time.perf_counter()
    await anyio.to_thread.run_sync(run)
    return time.perf_counter() - start


def _cold(backend: Sandbox, subject: _Subject, place: Path) -> Subject:
    access = Access(read=subject.interpreter.prefix, write=(place,))
    request = ExecRequest(argv=subject.argv, cwd=place, env=_ENV, access=access)

    async def run() -> float:
        start = time.perf_counter()
        _require(await backend.run(request))
        return time.perf_counter() - start

    return run


def _warm(workshop: ScriptExecutor, pool: WarmPool, subject: _Subject, place: Path) -> Subject:
    """Run a complete job in a warm sandbox, with creation and removal of its workspace."""
    script = place / "script"
    script.write_text(subject.script, encoding="utf-8")
    job = ScriptJob(interpreter=subject.interpreter, script=script, env=_ENV, read=(script,))

    async def run() -> float:
        start = time.perf_counter()
        _require(await workshop.run(job))
        spent = time.perf_counter() - start
        # Background refills of the pool are not measured.
        while not pool.idle_count():  # noqa: ASYNC110  # a thread makes it
            await anyio.sleep(0.01)
        await anyio.sleep(_SETTLE_SECONDS)
        return spent

    return run


def _require(result: ExecutionResult) -> None:
    if result.outcome != "ok":
        raise SystemExit(f"a run failed: {result}")
