"""Regressions beyond the numbered attacks; each was once possible."""

import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from apexbridge.activation.scripts import ScriptCall
from apexbridge.errors import StorageError
from apexbridge.runtime import Runtime
from apexbridge.sandbox import interpreters
from apexbridge.sandbox.backends import LandlockSandbox
from apexbridge.sandbox.base import MIB, SandboxLimits
from apexbridge.sandbox.launcher import Launcher
from apexbridge.sandbox.script_executor import ScriptExecutor, ScriptJob
from apexbridge.sandbox.warm_pool import WarmPool
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.settings import load
from apexbridge.testing import make_skill
from tests.hostile.attack_setup import Field
from tests.hostile.attacks import kind_of

pytestmark = [pytest.mark.anyio, pytest.mark.unmeasured]


async def test_another_process_keeps_its_limits_and_turns(ground: Field) -> None:
    verdicts = await ground.verdicts("""
import resource
def limit(pid): resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0))
attack("the server's limits", lambda: limit(F["pid"]))
attack("the server's turn", lambda: os.setpriority(os.PRIO_PROCESS, F["pid"], 19))
attack("the server's processor", lambda: os.sched_setaffinity(F["pid"], {0}))
attack("own limits", lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
attack("own processor", lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)))
""")
    assert (verdicts.pop("own limits"), verdicts.pop("own processor")) == ("DONE", "DONE")
    assert set(verdicts.values()) <= {"EPERM", "ESRCH", "ProcessLookupError"}


async def test_the_supervisor_cannot_be_disarmed(ground: Field) -> None:
    source = """
import resource
attack("limit", lambda: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (0, 0)))
if os.fork() == 0:
    os.setsid()
time.sleep(60)
"""
    with anyio.fail_after(10):
        result = await ground.play(source, SandboxLimits(wall_seconds=0.7))
    assert result.outcome == "timeout"
    await ground.is_left_by_all()


async def test_fallocate_is_denied(ground: Field) -> None:
    limits = SandboxLimits(wall_seconds=30, workspace_bytes=64 * MIB)
    source = """
import ctypes
libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
def take():
    with open("big", "wb") as file:
        if libc.fallocate(file.fileno(), 0, 0, 60_000_000) < 0:
            raise OSError(ctypes.get_errno(), "fallocate")
attack("fallocate", take)
report()
"""
    result = await ground.play(source, limits)
    assert b'"fallocate": "EOPNOTSUPP"' in result.stdout or b"ENOTSUP" in result.stdout


async def test_no_datagram_reaches_a_socket_in_the_file_system(ground: Field) -> None:
    verdicts = await ground.verdicts("""
def send():
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", F["unix"])
attack("datagram", send)
attack("stream", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM))
""")
    assert verdicts["stream"] == "DONE"
    assert verdicts["datagram"] in {"EPERM", "ENOENT"}


async def test_what_happens_outside_cannot_be_watched(ground: Field) -> None:
    verdicts = await ground.verdicts("""
def watch():
    held = libc.inotify_init1(0)
    if held < 0 or libc.inotify_add_watch(held, F["outside"].encode(), 0xFFF) < 0:
        raise OSError(ctypes.get_errno(), "inotify")
attack("watch", watch)
""")
    # With bubblewrap the parent directory is in another mount namespace: no event arrives.
    assert verdicts["watch"] == "EPERM" or kind_of(ground.backend) == "bubblewrap"


async def test_what_was_granted_and_is_not_there_is_reported(cold: Field) -> None:
    missing = Field(
        backend=cold.backend,
        sandbox=cold.sandbox,
        skill=cold.skill / "gone",
        workspace=cold.workspace,
        facts=cold.facts,
    )
    result = await missing.run(("/bin/true",))
    assert (result.outcome, result.exit_code, result.error) == ("not_started", None, "ENOENT")


async def test_a_code_above_128_is_the_scripts_own(ground: Field) -> None:
    result = await ground.play("os._exit(255)")
    assert (result.outcome, result.exit_code) == ("failed", 255)


async def test_half_a_character_is_refused_before_anything_starts(ground: Field) -> None:
    with pytest.raises(ValueError, match="lone surrogate"):
        await ground.run(("/bin/echo", "\ud800"))


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _job(place: Path, source: str, **inputs: bytes) -> ScriptJob:
    bash = interpreters.find("bash")
    assert bash is not None
    script = place / "script.sh"
    script.write_text(source, encoding="utf-8")
    named = {name.replace("__", "/"): data for name, data in inputs.items()}
    env = {"PATH": "/usr/bin:/bin"}
    return ScriptJob(interpreter=bash, script=script, read=(place,), env=env, inputs=named)


@asynccontextmanager
async def _counted(launcher: Launcher, place: Path) -> AsyncGenerator[ScriptExecutor]:
    """A executor with a pool, which must leave nothing when it is closed."""
    workspaces, backend = Workspaces(place / "w"), LandlockSandbox(launcher)
    await ScriptExecutor(backend, workspaces).run(_job(place, "true"))  # the zygote stays
    before = _descriptors()
    with closing(WarmPool(backend, workspaces)) as pool:
        yield ScriptExecutor(backend, workspaces, pool)
    assert _descriptors() == before
    assert list((place / "w").iterdir()) == []


@pytest.mark.needs("landlock")
async def test_many_runs_leave_no_descriptor_and_no_folder(
    launcher: Launcher, tmp_path: Path
) -> None:
    async with _counted(launcher, tmp_path) as executor:
        job = _job(tmp_path, "mkdir -p a/b c; echo x > a/b/made; exit 3")
        for _ in range(12):
            assert (await executor.run(job)).produced == {"a/b/made": b"x\n"}
            await anyio.sleep(0.05)


@pytest.mark.needs("landlock")
async def test_inputs_that_contradict_each_other_lose_nothing(
    launcher: Launcher, tmp_path: Path
) -> None:
    async with _counted(launcher, tmp_path) as executor:
        for _ in range(4):
            with pytest.raises(StorageError):
                await executor.run(_job(tmp_path, "true", a=b"1", a__b=b"2"))
            await anyio.sleep(0.3)


@pytest.mark.needs("landlock")
async def test_what_does_not_come_back_is_named(launcher: Launcher, tmp_path: Path) -> None:
    executor = ScriptExecutor(LandlockSandbox(launcher), Workspaces(tmp_path / "w"))
    deep = "/".join("abcdefghij")
    many = await executor.run(_job(tmp_path, "for i in $(seq 150); do echo > f$i; done"))
    assert len(many.produced) == 100
    assert "too many files" in many.not_taken.values()
    few = await executor.run(_job(tmp_path, f"ln -s / link; mkdir -p {deep}; chmod 0 ."))
    assert few.not_taken == {"a/b/c/d/e/f/g/h/i": "too deep", "link": "a link"}


@pytest.mark.needs("landlock")
async def test_a_fork_does_not_share_the_warm_pool(launcher: Launcher, tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "w")
    backend = LandlockSandbox(launcher)
    with closing(WarmPool(backend, workspaces)) as pool:
        executor = ScriptExecutor(backend, workspaces, pool)
        await executor.run(_job(tmp_path, "ls"))
        with anyio.fail_after(10):
            while not pool.idle_count():
                await anyio.sleep(0.01)
        child = os.fork()
        if child == 0:
            taken = [pool.acquire(key) for key in pool.idle_keys()]
            pool.close()
            os._exit(0 if taken == [None] else 1)
        _, status = await anyio.to_thread.run_sync(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert pool.idle_count() == 1
        assert (await executor.run(_job(tmp_path, "ls"))).outcome == "ok"


@pytest.mark.needs("sandbox")
async def test_first_runs_at_the_same_time_choose_once(home: Path, tmp_path: Path) -> None:
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.sh": "echo $0"})
    loaded = load(project=tmp_path, environment={"HOME": str(home)})
    chosen = set[int]()
    async with Runtime.open(loaded) as runtime:

        async def run() -> None:
            result = await runtime.script_runner.execute(
                ScriptCall(skill=runtime.catalog.get("tool"))
            )
            assert result.outcome == "ok"
            chosen.add(id((await runtime.script_runner.select_sandbox()).require()))

        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(run)
    assert len(chosen) == 1


@pytest.mark.promise("X02")
@pytest.mark.needs("sandbox")
async def test_a_first_line_with_an_open_quote_is_a_missing_interpreter(
    home: Path, tmp_path: Path
) -> None:
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.sh": "#!/bin/sh 'x\n"})
    loaded = load(project=tmp_path, environment={"HOME": str(home)})
    async with Runtime.open(loaded) as runtime:
        result = await runtime.script_runner.execute(ScriptCall(skill=runtime.catalog.get("tool")))
    assert (result.outcome, result.error) == ("not_started", "ENOENT")
    assert "first line of 'main.sh' names no interpreter" in result.explain()


async def test_a_run_is_not_held_by_a_long_pause(ground: Field) -> None:
    began = time.monotonic()
    result = await ground.play("print('quick')")
    assert (result.stdout, time.monotonic() - began < 10) == (b"quick\n", True)
