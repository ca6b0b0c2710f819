"""Concurrent installs, edits, searches, uninstalls and restores of one skill."""

import json
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from apexbridge.retrieval.vectorized_marker import read_marker
from apexbridge.runtime import Runtime
from apexbridge.settings import Config
from apexbridge.testing import make_zip, skill_md
from tests.lifecycle.concurrent_client import NAME, REFUSALS, change, loaded_for

pytestmark = [pytest.mark.anyio, pytest.mark.unmeasured]

DONE = frozenset({"install", "uninstall", "edit", "search", "undo"})


@pytest.fixture
def loaded(home: Path, tmp_path: Path) -> Config:
    (tmp_path / "project").mkdir()
    return loaded_for(home, tmp_path / "project")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    entries = {f"{NAME}/SKILL.md": skill_md(NAME, "Grows tomatoes."), f"{NAME}/a.md": b"more"}
    return make_zip(tmp_path / "garden.zip", entries)


async def _refuse_illegal(runtime: Runtime, loaded: Config) -> None:
    """Verify that disk, catalog, index, marker and audit log agree."""
    await runtime.index_service.index()
    root = loaded.data / "skills" / NAME
    found = runtime.catalog.snapshot.winner(NAME)
    assert (found is not None) is root.is_dir()
    if found is not None:
        assert sorted(path.name for path in root.iterdir()) == [".vectorized", "SKILL.md", "a.md"]
        marker = read_marker(root)
        assert marker is not None
        assert found.fingerprint is not None
        assert marker.sha256 == found.fingerprint.sha256
    status = await runtime.index_service.status(is_thorough=True)
    assert status.is_sound, status
    assert [path.name for path in (loaded.data / "skills/.staging").iterdir()] == [".lock"]
    trash = loaded.data / "skills/.trash"
    if trash.exists():
        assert len(runtime.store.trash.list()) == len(list(trash.iterdir()))
    runtime.audit.verify()


def _count(loaded: Config) -> Counter[str]:
    lines = (loaded.data / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    return Counter(json.loads(line)["action"] for line in lines)


def _refuse_wrong_sums(outcomes: Counter[str], loaded: Config) -> None:
    """Compare the audit log with the outcome: every change and every refusal is recorded."""
    assert outcomes.keys() <= DONE | REFUSALS
    is_there = (loaded.data / "skills" / NAME).is_dir()
    assert outcomes["install"] + outcomes["undo"] - outcomes["uninstall"] == is_there
    recorded = _count(loaded)
    for action in ("install", "uninstall", "undo"):
        assert recorded[action] == outcomes[action]
    refused = sum(count for action, count in recorded.items() if action.endswith("_refused"))
    assert refused == sum(outcomes[code] for code in REFUSALS)


@pytest.mark.promise("L03")
async def test_many_in_one_process_take_turns(loaded: Config, archive: Path) -> None:
    outcomes = Counter[str]()

    async def take_part(seed: int) -> None:
        outcomes.update(await change(runtime, archive, seed, 8))

    async with Runtime.open(loaded) as runtime:
        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                for seed in range(9):
                    tasks.start_soon(take_part, seed)
        assert outcomes.total() == 72
        assert all(outcomes[action] for action in ("install", "uninstall", "search"))
        _refuse_wrong_sums(outcomes, loaded)
        await _refuse_illegal(runtime, loaded)
    async with Runtime.open(loaded) as again:
        await _refuse_illegal(again, loaded)


@pytest.mark.promise("L03")
async def test_many_processes_take_turns(loaded: Config, archive: Path) -> None:
    program = Path(__file__).with_name("client.py")
    words = [str(word) for word in (loaded.home, loaded.project, archive)]
    with ExitStack() as stack:
        clients = [
            stack.enter_context(
                subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "tests.lifecycle.concurrent_client",
                        *words,
                        str(seed),
                        "12",
                    ],
                    cwd=program.parents[2],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                )
            )
            for seed in range(3)
        ]
        for client in clients:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n"
        for client in clients:
            assert client.stdin is not None
            client.stdin.write("go\n")
            client.stdin.flush()
        reported = [client.communicate(timeout=120) for client in clients]
    for client, (_, errors) in zip(clients, reported, strict=True):
        assert client.returncode == 0, errors  # a warning of what went meanwhile is no fault
    outcomes = Counter[str]()
    for out, _ in reported:
        outcomes.update(json.loads(out))
    assert outcomes.total() == 36
    _refuse_wrong_sums(outcomes, loaded)
    async with Runtime.open(loaded) as runtime:
        await _refuse_illegal(runtime, loaded)
