"""Landlock under root: no run is uid 0, wherever the skill and the workspaces are."""

import json
import os
import tempfile
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from apexbridge.errors import SandboxUnavailableError
from apexbridge.sandbox import interpreters, kernel_limits
from apexbridge.sandbox.backends import LandlockSandbox
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.sandbox.launcher import Launcher
from apexbridge.sandbox.script_executor import ScriptExecutor, ScriptJob
from apexbridge.sandbox.uid_pool import UidPool, is_world_readable
from apexbridge.sandbox.workspace import Workspaces

pytestmark = [pytest.mark.anyio, pytest.mark.needs("root"), pytest.mark.needs("landlock")]

PRELUDE = """
import ctypes, errno, json, os, sys
F = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
verdicts = {}
def attack(name, deed):
    try:
        deed()
    except OSError as error:
        verdicts[name] = errno.errorcode.get(error.errno, "?")
    else:
        verdicts[name] = "DONE"
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result
"""


@pytest.fixture
def base() -> Generator[Path]:
    """A folder like `/`: everybody may pass, and root owns what is in it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def home(base: Path) -> Path:
    """A home folder as root's: nobody else may pass."""
    made = base / "root"
    made.mkdir(mode=0o700)
    (made / "secret").write_text("the server's secret", encoding="utf-8")
    (made / "skill").mkdir()
    (made / "skill/data").write_text("for the script", encoding="utf-8")
    return made


@pytest.fixture
def executor(home: Path) -> Generator[ScriptExecutor]:
    with closing(Launcher(uids=UidPool.detect())) as launcher:
        yield ScriptExecutor(LandlockSandbox(launcher), Workspaces(home / "workspaces"))


async def _run(executor: ScriptExecutor, home: Path, source: str, *write: Path) -> ExecutionResult:
    python = interpreters.find("python")
    assert python is not None
    script = home / "skill/main.py"
    script.write_text(PRELUDE + source + "\nprint(json.dumps(verdicts))\n", encoding="utf-8")
    facts = {"home": str(home), "outside": str(home.parent)}
    return await executor.run(
        ScriptJob(
            interpreter=python,
            flags=("-I", "-S"),
            script=script,
            arguments=(json.dumps(facts),),
            read=(home / "skill",),
            write=write,
            cwd=write[0] if write else None,
        )
    )


async def _verdicts(
    executor: ScriptExecutor, home: Path, source: str, *write: Path
) -> dict[str, str]:
    result = await _run(executor, home, source, *write)
    assert result.outcome == "ok", result
    return json.loads(result.stdout)


async def test_files_of_root_outside_the_grants_keep_their_modes_and_owners(
    executor: ScriptExecutor, base: Path, home: Path
) -> None:
    target = base / "program"
    target.write_bytes(b"")
    target.chmod(0o755)
    verdicts = await _verdicts(executor, home, """
target = F["outside"] + "/program"
attack("set-uid", lambda: os.chmod(target, 0o4755))
attack("mode", lambda: os.chmod(target, 0o777))
attack("mode of the secret", lambda: os.chmod(F["home"] + "/secret", 0o644))
attack("mode of the home", lambda: os.chmod(F["home"], 0o777))
attack("owner", lambda: os.chown(target, os.getuid(), os.getgid()))
attack("times", lambda: os.utime(target, (1, 1)))
attack("attribute", lambda: os.setxattr(target, "user.x", b"1"))
attack("skill", lambda: os.chmod(F["home"] + "/skill/data", 0o777))
verdicts["uid"] = str(os.getuid())
""")  # fmt: skip
    assert int(verdicts.pop("uid")) >= 1_900_000_000
    assert set(verdicts.values()) <= {"EPERM", "EACCES", "ENOTSUP", "EOPNOTSUPP"}, verdicts
    assert target.stat().st_mode & 0o7777 == 0o755


async def test_the_power_to_pass_folders_opens_nothing_that_was_not_granted(
    executor: ScriptExecutor, home: Path
) -> None:
    verdicts = await _verdicts(executor, home, """
secret = F["home"] + "/secret"
passing = lambda path: os.open(path, os.O_PATH)
def read(path):
    with open(path, "rb") as file:
        file.read()
def link_by_descriptor():
    held = passing(secret)
    check(libc.linkat(held, b"", -100, b"linked", 0x1000))
    read("linked")
def link_by_proc():
    held = passing(secret)
    check(libc.linkat(-100, b"/proc/self/fd/%d" % held, -100, b"linked2", 0x400))
    read("linked2")
def enter():
    os.chdir(F["home"])
    read("secret")
def from_descriptor():
    held = os.open(F["home"], os.O_PATH | os.O_DIRECTORY)
    os.close(os.open("secret", os.O_RDONLY, dir_fd=held))
def by_handle():
    handle = ctypes.create_string_buffer(136)
    handle[0] = 128
    mount = ctypes.c_int()
    check(libc.name_to_handle_at(-100, secret.encode(), handle, ctypes.byref(mount), 0))
    check(libc.open_by_handle_at(os.open("/", os.O_PATH), handle, 0))
attack("read", lambda: read(secret))
attack("shadow", lambda: read("/etc/shadow"))
attack("list", lambda: os.listdir(F["home"]))
attack("list root", lambda: os.listdir("/root"))
attack("write", lambda: open(secret, "ab"))
attack("write skill", lambda: open(F["home"] + "/skill/data", "ab"))
attack("unlink", lambda: os.unlink(secret))
attack("link", lambda: os.link(secret, "linked3"))
attack("rename", lambda: os.rename(secret, "taken"))
attack("link by descriptor", link_by_descriptor)
attack("link by proc", link_by_proc)
attack("reopen", lambda: read(f"/proc/self/fd/{passing(secret)}"))
attack("from a descriptor", from_descriptor)
attack("execute", lambda: os.execv(secret, ["x"]))
attack("execute a descriptor",
    lambda: check(libc.execveat(passing(secret), b"", None, None, 0x1000)))
attack("by handle", by_handle)
attack("server", lambda: os.listdir(f"/proc/{os.getppid()}/fd"))
attack("environment", lambda: read(f"/proc/{os.getppid()}/environ"))
attack("root again", lambda: os.setuid(0))
attack("attribute of the secret", lambda: os.setxattr(secret, "user.x", b"1"))
attack("enter", enter)
os.chdir("/")
granted = open(F["home"] + "/skill/data").read()
""" + """
head = (ctypes.c_uint32 * 2)(0x20080522, 0)
caps = (ctypes.c_uint32 * 6)()
libc.capget(head, caps)
full = (ctypes.c_uint32 * 6)(6, 6, 6)
attack("more powers", lambda: check(libc.capset(head, full)))
verdicts["granted"], verdicts["caps"] = granted, str(list(caps)[:3])
""")  # fmt: skip
    assert verdicts.pop("granted") == "for the script"
    assert verdicts.pop("caps") == "[4, 4, 4]"
    assert verdicts["enter"] == "EACCES"
    allowed = {"EACCES", "EPERM", "EXDEV", "ENOENT", "ENOTSUP", "EOPNOTSUPP"}  # two names of one
    assert set(verdicts.values()) <= allowed, verdicts


async def test_where_everybody_may_pass_there_is_no_capability(base: Path) -> None:
    place = base / "srv"
    (place / "skill").mkdir(parents=True)
    python = interpreters.find("python")
    assert python is not None
    if not all(map(is_world_readable, python.prefix)):
        pytest.skip("this Python is in a private folder")
    with closing(Launcher(uids=UidPool.detect())) as launcher:
        executor = ScriptExecutor(LandlockSandbox(launcher), Workspaces(place / "workspaces"))
        verdicts = await _verdicts(executor, place, """
head = (ctypes.c_uint32 * 2)(0x20080522, 0)
caps = (ctypes.c_uint32 * 6)()
libc.capget(head, caps)
verdicts["caps"] = str(list(caps))
""")  # fmt: skip
    assert verdicts == {"caps": "[0, 0, 0, 0, 0, 0]"}


async def test_a_launcher_without_a_pool_runs_nothing_as_root_either(home: Path) -> None:
    with closing(Launcher()) as launcher:
        executor = ScriptExecutor(LandlockSandbox(launcher), Workspaces(home / "workspaces"))
        verdicts = await _verdicts(executor, home, 'verdicts["uid"] = str(os.getuid())')
    assert verdicts["uid"] != "0"


async def test_a_folder_of_roots_is_not_written_by_anybody_else(
    executor: ScriptExecutor, base: Path, home: Path
) -> None:
    project = base / "project"
    project.mkdir()
    with pytest.raises(SandboxUnavailableError, match="bubblewrap") as caught:
        await _run(executor, home, 'open("made", "w").close()', project)
    assert caught.value.code == "sandbox_root_folder"
    assert list(project.iterdir()) == []


async def test_a_project_is_written_as_its_owner(
    executor: ScriptExecutor, base: Path, home: Path
) -> None:
    project = base / "project"
    project.mkdir(mode=0o700)
    (project / "old").write_text("1", encoding="utf-8")
    for path in (project, project / "old"):
        os.chown(path, 65_111, 65_112)
    source = """
with open("old", "a") as file:
    file.write("2")
open("made", "w").close()
os.chmod("old", 0o755)
attack("secret", lambda: open(F["home"] + "/secret").close())
verdicts["uid"] = str(os.getuid())
"""
    verdicts = await _verdicts(executor, home, source, project)
    assert verdicts == {"secret": "EACCES", "uid": "65111"}
    assert (project / "old").read_text(encoding="utf-8") == "12"
    status = (project / "made").stat()
    assert (status.st_uid, status.st_gid) == (65_111, 65_112)


async def test_without_the_capability_it_is_not_offered(
    executor: ScriptExecutor, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_none(_: int) -> bool:
        return False

    monkeypatch.setattr(kernel_limits, "has_capability", has_none)
    with pytest.raises(SandboxUnavailableError) as caught:
        await _run(executor, home, "")
    assert caught.value.code == "sandbox_private_folder"
