"""Claims of the ShipMyAgent layout: skill names, `skills_load`, prompt section, `Agent.md`."""

import json
from pathlib import Path

import pytest

from apexbridge.messages import SystemMessage
from apexbridge.testing import make_skill
from tests.agent.agent_fixture import AgentFixture, calls, open_agent, says

pytestmark = pytest.mark.anyio

_MINER = b"""---
name: PDF Miner
description: Extract text & metadata from PDFs
allowed-tools:
  - exec_shell
  - read_file
---

# PDF Miner

Mine carefully.
"""


def _make_project(home: Path) -> Path:
    project = home / "project"
    root = project / ".claude/skills"
    make_skill(root, "pdf-tool", raw=_MINER)
    make_skill(root, "chart-maker", description="Draws charts.")
    make_skill(root, "sleeper", description="Sleeps.", paths=["*.test.ts"])
    make_skill(root, "own", description="For users only.", disable_model_invocation=True)
    (project / "ship.json").write_text(
        '{"skills": {"paths": [".claude/skills"]}}', encoding="utf-8"
    )
    return project


async def _load(agent: AgentFixture, name: str) -> str:
    await agent.ask("go", calls(("skills_load", {"name": name})), says("done"), session=name)
    return (await agent.results(name))[-1]


def _system(agent: AgentFixture) -> str:
    first = agent.model.requests[0].messages[0]
    assert isinstance(first, SystemMessage)
    return first.text


@pytest.mark.parametrize("name", ["pdf-tool", "PDF Miner", "pdf miner", "Miner"])
async def test_skills_load_by_id_name_or_part_of_the_name_gives_the_full_skill_md(
    home: Path, name: str
) -> None:
    _make_project(home)
    async with open_agent(home) as agent:
        text = await _load(agent, name)
    assert _MINER.decode().strip() in text
    assert "Id: pdf-tool\nName: PDF Miner\n" in text
    assert f"Folder: {home}/project/.claude/skills/pdf-tool\n" in text


async def test_skills_load_gives_a_long_skill_md_whole(home: Path) -> None:
    body = "".join(f"Step {number}: do the thing.\n" for number in range(2_000))
    make_skill(home / ".claude/skills", "long", body=body)
    async with open_agent(home) as agent:
        assert body.strip() in await _load(agent, "long")


async def test_skills_load_of_a_part_that_several_names_have_names_them(home: Path) -> None:
    for name in ("chart-bar", "chart-line"):
        make_skill(home / ".claude/skills", name)
    async with open_agent(home) as agent:
        text = await _load(agent, "chart")
    assert "chart-bar" in text
    assert "chart-line" in text


async def test_skills_list_gives_id_name_description_and_tools(home: Path) -> None:
    _make_project(home)
    async with open_agent(home) as agent:
        await agent.ask("go", calls(("skills_list", {})), says("done"))
        listed = json.loads((await agent.results())[-1])["skills"]
    assert {
        "id": "pdf-tool",
        "name": "PDF Miner",
        "description": "Extract text & metadata from PDFs",
        "allowedTools": ["exec_shell", "read_file"],
    } in listed


async def test_the_prompt_section_names_folders_and_skills_beside_a_ship_json(home: Path) -> None:
    project = _make_project(home)
    async with open_agent(home) as agent:
        await agent.ask("go", says("done"))
        system = _system(agent)
        reminders = await agent.said("reminder")
    assert "`skills_list`" in system
    assert "`skills_load`" in system
    assert f"- {project}/.claude/skills" in system
    assert "- PDF Miner (id: pdf-tool): Extract text" in system
    assert "chart-maker" in system
    assert "sleeper" not in system  # it waits for its paths
    assert "For users only" not in system
    assert not any("chart-maker" in text for text in reminders)  # once is enough


async def test_the_prompt_section_names_forty_skills_at_most(home: Path) -> None:
    for number in range(45):
        make_skill(home / ".claude/skills", f"skill-{number:02}")
    async with open_agent(home, agent__skills_section="always") as agent:
        await agent.ask("go", says("done"))
        system = _system(agent)
    assert system.count("(id: ") == 40
    assert "more: call `skills_list`" in system


async def test_there_is_no_prompt_section_without_a_ship_json(home: Path) -> None:
    make_skill(home / ".claude/skills", "chart-maker")
    async with open_agent(home) as agent:
        await agent.ask("go", says("done"))
        assert "chart-maker" not in _system(agent)


async def test_agent_md_is_part_of_the_system_prompt(home: Path) -> None:
    _make_project(home)
    (home / "project/Agent.md").write_text("Use metric units. <reminder>x", encoding="utf-8")
    async with open_agent(home) as agent:
        await agent.ask("go", says("done"))
        system = _system(agent)
        assert "Use metric units." in system
        assert "<reminder>" not in system
        assert system.index("Use metric units.") < system.index("## Skills")
        # A change is seen in the next turn.
        (home / "project/Agent.md").write_text("Use knots.", encoding="utf-8")
        await agent.ask("go", says("done"))
        assert "Use knots." in _system(agent)
    async with open_agent(home, agent__instructions="") as agent:
        await agent.ask("go", says("done"))
        assert "Use knots." not in _system(agent)


async def test_agent_md_outside_of_the_project_is_not_read(home: Path) -> None:
    (home / "project").mkdir()
    (home / "secret.txt").write_text("The code is 1234.", encoding="utf-8")
    (home / "project/Agent.md").symlink_to(home / "secret.txt")
    async with open_agent(home) as agent:
        await agent.ask("go", says("done"))
        assert "1234" not in _system(agent)
