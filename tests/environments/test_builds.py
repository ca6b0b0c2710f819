"""Builds from an index on the loopback interface: locked, shared, used by scripts, removed."""

import json
from pathlib import Path

import pytest

from apexbridge.activation.scripts import ScriptCall
from apexbridge.environments.declarations import skill_needs
from apexbridge.environments.store import Environment
from apexbridge.errors import DependencyError, PermissionDeniedError
from apexbridge.runtime import Runtime
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.settings import Config
from apexbridge.skills.model import Skill
from apexbridge.testing import make_skill
from tests.environments.conftest import configure
from tests.environments.package_server import PackageServer

pytestmark = [pytest.mark.anyio, pytest.mark.needs("bubblewrap")]

GREET = "import greet, sys\nprint(greet.WORD, *sys.argv[1:])\n"


async def install(runtime: Runtime, place: Path, name: str = "tool", **files: str) -> Skill:
    named = {path.replace("__", "/").replace("_", "."): text for path, text in files.items()}
    folder = make_skill(place, name, files=named)
    return (await runtime.manager.install(folder)).skill


async def run(runtime: Runtime, skill: Skill, script: str = "") -> ExecutionResult:
    call = ScriptCall(skill=skill, script=script, limits=runtime.script_runner.limits())
    return await runtime.script_runner.execute(call)


async def test_a_skill_is_built_once_and_its_script_finds_its_packages(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'old'\n"})
    packages.add_wheel(
        "greet",
        "1.5",
        {"greet.py": "import told\nWORD = told.WORD\ndef main(): print('by command')\n"},
        requires=("told>=1",),
        entry_points="[console_scripts]\ngreet = greet:main\n",
    )
    packages.add_wheel("told", "1.0", {"told.py": "WORD = 'hello'\n"})
    shell = "greet && python3 -c 'import greet; print(greet.WORD)'\n"
    async with Runtime.open(loaded) as runtime:
        skill = await install(
            runtime, tmp_path, scripts__main_py=GREET, scripts__b_sh=shell,
            requirements_txt="greet<2\n",
        )  # fmt: skip
        before = await run(runtime, skill, "main.py")
        assert before.exit_code == 1
        assert before.cause is not None
        assert before.cause.code == "dependencies_missing"
        assert before.explain().endswith("apexbridge deps build tool")
        report = await runtime.dependencies.build(skill)
        assert report.environments["python"].packages == ("greet==1.5", "told==1.0")
        asked = len(packages.requests)
        for _ in range(2):
            result = await run(runtime, skill, "main.py")
            assert (result.stdout, result.stderr) == (b"hello\n", b"")
        assert (await run(runtime, skill, "b.sh")).stdout == b"by command\nhello\n"
        await runtime.dependencies.build(skill)
        assert len(packages.requests) == asked
        assert (await runtime.dependencies.show(skill, verifies=True)).changed == ()


async def test_equal_locks_share_one_folder_also_with_a_changed_skill(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
    async with Runtime.open(loaded) as runtime:
        keys = set[str]()
        for name in ("one", "two"):
            skill = await install(runtime, tmp_path, name, scripts__main_py=GREET)
            needs = skill_needs(skill.root or tmp_path)
            assert await runtime.dependencies.lacks(needs) == (name == "one")
            keys.add((await runtime.dependencies.build(skill)).environments["python"].key)
        assert len(keys) == 1
        packages.files.clear()  # a third one, and a changed one, need no index
        third = await install(runtime, tmp_path, "three", scripts__main_py=GREET)
        assert not await runtime.dependencies.lacks(skill_needs(third.root or tmp_path))
        assert (await run(runtime, third)).stdout == b"hello\n"
        assert (await runtime.dependencies.show(third)).states["python"] == "built"


async def test_environments_of_different_locks_share_the_files_that_they_have_in_common(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
    packages.add_wheel("other", "1.0", {"other.py": "WORD = 'other'\n"})
    async with Runtime.open(loaded) as runtime:
        found = list[int]()
        for name, wanted in (("one", "greet\n"), ("two", "greet\nother\n")):
            skill = await install(runtime, tmp_path, name, requirements_txt=wanted)
            built = (await runtime.dependencies.build(skill)).environments["python"]
            (module,) = built.path.glob("lib/*/site-packages/greet.py")
            found.append(module.stat().st_ino)
        assert len(set(found)) == 1
        for entry in ("one", "two"):
            await runtime.manager.uninstall(entry)
        for trashed in runtime.store.trash.list():
            runtime.store.trash.discard(trashed)
        await runtime.dependencies.collect_garbage()
    assert not [path for path in loaded.data.glob("environments/files/*/*") if path.is_file()]


async def test_the_warm_pool_serves_an_environment_in_use(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
    async with Runtime.open(loaded) as runtime:
        skill = await install(runtime, tmp_path, scripts__main_py=GREET)
        built = (await runtime.dependencies.build(skill)).environments["python"]
        await run(runtime, skill)
        pool = (await runtime.script_runner.executor()).pool
        assert pool is not None
        while not pool.idle_count():
            await run(runtime, skill)
        (key, *_) = pool.idle_keys()
        assert key.interpreter.program == str(built.path / "bin/python")
        assert (await run(runtime, skill)).stdout == b"hello\n"


async def test_a_wrong_guess_does_not_stop_the_rest(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
    source = f"def later():\n    import no_such_thing\n{GREET}"
    async with Runtime.open(loaded) as runtime:
        skill = await install(runtime, tmp_path, scripts__main_py=source)
        report = await runtime.dependencies.build(skill)
        assert report.dropped == ("no-such-thing",)
        assert (await run(runtime, skill)).stdout == b"hello\n"


async def test_a_declared_package_that_does_not_exist_is_named(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    async with Runtime.open(loaded) as runtime:
        skill = await install(runtime, tmp_path, requirements_txt="no-such-thing==9\n")
        with pytest.raises(DependencyError, match="no-such-thing") as caught:
            await runtime.dependencies.build(skill)
        assert caught.value.code == "dependencies_absent"
        assert runtime.dependencies.store.all() == []


async def test_an_index_that_is_not_reached_is_told_with_its_reason(
    packages: PackageServer, home: Path, tmp_path: Path
) -> None:
    packages.port = 9  # discard: nothing listens there
    async with Runtime.open(configure(packages, home, tmp_path)) as runtime:
        skill = await install(runtime, tmp_path, requirements_txt="greet\n")
        with pytest.raises(DependencyError) as caught:
            await runtime.dependencies.build(skill)
        assert caught.value.code == "dependencies_offline"
        assert packages.index in caught.value.message
        assert "apexbridge deps build tool" in caught.value.hint


async def test_a_resolver_that_is_not_installed_is_named(
    packages: PackageServer, loaded: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find() -> str:
        raise FileNotFoundError("no uv")

    monkeypatch.setattr("uv.find_uv_bin", find)
    async with Runtime.open(loaded) as runtime:
        skill = await install(runtime, tmp_path, scripts__a_py=GREET)
        with pytest.raises(DependencyError, match="'uv' is not installed"):
            await runtime.dependencies.build(skill)


async def test_the_setting_can_forbid_every_build(
    packages: PackageServer, home: Path, tmp_path: Path
) -> None:
    async with Runtime.open(configure(packages, home, tmp_path, build="never")) as runtime:
        skill = await install(runtime, tmp_path, requirements_txt="greet\n")
        with pytest.raises(PermissionDeniedError, match="switched off"):
            await runtime.dependencies.build(skill)
    assert packages.requests == []


async def test_the_setting_can_build_at_the_first_run(
    packages: PackageServer, home: Path, tmp_path: Path
) -> None:
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
    async with Runtime.open(configure(packages, home, tmp_path, build="always")) as runtime:
        skill = await install(runtime, tmp_path, scripts__main_py=GREET)
        assert (await run(runtime, skill)).stdout == b"hello\n"


async def test_environments_are_removed_when_the_last_skill_is_gone_for_good(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
    async with Runtime.open(loaded) as runtime:
        dependencies = runtime.dependencies
        for name in ("one", "two"):
            skill = await install(runtime, tmp_path, name, scripts__main_py=GREET)
            await dependencies.build(skill)
        await runtime.manager.uninstall("one")
        assert await dependencies.collect_garbage() == []  # the other one uses it
        gone = await runtime.manager.uninstall("two")
        assert await dependencies.collect_garbage() == []  # `undo` brings it back
        for entry in runtime.store.trash.list():
            runtime.store.trash.discard(entry)
        assert [one.ecosystem for one in await dependencies.collect_garbage(dry_run=True)] == [
            "python"
        ]
        assert [one.ecosystem for one in await dependencies.collect_garbage()] == ["python"]
        assert dependencies.store.all() == []
        assert gone.name == "two"


async def test_node_packages_are_found_by_require_and_by_import(
    packages: PackageServer, loaded: Config, tmp_path: Path
) -> None:
    packages.add_npm("told", {"index.js": "exports.word = 'hello';"}, main="index.js")
    packages.add_npm(
        "greet",
        {
            "index.js": "exports.word = require('told').word;",
            "bin.js": "#!/usr/bin/env node\nconsole.log('by command')",
        },
        main="index.js", bin={"greet": "bin.js"}, dependencies={"told": "^1"},
    )  # fmt: skip
    async with Runtime.open(loaded) as runtime:
        skill = await install(
            runtime,
            tmp_path,
            scripts__a_cjs="console.log(require('greet').word);",
            scripts__b_mjs="import greet from 'greet';\nconsole.log(greet.word);",
            scripts__c_sh="greet",
            package_json=json.dumps({"dependencies": {"greet": "^1.0"}}),
        )
        report = await runtime.dependencies.build(skill)
        assert set(report.environments["node"].packages) == {"greet==1.0.0", "told==1.0.0"}
        for script in ("a.cjs", "b.mjs"):
            result = await run(runtime, skill, script)
            assert (result.stdout, result.stderr) == (b"hello\n", b"")
        assert (await run(runtime, skill, "c.sh")).stdout == b"by command\n"


async def test_without_a_sandbox_that_filters_the_network_nothing_is_built(
    packages: PackageServer, loaded: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apexbridge.runtime.script_runner.BubblewrapSandbox", _LandlockOnly)
    async with Runtime.open(loaded) as runtime:
        skill = await install(runtime, tmp_path, requirements_txt="greet\n")
        with pytest.raises(DependencyError, match="filtered network") as caught:
            await runtime.dependencies.build(skill)
        assert caught.value.code == "dependencies_sandbox"
    assert packages.requests == []


async def test_an_operator_can_allow_builds_without_isolation_from_wheels_only(
    packages: PackageServer, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
    packages.add_source("built", "open('/tmp/never', 'w')")
    monkeypatch.setattr("apexbridge.runtime.script_runner.BubblewrapSandbox", _LandlockOnly)
    loaded = configure(packages, home, tmp_path, allow_unsandboxed="true")
    async with Runtime.open(loaded) as runtime:
        skill = await install(runtime, tmp_path, requirements_txt="greet\n")
        assert isinstance(
            (await runtime.dependencies.build(skill)).environments["python"], Environment
        )
        other = await install(runtime, tmp_path, "other", requirements_txt="built\n")
        with pytest.raises(DependencyError):
            await runtime.dependencies.build(other)


class _LandlockOnly:
    """A machine on which bubblewrap does not work."""

    name = "bubblewrap"

    def __init__(self, _: object) -> None:
        pass

    async def run(self, request: object) -> ExecutionResult:
        return ExecutionResult(outcome="not_started", exit_code=None, error="ENOENT")
