"""The Bash tool: a command runs in the sandbox and can change only the workspace."""

import os
import socket
from collections.abc import AsyncIterator, Generator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from apexbridge.errors import SandboxUnavailableError, ToolFailedError, ToolInputError
from apexbridge.sandbox import interpreters
from apexbridge.sandbox.backends import BubblewrapSandbox, LandlockSandbox
from apexbridge.sandbox.base import ExecutionResult, Outcome, Sandbox, SandboxLimits
from apexbridge.sandbox.cgroup import Cgroups
from apexbridge.sandbox.launcher import Launcher
from apexbridge.sandbox.script_executor import ScriptExecutor
from apexbridge.sandbox.uid_pool import UidPool, chown_tree
from apexbridge.sandbox.warm_pool import WarmPool
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.testing import RecordingSandbox
from apexbridge.tools.base import PathScope, ToolResult
from apexbridge.tools.builtin.bash import BashTool, format_result
from tests.tools.tool_calls import context, use

pytestmark = pytest.mark.anyio

KINDS = {"bubblewrap": BubblewrapSandbox, "landlock": LandlockSandbox}


@pytest.fixture
def ground() -> Generator[Path]:
    """Not below /tmp: a sandbox hides that anyway."""
    with TemporaryDirectory(prefix="apexbridge-shell-", dir="/var/tmp") as place:
        (Path(place) / "work").mkdir()
        (Path(place) / "beside.txt").write_text("the secret", encoding="utf-8")
        yield Path(place).resolve()


@pytest.fixture(params=[pytest.param(kind, marks=pytest.mark.needs(kind)) for kind in KINDS])
async def bash(request: pytest.FixtureRequest, ground: Path) -> AsyncIterator[BashTool]:
    with closing(Launcher(Cgroups.detect(), UidPool.detect())) as launcher:
        yield _tool(KINDS[request.param](launcher), ground)


def _tool(sandbox: Sandbox, ground: Path) -> BashTool:
    made = ScriptExecutor(sandbox, Workspaces(ground / "private"))

    async def executor() -> ScriptExecutor:
        if sandbox.name == "landlock" and os.geteuid() == 0:  # which writes no folder of root's
            chown_tree(ground / "work", 65_111)
        return made

    return BashTool(executor, lambda: SandboxLimits(wall_seconds=5, output_bytes=100_000))


async def _run(bash: BashTool, ground: Path, command: str, **more: object) -> ToolResult:
    return await use(bash, context(ground / "work"), {"command": command, "timeout": 30, **more})


async def test_what_a_command_changes_stays_changed(bash: BashTool, ground: Path) -> None:
    (ground / "work/sub").mkdir()
    (ground / "work/old.txt").write_text("old", encoding="utf-8")
    command = "pwd; cat old.txt; echo 新 > sub/new.txt; mv old.txt renamed.txt; echo no >&2"
    result = await _run(bash, ground, command)
    assert result.text == f"{ground}/work\nold\n[stderr]\nno\n[Exit code 0]"
    assert not result.is_error
    work = ground / "work"
    assert (work / "sub/new.txt").read_text(encoding="utf-8") == "新\n"
    assert (work / "renamed.txt").read_text(encoding="utf-8") == "old"
    assert not (work / "old.txt").exists()
    assert (work / "sub/new.txt").stat().st_uid == work.stat().st_uid
    assert work / "renamed.txt" in result.touched
    assert result.data["command"] == command
    assert list((ground / "private").iterdir()) == []


@pytest.mark.parametrize(
    "deed",
    [
        "cat {ground}/beside.txt",
        "cat ../beside.txt",
        "cat link.txt",
        "echo x > {ground}/made.txt",
        "echo x >> {ground}/beside.txt",
        "echo x > link.txt",
        "echo x > folder/made.txt",
        "mkdir {ground}/made",
        "rm -f {ground}/beside.txt && test -e {ground}/beside.txt",
        "mv {ground}/work {ground}/moved",
        "ln {ground}/beside.txt hard.txt",
        "echo x > /usr/made.txt",
        "echo x > /etc/made.txt",
        "echo x > /var/tmp/made.txt",
        "echo x > {skill}/made.txt",
        "chmod 777 {skill}/SKILL.md",
        "rm {skill}/SKILL.md",
        "cat /proc/{pid}/environ",
        "kill {pid}",
        "exec 3<>/dev/tcp/127.0.0.1/{port}",
        "mount -o remount,rw /usr",
    ],
)
async def test_nothing_else_is_accessible(bash: BashTool, ground: Path, deed: str) -> None:
    work, skill = ground / "work", ground / "skill"
    skill.mkdir()
    (skill / "SKILL.md").write_text("skill", encoding="utf-8")
    (work / "link.txt").symlink_to(ground / "beside.txt")
    (work / "folder").symlink_to(ground)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        facts = {"ground": ground, "skill": skill, "pid": os.getpid()}
        command = deed.format(**facts, port=listener.getsockname()[1])
        result = await use(bash, context(work, read=(skill,)), {"command": command, "timeout": 30})
    is_mode = deed.startswith("chmod") and result.data["isolation"] == "landlock"
    if not is_mode:  # what Landlock cannot forbid is said in its own words
        assert result.is_error, result.text
    assert "the secret" not in result.text
    assert (ground / "beside.txt").read_text(encoding="utf-8") == "the secret"
    assert (skill / "SKILL.md").read_text(encoding="utf-8") == "skill"
    assert sorted(path.name for path in ground.iterdir()) == [
        "beside.txt", "private", "skill", "work"
    ]  # fmt: skip
    assert sorted(path.name for path in work.iterdir()) == ["folder", "link.txt"]


async def test_a_skills_folder_can_be_read_and_run_from(bash: BashTool, ground: Path) -> None:
    skill = ground / "skill"
    skill.mkdir()
    (skill / "run.sh").write_text("echo from the skill in $PWD\n", encoding="utf-8")
    facts = context(ground / "work", read=(skill,))
    result = await use(bash, facts, {"cmd": f"bash {skill}/run.sh"})
    assert result.text.startswith(f"from the skill in {ground}/work\n")
    result = await use(bash, facts, {"command": "ls", "cwd": str(skill)})
    assert result.text.startswith("run.sh\n")


async def test_the_environment_is_clean_and_home_is_private(
    bash: BashTool, ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APEXBRIDGE_SECRET_THING", "do not tell")
    result = await _run(bash, ground, "env; echo x > $HOME/f && echo y > $TMPDIR/g")
    assert not result.is_error, result.text
    assert "SECRET" not in result.text
    assert f"HOME={ground}/private/" in result.text
    assert list((ground / "work").iterdir()) == []
    assert list((ground / "private").iterdir()) == []


async def test_the_exit_status_is_reported(bash: BashTool, ground: Path) -> None:
    result = await _run(bash, ground, "echo out; exit 3")
    assert (result.text, result.is_error) == ("out\n[Exit code 3]", True)
    assert result.data["exit_code"] == 3
    result = await _run(bash, ground, "echo begun; sleep 60", timeout=3)
    assert "begun" in result.text
    assert "[Ended after 3 seconds" in result.text
    assert result.data["outcome"] == "timeout"
    result = await _run(bash, ground, "while ((")
    assert "unexpected EOF" in result.text


async def test_much_output_is_capped_and_reported(bash: BashTool, ground: Path) -> None:
    result = await _run(bash, ground, "seq 1 15000")
    assert result.text.startswith("1\n2\n")
    assert "15000\n[Exit code 0]" in result.text
    assert "characters are left out here; narrow it with head" in result.text
    assert len(result.text) < 31_000
    result = await _run(bash, ground, "yes")
    assert result.text.endswith("[Ended: it wrote too much]")
    assert len(result.text) < 31_000


async def test_what_goes_on_in_the_background_ends_with_the_command(
    bash: BashTool, ground: Path
) -> None:
    command = "(while true; do echo x >> alive.txt; done) > /dev/null 2>&1 & sleep 0.1; echo done"
    with anyio.fail_after(30):
        result = await _run(bash, ground, command, timeout=2)
    size = (ground / "work/alive.txt").stat().st_size
    assert result.text
    assert (ground / "work/alive.txt").stat().st_size == size


async def test_a_word_too_long_for_a_name_is_no_file(bash: BashTool, ground: Path) -> None:
    (ground / "work/a.txt").touch()
    result = await _run(bash, ground, f"echo {'x' * 3_000} a.txt ../beside.txt /etc/passwd")
    assert not result.is_error
    assert result.touched == (ground / "work/a.txt",)


@pytest.mark.needs("bubblewrap")
async def test_a_warm_pool_is_passed_by(ground: Path, launcher: Launcher) -> None:
    sandbox, workspaces = BubblewrapSandbox(launcher), Workspaces(ground / "private")
    with closing(WarmPool(sandbox, workspaces, capacity=1)) as pool:
        made = ScriptExecutor(sandbox, workspaces, pool)

        async def executor() -> ScriptExecutor:
            return made

        for number in range(2):
            result = await _run(BashTool(executor), ground, f"echo {number} > made.txt")
            assert result.text == "[Exit code 0]"
    assert (ground / "work/made.txt").read_text(encoding="utf-8") == "1\n"


async def test_a_cancelled_command_is_ended(bash: BashTool, ground: Path) -> None:
    with anyio.move_on_after(1) as scope:
        await _run(bash, ground, "echo begun > begun; sleep 60; echo late > late")
    assert scope.cancelled_caught
    assert not (ground / "work/late").exists()
    assert list((ground / "private").iterdir()) == []


async def test_running_is_asked_about_with_the_command_as_it_is(ground: Path) -> None:
    bash = _tool(RecordingSandbox(), ground)
    wanted = {"command": "rm -rf build && ls", "description": "List files, harmlessly"}
    (asked,) = bash.permissions(wanted, context(ground / "work"))
    assert (asked.tool, asked.argument) == ("Bash", "rm -rf build && ls")
    assert asked.summary == "Run rm -rf build && ls"
    assert (asked.cwd, asked.harmless) == (ground / "work", False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"command": "a\0b"}, "NUL"),
        ({"command": ""}, "at least 1 character"),
        ({"command": "字" * 30_000}, "longer than"),
        ({"command": "x" * 70_000}, "at most 65536 characters"),
        ({"command": "\ud800"}, "valid string"),
        ({"command": "ls", "timeout": 120_000}, "less than or equal to 600"),
        ({"command": "ls", "timeout": 0}, "greater than 0"),
        ({"command": "ls", "cwd": "/etc"}, "cannot access /etc"),
        ({"command": "ls", "network": True}, "'network' is no argument of it"),
    ],
)
async def test_what_cannot_be_run_is_refused(
    ground: Path, arguments: dict[str, object], message: str
) -> None:
    sandbox = RecordingSandbox()
    bash = _tool(sandbox, ground)
    with pytest.raises(ToolInputError, match=message):
        bash.permissions(arguments, context(ground / "work"))
    with pytest.raises(ToolInputError, match=message):
        await bash.call(arguments, context(ground / "work"))
    assert sandbox.requests == []


async def test_the_folder_must_be_one(ground: Path) -> None:
    (ground / "work/a.txt").touch()
    with pytest.raises(ToolFailedError, match="it is not a directory"):
        await _run(_tool(RecordingSandbox(), ground), ground, "ls", cwd="a.txt")


@pytest.mark.parametrize("folder", ["/", "/usr", "/etc", "/proc"])
async def test_a_system_folder_is_no_workspace(ground: Path, folder: str) -> None:
    sandbox = RecordingSandbox()
    facts = context(Path(folder))
    assert facts.scope == PathScope(write=(Path(folder),))
    with pytest.raises(ToolFailedError, match="cannot be a workspace"):
        await use(_tool(sandbox, ground), facts, {"command": "ls"})
    assert sandbox.requests == []


async def test_without_a_sandbox_or_bash_it_says_so(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none() -> ScriptExecutor:
        raise SandboxUnavailableError("nothing isolates")

    with pytest.raises(ToolFailedError, match="nothing isolates"):
        await _run(BashTool(none), ground, "ls")
    monkeypatch.setattr(interpreters, "_SEARCH_PATH", "/nowhere")
    with pytest.raises(ToolFailedError, match="no bash"):
        await _run(BashTool(none), ground, "ls")


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ("workspace_limit", "temporary folder"),
        ("killed", "by a signal"),
        ("not_started", "could not be started: ENOENT"),
    ],
)
def test_other_outcomes_are_reported(outcome: Outcome, message: str) -> None:
    error = "ENOENT" if outcome == "not_started" else None
    result = ExecutionResult(outcome=outcome, exit_code=None, error=error, stdout=b"\xff\n")
    assert message in format_result(result, 1)
    assert format_result(result, 1).startswith("\ufffd\n[")
