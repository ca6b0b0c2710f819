"""Activation of skills: refusals, grants, inline commands."""

from pathlib import Path
from typing import Any

import pytest

from apexbridge.activation.activator import REFUSALS, Invocation
from apexbridge.errors import ApexBridgeError, SkillNotFoundError
from apexbridge.events import SkillRefused, SlashUsedByModel, Trigger
from apexbridge.extensions import Extensions, hook
from apexbridge.runtime import Runtime
from apexbridge.settings import load
from apexbridge.skills.model import Origin
from apexbridge.sources.base import SkillSource
from apexbridge.testing import FixedApprover, MemorySource, make_skill, skill_md
from tests.agent.agent_fixture import AgentFixture, calls, invokes, open_agent, says

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/pdf", ("/pdf", "")),
        ("  /pdf  a  b ", ("/pdf", "a  b")),
        ("/pdf\nline one\nline two", ("/pdf", "line one\nline two")),
        ("/pdf\targs", ("/pdf", "args")),
        ("/技能 参数", ("/技能", "参数")),
        ("/plugin:pdf x", ("/plugin:pdf", "x")),
        ("/etc/passwd what is this", None),
        ("/etc/", None),
        ("/readme.md", None),
        ("/", None),
        ("/ pdf", None),
        ("//pdf", None),
        ("pdf", None),
        ("", None),
        ("use /pdf", None),
    ],
)
def test_a_slash_and_a_name_is_a_skill_and_a_path_is_none(
    text: str, expected: tuple[str, str] | None
) -> None:
    found = Invocation.from_slash_command(text)
    assert (None if found is None else (found.name, found.arguments)) == expected


async def _refused(at: AgentFixture, trigger: Trigger, name: str) -> str:
    """Ask for a skill in one of the ways, and give the code of the refusal."""
    del at.events[:]
    try:
        if trigger == "user":
            await at.ask(f"/{name}", says("."))
        elif trigger == "api":
            await at.runtime.invoke_skill(name, session="s")
        elif trigger == "fork":
            await at.ask("/child", invokes(name), says("."), session="f")
        elif trigger == "nested":
            await at.ask("/outer", invokes(name), says("."), session="n")
        else:
            await at.ask("Go", invokes(name), says("."), session=f"m-{name}")
    except ApexBridgeError as error:
        return error.code
    told = [event for event in at.of(SkillRefused) if event.trigger == trigger]
    return told[-1].code if told else ""


_MODELS: tuple[Trigger, ...] = ("model", "nested", "fork")


@pytest.mark.parametrize("trigger", ["user", "api", *_MODELS])
async def test_every_refusal_has_its_number_on_every_way_in(home: Path, trigger: Trigger) -> None:
    skills = home / ".claude/skills"
    kinds: dict[str, dict[str, Any]] = {
        "outer": {},
        "child": {"context": "fork"},
        "mine": {"disable_model_invocation": True},
        "yours": {"user_invocable": False},
        "empty": {"body": " \n"},
        "asleep": {"paths": ["*.zebra"]},
        "denied": {},
    }
    for name, fields in kinds.items():
        make_skill(skills, name, **fields)
    is_model = trigger in _MODELS
    expected = {
        "nothing": 2,
        "mine": 4 if is_model else 0,
        "yours": 4 if trigger == "user" else 0,
        "empty": 5,
        "asleep": 7 if is_model else 0,  # a person may call it at any time
        "denied": 8,
    }
    async with open_agent(home, permissions__deny=["Skill(denied)"]) as at:
        found = {name: REFUSALS.get(await _refused(at, trigger, name), 0) for name in expected}
        assert found == expected
        if trigger != "user":  # a person's slash alone is no wish
            assert REFUSALS[await _refused(at, trigger, " / ")] == 1


async def test_a_skill_from_outside_that_cannot_be_fetched_is_out_of_reach(home: Path) -> None:
    class Vanishing(MemorySource):
        async def content(self, skill: object, arguments: str = "") -> object:  # type: ignore[override]
            raise SkillNotFoundError("far", near=())

    class Plugin:
        @hook
        def apexbridge_sources(self, project: Path) -> list[SkillSource]:
            return [Vanishing({"far": {"SKILL.md": skill_md("far")}}, Origin.REMOTE)]  # type: ignore[list-item]

    extensions = Extensions()
    extensions.add(Plugin())
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    loaded = load(project=home, environment=environment)
    async with Runtime.open(loaded, extensions=extensions) as runtime:
        with pytest.raises(ApexBridgeError) as caught:
            await runtime.invoke_skill("far")
    assert REFUSALS[caught.value.code] == 6


async def test_an_unknown_name_is_told_with_those_that_come_near(home: Path) -> None:
    make_skill(home / ".claude/skills", "pdf-report")
    async with open_agent(home) as at:
        with pytest.raises(SkillNotFoundError) as caught:
            await at.ask("/pdf-rapport", says("."))
        assert caught.value.near == ("pdf-report",)
        assert at.model.requests == []
        assert [event.code for event in at.of(SkillRefused)] == ["skill_not_found"]


async def test_the_model_may_write_the_slash_and_that_is_told(home: Path) -> None:
    make_skill(home / ".claude/skills", "pdf")
    async with open_agent(home) as at:
        await at.ask("Go", invokes(" /pdf "), says("."))
        assert [event.skill for event in at.of(SlashUsedByModel)] == ["pdf"]
        assert "is active" in (await at.results())[0]


async def test_what_a_skill_lends_holds_for_the_turn_only(home: Path) -> None:
    make_skill(
        home / ".claude/skills", "lender",
        allowed_tools=["Write(out/**)"], model="other", effort="high",
    )  # fmt: skip
    write = calls(("Write", {"file_path": "out/a", "content": "x"}))
    elsewhere = calls(("Write", {"file_path": "b", "content": "x"}))
    async with open_agent(home, permissions__allow=["Skill"]) as at:
        await at.ask("Go", invokes("lender"), write, elsewhere, says("."))
        _, inside, outside = await at.results()
        assert inside.startswith("Created")
        assert outside.startswith("[nobody_allowed]")
        asked = [(request.model, request.effort) for request in at.model.requests]
        assert asked == [("m", None), *[("other", "high")] * 3]
        await at.ask("Go", write, says("."))
        assert (await at.results())[-1].startswith("[nobody_allowed]")
        assert (at.model.requests[-1].model, at.model.requests[-1].effort) == ("m", None)


@pytest.mark.parametrize(
    ("mode", "inside", "outside"),
    [
        ("preapprove", "Created", "[nobody_allowed]"),
        ("restrict", "[nobody_allowed]", "[tool_restricted]"),
        ("advise", "[nobody_allowed]", "[nobody_allowed]"),
    ],
)
async def test_allowed_tools_lend_restrict_or_only_tell(
    home: Path, mode: str, inside: str, outside: str
) -> None:
    make_skill(home / ".claude/skills", "lender", allowed_tools=["Write(out/**)"])
    async with open_agent(home, permissions__allow=["Skill"], agent__allowed_tools=mode) as at:
        await at.ask(
            "Go",
            invokes("lender"),
            calls(("Write", {"file_path": "out/a", "content": "x"})),
            calls(("Write", {"file_path": "b", "content": "x"})),
            says("."),
        )
        _, one, two = await at.results()
        assert (one.startswith(inside), two.startswith(outside)) == (True, True), (one, two)


async def test_the_same_text_again_is_a_note_and_other_arguments_are_a_text(home: Path) -> None:
    make_skill(home / ".claude/skills", "pdf", body="Read $0.")
    async with open_agent(home) as at:
        await at.ask("/pdf a", says("."))
        await at.ask("/pdf a", says("."))
        assert len(await at.said("skill")) == 1
        await at.ask("Go", invokes("pdf", "a"), says("."))
        assert "is above" in (await at.results())[0]
        await at.ask("/pdf b", says("."))
        assert len(await at.said("skill")) == 2
        assert "Read b." in (await at.said("skill"))[1]


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize(
    ("command", "rules", "expected"),
    [
        ("echo one two", ["Bash(echo *)"], "Now: one two!"),
        ("cat data.txt", ["Bash(cat *)"], "Now: from the project!"),
        ("grep nothing data.txt", ["Bash(grep *)"], "Now: !"),
        ("grep x missing.txt", ["Bash(grep *)"], "[inline_command_failed]"),
        ("false", ["Bash(false)"], "[inline_command_failed]"),
        ("echo x > new.txt", ["Bash(echo *)", "Write"], "[inline_command_failed]"),
        ("echo one", [], "[nobody_allowed]"),
        ("echo one; id", ["Bash(echo *)"], "[nobody_allowed]"),
        ("echo $0", ["Bash(echo *)"], "Now: a'; touch pwned; '$(id)`id` \"b!"),
    ],
    ids=["success", "workspace", "found nothing", "failing", "exit 1", "writes", "not allowed",
         "one part not allowed", "arguments are quoted"],
)  # fmt: skip
async def test_commands_in_a_text_are_run_or_the_invocation_is_broken_off(
    home: Path, command: str, rules: list[str], expected: str
) -> None:
    body = f"Now: !`{command}`!"
    make_skill(home / ".claude/skills", "shell", body=body)
    async with open_agent(home, permissions__allow=["Skill", *rules]) as at:
        (at.project / "data.txt").write_text("from the project\n", encoding="utf-8")
        hostile = """"a'; touch pwned; '$(id)`id` \\"b" """
        await at.ask("Go", invokes("shell", hostile), says("."))
        texts = [*await at.said("skill"), *await at.results()]
        assert any(expected in text for text in texts), texts
        assert [path.name for path in at.project.iterdir()] == ["data.txt"]
        if expected.startswith("["):
            assert await at.said("skill") == []
            assert (await at.session()).applied == {}


@pytest.mark.needs("sandbox")
async def test_a_skill_lends_itself_the_commands_of_its_text_unless_tools_are_only_told(
    home: Path,
) -> None:
    make_skill(home / ".claude/skills", "shell", body="!`echo hi`", allowed_tools=["Bash(echo *)"])
    for mode, is_run in (("preapprove", True), ("advise", False)):
        async with open_agent(home, permissions__allow=["Skill"], agent__allowed_tools=mode) as at:
            await at.ask("Go", invokes("shell"), says("."), session=mode)
            assert bool(await at.said("skill", mode)) is is_run


async def test_commands_stay_words_where_a_policy_has_them_off(home: Path) -> None:
    make_skill(home / ".claude/skills", "shell", body="Now: !`touch made`")
    approver = FixedApprover("once")
    async with open_agent(home, approver=approver, agent__inline_commands=False) as at:
        await at.ask("/shell", says("."))
        assert "Now: !`touch made`" in (await at.said("skill"))[0]
    assert approver.asked == []


@pytest.mark.parametrize("origin", [Origin.MCP, Origin.REMOTE, Origin.PROJECT, Origin.PLUGIN])
async def test_commands_of_skills_from_elsewhere_are_never_run(home: Path, origin: Origin) -> None:
    class Plugin:
        @hook
        def apexbridge_sources(self, project: Path) -> list[SkillSource]:
            body = "Now: !`touch made` $ARGUMENTS"
            return [MemorySource({"far": {"SKILL.md": skill_md("far", body=body)}}, origin)]

    extensions = Extensions()
    extensions.add(Plugin())
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    loaded = load(project=home, environment=environment)
    approver = FixedApprover("once")
    async with Runtime.open(loaded, extensions=extensions) as runtime:
        result = await runtime.invoke_skill("far", approver=approver)
        (message,) = result.messages
        assert "!`touch made`" in message.text
        assert (result.grants.tools, result.grants.hooks) == ((), ())
    assert approver.asked == []


def test_an_invocation_is_the_librarys_unless_somebody_says_otherwise() -> None:
    assert Invocation(name="x").trigger == "api"
