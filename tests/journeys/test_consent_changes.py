"""What happens to a consent when files, approvals or rules change while the program runs."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from apexbridge.errors import PermissionDeniedError
from apexbridge.server.skills import scripts
from apexbridge.testing import FixedApprover, make_skill
from tests.agent.agent_fixture import AgentFixture, calls, invokes, open_agent, says
from tests.journeys.consent_cases import NAME, command, config, own
from tests.server.live_server import live_server

pytestmark = pytest.mark.anyio

LENDS = {"allowed-tools": ["Bash(echo *)"], "body": "Now: !`echo one`"}
OWN = Path(".claude/skills") / NAME
PROJECT = Path("project/.claude/skills") / NAME


def _change_script(folder: Path) -> None:
    (folder / "scripts/main.py").write_text("print('another')\n", encoding="utf-8")


def _change_text(folder: Path) -> None:
    file = folder / "SKILL.md"
    file.write_bytes(file.read_bytes().replace(b"echo one", b"echo two"))


async def _call(at: AgentFixture, session: str) -> str:
    await at.ask("Go", invokes(NAME), says("done"), session=session)
    (result,) = await at.results(session)
    return result


@pytest.mark.parametrize("change", [_change_script, _change_text])
@pytest.mark.parametrize("answer", ["always", "always_prefix"])
async def test_always_is_for_the_files_as_they_were(
    home: Path, change: Callable[[Path], None], answer: str
) -> None:
    """The prefix rule is for a name, whatever its files are; the exact one is for the hash."""
    await own(home, LENDS)
    approver = FixedApprover("always" if answer == "always" else "always_prefix")
    async with open_agent(home, approver=approver) as at:
        await _call(at, "first")
        await _call(at, "second")
        assert len(approver.asked) == 1
        change(home / OWN)
        await _call(at, "third")
        assert len(approver.asked) == (2 if answer == "always" else 1)


async def test_a_changed_command_file_has_no_consent(home: Path) -> None:
    file = home / ".claude/commands" / f"{NAME}.md"
    file.parent.mkdir(parents=True)
    text = "---\ndescription: D.\nallowed-tools: Bash(echo *)\n---\nNow: !`echo one`\n"
    file.write_text(text, encoding="utf-8")
    await command(home, "trust", NAME, "--yes")
    async with open_agent(home) as at:
        assert "is active" in await _call(at, "before")
        file.write_text(text.replace("one", "two"), encoding="utf-8")
        assert (await _call(at, "after")).startswith("[consent_missing]")


async def test_inline_commands_of_a_changed_project_skill_do_not_run_for_its_user(
    home: Path,
) -> None:
    await own(home, LENDS, str(PROJECT.parent))
    await command(home, "trust", NAME, "--yes")
    async with open_agent(home) as at:
        await at.ask(f"/{NAME}", says("done"), session="before")
        assert "Now: one" in (await at.said("skill", "before"))[0]
        _change_text(home / PROJECT)
        await at.ask(f"/{NAME}", says("done"), session="after")
        assert "Now: !`echo two`" in (await at.said("skill", "after"))[0]


@pytest.mark.needs("sandbox")
async def test_a_changed_hook_of_a_trusted_project_skill_does_not_run(home: Path) -> None:
    """A guard that nobody has seen fails closed, until its skill is trusted again and invoked."""
    hook = {"type": "command", "command": "bash ${CLAUDE_PLUGIN_ROOT}/guard.sh"}
    hooks = {"PreToolUse": [{"matcher": "Now", "hooks": [hook]}]}
    folder = make_skill(home / PROJECT.parent, NAME, hooks=hooks, files={"guard.sh": "exit 0\n"})
    await command(home, "trust", NAME, "--yes")
    now = calls(("Now", {}))
    async with open_agent(home) as at:
        await at.ask("Go", invokes(NAME), now, says("done"))
        assert not (await at.results())[-1].startswith("[")
        (folder / "guard.sh").write_text("exit 0 # changed\n", encoding="utf-8")
        await at.ask("Go", now, says("done"))
        refused = (await at.results())[-1]
        assert refused.startswith("[hook_blocked]")
        assert "changed since they were trusted" in refused
        await command(home, "trust", NAME, "--yes")
        await at.ask("Go", invokes(NAME), now, says("done"))
        assert not (await at.results())[-1].startswith("[")


@pytest.mark.parametrize("folder", [OWN, PROJECT], ids=["own", "project"])
@pytest.mark.parametrize("is_changed", [False, True])
async def test_a_running_program_follows_trust_and_its_revocation(
    home: Path, folder: Path, is_changed: bool
) -> None:
    """The refusal names the command that helps: it must help without a restart."""
    await own(home, LENDS, str(folder.parent))
    async with open_agent(home) as at:
        assert (await _call(at, "first")).startswith("[consent_missing]")
        if is_changed:
            _change_script(home / folder)
        await command(home, "trust", NAME, "--yes")
        assert "is active" in await _call(at, "trusted")
        await command(home, "trust", NAME, "--revoke", "--yes")
        assert (await _call(at, "revoked")).startswith("[consent_missing]")


@pytest.mark.needs("sandbox")
async def test_a_running_program_runs_a_script_as_soon_as_it_is_trusted(home: Path) -> None:
    await own(home, {"version": "1"}, str(PROJECT.parent))
    async with open_agent(home) as at:
        with pytest.raises(PermissionDeniedError):
            await at.runtime.execute_skill(NAME)
        await command(home, "trust", NAME, "--yes")
        assert (await at.runtime.execute_skill(NAME)).stdout == b"it ran\n"
        await command(home, "trust", NAME, "--revoke", "--yes")
        with pytest.raises(PermissionDeniedError):
            await at.runtime.execute_skill(NAME)


async def test_an_ask_rule_is_named_and_neither_trust_nor_an_allow_rule_is_advised(
    home: Path,
) -> None:
    """B14: a rule of permissions.ask asks each time."""
    await own(home, LENDS)
    async with open_agent(
        home, permissions__ask=[f"Skill({NAME})"], permissions__allow=[f"Skill({NAME})"]
    ) as at:
        result = await _call(at, "s")
    assert result.startswith("[rule_asks]")
    assert f"Skill({NAME})" in result
    assert "apexbridge trust" not in result
    assert "permissions.allow" not in result


async def test_a_hook_that_asks_is_named_where_nobody_can_be_asked(home: Path) -> None:
    asks = "import json; print(json.dumps({'decision': 'ask', 'reason': 'look first'}))"
    hook = {"type": "command", "command": "python3 ask.py"}
    (home / "project").mkdir()
    (home / "project/ask.py").write_text(asks, encoding="utf-8")
    make_skill(home / ".claude/skills", NAME)
    async with open_agent(home, hooks__PreSkill=[{"hooks": [hook]}]) as at:
        result = await _call(at, "s")
    assert result.startswith("[hook_asks]"), result


RULES = [f"Skill({NAME})", f"SkillScript({NAME})", f"SkillScript({NAME} *)"]


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("rule", RULES)
async def test_c04_a_denied_script_runs_for_nobody(home: Path, rule: str) -> None:
    await own(home, {"version": "1"})
    async with open_agent(home, permissions__deny=[rule]) as at:
        with pytest.raises(PermissionDeniedError) as caught:
            await at.runtime.execute_skill(NAME)
    assert caught.value.code == "rule_denied"
    loaded = config(home, {"permissions": {"deny": [rule]}})
    async with (
        live_server(loaded, scripts.router.routes) as served,
        httpx.AsyncClient(base_url=served.url, headers=served.headers, timeout=60) as http,
    ):
        reply = await http.post(f"/v1/skills/{NAME}/run", json={})
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "rule_denied")
    variables = {"APEXBRIDGE_PERMISSIONS__DENY": rule}
    printed = await command(home, "run", "--json", NAME, exits=5, variables=variables)
    assert "rule_denied" in printed
