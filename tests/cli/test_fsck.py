"""`doctor --fsck` and `doctor --fix`."""

import json
from pathlib import Path

import pytest

from apexbridge.testing import make_skill, make_zip, skill_md
from tests.cli.conftest import Run

HASH = "index.embedder=hash"


@pytest.fixture
def skills(run: Run, home: Path, tmp_path: Path) -> Path:
    """One skill, installed and indexed."""
    archive = make_zip(tmp_path / "garden.zip", {"garden/SKILL.md": skill_md("garden")})
    assert run("--set", HASH, "add", str(archive), "--yes").code == 0
    return home / ".local/share/apexbridge/skills"


def test_a_data_folder_without_violations_prints_one_table(run: Run, skills: Path) -> None:
    done = run("--set", HASH, "doctor", "--fsck")
    assert (done.code, done.err) == (0, "")
    rows = [line.split("\t") for line in done.out.splitlines()[:-1]]
    assert [row[0] for row in rows] == [f"I{number}" for number in range(1, 14)]
    assert rows[0] == ["I1", "1", "holds", "every skill folder is complete"]
    assert rows[5][1:3] == ["-", "not visible on disk; proved by tests"]
    assert done.out.splitlines()[-1] == f"No violations in the data folder {skills.parent}"


def test_a_violation_fails_and_changes_nothing(run: Run, skills: Path) -> None:
    left = skills / ".staging/left"
    left.mkdir()
    (skills / "garden/SKILL.md").write_bytes(skill_md("garden", "Edited by hand."))
    done = run("--set", HASH, "doctor", "--fsck")
    assert (done.code, done.err) == (1, "")
    assert "I4\t1\tviolations: 2\t" in done.out
    assert "I11\t1\tholds; notes: 1\t" in done.out
    assert "[fsck_staging_left]" in done.out
    assert "apexbridge doctor --fix" in done.out
    assert done.out.splitlines()[-1] == f"Violations: 3 in {skills.parent}"
    assert left.exists()


def test_json_output_has_every_invariant_with_its_violations(run: Run, skills: Path) -> None:
    (skills / ".staging/left").mkdir()
    done = run("--set", HASH, "doctor", "--fsck", "--json")
    assert done.code == 1
    assert json.loads(done.out)["ok"] is False
    assert (done.data["violations"], done.data["mended"]) == (1, None)
    entries = {entry["invariant"]: entry for entry in done.data["invariants"]}
    assert len(entries) == 13
    (violation,) = entries["I10"]["violations"]
    assert (violation["code"], violation["where"]) == ("fsck_staging_left", "skills/.staging/left")
    assert not entries["I6"]["visible"]


def test_a_fix_reports_repairs_and_checks_again(run: Run, skills: Path) -> None:
    (skills / ".staging/left").mkdir()
    (skills / "garden/.vectorized").unlink()
    done = run("--set", HASH, "doctor", "--fix")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Repaired: unfinished 1, expired 0,")
    assert "rebuilt 1" in done.out
    assert done.out.splitlines()[-1] == f"No violations in the data folder {skills.parent}"
    again = run("--set", HASH, "doctor", "--fix", "--json")
    assert (again.code, again.data["mended"]["unfinished"]) == (0, 0)


def test_an_unrepairable_violation_fails_with_a_hint(run: Run, skills: Path) -> None:
    log = skills.parent / "audit.jsonl"
    log.write_bytes(log.read_bytes().replace(b"install", b"inspect"))
    make_skill(skills, "broken", raw=b"no skill")
    done = run("--set", HASH, "doctor", "--fix")
    assert done.code == 1
    assert "Keep the file as evidence" in done.out
    assert "Repair it or move it away" in done.out


def test_fsck_output_in_chinese(run: Run, skills: Path) -> None:
    (skills / ".staging/left").mkdir()
    done = run("--lang", "zh", "--set", HASH, "doctor", "--fsck")
    assert "每个技能文件夹都完整" in done.out
    assert "是未完成的操作的残留" in done.out
    assert done.out.splitlines()[-1] == f"{skills.parent} 中有 1 处违反"
    assert "没有违反" in run("--lang", "zh", "--set", HASH, "doctor", "--fix").out


def test_the_data_folder_has_no_violations_after_every_command(run: Run, tmp_path: Path) -> None:
    archive = str(make_zip(tmp_path / "garden.zip", {"garden/SKILL.md": skill_md("garden")}))
    for words in (
        ("add", archive, "--yes"),
        ("edit-description", "garden", "Tunes violins."),
        ("disable", "garden"),
        ("enable", "garden"),
        ("rm", "garden", "--yes"),
        ("undo", "garden"),
    ):
        assert run("--set", HASH, *words).code == 0
        checked = run("--set", HASH, "doctor", "--fsck")
        assert checked.code == 0, (words, checked.out)
