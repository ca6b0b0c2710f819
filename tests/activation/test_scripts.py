"""Skill scripts: choice of script and interpreter, run in the sandbox."""

from pathlib import Path

import pytest

from apexbridge.activation.scripts import ScriptCall, find_script, run_script
from apexbridge.errors import (
    ApexBridgeError,
    ConfigError,
    SkillNotFoundError,
    StorageError,
    ToolInputError,
)
from apexbridge.runtime import ResourceControls, Runtime
from apexbridge.runtime.script_runner import ScriptRunner
from apexbridge.sandbox import child_process, interpreters
from apexbridge.sandbox.base import ExecutionResult, Sandbox, SandboxLimits
from apexbridge.sandbox.script_executor import ScriptExecutor
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.settings import load
from apexbridge.skills.model import Origin, Provenance, Skill
from apexbridge.skills.parser import read_skill
from apexbridge.testing import RecordingSandbox, make_skill

pytestmark = pytest.mark.anyio


def _skill(place: Path, **files: str) -> Skill:
    named = {name.replace("__", "/").replace("_", "."): text for name, text in files.items()}
    root = make_skill(place, "tool", files=named)
    skill = read_skill(root, Provenance(origin=Origin.USER, source_id="user:test")).skill
    assert skill is not None
    return skill


@pytest.mark.parametrize(
    ("files", "named", "entry"),
    [
        (["scripts/main.py", "scripts/other.py"], "", "scripts/main.py"),
        (["scripts/main.sh", "index.js"], "", "scripts/main.sh"),
        (["index.js"], "", "index.js"),
        (["scripts/only.sh", "scripts/notes.txt"], "", "scripts/only.sh"),
        (["scripts/a.py", "scripts/b.py"], "b.py", "scripts/b.py"),
        (["scripts/a.py", "tools/c.py"], "tools/c.py", "tools/c.py"),
    ],
)
async def test_the_entry_is_the_named_one_the_usual_one_or_the_only_one(
    tmp_path: Path, files: list[str], named: str, entry: str
) -> None:
    root = make_skill(tmp_path, "tool", files=dict.fromkeys(files, ""))
    skill = read_skill(root, Provenance(origin=Origin.USER, source_id="x")).skill
    assert skill is not None
    assert find_script(ScriptCall(skill=skill, script=named)) == root.resolve() / entry


@pytest.mark.promise("X01")
@pytest.mark.parametrize(
    "named", ["no.py", "../../etc/passwd", "/etc/passwd", "link.py", "scripts"]
)
async def test_a_script_that_is_not_the_skills_own_is_refused(tmp_path: Path, named: str) -> None:
    skill = _skill(tmp_path, scripts__a_py="", scripts__b_py="")
    assert skill.root is not None
    (tmp_path / "outside.py").write_text("", encoding="utf-8")
    (skill.root / "scripts/link.py").symlink_to(tmp_path / "outside.py")
    with pytest.raises(ApexBridgeError):
        find_script(ScriptCall(skill=skill, script=named))


@pytest.mark.promise("X01")
async def test_without_a_script_or_with_too_many_it_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolInputError, match="has no script"):
        find_script(ScriptCall(skill=_skill(tmp_path / "a")))
    many = _skill(tmp_path / "b", scripts__a_py="", scripts__b_py="")
    with pytest.raises(ToolInputError, match=r"say which script: a\.py, b\.py"):
        find_script(ScriptCall(skill=many))


async def _run(skill: Skill, place: Path, *arguments: str) -> tuple[RecordingSandbox, str | None]:
    sandbox = RecordingSandbox()
    call = ScriptCall(skill=skill, arguments=arguments)
    result = await run_script(call, ScriptExecutor(sandbox, Workspaces(place / "w")))
    return sandbox, result.error


@pytest.mark.parametrize(
    ("name", "first", "program"),
    [
        ("main.py", "", "python3"),
        ("main.sh", "", "bash"),
        ("main.sh", "#!/bin/sh", "sh"),
        ("main.py", "#!/usr/bin/env python3", "python3"),
        ("main.py", "#!/usr/bin/env -S python3 -u", "python3"),
        ("main.py", "#!/usr/bin/env python3.11\r", "python3"),
        ("main", "#!/usr/bin/env -S uv run --script", "python3"),
        ("main", "#!/usr/bin/env -S LANG=C uv run -q --python 3.12 --script", "python3"),
        ("main.PY", "\ufeff#! /usr/bin/python3", "python3"),
        ("main.cjs", "", "node"),
        ("main.pl", "#!/usr/bin/env -S perl -w", "perl"),
    ],
)
async def test_the_interpreter_comes_from_the_first_line_else_the_suffix(
    tmp_path: Path, name: str, first: str, program: str
) -> None:
    root = make_skill(tmp_path, "tool", files={f"scripts/{name}": f"{first}\n"})
    skill = read_skill(root, Provenance(origin=Origin.USER, source_id="x")).skill
    assert skill is not None
    sandbox, _ = await _run(skill, tmp_path, "a b")
    (request,) = sandbox.requests
    assert Path(request.argv[0]).name.startswith(program)
    assert request.argv[-2:] == (str(root.resolve() / "scripts" / name), "a b")
    assert root in request.access.read
    assert request.access.write == (request.cwd,)


@pytest.mark.promise("X02")
async def test_no_mode_bit_is_needed_where_the_interpreter_is_known(tmp_path: Path) -> None:
    skill = _skill(tmp_path, scripts__main_py="")
    assert skill.root is not None
    (skill.root / "scripts/main.py").chmod(0o644)
    sandbox, error = await _run(skill, tmp_path)
    assert (len(sandbox.requests), error) == (1, None)


@pytest.mark.promise("X02")
@pytest.mark.parametrize(
    ("content", "mode", "error"),
    [
        (b"\x7fELF\x02rest", 0o755, None),
        (b"\x7fELF\x02rest", 0o644, "PermissionError"),
        (b"some text", 0o644, "ENOEXEC"),  # the bit would not help
        (b"some text", 0o755, "ENOEXEC"),
    ],
)
async def test_a_program_without_first_line_and_suffix_needs_the_mode_bit(
    tmp_path: Path, content: bytes, mode: int, error: str | None
) -> None:
    skill = _skill(tmp_path, scripts__tool="")
    assert skill.root is not None
    (program := skill.root / "scripts/tool").write_bytes(content)
    program.chmod(mode)
    sandbox = RecordingSandbox()
    call = ScriptCall(skill=skill, script="tool", arguments=("a",))
    executor = ScriptExecutor(sandbox, Workspaces(tmp_path / "w"))
    if error == "PermissionError":
        with pytest.raises(PermissionError, match="not executable"):
            await run_script(call, executor)
        return
    result = await run_script(call, executor)
    ran = [request.argv for request in sandbox.requests]
    assert (result.error, ran) == (error, [] if error else [(str(program.resolve()), "a")])


@pytest.mark.promise("X02")
@pytest.mark.parametrize(
    ("name", "first", "reason"),
    [
        ("a.rb", "#!/usr/bin/env no-such-thing", "'a.rb' needs no-such-thing, which is not inst"),
        ("a.rb", "#!/opt/odd$(id)", "The first line of 'a.rb' names no interpreter"),
        ("a.xyz", "#!", "The first line of 'a.xyz' names no interpreter: #!"),
        ("a.bat", "", "'a.bat' needs cmd, which exists on Windows only. Run it on Windows"),
        ("a.ZSH", "#!/nowhere/zsh9", "'a.ZSH' needs zsh9, which is not installed here. Install"),
        ("a.py", "#!/usr/bin/env python3.99", "'a.py' asks for python3.99; this machine has Py"),
        ("a.jsx", "", "'a.jsx' is TypeScript or JavaScript with markup"),
    ],
)
async def test_a_script_that_cannot_start_is_enoent_with_what_would_help(
    tmp_path: Path, name: str, first: str, reason: str
) -> None:
    """The founding document: `{exitCode: null, error: "ENOENT"}`."""
    root = make_skill(tmp_path, "tool", files={f"scripts/{name}": f"{first}\n"})
    skill = read_skill(root, Provenance(origin=Origin.USER, source_id="x")).skill
    assert skill is not None
    sandbox = RecordingSandbox()
    call = ScriptCall(skill=skill, script=name)
    result = await run_script(call, ScriptExecutor(sandbox, Workspaces(tmp_path / "w")))
    assert (result.outcome, result.exit_code, sandbox.requests) == ("not_started", None, [])
    assert (result.error, result.explain()[: len(reason)]) == ("ENOENT", reason)
    assert result.explain("zh") != result.explain()


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("v20.20.2", None),
        ("v22.5.1", None),
        ("v22.6.0", ("--experimental-strip-types",)),
        ("v22.18.0", ()),
        ("v23.5.0", ("--experimental-strip-types",)),
        ("v24.0.0", ()),
        ("", None),
    ],
)
async def test_typescript_runs_where_node_can(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    flags: tuple[str, ...] | None,
) -> None:
    node = tmp_path / "node"
    node.write_text(f"#!/bin/sh\necho {version}\n", encoding="utf-8")
    node.chmod(0o755)
    monkeypatch.setattr(interpreters, "_SEARCH_PATH", str(tmp_path))
    skill = _skill(tmp_path, scripts__main_ts="const x: number = 1;")
    sandbox, error = await _run(skill, tmp_path)
    if flags is None:
        assert (sandbox.requests, error) == ([], "ENOENT")
    else:
        assert sandbox.requests[0].argv[:-1] == (str(node), *flags)


async def test_typescript_that_no_node_can_run_is_run_by_bun_deno_or_tsx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = _skill(tmp_path, scripts__main_ts="#!/usr/bin/env -S npx tsx\nconst x: number = 1;")
    monkeypatch.setattr(interpreters, "_SEARCH_PATH", str(tmp_path))
    (tmp_path / "node").write_text("#!/bin/sh\necho v20.20.2\n", encoding="utf-8")
    (tmp_path / "node").chmod(0o755)
    call = ScriptCall(skill=skill)
    executor = ScriptExecutor(RecordingSandbox(), Workspaces(tmp_path / "w"))
    assert "which Node.js v20.20.2 cannot run. Install Node.js 22.18" in (
        (await run_script(call, executor)).explain()
    )
    deno = tmp_path / "deno"
    deno.write_text("", encoding="utf-8")
    deno.chmod(0o755)
    sandbox, error = await _run(skill, tmp_path)
    assert error is None
    assert sandbox.requests[0].argv[:-1] == (str(deno), "run", "--allow-all", "--no-prompt")


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize(
    "named",
    ["scripts/run_loop.py", "scripts.run_loop", "python -m scripts.run_loop", "inner/relative.py"],
)
async def test_scripts_import_from_the_root_of_their_skill(
    home: Path, tmp_path: Path, named: str
) -> None:
    files = {
        "scripts/__init__.py": "",
        "scripts/utils.py": "WHO = 'utils'\n",
        "scripts/run_loop.py": (
            "import sys\nfrom scripts.utils import WHO\nprint(WHO, sys.argv[1:])\n"
        ),
        "inner/helper.py": "from scripts import utils\nWHO = utils.WHO\n",
        "inner/near.py": "",
        "inner/relative.py": (
            "import sys\nimport near\nfrom .helper import WHO\n"
            "if __name__ == '__main__':\n    print(WHO, sys.argv[1:])\n"
        ),
    }
    root = make_skill(home / ".claude/skills", "tool", files=files)
    for path in root.rglob("*.py"):
        path.chmod(0o644)
    loaded = load(project=tmp_path, environment={"HOME": str(home)})
    async with Runtime.open(loaded) as runtime:
        result = await runtime.execute_skill("tool", ["a b"], script=named)
        assert (result.stdout, result.stderr) == (b"utils ['a b']\n", b"")
        with pytest.raises(ToolInputError, match="no script"):
            await runtime.execute_skill("tool", script="python -m scripts.other")


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("named", ["scripts/cli/show.py", "scripts/core/direct.py"])
async def test_scripts_import_from_the_folders_above_them(
    home: Path, tmp_path: Path, named: str
) -> None:
    files = {
        "scripts/core/__init__.py": "WHO = 'core'\n",
        "scripts/core/direct.py": "from core import WHO\nprint(WHO)\n",
        "scripts/cli/show.py": "from core import WHO\nprint(WHO)\n",
    }
    make_skill(home / ".claude/skills", "tool", files=files)
    loaded = load(project=tmp_path, environment={"HOME": str(home)})
    async with Runtime.open(loaded) as runtime:
        result = await runtime.execute_skill("tool", script=named)
        assert (result.stdout, result.stderr) == (b"core\n", b"")


async def test_a_root_that_would_hide_the_standard_library_is_not_imported_from(
    tmp_path: Path,
) -> None:
    skill = _skill(tmp_path, scripts__main_py="", types_py="")
    sandbox, _ = await _run(skill, tmp_path)
    assert "PYTHONPATH" not in sandbox.requests[0].env


@pytest.mark.needs("sandbox")
async def test_declared_packages_that_are_installed_are_no_reason_to_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site/Some_Package-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Name: Some.Package\nVersion: 1.0\n", encoding="utf-8")

    def folders(_: Path) -> tuple[Path, ...]:
        return (tmp_path / "site",)

    monkeypatch.setattr("apexbridge.environments.installed.package_folders", folders)
    head = (
        "#!/usr/bin/env -S uv run --with {}\n# /// script\r\n# dependencies = ['{}>=1']\r\n# ///\n"
    )
    there = _skill(tmp_path / "a", scripts__main_py=head.format("some-package", "some_package"))
    sandbox, error = await _run(there, tmp_path)
    assert (len(sandbox.requests), error) == (1, None)
    missing = _skill(tmp_path / "b", scripts__main_py=head.format("other", "some_package"))
    sandbox, error = await _run(missing, tmp_path)
    assert (sandbox.requests, error) == ([], "dependencies_missing: other")


async def test_declared_dependencies_are_told_before_a_half_run(tmp_path: Path) -> None:
    head = "# /// script\n# dependencies = [\n#   'requests>=2', 'rich',\n# ]\n# ///\nprint(1)\n"
    sandbox, error = await _run(_skill(tmp_path / "a", scripts__main_py=head), tmp_path)
    assert (sandbox.requests, error) == ([], "dependencies_missing: requests>=2, rich")
    bad = head.replace("[", "[[")
    _, error = await _run(_skill(tmp_path / "b", scripts__main_py=bad), tmp_path)
    assert (error or "").startswith("dependencies_unreadable")
    none = "# /// script\n# requires-python = '>=3.11'\n# ///\n"
    sandbox, _ = await _run(_skill(tmp_path / "c", scripts__main_py=none), tmp_path)
    assert len(sandbox.requests) == 1


@pytest.mark.needs("sandbox")
@pytest.mark.promise("X09", "X11", "X12")
async def test_a_script_really_runs_in_the_sandbox_of_this_machine(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APEXBRIDGE_SECRET_THING", "do not tell")
    source = (
        "import os, sys\nprint(sys.argv[1:], sorted(os.environ))\n"
        "open('made.txt', 'w').write(open('in.txt').read().upper())\n"
        "open(os.path.join(os.environ['CLAUDE_SKILL_DIR'], 'SKILL.md')).close()\n"
    )
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.py": source})
    loaded = load(project=tmp_path, environment={"HOME": str(home)})
    async with Runtime.open(loaded) as runtime:
        call = ScriptCall(
            skill=runtime.catalog.get("tool"),
            arguments=("--", "a;b", "é"),
            inputs={"in.txt": b"text"},
            limits=SandboxLimits(wall_seconds=30),
        )
        result = await runtime.script_runner.execute(call)
        assert (await runtime.script_runner.select_sandbox()).require().name == result.isolation
    assert result.outcome == "ok", result
    assert result.stdout.startswith(b"['--', 'a;b', '\xc3\xa9'] ")
    assert b"SECRET" not in result.stdout
    assert result.produced == {"made.txt": b"TEXT"}
    assert result.isolation in {"bubblewrap", "landlock"}
    assert list(loaded.workspaces.iterdir()) == []


@pytest.mark.needs("sandbox")
async def test_a_linked_skill_runs_and_a_changed_input_comes_back(
    home: Path, tmp_path: Path
) -> None:
    source = "import os\nprint(os.environ['CLAUDE_SKILL_DIR'])\nopen('a', 'a').write('+')\n"
    real = make_skill(tmp_path / "real", "tool", files={"scripts/main.py": source})
    (home / ".claude/skills").mkdir(parents=True)
    (home / ".claude/skills/tool").symlink_to(real)
    loaded = load(project=tmp_path, environment={"HOME": str(home)})
    async with Runtime.open(loaded) as runtime:
        inputs = {"a": b"1", "b": b"2"}
        result = await runtime.script_runner.execute(
            ScriptCall(skill=runtime.catalog.get("tool"), inputs=inputs)
        )
    assert (result.outcome, result.stdout.decode().strip()) == ("ok", str(real.resolve()))
    assert result.produced == {"a": b"1+"}


@pytest.mark.needs("sandbox")
@pytest.mark.promise("X12")
async def test_nul_in_an_argument_is_refused(home: Path, tmp_path: Path) -> None:
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.py": ""})
    loaded = load(project=tmp_path, environment={"HOME": str(home)})
    async with Runtime.open(loaded) as runtime:
        tool = runtime.catalog.get("tool")
        with pytest.raises(ToolInputError, match="NUL"):
            await runtime.script_runner.execute(ScriptCall(skill=tool, arguments=("a\0b",)))


@pytest.mark.promise("X15")
async def test_a_system_without_backends_refuses_even_what_is_allowed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.py": "print('ran')"})
    monkeypatch.setattr(ScriptRunner, "_candidates", no_candidates)
    monkeypatch.setattr(child_process, "is_supported", lambda: False)
    environment = {"HOME": str(home), "APEXBRIDGE_SANDBOX__ALLOW_UNSANDBOXED": "yes"}
    async with Runtime.open(load(project=tmp_path, environment=environment)) as runtime:
        with pytest.raises(ApexBridgeError, match="no backend is known for this system"):
            await runtime.script_runner.execute(ScriptCall(skill=runtime.catalog.get("tool")))


def no_candidates(_: ScriptRunner, __: ResourceControls) -> list[Sandbox]:
    return []


@pytest.mark.promise("X15")
async def test_without_any_isolation_nothing_runs_unless_allowed(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.py": "print('ran')"})
    monkeypatch.setattr(ScriptRunner, "_candidates", no_candidates)
    for allowed in ("no", "yes"):
        environment = {"HOME": str(home), "APEXBRIDGE_SANDBOX__ALLOW_UNSANDBOXED": allowed}
        async with Runtime.open(load(project=tmp_path, environment=environment)) as runtime:
            call = ScriptCall(
                skill=runtime.catalog.get("tool"), limits=runtime.script_runner.limits()
            )
            if allowed == "no":
                with pytest.raises(ApexBridgeError, match="No working sandbox"):
                    await runtime.script_runner.execute(call)
            else:
                result = await runtime.script_runner.execute(call)
                assert (result.stdout, result.isolation) == (b"ran\n", "plain")
                assert runtime.audit.verify() == 1
    assert "without a sandbox" in caplog.text


@pytest.mark.promise("X15")
async def test_a_run_that_cannot_be_recorded_does_not_happen(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"touch {tmp_path}/ran"
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.sh": script})
    monkeypatch.setattr(ScriptRunner, "_candidates", no_candidates)
    data = tmp_path / "data"
    (data / "audit.jsonl").mkdir(parents=True)
    environment = {"HOME": str(home), "APEXBRIDGE_DATA_DIR": str(data)}
    async with Runtime.open(load(project=tmp_path, environment=environment)) as runtime:
        with pytest.raises(StorageError):
            await runtime.script_runner.execute(
                ScriptCall(skill=runtime.catalog.get("tool")), is_unsafe=True
            )
    assert not (tmp_path / "ran").exists()


@pytest.mark.needs("sandbox")
@pytest.mark.promise("X01")
async def test_a_skill_is_run_by_name_or_is_not_found(home: Path, tmp_path: Path) -> None:
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.sh": 'echo "$@"'})
    loaded = load(project=tmp_path, environment={"HOME": str(home)})
    async with Runtime.open(loaded) as runtime:
        assert (await runtime.execute_skill("tool", ["a", "b c"])).stdout == b"a b c\n"
        with pytest.raises(SkillNotFoundError, match="tol"):
            await runtime.execute_skill("tol")
        with pytest.raises(ToolInputError, match="no script"):
            await runtime.execute_skill("tool", script="other.sh")


@pytest.mark.promise("X10")
async def test_a_skill_reaches_the_hosts_that_were_granted_to_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("weather", "other"):
        make_skill(home / ".claude/skills", name, files={"scripts/main.sh": ""})
    seen = dict[str, tuple[str, ...]]()

    async def note(call: ScriptCall, *_: object) -> ExecutionResult:
        seen[call.skill.name] = call.hosts
        return ExecutionResult(outcome="ok", exit_code=0)

    monkeypatch.setattr("apexbridge.runtime.script_runner.run_script", note)
    granted = "weather=api.example.org,weather=example.com:8443"
    environment = {"HOME": str(home), "APEXBRIDGE_SANDBOX__HOSTS": granted}
    async with Runtime.open(load(project=tmp_path, environment=environment)) as runtime:
        for name in ("weather", "other"):
            await runtime.script_runner.execute(
                ScriptCall(skill=runtime.catalog.get(name)), is_unsafe=True
            )
    assert seen == {"weather": ("api.example.org", "example.com:8443"), "other": ()}
    with pytest.raises(ConfigError, match="skill=host"):
        load(project=tmp_path, environment={"APEXBRIDGE_SANDBOX__HOSTS": "weather"})
