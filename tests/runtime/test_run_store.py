"""Run history: every script run is recorded, and none waits or fails for it."""

import logging
import threading
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from apexbridge.activation.scripts import ScriptCall
from apexbridge.errors import StorageError, ToolInputError
from apexbridge.extensions import Extensions
from apexbridge.runtime import Runtime
from apexbridge.runtime.run_store import TAIL_BYTES, RunStore
from apexbridge.sandbox.base import ExecutionResult, SandboxLimits
from apexbridge.settings import Config, load
from apexbridge.skills.model import Origin, Provenance, Skill
from apexbridge.skills.parser import read_skill
from apexbridge.testing import make_skill


@pytest.fixture
def store(tmp_path: Path) -> Generator[RunStore]:
    with closing(RunStore(tmp_path / "data/runs.db", kept=3)) as store:
        yield store


def _skill(tmp_path: Path, name: str = "runner") -> Skill:
    root = make_skill(tmp_path, name, files={"scripts/main.py": "print('hi')\n"})
    skill = read_skill(root, Provenance(origin=Origin.USER, source_id="user:x")).skill
    assert skill is not None
    return skill


def _result(**fields: Any) -> ExecutionResult:
    plain = ExecutionResult(outcome="ok", exit_code=0, duration=0.5, isolation="bubblewrap")
    return replace(plain, **fields)


def test_a_run_is_kept_with_all_but_its_arguments(store: RunStore, tmp_path: Path) -> None:
    skill = _skill(tmp_path)
    call = ScriptCall(skill=skill, arguments=("secret", "密码"), limits=SandboxLimits(processes=7))
    result = _result(stdout="一二".encode(), stderr=b"\xff", produced={"b.txt": b"", "a.txt": b""})
    store.put(call, result, began=1_000.0)
    (run,) = store.latest()
    assert store.find(run.id) == run
    assert (run.skill, run.script, run.at) == ("runner", "scripts/main.py", 1_000.0)
    assert skill.fingerprint is not None
    assert run.sha256 == skill.fingerprint.sha256
    assert (run.outcome, run.exit_code, run.seconds) == ("ok", 0, 0.5)
    assert (run.isolation, run.limits["processes"]) == ("bubblewrap", 7)
    assert (run.stdout, run.stderr) == ("一二", "\ufffd")
    assert run.files == ("a.txt", "b.txt")
    assert run.argument_chars == (6, 2)
    data = (tmp_path / "data/runs.db-wal").read_bytes() + (tmp_path / "data/runs.db").read_bytes()
    assert b"secret" not in data


def test_of_much_output_the_end_is_kept_and_that_is_told(store: RunStore, tmp_path: Path) -> None:
    call = ScriptCall(skill=_skill(tmp_path), script="main.py")
    long = b"a" * TAIL_BYTES + b"the end"
    store.put(call, _result(stdout=long), began=1.0)
    store.put(call, _result(stdout=b"short", truncated=True), began=2.0)
    second, first = store.latest()
    assert (len(first.stdout), first.stdout[-7:], first.truncated) == (TAIL_BYTES, "the end", True)
    assert (second.stdout, second.truncated) == ("short", True)


def test_the_oldest_runs_are_forgotten_and_pages_are_turned(
    store: RunStore, tmp_path: Path
) -> None:
    call = ScriptCall(skill=_skill(tmp_path))
    for number in range(5):
        store.put(call, _result(exit_code=number), began=1.0)
    runs = store.latest(10)
    assert [run.exit_code for run in runs] == [4, 3, 2]
    assert store.latest(1, before=runs[0].id) == (runs[1],)
    assert store.latest(5, before=runs[2].id) == ()
    assert store.latest(5, before="nothing") == ()
    assert store.find("nothing") is None


def test_runs_are_private_and_outlive_the_process(tmp_path: Path) -> None:
    path, call = tmp_path / "data/runs.db", ScriptCall(skill=_skill(tmp_path))
    with closing(RunStore(path)) as store:
        store.put(call, _result(), began=1.0)
    assert path.stat().st_mode & 0o777 == 0o600
    with closing(RunStore(path)) as store:
        assert len(store.latest()) == 1


def test_a_store_that_was_only_looked_at_makes_no_file(tmp_path: Path) -> None:
    RunStore(tmp_path / "data/runs.db").close()
    with closing(RunStore(tmp_path / "data/runs.db")) as store:
        assert (store.latest(), store.find("x")) == ((), None)
    assert not (tmp_path / "data").exists()


def test_a_file_that_cannot_be_written_is_told_once_and_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").write_bytes(b"a file where a folder should be")
    call = ScriptCall(skill=_skill(tmp_path))
    with (
        caplog.at_level(logging.WARNING, "apexbridge"),
        closing(RunStore(tmp_path / "data/runs.db")) as store,
    ):
        store.put(call, _result(), began=1.0)
        store.put(call, _result(), began=1.0)
        assert store.latest() == ()
    (record,) = caplog.records
    assert "Cannot store a script run" in record.message


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.write_bytes(b"no database, but long enough to be read as one " * 20)
    before = path.read_bytes()
    with closing(RunStore(path)) as store:
        store.put(ScriptCall(skill=_skill(tmp_path)), _result(), began=1.0)
        with pytest.raises(StorageError):
            store.find("x")
    assert path.read_bytes() == before


def test_a_skill_that_has_gone_since_is_recorded_as_it_was_asked_for(
    store: RunStore, tmp_path: Path
) -> None:
    skill = _skill(tmp_path)
    assert skill.root is not None
    for path in sorted(skill.root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    store.put(ScriptCall(skill=skill, script="odd\udcff.py"), _result(), began=1.0)
    (run,) = store.latest()
    assert run.script == "odd?.py"


def _loaded(home: Path) -> Config:
    (home / "project").mkdir()
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    return load(project=home / "project", environment=environment)


@pytest.mark.anyio
@pytest.mark.needs("bubblewrap")
async def test_whatever_way_a_script_is_run_it_is_recorded(home: Path) -> None:
    files = {
        "scripts/main.py": "import sys; print('to', sys.argv[1]); sys.exit(3)",
        "scripts/wait.py": "import time\nprint('begun', flush=True)\ntime.sleep(60)",
    }
    make_skill(home / ".claude/skills", "runner", files=files)
    async with Runtime.open(_loaded(home), extensions=Extensions()) as runtime:
        result = await runtime.execute_skill("runner", ["you"])
        runs = runtime.script_runner.runs
        (run,) = await anyio.to_thread.run_sync(runs.latest)
        assert (result.exit_code, run.exit_code, run.outcome) == (3, 3, "failed")
        assert (run.stdout, run.isolation) == ("to you\n", result.isolation)
        assert run.limits["wall_seconds"] == runtime.script_runner.limits().wall_seconds
        with pytest.raises(ToolInputError):
            await runtime.execute_skill("runner", script="nothing.py")
        begun = threading.Event()
        call = ScriptCall(
            skill=runtime.catalog.get("runner"),
            script="wait.py",
            on_output=lambda _, piece: begun.set(),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runtime.script_runner.execute, call)
            assert await anyio.to_thread.run_sync(begun.wait, 60)
            tasks.cancel_scope.cancel()
        latest = await anyio.to_thread.run_sync(runs.latest)
        assert [(r.script, r.outcome) for r in latest] == [
            ("scripts/wait.py", "cancelled"),
            ("scripts/main.py", "failed"),
        ]
