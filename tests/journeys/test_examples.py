"""The example programs run unchanged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unmeasured

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def place(home: Path, tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def _run(name: str, place: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *words],
        cwd=place,
        env={
            "HOME": os.environ["HOME"],
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "PYTHONWARNINGS": "error",
            "APEXBRIDGE_INDEX__EMBEDDER": "hash",
        },
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_embed_tells_what_happens(place: Path) -> None:
    lines = _run("embed.py", place, "What is 12*37?").splitlines()
    assert lines[0].startswith("[Calculate: ")
    assert lines[1:3] == ["12*37 = 444", "[stop]"]
    assert lines[3].startswith("[Now: ")
    assert lines[-1] == "[stop]"


@pytest.mark.needs("sandbox")
def test_embed_runs_a_skill(place: Path) -> None:
    (place / "sales.csv").write_text("month,sales\n1,3\n2,4\n", encoding="utf-8")
    out = _run("embed.py", place, "/csv-report sales.csv")
    assert "[skill csv-report]" in out
    assert "| sales | 2 | 0 | 3 | 4 | 3.50 |" in out


def test_custom_tool_is_a_tool_and_a_function(place: Path) -> None:
    lines = _run("custom_tool.py", place).splitlines()
    assert lines[0] == "Tell how many pieces of an item are in stock."
    assert "The item's name, in the plural." in lines[1]
    assert lines[2] == "12 apples"


def test_custom_source_brings_skills_that_are_read_and_found(place: Path) -> None:
    lines = _run("custom_source.py", place).splitlines()
    assert lines[0] == "tea additional:wiki Boil water, then wait."
    assert lines[1].startswith("problem: ")
    assert lines[-1] == "found: tea"


def test_every_example_is_run() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert names
    assert {name for name in names if f'_run("{name}"' not in here} == set()
