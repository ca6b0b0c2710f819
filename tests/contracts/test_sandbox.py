"""Contract of every sandbox, run over every implementation; `tests/hostile` has the attacks."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from apexbridge.sandbox.backends import BubblewrapSandbox, LandlockSandbox, UnsandboxedBackend
from apexbridge.sandbox.base import (
    Access,
    ExecRequest,
    ExecutionResult,
    Sandbox,
    SandboxLimits,
)
from apexbridge.sandbox.launcher import Launcher
from apexbridge.testing import RecordingSandbox

pytestmark = pytest.mark.anyio

IMPLEMENTATIONS: dict[str, Callable[[Launcher], Sandbox]] = {
    "bubblewrap": BubblewrapSandbox,
    "landlock": LandlockSandbox,
    "plain": lambda _: UnsandboxedBackend(),
    "plain without pidfd": lambda _: UnsandboxedBackend(),
}
REAL = [
    pytest.param("bubblewrap", marks=pytest.mark.needs("bubblewrap")),
    pytest.param("landlock", marks=pytest.mark.needs("landlock")),
    "plain",
    "plain without pidfd",  # as on systems other than Linux
]


@pytest.fixture(params=REAL)
def sandbox(
    request: pytest.FixtureRequest, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> Sandbox:
    if "without pidfd" in request.param:
        monkeypatch.delattr(os, "pidfd_open")
    return IMPLEMENTATIONS[request.param](launcher)


def _shell(place: Path, script: str, **more: Any) -> ExecRequest:
    return ExecRequest(
        argv=("sh", "-c", script),
        cwd=place,
        env={"PATH": "/usr/bin:/bin", "GREETING": "你好"},
        access=Access(write=(place,)),
        **more,
    )


async def test_a_command_runs_with_its_folder_environment_and_input(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    with anyio.fail_after(10):
        result = await sandbox.run(_shell(tmp_path, 'pwd; echo "$GREETING"; cat', stdin=b"in"))
    assert (result.outcome, result.exit_code, result.error) == ("ok", 0, None)
    assert result.stdout.decode() == f"{tmp_path}\n你好\nin"
    assert (result.isolation, result.duration > 0) == (sandbox.name, True)


async def test_what_the_command_did_is_an_outcome_and_no_exception(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    slow = SandboxLimits(wall_seconds=0.3)
    chatty = SandboxLimits(output_bytes=10)
    ends = [
        await sandbox.run(request)
        for request in (
            _shell(tmp_path, "exit 3"),
            _shell(tmp_path, "kill -9 $$"),
            _shell(tmp_path, "sleep 60", limits=slow),
            _shell(tmp_path, "yes", limits=chatty),
            ExecRequest(argv=("no-such-program",), cwd=tmp_path, env={"PATH": "/usr/bin"}),
        )
    ]
    assert [(end.outcome, end.exit_code) for end in ends] == [
        ("failed", 3),
        ("killed", 137),
        ("timeout", 124),
        ("output_limit", 137),
        ("not_started", None),
    ]
    assert (ends[3].stdout, ends[4].error) == (b"y\ny\ny\ny\ny\n\n[TRUNCATED]\n", "ENOENT")


async def test_output_can_be_seen_as_it_comes(sandbox: Sandbox, tmp_path: Path) -> None:
    pieces = list[tuple[int, bytes]]()

    def note(stream: int, piece: bytes) -> None:
        pieces.append((stream, piece))

    await sandbox.run(_shell(tmp_path, "echo a; echo b >&2", on_output=note))
    assert sorted(pieces) == [(1, b"a\n"), (2, b"b\n")]


async def test_many_run_side_by_side(sandbox: Sandbox, tmp_path: Path) -> None:
    results = list[str]()

    async def one(number: int) -> None:
        result = await sandbox.run(_shell(tmp_path, f"echo {number}"))
        results.append(result.stdout.decode().strip())

    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(one, number)
    assert sorted(results, key=int) == [str(number) for number in range(12)]


async def test_a_cancelled_run_is_over_when_the_cancellation_is(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    with anyio.fail_after(10), anyio.move_on_after(0.3) as scope:
        await sandbox.run(_shell(tmp_path, "sleep 60; touch never"))
    assert scope.cancelled_caught
    assert list(tmp_path.iterdir()) == []


async def test_nul_is_refused_before_anything_starts(sandbox: Sandbox, tmp_path: Path) -> None:
    for request in (
        ExecRequest(argv=("echo", "a\0b"), cwd=tmp_path),
        ExecRequest(argv=("echo",), cwd=tmp_path, env={"A": "\0"}),
    ):
        with pytest.raises(ValueError, match="NUL"):
            await sandbox.run(request)


async def test_a_sandbox_has_a_name_for_reports(sandbox: Sandbox) -> None:
    assert sandbox.name


async def test_the_double_gives_what_was_prepared_and_remembers(tmp_path: Path) -> None:
    prepared = ExecutionResult(outcome="timeout", exit_code=124)
    double = RecordingSandbox(prepared)
    request = ExecRequest(argv=("sleep", "9"), cwd=tmp_path)
    assert await double.run(request) is prepared
    assert double.requests == [request]


async def test_native_asyncio_cancellation_ends_the_run_too(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    script = "echo up; sleep 60; touch never"
    up = anyio.Event()
    loop = asyncio.get_running_loop()

    def note(_: int, __: bytes) -> None:
        loop.call_soon_threadsafe(up.set)

    task = loop.create_task(sandbox.run(_shell(tmp_path, script, on_output=note)))
    with anyio.fail_after(10):
        await up.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert list(tmp_path.iterdir()) == []
