"""`runs`: recorded script runs."""

from pathlib import Path

import pytest

from apexbridge.testing import make_skill
from tests.cli.conftest import Run


@pytest.mark.needs("bubblewrap")
def test_a_run_from_the_terminal_is_listed_and_shown(run: Run, home: Path) -> None:
    script = "import sys; print('out\\x1b[2J'); print('err', file=sys.stderr); sys.exit(4)"
    make_skill(home / ".claude/skills", "runner", files={"scripts/main.py": script})
    assert run("run", "runner").code == 1
    (told,) = run("runs", "--json").data["runs"]
    assert (told["skill"], told["outcome"], told["exit_code"]) == ("runner", "failed", 4)
    listed = run("runs").out
    assert all(text in listed for text in (told["id"], "runner", "scripts/main.py", "failed"))
    shown = run("runs", told["id"]).out
    assert "exit code 4" in shown
    assert "out\\x1b[2J" in shown
    assert "err" in shown
    assert run("runs", told["id"], "--json").data == {"run": told}


def test_without_runs_no_database_is_created(run: Run, home: Path) -> None:
    done = run("runs")
    assert (done.code, done.out) == (0, "No script runs are recorded.\n")
    assert run("runs", "nothing").code == 3
    assert run("--lang", "zh", "runs", "x").out == "没有运行记录“x”。\n"
    assert not list(home.rglob("runs.db"))
