"""Claims of the founding documents about hooks, agents and the Skill tool, by their words."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from apexbridge.activation.activator import REFUSALS
from apexbridge.events import SkillActivated, SkillRefused
from apexbridge.hooks.commands import HookCommand
from apexbridge.hooks.runner import HookInput, HookRunner
from apexbridge.messages import SystemMessage, UserMessage
from apexbridge.models.base import ModelRequest
from apexbridge.models.embedded import EmbeddedModel
from apexbridge.permissions.engine import Answer
from apexbridge.permissions.hook_protocol import Hook, HookEvent
from apexbridge.permissions.rules import Decision, PermissionRequest
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.testing import FixedApprover, make_skill
from tests.agent.agent_fixture import AgentFixture, calls, invokes, open_agent, says
from tests.cli.in_process import call
from tests.server.admin_server import TIMEOUT_SECONDS, AdminServer, admin_server, tool_request
from tests.server.chat_server import chat_server, parse_chunks, text_reply, tool_reply

pytestmark = pytest.mark.anyio
PRE = HookEvent.PRE_TOOL_USE
OCCASION = HookInput(event=PRE, session_id="s", cwd=Path("/"), subject="Bash")


class _Guard:
    """A hook command that objects until it is satisfied; the barrier holds all who wait for it."""

    def __init__(self, *outcomes: int) -> None:
        self.outcomes, self.ran, self.running, self.most = list(outcomes), 0, 0, 0

    async def run(self, command: HookCommand) -> ExecutionResult:
        self.ran, self.running = self.ran + 1, self.running + 1
        self.most = max(self.most, self.running)
        await anyio.lowlevel.checkpoint()
        self.running -= 1
        code = self.outcomes.pop(0) if self.outcomes else 0
        return ExecutionResult(outcome="failed" if code else "ok", exit_code=code, stderr=b"no")


def _runner(guard: _Guard) -> HookRunner:
    runner = HookRunner(guard.run)
    runner.register([Hook(event=PRE, command=("guard",), once=True)])
    return runner


async def _fire_at_once(runners: Sequence[HookRunner]) -> list[bool]:
    blocked = list[bool]()

    async def fire(runner: HookRunner) -> None:
        blocked.append((await runner.fire(OCCASION)).is_blocked)

    async with anyio.create_task_group() as tasks:
        for runner in runners:
            tasks.start_soon(fire, runner)
    return blocked


async def test_once_hooks_are_removed_after_success() -> None:
    guard = _Guard(0)
    runner = _runner(guard)
    assert not (await runner.fire(OCCASION)).is_blocked
    assert not runner.has_hook(PRE, "Bash")
    verdict = await runner.fire(OCCASION)
    assert (verdict.ran, guard.ran) == (0, 1)


async def test_a_once_hook_does_not_come_back_when_its_skill_is_invoked_again() -> None:
    """A deliberate deviation: once is once a session."""
    guard = _Guard(0)
    runner = _runner(guard)
    await runner.fire(OCCASION)
    runner.register([Hook(event=PRE, command=("guard",), once=True)])
    assert (await runner.fire(OCCASION)).ran == 0


@pytest.mark.parametrize("objection", [2, 1], ids=["it blocks", "it fails"])
async def test_a_once_guard_that_blocked_blocks_the_second_try_too(objection: int) -> None:
    guard = _Guard(objection, objection, 0)
    runner = _runner(guard)
    assert [(await runner.fire(OCCASION)).is_blocked for _ in range(4)] == [
        True,
        True,
        False,
        False,
    ]
    assert guard.ran == 3


@pytest.mark.promise("G07")
async def test_a_once_hook_raced_by_parallel_calls_succeeds_exactly_once() -> None:
    guard = _Guard(0)
    runner = _runner(guard)
    assert await _fire_at_once([runner, runner.for_subagent(), runner, runner]) == [False] * 4
    assert (guard.ran, guard.most) == (1, 1)


@pytest.mark.promise("G07")
async def test_a_once_guard_raced_by_parallel_calls_lets_none_slip_past_while_it_blocks() -> None:
    guard = _Guard(2, 2, 0)
    runner = _runner(guard)
    assert sorted(await _fire_at_once([runner] * 5)) == [False] * 3 + [True] * 2
    assert (guard.ran, guard.most) == (3, 1)


@pytest.mark.needs("sandbox")
async def test_a_once_hook_of_a_skill_blocks_until_it_succeeds(home: Path) -> None:
    source = (
        "import json, sys\n"
        "call = json.load(sys.stdin)['tool_input']\n"
        "if call['expression'].startswith('1'):\n"
        "    sys.stderr.write('no ones')\n"
        "    sys.exit(2)\n"
    )
    hook = {"matcher": "Calculate", "hooks": [{"command": "python3 guard.py", "once": True}]}
    make_skill(
        home / ".claude/skills", "careful", files={"guard.py": source}, hooks={"PreToolUse": [hook]}
    )
    async with open_agent(home, permissions__allow=["Skill"]) as at:
        await at.ask(
            "Go",
            invokes("careful"),
            calls(("Calculate", {"expression": "1+1"})),
            calls(("Calculate", {"expression": "1+2"})),
            calls(("Calculate", {"expression": "2+2"})),
            calls(("Calculate", {"expression": "1+3"})),
            says("."),
        )
        texts = await at.results()
    assert ["no ones" in text for text in texts] == [False, True, True, False, False]
    assert texts[-1] == "1+3 = 4"


def _agent_file(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.md"
    path.write_text(text, encoding="utf-8")
    return path


REVIEWER = """\
---
name: code-reviewer
description: Reviews code.
tools: Read, Grep, Bash(git diff *)
model: opus
---
You are a strict reviewer.
"""


async def _fork(at: AgentFixture, name: str = "review") -> ModelRequest:
    """Fork a skill, and return the first model request of its subagent."""
    await at.ask("Go", invokes(name), says("Found nothing."), says("Done."))
    return at.model.requests[1]


def _system(request: ModelRequest) -> str:
    first = request.messages[0]
    assert isinstance(first, SystemMessage)
    return first.text


def _make_review(root: Path, agent: str = "code-reviewer") -> None:
    make_skill(root, "review", context="fork", agent=agent, body="Review it.")


async def test_agent_name_runs_that_agent_of_the_user(home: Path) -> None:
    _make_review(home / ".claude/skills")
    _agent_file(home / ".claude/agents", "any-file", REVIEWER)
    async with open_agent(home, approver=FixedApprover("once")) as at:
        child = await _fork(at)
        (activated,) = at.of(SkillActivated)
    assert "You are a strict reviewer." in _system(child)
    assert {spec.name for spec in child.tools} == {"Read", "Glob", "Grep", "Bash"}
    assert child.model == "opus"
    assert activated.agent == "code-reviewer"


async def test_agent_name_runs_that_agent_of_the_project_without_its_model(home: Path) -> None:
    """A profile of an untrusted project narrows, and chooses no model."""
    _make_review(home / "project/.claude/skills")
    _agent_file(home / "project/.claude/agents", "code-reviewer", REVIEWER)
    async with open_agent(home, permissions__allow=["Skill"]) as at:
        child = await _fork(at)
        assert "You are a strict reviewer." in _system(child)
        assert {spec.name for spec in child.tools} == {"Read", "Glob", "Grep", "Bash"}
        assert child.model == "m"
        # A person who trusts the project's skill has read what it asks for.
        await at.runtime.approve([at.runtime.catalog.get("review")])
        assert (await _fork(at)).model == "opus"


async def test_an_agent_of_the_user_precedes_one_of_the_project(home: Path) -> None:
    """A deliberate deviation: a cloned repository must not replace the user's agent."""
    _make_review(home / ".claude/skills")
    _agent_file(home / ".claude/agents", "code-reviewer", REVIEWER)
    other = REVIEWER.replace("strict", "bribed")
    _agent_file(home / "project/.claude/agents", "code-reviewer", other)
    async with open_agent(home, approver=FixedApprover("once")) as at:
        child = await _fork(at)
    assert "strict reviewer" in _system(child)
    assert "bribed" not in _system(child)


async def test_agent_name_of_a_plugin_skill_means_the_plugins_agent(home: Path) -> None:
    plugin = home / "plugin"
    _agent_file(plugin / ".claude-plugin", "x", "")
    (plugin / ".claude-plugin/plugin.json").write_text('{"name": "kit"}', encoding="utf-8")
    make_skill(plugin / "skills", "look", context="fork", agent="looker", body="Look.")
    _agent_file(plugin / "agents", "looker", "---\ndescription: d\n---\nPlugin's looker.\n")
    _agent_file(home / ".claude/agents", "looker", "---\ndescription: d\n---\nThe user's looker.\n")
    make_skill(home / ".claude/skills", "review", context="fork", agent="kit:looker")
    async with open_agent(home, permissions__allow=["Skill"], plugins__paths=[str(plugin)]) as at:
        assert "Plugin's looker." in _system(await _fork(at, "kit:look"))
        assert "Plugin's looker." in _system(await _fork(at, "review"))


@pytest.mark.parametrize("name", ["Explore", "explore", "Plan"])
async def test_agent_name_of_a_built_in_profile_only_reads(home: Path, name: str) -> None:
    _make_review(home / ".claude/skills", name)
    # A project cannot take over the name.
    _agent_file(home / "project/.claude/agents", name, "---\nname: Explore\n---\nDo anything.\n")
    async with open_agent(home, approver=FixedApprover("once")) as at:
        child = await _fork(at)
    assert {"Read", "Grep", "Glob"} <= {spec.name for spec in child.tools}
    assert {"Write", "Edit", "Bash", "Skill"}.isdisjoint(spec.name for spec in child.tools)
    assert "Do anything." not in _system(child)
    assert "change no file" in _system(child)


async def test_an_unknown_agent_is_an_error_and_never_the_general_agent(home: Path) -> None:
    _make_review(home / ".claude/skills", "code-reviwer")
    _agent_file(home / ".claude/agents", "code-reviewer", REVIEWER)
    async with open_agent(home, approver=FixedApprover("once")) as at:
        await at.ask("Go", invokes("review"), says("Done."))
        (text,) = await at.results()
        (refused,) = at.of(SkillRefused)
        assert at.of(SkillActivated) == []
        assert len(at.model.requests) == 2  # no subagent was started
    assert text.startswith("[agent_not_found] No agent named 'code-reviwer' (refusal 10)")
    assert "code-reviewer" in text  # the near name
    assert (refused.code, refused.number) == ("agent_not_found", 10)


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("---\ntools: [1, {a: b}]\n---\nx\n", "tools"),
        ("no frontmatter", "frontmatter"),
        ("---\ntools: 'Bash(git'\n---\nx\n", "bracket"),
        ("---\nname: [\n---\n", ""),
    ],
)
async def test_a_broken_agent_file_is_an_error_that_names_the_file(
    home: Path, text: str, detail: str
) -> None:
    _make_review(home / ".claude/skills", "broken")
    path = _agent_file(home / ".claude/agents", "broken", text)
    async with open_agent(home, approver=FixedApprover("once")) as at:
        await at.ask("Go", invokes("review"), says("Done."))
        (result,) = await at.results()
    assert result.startswith("[agent_invalid]")
    assert str(path) in result
    assert detail in result


def test_doctor_names_broken_agent_files_and_unknown_agents(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "project").mkdir()
    monkeypatch.chdir(home / "project")
    _agent_file(home / ".claude/agents", "code-reviewer", REVIEWER)
    _make_review(home / ".claude/skills")
    good = {check["name"]: check for check in call("doctor", "--json").data["checks"]}["Agents"]
    assert (good["state"], good["detail"]) == ("ok", "4 profiles")
    _make_review(home / "project/.claude/skills", "nobody")
    make_skill(home / ".claude/skills", "lost", context="fork", agent="nobody")
    broken = _agent_file(home / ".claude/agents", "broken", "no frontmatter")
    bad = {check["name"]: check for check in call("doctor", "--json").data["checks"]}["Agents"]
    assert bad["state"] == "warn"
    assert str(broken) in bad["detail"]
    assert "the skill 'lost' names an unknown agent 'nobody'" in bad["detail"]


async def test_an_agent_file_outside_of_the_project_is_not_read(home: Path) -> None:
    _make_review(home / "project/.claude/skills")
    secret = _agent_file(home, "secret", "---\nname: code-reviewer\n---\nThe code is 1234.\n")
    (home / "project/.claude/agents").mkdir()
    (home / "project/.claude/agents/code-reviewer.md").symlink_to(secret)
    async with open_agent(home, permissions__allow=["Skill"]) as at:
        await at.ask("Go", invokes("review"), says("Done."))
        (result,) = await at.results()
        assert len(at.model.requests) == 2
    assert result.startswith("[agent_invalid]")
    assert "1234" not in result


async def test_an_agent_grants_no_tool_that_the_session_has_not(home: Path) -> None:
    """Its tools narrow: what no rule allows is still asked for, and denied without a person."""
    text = "---\nname: code-reviewer\ntools: Write\ndisallowedTools: Bash\n---\nWrite.\n"
    _make_review(home / ".claude/skills")
    _agent_file(home / ".claude/agents", "code-reviewer", text)
    async with open_agent(home, permissions__allow=["Skill"]) as at:
        write = ("Write", {"file_path": "a.txt", "content": "x"})
        edit = ("Bash", {"command": "echo x > a.txt"})
        await at.ask("Go", invokes("review"), calls(write, edit), says("."), says("Done."))
        codes = [call["code"] for call in at.record()["calls"]]
        assert list(at.project.iterdir()) == []
    assert codes[:2] == ["nobody_allowed", "tool_not_found"]


async def test_the_tools_of_an_agent_bind_the_skills_below_it(home: Path) -> None:
    text = "---\nname: code-reviewer\ntools: Skill, Read\n---\nRead.\n"
    _make_review(home / ".claude/skills")
    make_skill(home / ".claude/skills", "deeper", context="fork", body="Deeper.")
    _agent_file(home / ".claude/agents", "code-reviewer", text)
    async with open_agent(home, permissions__allow=["Skill", "Calculate"]) as at:
        await at.ask(
            "Go", invokes("review"), invokes("deeper"), calls(("Calculate", {"expression": "1+1"})),
            says("."), says("."), says("Done."),
        )  # fmt: skip
        codes = {call["tool"]: call["code"] for call in at.record()["calls"]}
    assert codes["Calculate"] == "tool_restricted"


def _make_refusing(home: Path) -> None:
    skills = home / ".claude/skills"
    make_skill(skills, "own", disable_model_invocation=True)
    make_skill(skills, "empty", body="\n")
    make_skill(skills, "sleeper", paths=["*.test.ts"])
    make_skill(skills, "forbidden", context="fork")
    make_skill(skills, "lost", context="fork", agent="nobody")


REFUSED: Mapping[str, tuple[str, int]] = {
    "/": ("skill_name_missing", 1),
    "nothing-like-it": ("skill_not_found", 2),
    "own": ("skill_for_users_only", 4),
    "empty": ("skill_no_prompt", 5),
    "sleeper": ("skill_asleep", 7),
    "forbidden": ("consent_missing", 8),
    "lost": ("agent_not_found", 10),
}


async def test_the_skill_tools_numbered_refusals_reach_the_model_events_and_traces(
    home: Path,
) -> None:
    _make_refusing(home)
    async with open_agent(home) as at:
        replies = [calls(*(("Skill", {"skill": name}) for name in REFUSED)), says("Done.")]
        await at.ask("Go", *replies)
        texts = await at.results()
        events = [(event.code, event.number, event.call_id) for event in at.of(SkillRefused)]
        traced = [(c["code"], c["number"], c["call_id"]) for c in at.record()["skill_calls"]]
    expected = [(*refusal, f"call-{n}") for n, refusal in enumerate(REFUSED.values())]
    assert events == expected
    assert traced == expected
    for (code, number), text in zip(REFUSED.values(), texts, strict=True):
        assert text.startswith(f"[{code}] ")
        assert f"(refusal {number})" in text.splitlines()[0]
    assert {number for _, number in REFUSED.values()} < set(REFUSALS.values())


async def test_the_numbered_refusals_and_agent_ids_reach_clients_over_http(home: Path) -> None:
    make_skill(home / ".claude/skills", "task", context="fork", body="Work.")
    make_skill(home / ".claude/skills", "tidy", body="Tidy up.")
    wanted = [("Skill", json.dumps({"skill": name})) for name in ("tidy", "nothing", "task")]
    script = (tool_reply(*wanted), text_reply("Worked."), text_reply("Done."))
    async with chat_server(home, permissions={"allow": ["Skill"]}) as at:
        reply = (await at.post("Go", *script, apexbridge={"session": "one"})).json()
        made = reply["apexbridge"]["skill_calls"]
        assert [(c["skill"], c["mode"], c["number"], c["call_id"]) for c in made] == [
            ("tidy", "inline", 0, "call_0"),
            ("nothing", "", 2, "call_1"),
            ("task", "fork", 0, "call_2"),
        ]
        agent_id = made[2]["agent_id"]
        assert f"(by the subagent {agent_id}, general-purpose)" in at.said("tool")[-1]
        assert "(refusal 2)" in at.said("tool")[1]
        streamed = await at.post(
            "Go", *script, stream=True, apexbridge={"session": "two", "progress": True}
        )
        events = [chunk.get("apexbridge", {}) for chunk in parse_chunks(streamed.text)]
        refused = [event for event in events if event.get("event") == "skill_refused"]
        forked = [event for event in events if event.get("mode") == "fork"]
    assert [(event["number"], event["call_id"]) for event in refused] == [(2, "call_1")]
    assert forked[0]["agent_id"].count(".") == 1


async def test_skill_messages_carry_the_tool_use_id_of_their_call(home: Path) -> None:
    make_skill(home / ".claude/skills", "tidy", body="Tidy up.")
    make_skill(home / ".claude/skills", "neat", body="Be neat.")
    async with open_agent(home) as at:
        two = calls(("Skill", {"skill": "tidy"}), ("Skill", {"skill": "neat"}))
        await at.ask("Go", two, says("Done."))
        session = await at.session()
    async with open_agent(home) as at:  # from the disk
        stored = await at.session()
    for messages in (session.messages, stored.messages):
        carried = [m.call_id for m in messages if isinstance(m, UserMessage) and m.kind == "skill"]
        assert carried == ["call-0", "call-1"]
        assert not any(m.call_id for m in messages if isinstance(m, UserMessage) and not m.skill)


async def test_fork_replies_carry_the_agent_id(home: Path) -> None:
    make_skill(home / ".claude/skills", "task", context="fork", body="Work.")
    async with open_agent(home, permissions__allow=["Skill"]) as at:
        await at.ask("Go", invokes("task"), calls(("Now", {})), says("Worked."), says("Done."))
        (activated,) = at.of(SkillActivated)
        (result,) = await at.results()
        record = at.record()
        at.script_replies(says("From Python."))
        direct = await at.runtime.invoke_skill("task")
    assert result == f"Worked.\n\n(by the subagent {activated.agent_id}, general-purpose)"
    # The same id is the session of the subagent's own calls in the trace.
    assert record["calls"][0]["session_id"] == activated.agent_id
    assert record["skill_calls"][0]["agent_id"] == activated.agent_id
    assert (direct.text, direct.data["mode"]) == ("From Python.", "fork")
    assert direct.data["agent_id"].count(".") == 1


class _Asked:
    """An approver that notes what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer: Answer = answer
        self.rules = list[list[str]]()

    async def __call__(self, request: PermissionRequest, decision: Decision) -> Answer:
        self.rules.append([str(rule.pattern) for rule in decision.suggestions])
        return self.answer


async def _use_forked(at: AgentFixture, name: str) -> str:
    at.script_replies(invokes(name), says("child"), says("Done."))
    await at.ask("Go", session=name)
    return (await at.results(name))[-1]


@pytest.mark.parametrize(("answer", "asked"), [("once", 4), ("always", 3), ("always_prefix", 2)])
async def test_two_suggested_rules_the_exact_and_the_prefix(
    home: Path, answer: Answer, asked: int
) -> None:
    make_skill(home / ".claude/skills", "review", context="fork")
    make_skill(home / ".claude/skills", "reviewer", context="fork")
    commands = home / ".claude/commands/review"
    commands.mkdir(parents=True)
    text = "---\ndescription: d\ncontext: fork\n---\nDeep.\n"
    (commands / "deep.md").write_text(text, encoding="utf-8")
    approver = _Asked(answer)
    async with open_agent(home, approver=approver) as at:
        assert {"review", "reviewer", "review:deep"} <= at.runtime.catalog.snapshot.by_name.keys()
        await _use_forked(at, "review")
        assert approver.rules == [["Skill(review)", "Skill(review *)"]]
        for name in ("review", "review:deep", "reviewer"):
            await _use_forked(at, name)
        rules = [
            str(rule.pattern)
            for rule in at.runtime.chat_service.agent.deps.permissions.approvals.rules()
        ]
    assert len(approver.rules) == asked
    prefixes = ["Skill(review *)", "Skill(reviewer *)"]
    assert rules == (prefixes if answer == "always_prefix" else [])


async def _pending(at: AdminServer) -> dict[str, Any]:
    with anyio.fail_after(TIMEOUT_SECONDS):
        while True:
            found = (await at.get("/v1/approvals"))["data"]
            if found:
                return found[0]
            await anyio.sleep(0.01)


async def test_both_suggested_rules_are_offered_over_http(home: Path) -> None:
    make_skill(home / ".claude/skills", "review", context="fork", body="Review.")
    async with admin_server(home) as at, anyio.create_task_group() as tasks:

        async def ask() -> None:
            await at.ask(tool_request("Skill", skill="review"), session="s", approvals="wait")

        tasks.start_soon(ask)
        question = await _pending(at)
        assert question["choices"] == ["once", "always", "always_prefix", "no"]
        assert question["rule"] == "Skill(review)"
        assert question["prefix_rule"] == "Skill(review *)"
        answered = await at.http.post(
            f"/v1/approvals/{question['id']}",
            json={"answer": "always_prefix"},
            headers=at.serving.headers,
        )
        assert answered.status_code == 200
    approvals = at.runtime.chat_service.agent.deps.permissions.approvals
    assert [str(rule.pattern) for rule in approvals.rules()] == ["Skill(review *)"]


@pytest.mark.needs("sandbox", "node")
@pytest.mark.parametrize(
    ("request_", "printed"),
    [
        ('executeSkill("greeter", ["Ada", "b c"])', '["Ada","b c"]'),
        ("Please run the skill greeter with Ada", '["Ada"]'),
        ("运行技能 greeter，参数 Ada", '["Ada"]'),
        ("/greeter", "[]"),
    ],
)
async def test_index_js_at_the_root_is_the_entry_and_the_embedded_model_runs_it(
    home: Path, request_: str, printed: str
) -> None:
    make_skill(
        home / ".claude/skills", "greeter",
        files={"index.js": "console.log(JSON.stringify(process.argv.slice(2)))", "lib/x.js": "0"},
    )  # fmt: skip
    async with open_agent(home) as at:
        at.use(EmbeddedModel())
        end = await at.ask(request_)
    assert printed in end.text
    assert "language model" not in end.text


async def test_a_name_that_is_no_skill_is_searched_for_by_the_embedded_model(home: Path) -> None:
    make_skill(home / ".claude/skills", "greeter", description="Greets people.")
    async with open_agent(home) as at:
        at.use(EmbeddedModel())
        end = await at.ask("run the skill greetings")
        tools = [call["tool"] for call in at.record()["calls"]]
    assert tools[:2] == ["Skill", "SkillSearch"]
    assert "skill_not_found" not in end.text


async def test_aliases_of_the_founding_documents_are_accepted_and_not_offered(home: Path) -> None:
    names = {
        "FileRead": "Read", "FileWrite": "Write", "VectorSearch": "SkillSearch",
        "PlatformDetector": "Platform", "calculate": "Calculate", "datetime": "Now",
    }  # fmt: skip
    make_skill(home / ".claude/skills", "tidy")
    async with open_agent(home) as at:
        await at.ask("Go", calls(("calculate", {"expression": "6*7"}), ("datetime", {})), says("."))
        offered = {spec.name for spec in at.model.requests[0].tools}
        registry = at.runtime.chat_service.agent.deps.registry
        found = {name: registry.get(name) for name in names}
        assert (await at.results())[0] == "6*7 = 42"
    assert offered.isdisjoint(names)
    assert set(names.values()) <= offered
    assert {name: tool.spec.name for name, tool in found.items() if tool} == names
