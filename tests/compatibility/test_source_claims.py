"""Claims of the founding documents about the sources of skills, each by its own words."""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from apexbridge.runtime import Runtime
from apexbridge.settings import load
from apexbridge.skills.model import Origin
from apexbridge.testing import make_skill
from tests.agent.agent_fixture import invokes, open_agent, says
from tests.sources.mcp.server_processes import HERE as MCP
from tests.sources.mcp.server_processes import Offer

pytestmark = pytest.mark.anyio


def _open(home: Path, **settings: str) -> AbstractAsyncContextManager[Runtime]:
    (home / "project").mkdir(exist_ok=True)
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    environment |= {f"APEXBRIDGE_{key.upper()}": value for key, value in settings.items()}
    return Runtime.open(load(project=home / "project", environment=environment))


def _names(runtime: Runtime, origin: Origin) -> list[str]:
    return [s.name for s in runtime.catalog.skills if s.provenance.origin is origin]


def _plugin(root: Path, **fields: object) -> Path:
    (root / ".claude-plugin").mkdir(parents=True)
    text = json.dumps({"name": root.name, **fields})
    (root / ".claude-plugin/plugin.json").write_text(text, encoding="utf-8")
    return root


def _command(path: Path, text: str, description: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    front = f"---\ndescription: {description}\n---\n" if description else ""
    path.write_text(front + text, encoding="utf-8")


async def test_plugin_commands_md_files_are_skills_of_the_plugin(home: Path) -> None:
    root = _plugin(home / "tools", commands=["./extra/deploy.md", "./more"])
    _command(root / "commands/tidy.md", "Tidy $ARGUMENTS in ${CLAUDE_PLUGIN_ROOT}.", "Tidies up.")
    _command(root / "commands/git/push.md", "Push it.")
    _command(root / "extra/deploy.md", "Deploy it.")
    _command(root / "extra/draft.md", "Not listed by the manifest.")
    _command(root / "more/check.md", "Check it.")
    make_skill(root / "skills", "plan", body="Plan it.")
    async with _open(home, plugins__paths=str(root)) as runtime:
        names = _names(runtime, Origin.PLUGIN)
        text = (await runtime.invoke_skill("tools:tidy", "the shed")).messages[0].text
        skill = runtime.catalog.get("tools:tidy")
        hits = (await runtime.search("tidies up")).hits
    assert names == ["tools:check", "tools:deploy", "tools:git:push", "tools:plan", "tools:tidy"]
    assert f"Tidy the shed in {root}." in text
    assert (skill.description, skill.is_trusted) == ("Tidies up.", False)
    assert hits[0].name == "tools:tidy"


async def test_plugin_commands_outside_of_the_plugin_are_not_read(home: Path) -> None:
    root = _plugin(home / "tools", commands=["../secret.md", "./missing.md"])
    _command(home / "secret.md", "A secret.")
    (root / "commands").symlink_to(home)
    async with _open(home, plugins__paths=str(root)) as runtime:
        names = _names(runtime, Origin.PLUGIN)
        codes = {problem.code for problem in runtime.catalog.snapshot.problems}
    assert names == []
    assert {"path_unsafe", "path_missing"} <= codes


async def test_plugin_command_beside_a_skill_of_its_name_is_reported(home: Path) -> None:
    root = _plugin(home / "tools")
    make_skill(root / "skills", "plan", body="Of the skill.")
    _command(root / "commands/plan.md", "Of the command.")
    async with _open(home, plugins__paths=str(root)) as runtime:
        text = (await runtime.invoke_skill("tools:plan")).messages[0].text
        problems = [p.code for p in runtime.catalog.snapshot.problems]
    assert "Of the skill." in text
    assert "skill_shadowed" in problems


async def test_built_in_plugin_skills_can_be_enabled_and_disabled(home: Path) -> None:
    async with _open(home) as runtime:
        assert _names(runtime, Origin.PLUGIN) == []
    async with _open(home, plugins__builtin="review") as runtime:
        assert _names(runtime, Origin.PLUGIN) == ["review:changes", "review:security"]
        assert all(runtime.catalog.get(f"review:{n}").is_trusted for n in ("changes", "security"))
        result = await runtime.invoke_skill("review:changes", "main")
        assert "Compare with: main" in result.messages[0].text
    async with _open(home, plugins__builtin="review", plugins__disabled="review") as runtime:
        assert _names(runtime, Origin.PLUGIN) == []
    async with _open(home, plugins__builtin="revue") as runtime:
        assert "path_missing" in {p.code for p in runtime.catalog.snapshot.problems}


async def test_workflow_commands_are_a_source(home: Path) -> None:
    _command(home / ".claude/workflows/release.md", "1. Test.\n2. Tag.", "Releases.")
    _command(home / "project/.claude/workflows/triage.md", "Sort $0.")
    async with _open(home) as runtime:
        assert _names(runtime, Origin.LEGACY) == ["release", "triage"]
        assert runtime.catalog.get("release").is_trusted
        assert not runtime.catalog.get("triage").is_trusted
        text = (await runtime.invoke_skill("triage", "bugs")).messages[0].text
    assert "Sort bugs." in text
