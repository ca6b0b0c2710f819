"""Claims of the founding documents about the sources of skills, each by its own words."""

import json
import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from apexbridge.activation.activator import REFUSALS
from apexbridge.catalog.builtin_commands import BUILTIN_COMMANDS
from apexbridge.catalog.path_activation import PathActivation
from apexbridge.events import SkillRefused
from apexbridge.runtime import Runtime
from apexbridge.settings import load
from apexbridge.skills.model import Origin
from apexbridge.testing import make_skill, skill_md
from tests.agent.agent_fixture import calls, invokes, open_agent, says
from tests.cli.in_process import call
from tests.cli.terminal import environment, open_terminal
from tests.sources.mcp.server_processes import HERE as MCP
from tests.sources.mcp.server_processes import Offer
from tests.sources.remote.http_site import Site, publish

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


async def test_additional_directories_find_claude_skills_below_them(home: Path) -> None:
    other = home / "other"
    for number, place in enumerate((".claude", ".apexbridge", ".agents")):
        make_skill(other / place / "skills", f"skill-{number}")
    make_skill(other / ".claude/skills", "sleeper", paths=["docs/*.md"])
    _command(other / "docs/a.md", "Text.")
    expected = ["skill-0", "skill-1", "skill-2", "sleeper"]
    async with _open(home, skills__additional_dirs="../other") as runtime:
        assert _names(runtime, Origin.ADDITIONAL) == expected
        assert not runtime.catalog.get("skill-0").is_trusted
    # The setting for folders of skills finds them too, where it may leave the project.
    external = {"skills__paths": "../other", "skills__allow_external_paths": "true"}
    async with _open(home, **external) as runtime:
        assert _names(runtime, Origin.ADDITIONAL) == expected


def test_add_dir_finds_the_skills_of_another_project(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_skill(home / "other/.claude/skills", "far")
    (home / "project").mkdir()
    monkeypatch.chdir(home / "project")
    found = call("ls", "--json", "--add-dir", str(home / "other"))
    assert "far" in [skill["name"] for skill in found.data["skills"]]
    assert "far" not in [skill["name"] for skill in call("ls", "--json").data["skills"]]
    assert call("ls", "--add-dir", str(home / "missing")).code == 2


async def test_files_of_additional_directories_can_be_read_by_the_agent(home: Path) -> None:
    _command(home / "other/notes.txt", "The code is 1234.")
    path = str(home / "other/notes.txt")
    async with open_agent(home, skills__additional_dirs=str(home / "other")) as agent:
        await agent.ask("go", calls(("Read", {"path": path})), says("done"))
        assert "1234" in (await agent.results())[-1]
    async with open_agent(home) as agent:
        await agent.ask("go", calls(("Read", {"path": path})), says("done"))
        assert "1234" not in (await agent.results())[-1]


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=False, capture_output=True, encoding="utf-8").stdout


@pytest.mark.parametrize("place", ["config", "included", "default", "worktree"])
async def test_core_excludes_file_hides_nested_skills(
    home: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    project = home / "project"
    project.mkdir()
    _git(project, "init", "-q")
    ignore = home / ("configs/git ignore" if place != "default" else ".config/git/ignore")
    _command(ignore, "scratch/\n!kept/\n")
    core = f'[user]\n\tname = "a ; b" # [core]\n[core]\n\texcludesFile = "{ignore}" ; mine\n'
    if place == "config":
        _command(home / ".gitconfig", core.replace(str(home), "~"))
    elif place == "included":
        _command(home / ".gitconfig", "[include]\n\tpath = configs/more\n")
        _command(home / "configs/more", core)
    elif place == "worktree":
        _command(project / "f", "x")
        _git(project, "config", "core.excludesFile", str(ignore))
        _git(project, "add", "f")
        _git(project, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "f")
        _git(project, "worktree", "add", "-q", str(home / "tree"))
        project = home / "tree"
    for name in ("scratch", "kept"):
        make_skill(project / name / ".claude/skills", f"of-{name}")
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    async with Runtime.open(load(project=project, environment=environment)) as runtime:
        for name in ("scratch", "kept"):
            # Git itself says the same.
            assert bool(_git(project, "check-ignore", f"{name}/.claude")) is (name == "scratch")
            await runtime.touch([project / name / "a.py"], PathActivation(project))
        names = _names(runtime, Origin.PROJECT)
    assert names == ["of-kept"]


def _remote(site: Site) -> dict[str, Any]:
    return {
        "remote__indexes": site.url(),
        "remote__allow_networks": "127.0.0.1/32",
        "permissions__allow": "Skill(_canonical_far)",
    }


_REMOTE = "Read ${CLAUDE_SKILL_DIR}/guide.md, then !`touch ran`, $ARGUMENTS and $0."


async def test_claude_skill_dir_in_remote_skills_without_any_other_expansion(home: Path) -> None:
    with Site() as site:
        files = {"SKILL.md": skill_md("far", body=_REMOTE), "guide.md": b"The code is 1234."}
        publish(site, {"far": files, "near": {"SKILL.md": skill_md("near", body="Plain.")}})
        async with open_agent(home, **_remote(site)) as agent:
            folders = agent.runtime.config.data / "remote/folders"
            await agent.ask("go", invokes("_canonical_near"), says("done"))
            assert not folders.exists()  # a text that names no file needs none
            asked = invokes("_canonical_far", "the words")
            await agent.ask("go", asked, says("done"), session="far")
            (text,) = await agent.said("skill", "far")
            (folder,) = [place for place in folders.iterdir() if place.name != ".staging"]
            assert f"Read {folder}/guide.md, then !`touch ran`, $ARGUMENTS and $0." in text
            path = str(folder / "guide.md")
            read = calls(("Read", {"path": path}))
            await agent.ask("go", read, says("done"), session="far")
            assert "1234" in (await agent.results("far"))[-1]
            (folder / "guide.md").write_text("Changed.", encoding="utf-8")
            await agent.ask("go", asked, says("done"), session="again")
            assert (folder / "guide.md").read_text(encoding="utf-8") == "The code is 1234."
            # What was downloaded once is there without the server.
            site.answers.clear()
            (folder / "guide.md").unlink()
            await agent.ask("go", asked, says("done"), session="offline")
            assert (folder / "guide.md").exists()


async def test_a_remote_skill_whose_files_cannot_be_had_is_refused(home: Path) -> None:
    with Site() as site:
        files = {"SKILL.md": skill_md("far", body=_REMOTE), "guide.md": b"The code is 1234."}
        publish(site, {"far": files})
        del site.answers["/.well-known/agent-skills/far/guide.md"]
        async with open_agent(home, **_remote(site)) as agent:
            await agent.ask("go", invokes("_canonical_far"), says("done"))
            assert await agent.said("skill") == []
            refused = [(event.code, event.number) for event in agent.of(SkillRefused)]
            assert refused == [("skill_out_of_reach", 6)]


def _prompts(offer: Offer, described: str = "Compares the code of two branches.") -> None:
    arguments = [{"name": "branch_name", "required": True}, {"name": "base"}]
    compare = {"name": "compare", "description": described, "arguments": arguments}
    offer.say(prompts=[compare, {"name": "greet", "description": "Greets someone."}])


async def test_mcp_prompts_with_a_required_argument_are_skills(home: Path) -> None:
    (home / "offer").mkdir()
    offer = Offer(home / "offer")
    _prompts(offer)
    server = {"command": sys.executable, "args": [str(MCP / "sdk_server.py"), str(offer.place)]}
    settings: dict[str, Any] = {"mcp__servers": json.dumps({"far": server})}
    async with open_agent(home, **settings) as agent:
        index = agent.runtime.index_service
        report = await index.sync()
        assert (report.failed, report.pending) == ((), ())
        status = await index.status(is_thorough=True)
        assert (status.missing, status.stale, status.is_sound) == ((), (), True)
        assert (await index.sync()).added == ()
        # Found by a search, and named to the model with the argument that it needs.
        hits = (await agent.runtime.search("compare branches")).hits
        assert hits[0].name == "mcp__far__compare"
        asked = invokes("mcp__far__compare", "feature/x main")
        await agent.ask("compare branches", asked, says("done"))
        (text,) = await agent.said("skill")
        assert "feature/x" in text
        assert "main" in text
        # Without it the refusal names what is missing.
        await agent.ask("again", invokes("mcp__far__compare"), says("done"), session="none")
        assert "branch_name" in (await agent.results("none"))[-1]
        # A prompt that the server changes is one row that is made again.
        _prompts(offer, "Compares two branches, line by line.")
        await agent.runtime.refresh()
        assert (await index.sync()).redone == ("mcp__far__compare",)
        assert (await index.status()).is_sound


async def test_built_in_commands_are_known_and_not_sent_to_the_model(home: Path) -> None:
    names = {command.name for command in BUILTIN_COMMANDS}
    assert {"help", "skills", "compact"} <= names
    async with open_agent(home) as agent:
        asked = invokes("/compact"), says("done")
        await agent.ask("go", *asked)
        assert "command of the terminal chat" in (await agent.results())[-1]
        (refused,) = agent.of(SkillRefused)
        assert (refused.code, REFUSALS[refused.code]) == ("skill_is_command", 5)
        listed = "".join(await agent.said("reminder"))
        assert not [name for name in names if f"- {name}" in listed]
        await agent.runtime.index_service.sync()
        assert agent.runtime.index_service.size == len(agent.runtime.catalog.skills)
    # They have the lowest precedence of all sources.
    make_skill(home / ".claude/skills", "compact", body="My own.")
    async with open_agent(home) as agent:
        await agent.ask("go", *asked)
        assert "My own." in (await agent.said("skill"))[-1]


async def test_compact_replaces_the_history_of_a_session_by_a_summary(home: Path) -> None:
    async with open_agent(home) as agent:
        for number in range(6):
            await agent.ask(f"question {number} " * 40, says(f"answer {number} " * 40))
        before = len((await agent.session()).messages)
        agent.script_replies(says("They asked six questions."))
        service, emit = agent.runtime.chat_service, agent.runtime.events.emit
        assert await service.compact("s", emit)
        messages = (await agent.session()).messages
        assert len(messages) < before
        assert "They asked six questions." in messages[0].text
        assert not await service.compact("empty", emit)


async def test_slash_completion_and_help_know_the_built_in_commands(home: Path) -> None:
    project = home / "project"
    make_skill(project / ".claude/skills", "tidy-up")
    make_skill(home / ".claude/skills", "tidy-house")
    variables = environment(home)
    async with open_terminal("chat", cwd=project, variables=variables) as screen:
        await screen.sees("> ")
        screen.types("/help\n")
        assert "/skills" in await screen.sees("end the chat")
        await screen.sees("> ")
        screen.types("/mod\tlarge\n")
        await screen.sees("Model: large")
        screen.types("/tidy-h\t")
        await screen.sees("/tidy-house")
        screen.types("\x15/new\n/compact\n/exit\n")
        await screen.sees("nothing to summarize")
        assert await screen.ends() == 0


async def test_managed_skills_lie_below_the_managed_folder_as_in_other_clients(home: Path) -> None:
    make_skill(home / "policy/.claude/skills", "rules")
    make_skill(home / "policy", "direct")
    async with _open(home, skills__managed_path=str(home / "policy")) as runtime:
        assert _names(runtime, Origin.MANAGED) == ["direct", "rules"]
