"""`doctor`, `config` and behaviour shared by all commands."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import pytest
from rich.cells import cell_len

from apexbridge import errors
from apexbridge.cli.output import ExitCode, exit_code_for, sanitize
from apexbridge.cli.skill_commands import OriginName
from apexbridge.skills.model import Origin
from apexbridge.testing import make_skill
from tests.cli.conftest import Run


@pytest.mark.needs("bubblewrap")
def test_doctor_reports_passed_checks(run_subprocess: Run) -> None:
    done = run_subprocess("doctor")
    assert (done.code, done.err) == (0, "")
    assert done.out.rstrip().endswith("All checks passed.")
    for text in ("✓ Python", "✓ Data folder", "✓ Skills: bundled", "skills.max_depth"):
        assert text in done.out


def test_doctor_writes_to_the_data_folder(run: Run, tmp_path: Path) -> None:
    good = tmp_path / "data"
    good.mkdir()
    done = run("doctor", "--json", APEXBRIDGE_DATA_DIR=str(good))
    states = {check["name"]: check for check in done.data["checks"]}
    assert states["Data folder"]["detail"].endswith("writable, renames are atomic")
    assert list(good.iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    bad = run("doctor", "--json", APEXBRIDGE_DATA_DIR=str(tmp_path / "file"))
    assert bad.code == 1
    assert json.loads(bad.out)["ok"] is False
    assert "Failed checks: 1." in run("doctor", APEXBRIDGE_DATA_DIR=str(tmp_path / "file")).out


@pytest.mark.needs("bubblewrap")
def test_doctor_warns_of_invalid_skills_and_misspelt_variables(run: Run, home: Path) -> None:
    make_skill(home / ".claude/skills", "broken", raw=b"nothing")
    done = run("doctor", APEXBRIDGE_SKILL__PATHS="x", PYTHONIOENCODING="utf-8")
    assert done.code == 0
    assert "! Skills: user" in done.out
    assert "unknown settings: APEXBRIDGE_SKILL__PATHS" in done.out
    assert "All required checks passed; warnings: 2." in done.out


@pytest.mark.needs("bubblewrap")
def test_doctor_output_in_chinese(run: Run) -> None:
    done = run("--lang", "zh", "doctor")
    assert "✓ 数据文件夹" in done.out
    assert done.out.rstrip().endswith("所有检查均通过。")


@pytest.mark.promise("S16")
def test_an_ascii_terminal_causes_no_unicode_error(
    run: Run, run_subprocess: Run, home: Path
) -> None:
    make_skill(home / ".claude/skills", "技能", description="中文描述 ✓")
    done = run_subprocess("show", "技能", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LANG="C")
    assert (done.code, done.err) == (0, "")
    assert r"\u4e2d\u6587" in done.out
    assert run("show", "技能", encoding="ascii", LANG="C").out == done.out
    for arguments in (("ls",), ("doctor",), ("--lang", "zh", "show", "x")):
        done = run(*arguments, encoding="ascii", LANG="C")
        assert "Traceback" not in done.err
        assert (done.out.isascii(), done.err.isascii()) == (True, True)
        assert "\\u" in done.out + done.err


def test_config_shows_each_setting_with_its_origin(run: Run) -> None:
    done = run("--set", "skills.max_depth=3", "config", "--json", APEXBRIDGE_LANG="en")
    assert done.data["skills.max_depth"] == {"value": 3, "origin": "flag"}
    assert done.data["lang"] == {"value": "en", "origin": "environment"}
    assert done.data["skills.paths"] == {"value": [], "origin": "default"}
    assert "skills.max_depth" in run("config").out


def test_config_shows_one_setting(run: Run) -> None:
    assert run("config", "skills.project_paths").out == (
        ".apexbridge/skills:.claude/skills:.agents/skills\n"
    )
    missing = run("config", "skills.pathes")
    assert (missing.code, "skills.paths" in missing.err) == (3, True)


@pytest.mark.parametrize("text", ["novalue", "=x"])
def test_a_setting_on_the_command_line_needs_a_name_and_a_value(run: Run, text: str) -> None:
    assert run("--set", text, "config").code == 2


def test_invalid_settings_end_every_command(run: Run, project: Path) -> None:
    (project / "apexbridge.toml").write_text("[skills]\nmax_depth = 0\n", encoding="utf-8")
    for command in ("ls", "doctor", "config"):
        done = run(command, LANG="zh_CN.UTF-8")
        assert done.code == 2
        assert "来自 apexbridge.toml 的设置“skills.max_depth”无效" in done.err


def test_version_is_that_of_the_package(run_subprocess: Run) -> None:
    assert run_subprocess("--version").out == f"{version('apexbridge')}\n"


def test_without_arguments_the_help_is_shown(run: Run) -> None:
    done = run()
    assert "validate" in done.out + done.err


@pytest.mark.parametrize("arguments", [("nosuch",), ("ls", "--nosuch"), ("validate",)])
def test_a_wrong_call_is_a_usage_error(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).code == 2


def test_a_broken_pipe_is_not_a_failure(home: Path) -> None:
    for number in range(400):
        make_skill(home / ".claude/skills", f"s{number:03}", description="x" * 900)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    command = f"{sys.executable} -m apexbridge ls --json | head -c 10"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        cwd=home,
    )
    assert (done.stdout, done.stderr) == ('{"ok": tru', "")


def test_quiet_commands_print_nothing(run: Run) -> None:
    for arguments in (("ls",), ("doctor",), ("config",), ("show", "git-commit")):
        assert run(*arguments, "--quiet").out == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.SkillNotFoundError("x"), ExitCode.NOT_FOUND),
        (errors.StorageError(code="path_exists"), ExitCode.CONFLICT),
        (errors.StorageError(), ExitCode.FAILURE),
        (errors.SkillExistsError(), ExitCode.CONFLICT),
        (errors.PermissionDeniedError(), ExitCode.DENIED),
        (errors.ArchiveUnsafeError(), ExitCode.INVALID),
        (errors.ConfigError(), ExitCode.USAGE),
        (errors.ModelError(), ExitCode.FAILURE),
    ],
)
def test_every_error_has_its_exit_code(error: errors.ApexBridgeError, code: ExitCode) -> None:
    assert exit_code_for(error) is code


@pytest.mark.promise("S14")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain 中文 é", "plain 中文 é"),
        ("a\nb\tc", "a b c"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\u202eabc", "\\u202eabc"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("👩\u200d💻", "👩\u200d💻"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert sanitize(text) == shown


def _on_a_terminal(home: Path, *arguments: str, columns: int = 60, **variables: str) -> str:
    """Run a command with a pty of that width as stdout."""
    master, slave = pty.openpty()
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-m", "apexbridge", *arguments],
        stdout=slave,
        stderr=slave,
        cwd=home,
        env={**environment, "COLUMNS": str(columns), "LANG": "C.UTF-8", **variables},
    )
    os.close(slave)
    pieces = list[bytes]()
    with contextlib.suppress(OSError):  # Linux says EIO when the other end is gone
        while piece := os.read(master, 65536):
            pieces.append(piece)
    os.close(master)
    assert process.wait(timeout=60) == 0
    return b"".join(pieces).decode().replace("\r\n", "\n")


def test_a_table_fits_the_terminal_and_aligns_cjk(home: Path) -> None:
    make_skill(home / ".claude/skills", "总结会议", description="把会议记录整理成纪要。" * 9)
    make_skill(home / ".claude/skills", "mine", description="short")
    screen = re.sub(r"\x1b\[\d*m", "", _on_a_terminal(home, "ls", "--origin", "user"))
    head, _, first, second = screen.splitlines()[1:5]
    assert head.split() == ["Name", "Origin", "State", "Description"]
    assert all(cell_len(line) <= 60 for line in screen.splitlines())
    assert second.rstrip().endswith("…")
    assert first.index("user") == head.index("Origin")
    assert cell_len(second[: second.index("user")]) == head.index("Origin")


def test_colour_depends_on_the_terminal(home: Path) -> None:
    assert "\x1b[1m" in _on_a_terminal(home, "config")
    assert "\x1b[" not in _on_a_terminal(home, "config", TERM="dumb")
    assert "\x1b[3" not in _on_a_terminal(home, "doctor", NO_COLOR="1")


def test_a_usage_error_with_json_prints_one_envelope(run: Run) -> None:
    for arguments in (("init", "x", "--script", "perl"), ("ls", "--origin", "nobody"), ("ls", "x")):
        done = run(*arguments, "--json")
        assert (done.code, done.error["code"]) == (2, "usage")
        assert done.err


def test_a_key_that_is_a_value_and_a_table_is_a_usage_error(run: Run) -> None:
    assert run("--set", "skills=x", "--set", "skills.paths=y", "config").code == 2


def test_the_origin_option_lists_every_origin() -> None:
    assert get_args(OriginName) == tuple(Origin)


@pytest.mark.parametrize("words", ["ls", "ls --json", "doctor", "config skills.max_depth"])
def test_a_closed_stdout_causes_no_traceback(home: Path, words: str) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m apexbridge {words} >&-"],
        stderr=subprocess.PIPE, text=True, encoding="utf-8", cwd=home,
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_deleted_working_directory_is_an_error_without_traceback(home: Path) -> None:
    command = f"mkdir gone && cd gone && rmdir ../gone && {sys.executable} -m apexbridge ls --json"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        capture_output=True, text=True, encoding="utf-8", cwd=home,
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (3, "path_missing")


def test_a_deprecated_setting_is_warned_about_on_stderr(run: Run) -> None:
    done = run("--set", "sandbox.wall_seconds=7", "config", "sandbox.wall_seconds")
    assert (done.code, done.out) == (0, "7.0\n")
    assert done.err == (
        "Warning: the setting 'sandbox.wall_seconds' from flag is deprecated, "
        "use 'sandbox.timeout_seconds'\n"
    )
    chinese = run("--lang", "zh", "--set", "index.embedder=own", "config", "lang")
    assert "已弃用" in chinese.err
    quiet = run("--set", "sandbox.wall_seconds=7", "config", "sandbox.wall_seconds", "--json")
    assert (quiet.err, quiet.data["key"]) == ("", "sandbox.timeout_seconds")


@pytest.mark.needs("sandbox")
def test_doctor_names_workspaces_that_cannot_be_removed_and_works_on(
    run: Run, tmp_path: Path
) -> None:
    stray = tmp_path / "data/workspaces/stray.lock"
    stray.mkdir(parents=True)
    done = run("doctor", "--json", APEXBRIDGE_DATA_DIR=str(tmp_path / "data"))
    (found,) = (check for check in done.data["checks"] if check["name"] == "Workspaces")
    assert (done.code, found["state"]) == (0, "warn")
    assert str(stray) in found["detail"]
