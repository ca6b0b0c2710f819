"""`init`, `validate`, `pack`."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from apexbridge.testing import make_skill, make_zip, skill_md
from tests.cli.conftest import Run


@pytest.mark.parametrize("script", ["none", "python", "bash", "node"])
def test_a_scaffold_is_valid_except_for_its_description(
    run: Run, project: Path, script: str
) -> None:
    made = run("init", "my-skill", "--script", script)
    assert (made.code, made.err) == (0, "")
    checked = run("validate", "my-skill", "--level", "spec", "--json")
    (skill,) = checked.data["skills"]
    assert [problem["code"] for problem in skill["problems"]] == ["description_placeholder"]
    assert sorted(path.name for path in project.iterdir()) == ["my-skill"]


@pytest.mark.parametrize(("script", "path"), [("python", "main.py"), ("bash", "main.sh")])
def test_the_scaffolds_script_runs(run: Run, project: Path, script: str, path: str) -> None:
    run("init", "my-skill", "--script", script)
    file = project / "my-skill/scripts" / path
    done = subprocess.run(
        [file, "a", "b"], capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert done.stdout == "my-skill: a b\n"


def test_a_scaffold_with_a_description_is_valid(run: Run) -> None:
    run("init", "pdf", "--description", 'Reads "PDF" for you: 读取 PDF')
    checked = run("validate", "pdf")
    assert (checked.code, checked.out) == (0, "pdf: valid\n")


def test_a_scaffold_in_chinese(run: Run, project: Path) -> None:
    made = run("init", "总结", APEXBRIDGE_LANG="zh")
    assert made.out.startswith("已创建 总结/SKILL.md\n下一步")
    assert "## 何时使用" in (project / "总结/SKILL.md").read_text(encoding="utf-8")
    assert run("validate", "总结").code == 0


@pytest.mark.promise("M08")
@pytest.mark.parametrize(
    ("name", "rule"),
    [("../x", "characters"), ("Upper", "lower case"), ("con", "reserved"), ("", "not be empty")],
)
def test_an_invalid_name_creates_nothing(run: Run, project: Path, name: str, rule: str) -> None:
    made = run("init", name)
    assert made.code == 6
    assert rule in made.err
    assert list(project.iterdir()) == []


def test_an_existing_folder_is_not_overwritten(run: Run, project: Path) -> None:
    (project / "pdf").mkdir()
    made = run("init", "pdf", "--json")
    assert (made.code, made.error["code"]) == (4, "path_exists")
    assert list((project / "pdf").iterdir()) == []


def test_a_dry_run_creates_nothing(run: Run, project: Path) -> None:
    assert run("init", "pdf", "--dry-run").out == "Would create pdf/SKILL.md\n"
    run("init", "pdf")
    packed = run("pack", "pdf", "--dry-run")
    assert packed.out.startswith("Would pack pdf.zip (files: 1)")
    assert [path.name for path in project.iterdir()] == ["pdf"]


def test_an_invalid_description_creates_nothing(run: Run, project: Path) -> None:
    assert run("init", "pdf", "--description", "x" * 1025).code == 6
    assert list(project.iterdir()) == []


def test_validate_reports_every_problem_with_location_and_hint(run: Run, project: Path) -> None:
    make_skill(project, "bad", raw=b"---\nname: Bad_X\ncontxt: fork\n---\n")
    done = run("validate", "bad")
    assert done.code == 6
    assert done.out.splitlines()[0] == "bad: errors: 4, warnings: 2"
    for code in ("name_not_lowercase", "name_characters", "name_mismatch", "description_missing"):
        assert f"[{code}]" in done.out
    assert "SKILL.md:3  warning  Unknown key 'contxt' [unknown_key_near]" in done.out
    assert "Did you mean 'context'?" in done.out


def test_validate_in_chinese_keeps_the_codes(run: Run, project: Path) -> None:
    make_skill(project, "bad", raw=b"---\nname: bad\n---\nDo it.\n")
    done = run("--lang", "zh", "validate", "bad")
    assert "SKILL.md:1  错误  缺少必填字段 description [description_missing]" in done.out


def test_validate_accepts_files_zips_and_folders_of_skills(run: Run, project: Path) -> None:
    make_skill(project / "many", "one")
    make_skill(project / "many", "two", raw=b"nothing")
    (project / "many/notes").mkdir()
    make_zip(project / "three.zip", {"three/SKILL.md": skill_md("three")})
    done = run("validate", "many", "many/one/SKILL.md", "three.zip", "--json")
    assert [(skill["path"], skill["ok"]) for skill in done.data["skills"]] == [
        ("many/one", True),
        ("many/two", False),
        ("many/one", True),
        ("three.zip", True),
    ]
    assert done.code == 6


def test_validate_gives_a_hint_for_a_wrong_zip_layout(run: Run, project: Path) -> None:
    make_zip(project / "x.zip", {"SKILL.md": skill_md("x")})
    done = run("validate", "x.zip")
    assert done.code == 6
    assert "my-skill/SKILL.md" in done.out


def test_a_missing_path_exits_3(run: Run) -> None:
    assert run("validate", "nowhere").code == 3
    assert run("pack", "nowhere").code == 3


def test_an_empty_folder_is_invalid(run: Run, project: Path) -> None:
    (project / "empty").mkdir()
    done = run("validate", "empty")
    assert (done.code, "[skill_md_missing]" in done.out) == (6, True)


def test_pack_writes_a_valid_zip_and_overwrites_nothing(run: Run, project: Path) -> None:
    make_skill(project, "pdf", files={"evals/evals.json": "[]"})
    first = run("pack", "pdf", "--json")
    assert (first.code, first.data["files"]) == (0, ["SKILL.md"])
    assert run("validate", "pdf.zip").code == 0
    before = (project / "pdf.zip").read_bytes()
    assert run("pack", "pdf", "--with-evals").code == 4
    assert (project / "pdf.zip").read_bytes() == before
    assert run("pack", "pdf", "--with-evals", "--yes").code == 0
    assert "pdf/evals/evals.json" in zipfile.ZipFile(project / "pdf.zip").namelist()


def test_pack_rejects_an_invalid_skill(run: Run, project: Path) -> None:
    make_skill(project, "bad", raw=b"---\nname: other\ndescription: d\n---\n")
    done = run("pack", "bad", "-o", "x.zip")
    assert (done.code, (project / "x.zip").exists()) == (6, False)
    assert "folder is named 'bad'" in done.err


def test_pack_prints_warnings(run: Run, project: Path) -> None:
    make_skill(project, "pdf", colour="red")
    assert "[unknown_key]" in run("pack", "pdf").out
    assert run("pack", "pdf", "-o", "q.zip", "--quiet").out == ""


def test_pack_works_in_the_skills_own_folder(run: Run, project: Path) -> None:
    root = make_skill(project, "pdf")
    assert run("pack", ".", "-o", "../x.zip", cwd=root).code == 0
    assert zipfile.ZipFile(project / "x.zip").namelist() == ["pdf/SKILL.md"]


def test_one_invalid_path_does_not_hide_the_others(run: Run, project: Path) -> None:
    make_skill(project, "good")
    (project / "bad.zip").write_bytes(b"no zip")
    done = run("validate", "bad.zip", "good", "/dev/zero", "--json")
    assert done.code == 6
    assert [
        (skill["ok"], [problem["code"] for problem in skill["problems"]])
        for skill in done.data["skills"]
    ] == [(False, ["zip_invalid"]), (True, []), (False, ["zip_invalid"])]


def test_an_oserror_is_reported_without_a_traceback(run: Run, project: Path) -> None:
    (project / "file").write_bytes(b"")
    make_skill(project, "good")
    for arguments in (
        ("init", "x", "--in", "file"),
        ("init", "x", "--in", "/proc/none"),
        ("validate", "x" * 5_000),
        ("pack", "good", "-o", "file/z.zip"),
        ("pack", "good", "-o", "."),
        ("pack", "good", "-o", "/dev/full/x.zip"),
    ):
        done = run(*arguments, "--json")
        assert (done.code in {1, 3, 4, 5}, "Traceback" in done.err) == (True, False), arguments
        assert done.error["message"], arguments
    assert sorted(path.name for path in project.iterdir()) == ["file", "good"]


def test_pack_does_not_replace_a_device_file(run: Run, project: Path) -> None:
    make_skill(project, "good")
    os.mkfifo(project / "pipe")
    assert run("pack", "good", "-o", "pipe", "--yes").code == 1
    assert (project / "pipe").is_fifo()


@pytest.mark.parametrize(
    "files",
    [
        {f"{n}.txt": "" for n in range(2_100)},
        {"big": bytes(11_000_000)},
        {"Foo": "", "foo": ""},
    ],
    ids=["many", "big", "case"],
)
def test_a_skill_that_cannot_be_installed_is_not_packed(
    run: Run, project: Path, files: dict[str, str | bytes]
) -> None:
    make_skill(project, "good", files=files)
    assert run("pack", "good").code == 6
    assert not (project / "good.zip").exists()


def test_version_control_folders_are_ignored(run: Run, project: Path) -> None:
    root = make_skill(project, "good", files={".git/config": ""})
    (root / ".git/link").symlink_to("/")
    assert run("validate", "good").code == 0
    assert run("pack", "good").code == 0


def test_an_undecodable_file_name_is_reported_before_packing(run: Run, project: Path) -> None:
    root = make_skill(project, "good")
    (root / os.fsdecode(b"\xff.md")).write_bytes(b"")
    done = run("pack", "good")
    assert (done.code, "not UTF-8" in done.err) == (6, True)
