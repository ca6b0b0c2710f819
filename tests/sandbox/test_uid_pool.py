"""The UID pool: root's runs get an unprivileged UID, and only workspaces change owner."""

import os
import tempfile
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from apexbridge.sandbox.backends import BubblewrapSandbox, LandlockSandbox
from apexbridge.sandbox.base import Access, ExecRequest, Sandbox, SandboxLimits
from apexbridge.sandbox.launcher import Launcher
from apexbridge.sandbox.uid_pool import UidPool, chown_tree, is_world_readable
from apexbridge.sandbox.workspace import Workspaces, write_inputs

pytestmark = [pytest.mark.anyio, pytest.mark.needs("root")]

KINDS = [
    pytest.param(BubblewrapSandbox, marks=pytest.mark.needs("bubblewrap"), id="bubblewrap"),
    pytest.param(LandlockSandbox, marks=pytest.mark.needs("landlock"), id="landlock"),
]


@pytest.fixture
def place() -> Generator[Path]:
    """A world-accessible directory; those of pytest are private."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        Path(made).chmod(0o711)
        yield Path(made)


@pytest.fixture(params=KINDS)
def sandbox(request: pytest.FixtureRequest) -> Generator[Sandbox]:
    kind: Callable[[Launcher], Sandbox] = request.param
    with closing(Launcher(uids=UidPool.detect())) as launcher:  # no control groups on purpose
        yield kind(launcher)


def _shell(workspace: Path, script: str) -> ExecRequest:
    return ExecRequest(
        argv=("/bin/sh", "-c", script),
        cwd=workspace,
        env={"PATH": "/usr/bin:/bin"},
        limits=SandboxLimits(wall_seconds=20),
        access=Access(write=(workspace,)),
        workspace=workspace,
    )


async def test_each_run_is_a_user_of_its_own(sandbox: Sandbox, place: Path) -> None:
    owners = set[int]()

    async def run() -> None:
        with Workspaces(place / "w").lease() as workspace:
            write_inputs(workspace, {"sub/in": b"1"})
            script = "echo 2 >> sub/in; cat sub/in > out; sleep 0.3; id -u"
            result = await sandbox.run(_shell(workspace, script))
            assert (result.outcome, result.stdout != b"0\n") == ("ok", True), result
            assert (workspace / "out").read_bytes() == b"12\n"
            owners.update(path.stat().st_uid for path in workspace.rglob("*"))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(run)
    assert len(owners) == 3
    assert 0 not in owners


async def test_its_processes_are_counted_without_a_control_group(
    sandbox: Sandbox, place: Path
) -> None:
    with Workspaces(place / "w").lease() as workspace:
        request = _shell(workspace, "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done")
        request = replace(request, limits=SandboxLimits(wall_seconds=20, processes=20))
        with anyio.fail_after(15):
            result = await sandbox.run(request)
    assert (result.exit_code != 0, b"fork" in result.stderr.lower()) == (True, True), result


async def test_without_read_access_bubblewrap_runs_as_root_and_landlock_does_not(
    sandbox: Sandbox, place: Path
) -> None:
    hidden = place / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "a").write_text("seen", encoding="utf-8")
    with Workspaces(place / "w").lease() as workspace:
        request = _shell(workspace, f"cat {hidden}/a; touch made")
        access = Access(read=(hidden,), write=(workspace,))
        result = await sandbox.run(replace(request, access=access))
        is_root = (workspace / "made").stat().st_uid == 0
        assert (result.stdout, is_root) == (b"seen", sandbox.name == "bubblewrap")


@pytest.mark.parametrize("is_hidden", [False, True])
async def test_no_other_account_gets_into_a_workspace(
    sandbox: Sandbox, place: Path, *, is_hidden: bool
) -> None:
    hidden = place / "hidden"
    hidden.mkdir(mode=0o700 if is_hidden else 0o755)
    with Workspaces(place / "w").lease() as workspace:
        script = "cp /bin/sh shell; chmod 4755 shell; chmod 777 . || true; chmod 777 .. || true"
        access = Access(read=(hidden,), write=(workspace,))
        result = await sandbox.run(replace(_shell(workspace, script), access=access))
        assert result.outcome == "ok", result
        assert workspace.stat().st_mode & 0o777 == 0o777
        words = ["/bin/ls", workspace / "shell"]
        other = await anyio.run_process(words, check=False, user=12345, group=12345)
        assert (other.returncode != 0, b"denied" in other.stderr.lower()) == (True, True)


async def test_a_run_in_a_folder_that_an_earlier_run_has_made(
    sandbox: Sandbox, place: Path
) -> None:
    with Workspaces(place / "w").lease() as workspace:
        first = await sandbox.run(_shell(workspace, "mkdir repository; echo 1 > repository/in"))
        request = replace(_shell(workspace, "cat in; id -u"), cwd=workspace / "repository")
        second = await sandbox.run(request)
        assert (first.outcome, second.outcome) == ("ok", "ok")
        assert second.stdout.startswith(b"1\n")
        assert (workspace / "repository").stat().st_uid != 0


async def test_a_folder_that_is_not_the_runs_own_keeps_its_owner(
    sandbox: Sandbox, place: Path
) -> None:
    project = place / "project"
    project.mkdir(mode=0o755)
    await sandbox.run(replace(_shell(project, "touch made"), workspace=None))
    assert [path.stat().st_uid for path in (project, project / "made")] == [0, 0]


async def test_two_servers_never_have_the_same_user(tmp_path: Path) -> None:
    one, other = UidPool(tmp_path / "locks"), UidPool(tmp_path / "locks")
    held = [users.lease((Path("/usr"),), None) for users in (one, other, one, other)]
    assert None not in held
    assert len({slot.number for slot in held if slot}) == 4
    for slot in held:
        if slot is not None:
            slot.close()
    assert (tmp_path / "locks").stat().st_mode & 0o777 == 0o700
    many = [one.lease((), None) for _ in range(256)]
    with pytest.raises(OSError, match="taken"):
        one.lease((), None)
    for slot in many:
        if slot is not None:
            slot.close()
    one.is_enabled = False
    assert one.lease((), None) is None


async def test_giving_does_not_follow_links(place: Path) -> None:
    (place / "outside").write_text("ours", encoding="utf-8")
    inside = place / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(place / "outside")
    (inside / "folder").symlink_to(place)
    chown_tree(inside, 12345)
    assert (place / "outside").stat().st_uid == 0
    assert (place.stat().st_uid, inside.stat().st_uid) == (0, 12345)
    assert os.lstat(inside / "link").st_uid == 12345


async def test_world_readable_paths(place: Path) -> None:
    (place / "open").mkdir(mode=0o755)
    (place / "open/file").touch(mode=0o644)
    (place / "half").mkdir(mode=0o755)
    (place / "half/private").touch(mode=0o600)
    (place / "shut").mkdir(mode=0o700)
    (place / "shut/file").touch(mode=0o644)
    (place / "link").symlink_to(place / "shut/file")
    names = ("open", "open/file", "half", "half/private", "shut", "shut/file", "link", "none")
    assert [is_world_readable(place / name) for name in names] == [True, True, *[False] * 6]
