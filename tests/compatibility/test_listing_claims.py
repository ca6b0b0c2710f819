"""Claims of the founding documents about the listing, the index and the start, by their words."""

import json
import logging
from pathlib import Path

import pytest

from apexbridge.catalog.listing_budget import ListingBudget
from apexbridge.events import Event, IndexSynced
from apexbridge.models.aliases import LONG_WINDOW
from apexbridge.retrieval.vectorized_marker import MARKER
from apexbridge.runtime import Runtime
from apexbridge.runtime.model_factory import open_model
from apexbridge.settings import Config, load
from apexbridge.testing import ScriptedServer, make_skill, make_zip, skill_md
from tests.agent.agent_fixture import AgentFixture, invokes, open_agent, says
from tests.cli.in_process import call
from tests.cli.terminal import CTRL_C, environment, open_terminal

pytestmark = pytest.mark.anyio


async def _listing(agent: AgentFixture, session: str = "s", **more: str) -> str:
    await agent.ask("zzz", says("done"), session=session, **more)
    return "\n".join(await agent.said("reminder", session))


async def test_bundled_descriptions_are_never_cut_and_others_have_250_characters(
    home: Path,
) -> None:
    long = "Counts sheep. " * 30 + "Shears alpacas."
    make_skill(home / ".claude/skills", "farm", description=long)
    for number in range(40):
        make_skill(home / ".claude/skills", f"s{number}", description=f"{number} " * 100)
    async with open_agent(home, agent__skills_section="never") as agent:
        every = [s for s in agent.runtime.catalog.skills if not s.is_conditional]
        bundled = [skill for skill in every if skill.provenance.origin == "bundled"]
        assert len(bundled) > 3
        agent.window = 1_000  # forty characters
        tight = await _listing(agent, "tight")
        agent.window = 1_000_000
        wide = await _listing(agent, "wide")
        hits = (await agent.runtime.search("shear alpacas")).hits
    for skill in bundled:
        assert f"- {skill.name}: {skill.summary}" in tight
        assert f"- {skill.name}: {skill.summary}" in wide
    (line,) = [line for line in wide.splitlines() if line.startswith("- farm: ")]
    assert len(line.removeprefix("- farm: ")) <= 250
    assert line.endswith("…")
    assert "alpacas" not in wide
    # The search index has the whole description.
    assert hits[0].name == "farm"


async def test_the_cap_of_250_characters_is_a_setting(home: Path) -> None:
    make_skill(home / ".claude/skills", "farm", description="Counts sheep. " * 40)
    async with open_agent(home, agent__listing_description_chars=400) as agent:
        text = await _listing(agent)
    (line,) = [line for line in text.splitlines() if line.startswith("- farm: ")]
    assert 380 < len(line.removeprefix("- farm: ")) <= 400


async def test_the_1m_suffix_of_a_model_name_means_a_million_tokens(home: Path) -> None:
    for number in range(50):
        make_skill(home / ".claude/skills", f"s{number:02}", description=f"{number:03} " * 70)
    flags = {"model": {"base_url": "http://127.0.0.1:9/v1", "name": "sonnet-9[1m]"}}
    (home / "project").mkdir()
    opened = open_model(
        load(project=home / "project", environment={"HOME": str(home)}, flags=flags)
    )
    assert (opened.name, opened.window) == ("sonnet-9[1m]", LONG_WINDOW)
    await opened.close()
    assert ListingBudget.for_window(LONG_WINDOW).total_chars == 40_000
    async with open_agent(home) as agent:
        agent.window = 100_000
        short = await _listing(agent, "short")
        long = await _listing(agent, "long", model="opus[1m]")
        assert agent.model.requests[0].model == "opus[1m]"
    assert len(long) > 2 * len(short)


async def test_the_1m_suffix_is_not_sent_to_the_model(home: Path) -> None:
    (home / "project").mkdir()
    async with ScriptedServer([says("done")]) as server:
        flags = {"model": {"base_url": server.base_url, "name": "tiny[1m]"}}
        environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
        loaded = load(project=home / "project", environment=environment, flags=flags)
        async with Runtime.open(loaded) as runtime:
            assert [event async for event in runtime.chat("Go", session="s")]
        assert [request["model"] for request in server.requests] == ["tiny"]


async def test_a_skill_that_wants_another_model_keeps_the_1m_suffix(home: Path) -> None:
    make_skill(home / ".claude/skills", "deep", model="opus")
    async with open_agent(home, permissions__allow="Skill(deep)") as agent:
        replies = (invokes("deep"), says("done"))
        await agent.ask("go", *replies, model="sonnet[1m]")
        assert [r.model for r in agent.model.requests] == ["sonnet[1m]", "opus[1m]"]
        await agent.ask("go", *replies, session="t", model="sonnet")
        assert [r.model for r in agent.model.requests] == ["sonnet", "opus"]


@pytest.fixture
def loaded(home: Path, tmp_path: Path) -> Config:
    (tmp_path / "project").mkdir()
    data, hashes = str(tmp_path / "data"), "APEXBRIDGE_INDEX__EMBEDDER"
    environment = {"HOME": str(home), "APEXBRIDGE_DATA_DIR": data, hashes: "hash"}
    return load(project=tmp_path / "project", environment=environment)


def _installed(tmp_path: Path, name: str, text: str) -> Path:
    return make_zip(tmp_path / f"{name}.zip", {f"{name}/SKILL.md": skill_md(name, text)})


async def test_start_up_scan_reports_kept_added_redone_removed(
    loaded: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "apexbridge")
    async with Runtime.open(loaded) as runtime:
        for name in ("keep", "edit", "drop"):
            await runtime.manager.install(_installed(tmp_path, name, f"Does {name}."))
        await runtime.index_service.sync()
    changed = skill_md("edit", "Does it otherwise, and more of it.")
    (loaded.data / "skills/edit/SKILL.md").write_bytes(changed)
    make_skill(loaded.data / "skills", "fresh")
    for file in (loaded.data / "skills/drop").iterdir():
        file.unlink()
    (loaded.data / "skills/drop").rmdir()
    (loaded.data / "skills/keep" / MARKER).write_text("{}", encoding="utf-8")
    events = list[Event]()
    async with Runtime.open(loaded) as runtime:
        plan = (await runtime.index_service.status()).plan
        others = len(runtime.catalog.skills) - 3
        with runtime.listen(events.append):
            await runtime.index_service.sync_at_start()
    (event,) = [event for event in events if isinstance(event, IndexSynced)]
    assert (event.kept, event.added, event.removed) == (others, ("fresh",), ("drop",))
    assert sorted(event.redone) == ["edit", "keep"]
    assert plan == {"kept": others, "added": 1, "redone": 2, "removed": 1}
    assert f"Index: {others} kept, 1 added, 2 redone, 1 removed, 0 unreadable" in caplog.messages
    async with Runtime.open(loaded) as runtime:
        plan = (await runtime.index_service.status()).plan
    assert plan == {"kept": others + 3, "added": 0, "redone": 0, "removed": 0}


def test_index_status_and_chat_print_the_report(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "project").mkdir()
    monkeypatch.chdir(home / "project")
    make_skill(home / ".claude/skills", "farm")
    said = json.loads(call("index", "status", "--json").out)["data"]["plan"]
    assert (said["kept"], said["removed"]) == (0, 0)
    assert f"kept 0, added {said['added']}, redone 0, removed 0" in call("index", "status").out
    first = call("chat", "what is 1+1")
    assert f"kept 0, added {said['added']}, redone 0, removed 0" in first.err
    assert "redone" not in call("chat", "what is 1+1").err


_VAGUE = [
    "Helper",
    "PDF Tool",
    "Does stuff with files",
    "React 18 and React 19 compatibility",
    "工具",
]
_CLEAR = [
    "Use when code is reviewed.",
    "Extracts text and tables from PDF files, fills in forms and merges documents into one.",
    "从 PDF 提取文本和表格，用户要处理 PDF 时使用。",
    "Formats SQL for Postgres and MySQL.",
]


@pytest.mark.parametrize("description", [*_VAGUE, *_CLEAR])
async def test_a_vague_description_is_advised_on_and_never_refused(
    home: Path, loaded: Config, description: str
) -> None:
    folder = make_skill(home / "made", "tool", description=description)
    checked = call("validate", str(folder), "--json")
    problems = json.loads(checked.out)["data"]["skills"][0]["problems"]
    advised = [(p["code"], p["severity"]) for p in problems]
    assert advised == ([("description_vague", "advice")] if description in _VAGUE else [])
    assert checked.code == 0
    async with Runtime.open(loaded) as runtime:
        result = await runtime.manager.install(folder)
    assert [p.code for p in result.problems] == [code for code, _ in advised]


@pytest.mark.parametrize(("words", "is_long"), [(4_000, False), (6_000, True)])
async def test_a_skill_md_over_5000_tokens_is_advised_on(
    home: Path, loaded: Config, words: int, is_long: bool
) -> None:
    described = "Use when sheep are counted."
    folder = make_skill(home / "made", "tool", description=described, body="one " * words)
    checked = call("validate", str(folder), "--level", "compat")
    assert ("skill_md_long" in checked.out, checked.code) == (is_long, 0)
    strict = call("validate", str(folder), "--level", "spec")
    assert "skill_md_long" not in strict.out  # the format itself has no such rule
    async with Runtime.open(loaded) as runtime:
        problems = (await runtime.manager.install(folder)).problems
    assert [(p.code, p.severity) for p in problems] == [("skill_md_long", "advice")] * is_long


async def test_a_server_prints_the_start_up_scan(home: Path) -> None:
    (home / "project").mkdir()
    make_skill(home / ".claude/skills", "farm")
    words, variables = ("serve", "--port", "0"), environment(home)
    for said in ("kept 0, added 7, redone 0, removed 0", "kept 7, added 0, redone 0, removed 0"):
        async with open_terminal(*words, cwd=home / "project", variables=variables) as screen:
            await screen.sees(f"Index: {said}")
            screen.types(CTRL_C)
            assert await screen.ends() == 0
