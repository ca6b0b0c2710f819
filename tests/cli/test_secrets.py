"""`secrets`: values from a prompt, stdin or a file; grants after consent; nothing shown."""

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from apexbridge.testing import make_skill
from tests.cli.conftest import Run

VALUE = "sk-live-0123456789abcdef"


@pytest.fixture
def environment(home: Path, tmp_path: Path) -> dict[str, str]:
    make_skill(
        home / ".claude/skills",
        "client",
        secrets={"API_KEY": {"hosts": ["api.example"], "description": "To ask", "in": ["header"]}},
        files={"scripts/main.sh": "echo $API_KEY"},
    )
    return {"APEXBRIDGE_SANDBOX__SECRET_KEY_FILE": str(tmp_path / "secrets.key")}


def _value_file(tmp_path: Path, value: str = VALUE) -> str:
    path = tmp_path / "value.txt"
    path.write_text(f"{value}\n", encoding="utf-8")
    return str(path)


def test_a_secret_is_set_granted_listed_revoked_and_removed(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    def secrets(*words: str, code: int = 0) -> str:
        done = run("secrets", *words, **environment)
        assert done.code == code, done
        assert VALUE not in done.out + done.err
        return done.out + done.err

    assert "No secrets" in secrets("ls")
    secrets("set", "API_KEY", "--file", _value_file(tmp_path))
    assert "To ask" in secrets("grant", "client", "--yes")
    listed = json.loads(secrets("ls", "--json"))["data"]["secrets"]
    assert [(one["name"], one["is_set"]) for one in listed] == [("API_KEY", True)]
    assert listed[0]["grants"][0]["hosts"] == ["api.example"]
    secrets("revoke", "client")
    assert "no such grant" in secrets("revoke", "client", code=2)
    secrets("rm", "API_KEY")
    assert "no secret" in secrets("rm", "API_KEY", code=2)


def test_a_script_without_a_grant_does_not_start_and_names_the_command(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    done = run("run", "client", **environment)
    assert done.code == 5
    assert "apexbridge secrets grant client" in done.err
    assert "secret_unset" in done.err
    run("secrets", "set", "API_KEY", "--file", _value_file(tmp_path), **environment)
    assert "secret_not_granted" in run("run", "client", **environment).err


def test_consent_is_needed_and_comes_from_a_person(
    run: Run, environment: dict[str, str], tmp_path: Path
) -> None:
    run("secrets", "set", "API_KEY", "--file", _value_file(tmp_path), **environment)
    done = run("secrets", "grant", "client", **environment)
    assert done.code == 5
    assert "api.example" in done.out
    assert "secret_not_granted" in run("run", "client", **environment).err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("grant", "client", "--yes", "--secret", "OTHER"), "secret_not_declared"),
        (("grant", "client", "--yes", "--host", "*.example"), "secret_host_invalid"),
        (("grant", "csv-report", "--yes"), "secrets_none_declared"),
        (("grant", "missing", "--yes"), "skill_not_found"),
        (("set", "PATH"), "secret_name_invalid"),
        (("set", "A", "--file", "missing"), "path_missing"),
        (("set", "A"), "secret_value_invalid"),
        (("set", "A", "tok_value"), "secret_in_argument"),
        (("set", "A=tok_value"), "secret_in_argument"),
    ],
)
def test_a_mistake_has_a_clear_error(
    run: Run, environment: dict[str, str], words: tuple[str, ...], code: str
) -> None:
    done = run("secrets", *words, **environment)
    assert done.code != 0
    assert f"[{code}]" in done.err
    assert "tok_value" not in done.err


def test_a_value_is_piped_in(environment: dict[str, str], home: Path, tmp_path: Path) -> None:
    done = _start(environment, home, tmp_path, "grant", "client", "--yes", stdin=f"{VALUE}\n")
    assert done.returncode == 0, done
    assert VALUE not in done.stdout + done.stderr
    listed = _start(environment, home, tmp_path, "ls", "--json")
    assert json.loads(listed.stdout)["data"]["secrets"][0]["is_set"]


def _start(
    environment: dict[str, str], home: Path, cwd: Path, *words: str, stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "apexbridge", "secrets", *words],
        input=stdin,
        encoding="utf-8",
        capture_output=True,
        cwd=cwd,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", **environment},
        timeout=60,
    )


def test_the_prompt_does_not_show_the_value(
    environment: dict[str, str], home: Path, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "apexbridge", "secrets", "set", "API_KEY"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        cwd=tmp_path,
        env={"HOME": str(home), "PATH": "/usr/bin:/bin", **environment},
    ) as child:
        os.close(theirs)
        shown = b""
        while b"not shown" not in shown:
            shown += os.read(ours, 1024)
        os.write(ours, f"{VALUE}\n".encode())
        with suppress(OSError):  # the terminal's end
            while piece := os.read(ours, 1024):
                shown += piece
    os.close(ours)
    assert child.returncode == 0, shown
    assert b"Stored API_KEY" in shown
    assert VALUE.encode() not in shown
