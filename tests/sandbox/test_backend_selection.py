"""Backend selection: a backend passes only if its canary is denied everything it must be."""

import json

import pytest

from apexbridge.errors import SandboxUnavailableError
from apexbridge.sandbox import seccomp
from apexbridge.sandbox.backend_selection import run_canary, select_backend
from apexbridge.sandbox.backends import BubblewrapSandbox, LandlockSandbox, UnsandboxedBackend
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.sandbox.launcher import Launcher
from apexbridge.testing import RecordingSandbox

pytestmark = pytest.mark.anyio


@pytest.mark.needs("bubblewrap")
async def test_bubblewrap_passes(launcher: Launcher) -> None:
    trial = await run_canary(BubblewrapSandbox(launcher))
    assert (trial.passed, trial.reason) == (True, "")


@pytest.mark.needs("landlock")
async def test_landlock_passes(launcher: Launcher) -> None:
    trial = await run_canary(LandlockSandbox(launcher))
    assert (trial.passed, trial.reason) == (True, "")


@pytest.mark.promise("X15")
async def test_what_does_not_isolate_does_not_pass() -> None:
    trial = await run_canary(UnsandboxedBackend())
    assert not trial.passed
    assert "can read a file outside" in trial.reason
    assert "can make a set-uid program" in trial.reason


@pytest.mark.needs("bubblewrap")
@pytest.mark.promise("X15")
async def test_a_backend_that_lets_set_uid_programs_be_made_does_not_pass(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without_a_filter:
        without_a_filter.setattr(seccomp, "SYSCALL_TABLES", {})
        backend = BubblewrapSandbox(launcher)
    trial = await run_canary(backend)
    assert (trial.passed, trial.reason) == (False, "can make a set-uid program")


@pytest.mark.promise("X15")
@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (ExecutionResult(outcome="ok", exit_code=0, stdout=b"garbage"), "not valid"),
        (ExecutionResult(outcome="failed", exit_code=1, stderr=b"a\nboom"), "boom"),
        (ExecutionResult(outcome="failed", exit_code=1), "exit code 1"),
        (ExecutionResult(outcome="not_started", exit_code=None, error="ENOENT"), "ENOENT"),
        (
            ExecutionResult(
                outcome="ok", exit_code=0, stdout=json.dumps({"read the skill": False}).encode()
            ),
            "cannot read the skill",
        ),
    ],
)
async def test_a_canary_that_does_not_sing_is_no_pass(result: ExecutionResult, reason: str) -> None:
    trial = await run_canary(RecordingSandbox(result))
    assert (trial.passed, reason in trial.reason) == (False, True)


@pytest.mark.needs("landlock")
@pytest.mark.promise("X15")
async def test_the_first_that_passes_is_taken_and_none_means_no_run(launcher: Launcher) -> None:
    broken = BubblewrapSandbox(launcher, program="/no/such/bwrap")
    landlock = LandlockSandbox(launcher)
    choice = await select_backend([broken, landlock])
    assert choice.sandbox is landlock
    assert [(trial.name, trial.reason) for trial in choice.trials] == [
        ("bubblewrap", "ENOENT"),
        ("landlock", ""),
    ]
    with pytest.raises(SandboxUnavailableError, match="bubblewrap: ENOENT"):
        (await select_backend([broken])).require()
