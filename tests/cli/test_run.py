"""`run`: scripts from the command line."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import uuid
from collections.abc import Generator
from pathlib import Path

import pytest

from apexbridge.runtime.diagnostics import sandbox_message_key
from apexbridge.sandbox.backend_selection import CanaryResult
from apexbridge.testing import make_skill
from tests.cli.conftest import Run

pytestmark = pytest.mark.needs("sandbox")


def test_a_bundled_script_writes_its_files_in_the_sandbox(
    run_subprocess: Run, project: Path
) -> None:
    (project / "data.csv").write_text("month,sales\n2026-01,3\n2026-02,4\n", encoding="utf-8")
    words = ("-i", "data.csv", "-o", "out", "csv-report", "--", "data.csv", "--lang", "zh")
    done = run_subprocess("run", *words)
    assert (done.code, "sales" in done.out) == (0, True)
    assert "Created out/chart.svg" in done.err
    assert (project / "out/report.md").read_text(encoding="utf-8").startswith("# data")


def test_json_output_has_the_exit_code(run: Run, home: Path) -> None:
    source = (
        "import sys\nprint('out'); print('err', file=sys.stderr)\n"
        "open('f','w').write('x')\nsys.exit(3)"
    )
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.py": source})
    done = run("run", "--json", "tool")
    data = done.data
    assert done.code == 1
    assert (data["exit_code"], data["stdout"], data["stderr"]) == (3, "out\n", "err\n")
    assert data["isolation"] in {"bubblewrap", "landlock"}
    assert (data["timed_out"], data["truncated"], data["produced"]) == (False, False, {"f": 1})


@pytest.mark.promise("X13")
def test_binary_output_gives_valid_json(run: Run, home: Path) -> None:
    source = "import os\nos.write(1, bytes(range(256)))"
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.py": source})
    done = run("run", "--json", "tool")
    assert (done.code, len(done.data["stdout"]) > 200) == (0, True)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_odd_names_and_control_characters_are_json_that_every_parser_reads(
    run: Run, home: Path, encoding: str
) -> None:
    source = """
open(b"odd\\xff", "w").write("1")
import os
os.symlink("/", b"left\\xfe")
print("a\\x9b31mb\\x7f宽\N{GRINNING FACE}")
"""
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.py": source})
    done = run("run", "--json", "tool", encoding=encoding)
    assert done.data["produced"] == {"odd\\xff": 1}
    assert done.data["not_taken"] == {"left\\xfe": "a link"}
    assert done.data["stdout"] == "a\x9b31mb\x7f宽\N{GRINNING FACE}\n"
    assert "\x9b" not in done.out
    assert "\x7f" not in done.out
    json.dumps(json.loads(done.out), ensure_ascii=False).encode()  # no lone surrogate


_ESCAPES = b"\x1b]0;title\x07\x1b[2J\xe5\xae\xbd\xc2\x9b31m\tred\r\nnext\xff\roverwritten\xe5"


def test_escape_sequences_of_a_script_do_not_reach_a_terminal(home: Path, project: Path) -> None:
    source = f"import os\nfor byte in {_ESCAPES!r}:\n    os.write(1, bytes([byte]))\n"
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.py": source})
    project.mkdir()
    main, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "apexbridge", "run", "tool"],
        stdout=other,
        stderr=other,
        cwd=project,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
    )
    os.close(other)
    screen = b""
    with contextlib.suppress(OSError):  # Linux says EIO when the other end is gone
        while piece := os.read(main, 65536):
            screen += piece
    os.close(main)
    assert process.wait(timeout=60) == 0
    shown = screen.decode().replace("\r\n", "\n")
    assert shown.startswith(
        "\\x1b]0;title\\x07\\x1b[2J宽\\x9b31m\tred\nnext\\xff\noverwritten\\xe5"
    )


def test_the_bytes_of_a_script_are_unchanged_in_a_pipe(home: Path, project: Path) -> None:
    source = f"import os\nos.write(1, {_ESCAPES!r})\nos.write(2, {_ESCAPES!r})\n"
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.py": source})
    project.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "apexbridge", "run", "tool"],
        capture_output=True,
        cwd=project,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        check=True,
    )
    assert (done.stdout, done.stderr) == (_ESCAPES, _ESCAPES)


def test_a_timeout_exits_7(run: Run, home: Path) -> None:
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.sh": "echo begun; sleep 60"})
    done = run("run", "--timeout", "1", "tool")
    assert (done.code, done.out) == (7, "begun\n")
    assert "timeout" in done.err


@pytest.fixture
def interruptible() -> Generator[None]:
    """Restore SIGINT: background jobs of a shell inherit it as ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.promise("X14")
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("asked", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_terminates_the_script_without_leftovers(
    home: Path, asked: signal.Signals, code: int
) -> None:
    mark = f"{uuid.uuid4().int % 10**12:012}.5"  # a number of seconds that only this test waits
    script = f"echo begun; sleep {mark}"
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.sh": script})
    with subprocess.Popen(
        [sys.executable, "-m", "apexbridge", "run", "tool"],
        cwd=home,
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            process.send_signal(asked)
            _, error = process.communicate(timeout=20)
        finally:
            process.kill()  # where it did not end by itself, it must not meet the next test
    assert (process.returncode, b"Traceback" in error) == (code, False)
    found = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _holds(path, mark.encode())]
    assert found == []
    assert list(home.rglob("workspaces/*")) == []


def _holds(path: Path, mark: bytes) -> bool:
    try:
        return mark in path.read_bytes()
    except OSError:
        return False


def test_output_files_without_a_folder_are_kept_and_the_command_says_where(
    run: Run, home: Path
) -> None:
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.sh": "echo 1 >a; echo 2 >b"})
    assert "Output files: a, b (in " in run("run", "tool").err
    assert run("run", "tool", LANG="zh_CN.UTF-8").err.startswith("输出文件：a, b（位于 ")
    done = run("run", "--json", "tool")
    assert (Path(done.data["folder"]) / "b").read_text(encoding="utf-8") == "2\n"


def test_output_files_that_are_not_kept_are_named(run: Run, home: Path) -> None:
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.sh": "touch a b"})
    done = run("run", "tool", APEXBRIDGE_SANDBOX__KEPT_FILES_DAYS="0")
    assert "Output files not saved: a, b" in done.err
    assert not list(home.rglob("files/run_*"))


def test_a_file_of_any_name_is_saved(run: Run, home: Path, project: Path) -> None:
    names = ("~$draft.docx", "C:", "back\\slash", "a\nb", "宽\u3000格.txt")
    source = "".join(f"open({name!r}, 'w').write('x')\n" for name in names)
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.py": source})
    assert run("run", "--output", "out", "tool").code == 0
    assert {path.name for path in (project / "out").iterdir()} == set(names)
    again = run("run", "--output", "out", "tool")
    assert "path_exists" in again.err
    assert "Output files: " in again.err  # those of the second run are not lost


def test_a_folder_is_copied_into_the_workspace(run: Run, home: Path, project: Path) -> None:
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.sh": "find . -type f | sort"})
    data = project / "data"
    for path in ("a.csv", "deep/er/b.csv", ".git/config", "~$draft.docx"):
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        (data / path).write_text(path, encoding="utf-8")
    (data / "link").symlink_to("/etc/passwd")
    done = run("run", "-i", str(data), "tool")
    assert done.out == "./data/a.csv\n./data/deep/er/b.csv\n./data/~$draft.docx\n"
    assert "data/.git (a folder of tools), data/link (a link)" in done.err


def test_invalid_calls_are_reported(run: Run, home: Path) -> None:
    root = make_skill(home / ".claude/skills", "tool", files={"scripts/main.sh": "true"})
    assert run("run", "nobody").code == 3
    assert run("run", "tool", "a", "b").code == 2
    assert run("run", "-i", "nowhere", "tool").code == 3
    assert "Cannot run the skill 'tool': it has no script 'x.sh'" in run("run", "tool", "x.sh").err
    (root / "scripts/main.sh").chmod(0o644)
    assert run("run", "tool").code == 0
    (root / "scripts/program").write_bytes(b"\x7fELF")
    assert run("run", "tool", "program").code == 5


def test_a_script_that_cannot_start_is_enoent_and_says_what_would_help(
    run: Run, home: Path
) -> None:
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.bat": "echo"})
    done = run("run", "tool")
    assert "ENOENT" in done.err
    assert "'main.bat' needs cmd, which exists on Windows only. Run it on Windows" in done.err
    data = run("run", "--json", "tool").data
    assert (data["error"], data["exit_code"], data["outcome"]) == ("ENOENT", None, "not_started")


def test_doctor_reports_which_sandbox_works(run: Run) -> None:
    assert "works (tested); used for scripts" in run("doctor").out


@pytest.mark.parametrize(
    ("name", "reason", "word"),
    [
        ("bubblewrap", "ENOENT", "sandbox_get_bwrap"),
        ("bubblewrap", "No permissions to create a new namespace", "sandbox_allow_namespaces"),
        ("bubblewrap", "can read a file outside", "sandbox_broken"),
        ("landlock", "ENOTSUP", "sandbox_get_landlock"),
        ("landlock", "can write the skill", "sandbox_broken"),
    ],
)
def test_doctor_hints_how_to_enable_a_sandbox(name: str, reason: str, word: str) -> None:
    assert (
        sandbox_message_key(CanaryResult(name=name, passed=False, reason=reason), chosen="") == word
    )


def test_doctor_marks_the_selected_sandbox() -> None:
    trial = CanaryResult(name="landlock", passed=True)
    assert sandbox_message_key(trial, chosen="landlock") == "sandbox_chosen"
    assert sandbox_message_key(trial, chosen="bubblewrap") == "sandbox_works"


@pytest.mark.promise("X15")
def test_running_unsandboxed_needs_a_flag_and_is_audited(
    run: Run, run_subprocess: Run, home: Path
) -> None:
    script = 'echo "$HOME"; echo x > ' + str(home / "written")
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.sh": script})
    assert run("run", "tool").code in {0, 1}
    assert not (home / "written").exists()
    done = run_subprocess("run", "--unsafe-no-sandbox", "tool")
    assert (done.code, (home / "written").exists()) == (0, True)
    assert "without a sandbox" in done.err
    (log,) = home.rglob("audit.jsonl")
    assert '"run_unsandboxed"' in log.read_text(encoding="utf-8")
