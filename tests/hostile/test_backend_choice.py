"""Backend selection, the egress proxy and unusual file names. Attacks 66 to 70."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from apexbridge.activation.scripts import ScriptCall
from apexbridge.errors import SandboxUnavailableError
from apexbridge.runtime import ResourceControls, Runtime
from apexbridge.runtime.script_runner import ScriptRunner
from apexbridge.sandbox.backend_selection import select_backend
from apexbridge.sandbox.backends import BubblewrapSandbox, LandlockSandbox
from apexbridge.sandbox.base import Access, ExecRequest, Sandbox
from apexbridge.sandbox.child_process import RunningProcess
from apexbridge.sandbox.launcher import Launch, Launcher
from apexbridge.settings import load
from apexbridge.testing import make_skill
from tests.hostile.attack_setup import Field
from tests.hostile.attacks import row

pytestmark = pytest.mark.anyio


class _Unconfined(Launcher):
    """A kernel that takes Landlock's rules and keeps none."""

    def start(self, launch: Launch) -> RunningProcess:
        return super().start(replace(launch, is_confined=False))


class _WithoutNamespaces(Launcher):
    """A host that forbids new namespaces, as the call filter of a container does."""

    def start(self, launch: Launch) -> RunningProcess:
        if not launch.is_confined:
            everything = (Path("/"),)
            launch = replace(launch, is_confined=True, read=everything, write=everything)
        return super().start(launch)


@row(66, on="landlock")
@pytest.mark.promise("X15")
async def test_66_rules_that_are_not_kept_are_noticed() -> None:
    with closing(_Unconfined()) as launcher:
        choice = await select_backend([LandlockSandbox(launcher)])
    assert "can read a file outside" in choice.trials[0].reason
    with pytest.raises(SandboxUnavailableError):
        choice.require()


@row(66, on="bubblewrap")
@pytest.mark.promise("X15")
async def test_66_a_bubblewrap_that_only_pretends_is_noticed(
    launcher: Launcher, tmp_path: Path
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n', "utf-8")
    fake.chmod(0o755)
    choice = await select_backend([BubblewrapSandbox(launcher, program=str(fake))])
    assert choice.sandbox is None
    with pytest.raises(SandboxUnavailableError):
        choice.require()


@row(67, on="bubblewrap")
@row(67, on="landlock")
@pytest.mark.needs("bubblewrap")
@pytest.mark.needs("landlock")
@pytest.mark.promise("X15")
async def test_67_without_namespaces_the_next_backend_is_selected_with_a_warning(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_skill(home / ".claude/skills", "tool", files={"scripts/main.sh": "echo ran"})
    with closing(_WithoutNamespaces()) as launcher:

        def candidates(_: ScriptRunner, __: ResourceControls) -> list[Sandbox]:
            return [BubblewrapSandbox(launcher), LandlockSandbox(launcher)]

        monkeypatch.setattr(ScriptRunner, "_candidates", candidates)
        async with Runtime.open(load(project=tmp_path, environment={"HOME": str(home)})) as runtime:
            choice = await runtime.script_runner.select_sandbox()
            result = await runtime.script_runner.execute(
                ScriptCall(skill=runtime.catalog.get("tool"))
            )
    assert [(trial.name, trial.passed) for trial in choice.trials] == [
        ("bubblewrap", False),
        ("landlock", True),
    ]
    assert "namespace" in choice.trials[0].reason
    assert (result.outcome, result.stdout, result.isolation) == ("ok", b"ran\n", "landlock")
    assert "Sandbox bubblewrap does not isolate" in caplog.text


@row(69)
async def test_69_an_empty_list_of_hosts_means_no_network(ground: Field) -> None:
    verdicts = await ground.verdicts("""
for name in ("http_proxy", "https_proxy", "ALL_PROXY"):
    attack(name, lambda: os.environ[name])
attack("out", lambda: socket.create_connection(("1.1.1.1", 443), 1))
attack("in", lambda: socket.create_connection(("127.0.0.1", F["tcp"]), 1))
""")
    assert {verdicts.pop(name) for name in ("http_proxy", "https_proxy", "ALL_PROXY")} == {
        "KeyError"
    }
    assert set(verdicts.values()) <= {"ENETUNREACH", "ECONNREFUSED", "EAFNOSUPPORT"}


@row(70)
async def test_70_a_name_is_a_name_and_no_words(ground: Field, tmp_path: Path) -> None:
    odd = tmp_path / 'a ${IFS}$(touch owned);`id` "(allow default)" \n--bind / 中'
    skill = make_skill(odd, "skill", files={"scripts/run.sh": 'echo "$0"; ls; echo x > made'})
    workspace = odd / "work --dev-bind / /"
    workspace.mkdir(parents=True)
    moved = replace(ground, skill=skill, workspace=workspace)
    script = skill / "scripts/run.sh"
    result = await moved.run(("/bin/bash", str(script)))
    assert (result.outcome, result.stderr) == ("ok", b"")
    assert result.stdout.decode() == f"{script}\n"
    assert [path.name for path in workspace.iterdir()] == ["made"]
    assert not list(tmp_path.rglob("owned"))


async def test_a_request_that_grants_nothing_gets_nothing(cold: Field, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x", encoding="utf-8")
    sandbox: Sandbox = cold.sandbox
    request = ExecRequest(argv=("/bin/cat", str(tmp_path / "a")), cwd=Path("/"), access=Access())
    assert (await sandbox.run(request)).exit_code == 1
