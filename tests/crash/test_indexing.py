"""Killed at any point of indexing: rows match folders, and no stale row is found."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from apexbridge.retrieval.vectorized_marker import read_marker
from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load
from apexbridge.skills.tree import MARKER
from apexbridge.testing import make_skill, skill_md

pytestmark = pytest.mark.anyio

SKILLS = 96
LONGEST_SECONDS = 0.6
"""About as long as the indexer needs to go over all skills once."""


def _loaded(home: Path, project: Path) -> Config:
    environment = {
        "HOME": str(home),
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
        "APEXBRIDGE_SKILLS__MAX_FOLDERS": "10000",
    }
    return load(project=project, environment=environment)


@pytest.fixture
def indexer(home: Path, tmp_path: Path) -> Generator["subprocess.Popen[str]"]:
    program = Path(__file__).with_name("indexer.py")
    command = [sys.executable, str(program), str(home), str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as running:
        yield running


def _kill_while_indexing(indexer: "subprocess.Popen[str]", after: float) -> None:
    assert indexer.stdin is not None
    assert indexer.stdout is not None
    indexer.stdin.write("begin\n")
    indexer.stdin.flush()
    said, number = indexer.stdout.readline().split()
    assert said == "ready"
    time.sleep(after)
    os.kill(int(number), signal.SIGKILL)
    assert indexer.stdout.readline() == f"ended {-signal.SIGKILL}\n"


def _change_some(skills: Path, chance: random.Random, number: int) -> None:
    """Edit, remove and add, as people do between two starts."""
    present = sorted(path for path in skills.iterdir() if (path / "SKILL.md").exists())
    for root in chance.sample(present, 6):
        text = f"Edited in round {number}, {chance.random()}."
        (root / "SKILL.md").write_bytes(skill_md(root.name, description=text))
    gone = chance.choice(present)
    for path in (gone / MARKER, gone / "SKILL.md"):
        path.unlink(missing_ok=True)
    gone.rmdir()
    make_skill(skills, f"new-{number}", description=f"Added in round {number}.")


@pytest.mark.unmeasured
async def test_a_kill_at_any_moment_leaves_rows_that_are_folders(
    home: Path, tmp_path: Path, rounds: int, indexer: "subprocess.Popen[str]"
) -> None:
    chance = random.Random(rounds)  # noqa: S311  # no secret hangs on it
    skills = home / ".local/share/apexbridge/skills"
    for number in range(SKILLS):
        make_skill(skills, f"skill-{number}", description=f"Does number {number}.")
    for number in range(rounds):
        _kill_while_indexing(indexer, chance.uniform(0, LONGEST_SECONDS))
        _change_some(skills, chance, number)
        async with Runtime.open(_loaded(home, tmp_path)) as runtime:
            index = await runtime.index_service.index()
            status = await runtime.index_service.status(is_thorough=True)
            stored = await index.store.fingerprints()
            known = {skill.name: skill for skill in runtime.catalog.snapshot.skills}
            assert status.is_sound, status
            assert stored.keys() == known.keys() == index.memory.row_of.keys()
            for name, skill in known.items():
                assert skill.description in index.memory.texts[index.memory.row_of[name]][0]
                if skill.provenance.writable:
                    assert skill.root is not None
                    assert skill.fingerprint is not None
                    marker = read_marker(skill.root)
                    assert marker is not None
                    assert marker.sha256 == skill.fingerprint.sha256
            left = {path.stem for path in (skills / ".staging").glob("*.marker")}
            assert left.isdisjoint(known)
