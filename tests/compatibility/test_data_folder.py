"""A data folder that an earlier version wrote is opened, with everything that is in it.

`data-folder-0.1.0.tar.gz` was made with the command line, before the modules, settings and fields
were renamed: four skills installed, one of them updated and pinned, one edited, one
disabled, one removed; a script run, a question asked, a key made, a project's skill approved.
"""

import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.unmeasured
HERE = Path(__file__).parent
KEY_ID, SESSION = "0694992572a1", "89a200717821"
OLD_VERSION = "9f317bdfd881"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with tarfile.open(HERE / "data-folder-0.1.0.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "home").mkdir()
    return tmp_path / "data"


def _run(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Ten years, so that the test does not age: what was removed can be restored for as long.
    settings = ["--set", f"data_dir={data}", "--set", "skills.undo_days=3650"]
    home = data.parent / "home"
    return subprocess.run(
        [sys.executable, "-m", "apexbridge", *settings, *arguments],
        cwd=home,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def _ask(data: Path, *arguments: str) -> Any:
    done = _run(data, *arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)["data"]


def test_skills_versions_and_states_are_there(data: Path) -> None:
    listed = {row["name"]: row for row in _ask(data, "ls")["skills"]}
    assert {"greet", "pi"} <= set(listed)
    assert listed["pi"]["description"] == "计算圆周率π到指定的小数位数。"
    versions = json.dumps(_ask(data, "versions", "greet"))
    assert OLD_VERSION in versions
    refused = _run(data, "rollback", "greet", OLD_VERSION)
    assert (refused.returncode, "[skill_pinned]" in refused.stderr) == (4, True), refused.stderr
    assert _run(data, "pin", "greet", "--off").returncode == 0
    done = _run(data, "rollback", "greet", OLD_VERSION)
    assert done.returncode == 0, done.stderr
    shown = json.dumps(_ask(data, "show", "greet"))
    assert "Say hello politely to the person" in shown


def test_a_disabled_skill_stays_disabled_and_can_be_enabled(data: Path) -> None:
    assert "quiet" not in {row["name"] for row in _ask(data, "ls")["skills"]}
    assert _run(data, "enable", "quiet").returncode == 0
    assert "quiet" in {row["name"] for row in _ask(data, "ls")["skills"]}


def test_a_removed_skill_can_be_restored(data: Path) -> None:
    done = _run(data, "undo", "gone")
    assert done.returncode == 0, done.stderr
    assert "gone" in {row["name"] for row in _ask(data, "ls")["skills"]}


def test_keys_audit_log_and_runs_are_there(data: Path) -> None:
    keys = _ask(data, "keys", "ls")
    assert KEY_ID in json.dumps(keys)
    assert _run(data, "audit", "verify").returncode == 0
    assert "greet" in json.dumps(_ask(data, "runs"))


def test_the_index_is_brought_up_to_date_and_a_conversation_goes_on(data: Path) -> None:
    before = _ask(data, "index", "status")
    assert _ask(data, "find", "计算圆周率")["hits"][0]["name"] == "pi"
    assert _ask(data, "index", "status").keys() == before.keys()
    answer = _run(data, "chat", "--session", SESSION, "What is 2+3?")
    assert answer.returncode == 0, answer.stderr
    assert "5" in answer.stdout


def test_fsck_finds_nothing_after_the_first_search(data: Path) -> None:
    _ask(data, "find", "计算圆周率")  # embeds what another version of the encoder has embedded
    done = _run(data, "doctor", "--fsck")
    assert done.returncode == 0, done.stdout + done.stderr
