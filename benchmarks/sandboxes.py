"""What isolation costs, as ratios to starting the same command bare in the same run."""

import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import anyio
import anyio.to_thread

from apexbridge.sandbox import interpreters
from apexbridge.sandbox.base import Access, ExecRequest, Sandbox
from apexbridge.sandbox.bubblewrap import BubblewrapSandbox
from apexbridge.sandbox.cgroup import Cgroups
from apexbridge.sandbox.landlock import LandlockSandbox
from apexbridge.sandbox.launcher import Launcher

ROUNDS = 60
GOALS = "goals: python landlock 1.3, bubblewrap 1.7; /bin/true landlock 5"


def main() -> None:
    """Print the table."""
    anyio.run(_main)


async def _main() -> None:
    python = interpreters.find("python")
    commands: dict[str, tuple[str, ...]] = {"/bin/true": ("/bin/true",)}
    prefix: tuple[Path, ...] = ()
    if python is not None:
        commands["python3 -I -c pass"] = (str(python.program), "-I", "-c", "pass")
        prefix = python.prefix
    if shutil.which("node"):
        commands["node -e 0"] = ("/usr/bin/env", "node", "-e", "0")
    launcher = Launcher()
    groups = Cgroups.detect()
    backends: dict[str, Sandbox] = {"landlock": LandlockSandbox(launcher)}
    if shutil.which("bwrap"):
        backends["bubblewrap"] = BubblewrapSandbox(launcher)
        if groups is not None:
            backends["bubblewrap+cgroup"] = BubblewrapSandbox(launcher, groups)
    print(f"\nSandboxes, {ROUNDS} interleaved rounds ({GOALS})")
    print(f"{'':20}{'':20}{'min ms':>9}{'median ms':>11}{'min ratio':>11}{'median ratio':>14}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        for title, argv in commands.items():
            await _compare(title, argv, backends, Access(read=prefix, write=(Path(place),)))
    launcher.close()


async def _compare(
    title: str, argv: tuple[str, ...], backends: dict[str, Sandbox], access: Access
) -> None:
    place = access.write[0]
    request = ExecRequest(argv=argv, cwd=place, env={"PATH": "/usr/bin:/bin"}, access=access)
    times: dict[str, list[float]] = {"bare": [], **{name: [] for name in backends}}
    for number in range(ROUNDS + 2):
        spent = {"bare": await _bare(argv, place)}
        for name, backend in backends.items():
            start = time.perf_counter()
            result = await backend.run(request)
            spent[name] = time.perf_counter() - start
            if result.outcome != "ok":
                raise SystemExit(f"{name} {title}: {result}")
        if number > 1:  # the first rounds start the zygote and warm the caches
            for name, seconds in spent.items():
                times[name].append(seconds)
    base = times["bare"]
    for name, spans in times.items():
        least, median = min(spans), statistics.median(spans)
        ratios = f"{least / min(base):>11.2f}{median / statistics.median(base):>14.2f}"
        print(f"{title:20}{name:20}{least * 1e3:>9.1f}{median * 1e3:>11.1f}{ratios}")


async def _bare(argv: tuple[str, ...], place: Path) -> float:
    """The same command with pipes, started and waited for in a thread, as plainly as can be."""

    def run() -> None:
        subprocess.run(
            argv, cwd=place, capture_output=True, check=True, env={"PATH": "/usr/bin:/bin"}
        )

    start = time.perf_counter()
    await anyio.to_thread.run_sync(run)
    return time.perf_counter() - start
