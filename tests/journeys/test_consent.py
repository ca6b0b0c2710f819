"""The consent table of docs/consent.md, row by row and by each way in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from apexbridge import locales
from apexbridge.api_keys import ApiKeyStore
from apexbridge.errors import PermissionDeniedError
from apexbridge.runtime import Runtime
from apexbridge.server.skills import scripts
from apexbridge.testing import FixedApprover, ScriptedServer
from tests.agent.agent_fixture import AgentFixture, calls, invokes, open_agent, says
from tests.journeys.chat_client import call, calling, saying
from tests.journeys.consent_cases import (
    A_ROWS,
    B_ROWS,
    DECLARED,
    NAME,
    WRITE,
    Case,
    Settings,
    command,
    config,
    own,
    send,
    table,
)
from tests.mcp_server.mcp_fixtures import mcp_endpoint
from tests.server.admin_server import admin_server, tool_request
from tests.server.live_server import live_server

pytestmark = pytest.mark.anyio

ROWS = {**A_ROWS, **B_ROWS}
C_ROWS = frozenset({"C01", "C02", "C03", "C04"})
CODES = {"no": "", "yes": "consent_missing", "refused": "rule_denied"}
ASKED_BY_RULE = "B14"
CASES = [
    pytest.param(row, case, id=f"{row}-{number}")
    for row, cases in ROWS.items()
    for number, case in enumerate(cases)
]
FIRST_CASES = [pytest.param(row, cases[0], id=row) for row, cases in ROWS.items()]


def test_each_row_has_a_case_and_each_case_a_row_in_both_languages() -> None:
    assert table().keys() == ROWS.keys() | C_ROWS
    assert list(table().items()) == list(table("zh").items())


def _expected(row: str) -> str:
    return "rule_asks" if row == ASKED_BY_RULE else CODES[table()[row]]


def _code(result: str) -> str:
    """The code of a refusal; empty if the skill was applied."""
    if not result.startswith("["):
        # Applied a second time, its text is above already.
        assert "is active" in result or "is above" in result, result
        return ""
    return result[1:].partition("]")[0]


def _flags(case: Case, home: Path) -> dict[str, Any]:
    found = case.settings_at(home)
    return {f"{part}__{key}": value for part, each in found.items() for key, value in each.items()}


async def _call_once(at: AgentFixture, session: str = "s") -> str:
    await at.ask("Go", invokes(NAME), says("done"), session=session)
    (result,) = await at.results(session)
    return result


@pytest.mark.parametrize(("row", "case"), CASES)
async def test_python_where_nobody_can_be_asked(home: Path, row: str, case: Case) -> None:
    await case.prepare(home)
    async with open_agent(home, **_flags(case, home)) as at:
        result = await _call_once(at)
    assert _code(result) == _expected(row)


@pytest.mark.parametrize(("row", "case"), CASES)
async def test_python_where_a_person_is_asked_exactly_by_the_table(
    home: Path, row: str, case: Case
) -> None:
    await case.prepare(home)
    approver = FixedApprover("no")
    async with open_agent(home, approver=approver, **_flags(case, home)) as at:
        result = await _call_once(at)
    assert [one.argument for one in approver.asked] == [NAME] * (table()[row] == "yes")
    assert _code(result) == {**CODES, "yes": "person_denied"}[table()[row]]


@pytest.mark.parametrize(("row", "case"), FIRST_CASES)
async def test_http_chat(home: Path, row: str, case: Case) -> None:
    await case.prepare(home)
    async with admin_server(home, **_sections(case, home)) as at:
        reply = await at.ask(tool_request("Skill", skill=NAME))
    assert _code(reply["text"].removeprefix("It said: ")) == _expected(row)


def _sections(case: Case, home: Path) -> dict[str, Any]:
    return {part: dict(each) for part, each in case.settings_at(home).items()}


async def _terminal(home: Path, names: Sequence[str], settings: Settings) -> list[str]:
    """The results of calls of skills in one terminal chat where nobody can be asked."""
    wanted = [call("Skill", call_id=name, skill=name) for name in names]
    async with ScriptedServer([calling(*wanted), saying("done"), saying("done")]) as server:
        variables = {
            "APEXBRIDGE_MODEL__BASE_URL": server.base_url,
            "APEXBRIDGE_MODEL__NAME": "tiny",
        }
        for part, each in settings.items():
            for key, value in each.items():
                variables[f"APEXBRIDGE_{part}__{key}".upper()] = str(value).strip("[']")
        await command(home, "chat", "Go", "--json", variables=variables)
        messages = server.requests[-1]["messages"]
    told = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
    return [told[name] for name in names]


async def test_terminal_chat_by_what_a_skill_declares(home: Path) -> None:
    rows = {
        f"{row.lower()}-{number}": (row, fields)
        for row, variants in DECLARED.items()
        for number, fields in enumerate(variants)
    }
    for name, (_, fields) in rows.items():
        await own(home, fields, name=name)
    results = await _terminal(home, list(rows), {})
    found = {name: _code(result) for name, result in zip(rows, results, strict=True)}
    assert found == {name: _expected(row) for name, (row, _) in rows.items()}


@pytest.mark.parametrize(("row", "case"), [(row, cases[0]) for row, cases in B_ROWS.items()])
async def test_terminal_chat_by_where_a_skill_comes_from(home: Path, row: str, case: Case) -> None:
    await case.prepare(home)
    (result,) = await _terminal(home, [NAME], case.settings_at(home))
    assert _code(result) == _expected(row)


PRINTS_ONE = {"version": "1"}
PLACES = [
    pytest.param("C01", ".claude/skills", id="C01"),
    pytest.param("C02", "project/.claude/skills", id="C02"),
]


def _outcome(row: str, text: str) -> bool:
    """Whether the script ran, or was refused with the command that would allow it, as promised."""
    if table()[row] == "no":
        return "it ran" in text and "skill_untrusted" not in text
    return "skill_untrusted" in text or f"apexbridge trust {NAME}" in text


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize(("row", "folder"), PLACES)
async def test_a_script_by_the_model_and_by_python(home: Path, row: str, folder: str) -> None:
    await own(home, PRINTS_ONE, folder)
    async with open_agent(home) as at:
        await at.ask("Go", calls(("SkillScript", {"skill": NAME})), says("."))
        (result,) = await at.results()
        assert _outcome(row, result), result
        if table()[row] == "no":
            assert (await at.runtime.execute_skill(NAME)).stdout == b"it ran\n"
        else:
            with pytest.raises(PermissionDeniedError) as caught:
                await at.runtime.execute_skill(NAME)
            assert _outcome(row, f"{caught.value.code} {caught.value.hint}")


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize(("row", "folder"), PLACES)
async def test_a_script_by_http_run(home: Path, row: str, folder: str) -> None:
    await own(home, PRINTS_ONE, folder)
    async with (
        live_server(config(home), scripts.router.routes) as served,
        httpx.AsyncClient(base_url=served.url, headers=served.headers, timeout=60) as http,
    ):
        reply = await http.post(f"/v1/skills/{NAME}/run", json={})
    assert reply.status_code == (200 if table()[row] == "no" else 403)
    assert _outcome(row, reply.text), reply.text


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize(("row", "folder"), PLACES)
async def test_a_script_by_mcp(home: Path, row: str, folder: str) -> None:
    await own(home, PRINTS_ONE, folder)
    async with mcp_endpoint(home) as at, at.client() as client:
        result = await client.call_tool("run_skill", {"name": NAME})
    assert result.is_error == (table()[row] == "refused")
    assert _outcome(row, str(result.content)), result.content


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize(("row", "folder"), PLACES)
async def test_a_script_by_the_command_line(home: Path, row: str, folder: str) -> None:
    await own(home, PRINTS_ONE, folder)
    expected = 0 if table()[row] == "no" else 5
    printed = await command(home, "run", "--json", NAME, exits=expected)
    assert _outcome(row, printed), printed


async def test_c03_a_script_without_a_sandbox_waits_for_a_person(home: Path) -> None:
    assert table()["C03"] == "yes"
    await own(home, PRINTS_ONE)
    approver = FixedApprover("no")
    for asked, code in ((None, "nobody_allowed"), (approver, "person_denied")):
        async with open_agent(home, approver=asked, sandbox__allow_unsandboxed=True) as at:
            await at.ask("Go", calls(("SkillScript", {"skill": NAME})), says("."), session=code)
            (result,) = await at.results(code)
            assert _code(result) == code
    assert [one.tool for one in approver.asked] == ["SkillScript"]


async def test_a_refusal_names_the_reasons_the_command_and_the_setting_in_both_languages(
    home: Path,
) -> None:
    await own(home, {"allowed-tools": ["Bash(echo *)", "Read"], "context": "fork"})
    async with open_agent(home) as at:
        result = await _call_once(at)
    assert "allowed-tools: Bash(echo *); context: fork" in result
    assert "Read" not in result
    for text in (
        locales.localize("consent_missing", {"name": NAME, "about": "x"}, "en"),
        (locales.localize("consent_missing", {"name": NAME, "about": "x"}, "zh")),
    ):
        assert f"apexbridge trust {NAME}" in text.hint
        assert f"permissions.allow = ['Skill({NAME})']" in text.hint
        assert "approvals" in text.hint


async def test_what_a_refusal_advises_helps(home: Path) -> None:
    await own(home, {"allowed-tools": ["Bash(echo *)"]})

    async def refusal(session: str, **flags: Any) -> str:
        async with open_agent(home, **flags) as at:
            return _code(await _call_once(at, session))

    assert await refusal("first") == "consent_missing"
    assert await refusal("rule", permissions__allow=[f"Skill({NAME})"]) == ""
    await command(home, "trust", NAME, "--yes")
    assert await refusal("trusted") == ""
    await command(home, "trust", NAME, "--revoke", "--yes")
    assert await refusal("revoked") == "consent_missing"


async def test_who_installed_is_recorded(home: Path) -> None:
    await send(home, WRITE)
    async with Runtime.open(config(home)) as runtime:
        (record,) = runtime.audit.latest(1)
        installer = runtime.installers.get(NAME)
        keys = {key.id: key for key in ApiKeyStore(runtime.config.data / "keys.json").all()}
    assert installer is not None
    assert (record.action, record.facts["actor"]) == ("install", installer.actor)
    assert (keys[installer.actor].scopes, installer.consents) == (WRITE, False)
