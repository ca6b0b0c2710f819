"""Hook runner: sandboxed commands and HTTP hooks, merged verdicts, fail closed."""

import contextlib
import json
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import pytest
from aiohttp import web

from apexbridge.errors import SandboxUnavailableError, SourceError
from apexbridge.hooks.commands import HookCommand, HookCommandRunner, sandbox_runner
from apexbridge.hooks.runner import HookInput, HookReply, HookRunner
from apexbridge.permissions.engine import PermissionContext, decide
from apexbridge.permissions.hook_protocol import Hook, HookEvent
from apexbridge.permissions.rules import PermissionRequest, Rule, ToolPattern
from apexbridge.permissions.wildcards import PathRoots
from apexbridge.regular_files import open_regular
from apexbridge.sandbox.backends import BubblewrapSandbox
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.sandbox.launcher import Launcher
from apexbridge.sandbox.script_executor import ScriptExecutor
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.sources.remote.http_client import FetchLimits, post
from apexbridge.testing import RecordingSandbox

pytestmark = pytest.mark.anyio

PRE, POST = HookEvent.PRE_TOOL_USE, HookEvent.POST_TOOL_USE


def pre_tool_use(
    session_id: str, cwd: Path, *, name: str, arguments: Mapping[str, Any], call_id: str = ""
) -> HookInput:
    """Build the input of `PreToolUse` hooks."""
    facts = {"tool_name": name, "tool_input": dict(arguments), "tool_use_id": call_id}
    event = HookEvent.PRE_TOOL_USE
    return HookInput(event=event, session_id=session_id, cwd=cwd, subject=name, facts=facts)


def post_tool_use(before: HookInput, response: object) -> HookInput:
    """Build the input of `PostToolUse` hooks from that of `PreToolUse` and the tool's response."""
    facts = {**before.facts, "tool_response": response}
    return replace(before, event=HookEvent.POST_TOOL_USE, facts=facts)


def hook(script: str, seconds: float = 30) -> Hook:
    return Hook(event=PRE, command=("bash", "-c", script), timeout_seconds=seconds)


def bash_call(command: str = "ls", name: str = "Bash") -> HookInput:
    return pre_tool_use(
        "s1", Path("/srv/project"), name=name, arguments={"command": command}, call_id="c1"
    )


@pytest.fixture
def executor(launcher: Launcher, tmp_path: Path) -> ScriptExecutor:
    return ScriptExecutor(BubblewrapSandbox(launcher), Workspaces(tmp_path / "workspaces"))


@pytest.fixture
def run(executor: ScriptExecutor) -> HookCommandRunner:
    async def opened() -> ScriptExecutor:
        return executor

    return sandbox_runner(opened)


def answering(**results: ExecutionResult) -> HookCommandRunner:
    """Commands by their last word, each with its prepared result."""

    async def run(command: HookCommand) -> ExecutionResult:
        return results[command.argv[-1]]

    return run


def printed(text: str, exit_code: int = 0, stderr: str = "") -> ExecutionResult:
    outcome = "ok" if exit_code == 0 else "failed"
    return ExecutionResult(
        outcome=outcome, exit_code=exit_code, stdout=text.encode(), stderr=stderr.encode()
    )


@pytest.mark.needs("bubblewrap")
async def test_a_command_is_told_what_happens_on_stdin(
    run: HookCommandRunner, tmp_path: Path
) -> None:
    runner = HookRunner(run)
    root = tmp_path / "技能"
    root.mkdir()
    (root / "note.txt").write_text("kept", encoding="utf-8")
    script = 'cat; cat "$CLAUDE_PLUGIN_ROOT/note.txt"; echo "$CLAUDE_PROJECT_DIR"'
    runner.register([hook(f"({script}) >&2; exit 2")], skill="pdf", root=root)
    with anyio.fail_after(60):
        verdict = await runner.fire(bash_call("echo 你好"))
    assert verdict.is_blocked
    payload, end = json.JSONDecoder().raw_decode(verdict.reason)
    assert payload == {
        "session_id": "s1",
        "cwd": "/srv/project",
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "echo 你好"},
        "tool_use_id": "c1",
    }
    assert verdict.reason[end:] == "kept/srv/project"


@pytest.mark.promise("G06")
@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize(
    ("script", "seconds", "words"),
    [
        ("echo stop that >&2; exit 2", 30, "stop that"),
        ("echo oops >&2; exit 1", 30, "exit code 1: oops"),
        ("kill -SEGV $$", 30, "killed"),
        ("sleep 100", 0.5, "timeout"),
        ("head -c 2000000000 /dev/zero", 30, "output_limit"),
        ("echo '{broken'", 30, "no verdict"),
        ("echo fine", 30, "no JSON object"),
        ("""echo '{"decision": "block", "reason": "because"}'""", 30, "because"),
        ("""echo '{"continue": false, "stopReason": "enough"}'""", 30, "enough"),
        ("no-such-program", 30, "exit code 127"),
    ],
    ids=["exit2", "exit1", "crash", "hang", "flood", "broken", "plain", "json", "stop", "missing"],
)
async def test_a_hook_before_a_tool_that_blocks_or_fails_denies_it(
    run: HookCommandRunner, script: str, seconds: float, words: str
) -> None:
    runner = HookRunner(run)
    runner.register([hook(script, seconds)])
    with anyio.fail_after(120):
        verdict = await runner.fire(bash_call())
    assert verdict.is_blocked
    assert words in verdict.reason


@pytest.mark.promise("G06")
async def test_an_input_changed_to_a_denied_path_is_judged_again() -> None:
    answer = '{"hookSpecificOutput": {"updatedInput": {"file_path": "/home/me/.ssh/id"}}}'
    runner = HookRunner(answering(x=printed(answer)))
    runner.register([Hook(event=PRE, command=("x",))])
    asked = pre_tool_use(
        "s", Path("/srv/project"), name="Read", arguments={"file_path": "/srv/project/a"}
    )
    verdict = await runner.fire(asked)
    assert not verdict.is_blocked
    changed = dict(verdict.changed or {})
    assert changed == {"file_path": "/home/me/.ssh/id"}
    rules = [
        Rule(effect="deny", pattern=ToolPattern.parse("Read(~/.ssh)")),
        Rule(effect="allow", pattern=ToolPattern.parse("Read")),
    ]
    standing = PermissionContext(
        roots=PathRoots(project=Path("/srv/project"), home=Path("/home/me"))
    )
    before = PermissionRequest(tool="Read", path=Path("/srv/project/a"))
    after = PermissionRequest(tool="Read", path=Path(changed["file_path"]))
    assert decide(before, rules, (), standing).effect == "allow"
    assert decide(after, rules, (), standing).effect == "deny"


@pytest.mark.parametrize("event", [event for event in HookEvent if event is not PRE])
async def test_every_other_hook_that_fails_is_skipped_with_a_warning(event: HookEvent) -> None:
    runner = HookRunner(answering(x=printed("", 1, "oops")))
    runner.register([Hook(event=event, command=("x",))], skill="pdf")
    verdict = await runner.fire(HookInput(event=event, session_id="s", cwd=Path("/")))
    assert not verdict.is_blocked
    (warning,) = verdict.warnings
    assert warning.code == "hook_failed_open"
    assert "oops" in warning.message
    assert "pdf" in warning.localized("zh").message


async def _nothing(command: HookCommand) -> ExecutionResult:
    raise SandboxUnavailableError("none here")


async def _broken(command: HookCommand) -> ExecutionResult:
    raise RuntimeError("never seen by anyone")


async def _hanging(command: HookCommand) -> ExecutionResult:
    raise TimeoutError


@pytest.mark.promise("G06")
@pytest.mark.parametrize(
    ("run_", "words"),
    [(_nothing, "none here"), (_broken, "RuntimeError"), (_hanging, "no answer within")],
)
async def test_a_hook_that_cannot_be_run_denies(
    run_: Callable[[HookCommand], Awaitable[ExecutionResult]], words: str
) -> None:
    runner = HookRunner(run_)
    runner.register([Hook(event=PRE, command=("x",))])
    verdict = await runner.fire(bash_call())
    assert verdict.is_blocked
    assert words in verdict.reason
    assert verdict.warnings[0].code == "hook_failed_closed"


async def test_what_no_hook_could_take_in_is_refused() -> None:
    runner = HookRunner(answering(x=printed("")))
    runner.register([Hook(event=PRE, command=("x",))])
    assert (await runner.fire(bash_call("x" * (11 * 1024 * 1024)))).is_blocked


async def test_the_strictest_of_several_wins_and_each_reason_is_told() -> None:
    results = {
        "ask": printed('{"decision": "ask", "reason": "sure?"}'),
        "no": printed("", 2, "never"),
        "not": printed("", 2, "nor ever"),
        "ok": printed('{"decision": "approve", "additionalContext": "fine", "updatedInput": {}}'),
    }
    runner = HookRunner(answering(**results))
    runner.register(Hook(event=PRE, command=(name,)) for name in ("ask", "ok"))
    verdict = await runner.fire(bash_call())
    assert (verdict.is_blocked, verdict.asks, verdict.reason) == (False, True, "sure?")
    assert (verdict.context, verdict.changed, verdict.ran) == ("fine", {}, 2)
    runner.register(Hook(event=PRE, command=(name,)) for name in ("no", "not"))
    verdict = await runner.fire(bash_call())
    assert (verdict.is_blocked, verdict.asks, verdict.reason) == (True, False, "never\nnor ever")
    assert (verdict.changed, verdict.ran) == (None, 4)


async def test_of_several_changes_the_last_registered_holds_and_the_others_are_told() -> None:
    results = {name: printed(json.dumps({"updatedInput": {"a": name}})) for name in "xyz"}
    runner = HookRunner(answering(**results))
    runner.register(Hook(event=PRE, command=(name,)) for name in "xyz")
    verdict = await runner.fire(bash_call())
    assert verdict.changed == {"a": "z"}
    assert [(w.code, w.details["hook"]) for w in verdict.warnings] == [
        ("hook_change_lost", "x"),
        ("hook_change_lost", "y"),
    ]


async def test_hooks_run_side_by_side_with_the_input_as_it_was() -> None:
    both, seen = anyio.Event(), list[bytes]()

    async def run(command: HookCommand) -> ExecutionResult:
        seen.append(command.stdin)
        if len(seen) == 2:
            both.set()
        await both.wait()
        return printed('{"updatedInput": {"b": 1}}')

    runner = HookRunner(run)
    runner.register(Hook(event=PRE, command=(name,)) for name in "xy")
    with anyio.fail_after(10):
        verdict = await runner.fire(bash_call())
    assert seen[0] == seen[1]
    assert verdict.warnings == ()


@pytest.mark.promise("G07")
async def test_a_hook_that_runs_once_runs_once_however_it_is_raced() -> None:
    started = list[str]()
    go_on = anyio.Event()

    async def run(command: HookCommand) -> ExecutionResult:
        started.append(command.argv[0])
        await go_on.wait()
        return printed("")

    runner = HookRunner(run)
    once = Hook(event=PRE, command=("once",), once=True)
    runner.register([once, Hook(event=PRE, command=("each",))], skill="a")
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(runner.fire, bash_call())
            await anyio.wait_all_tasks_blocked()
            go_on.set()
    assert sorted(started) == ["each"] * 5 + ["once"]
    assert runner.register([once], skill="a") == 0
    await runner.fire(bash_call())
    assert started.count("once") == 1


@pytest.mark.promise("G07")
async def test_a_session_below_has_the_hooks_above_it_and_once_stays_once() -> None:
    runner = HookRunner(answering(x=printed(""), y=printed("")))
    runner.register([Hook(event=PRE, command=("x",), once=True), Hook(event=PRE, command=("y",))])
    below = runner.for_subagent()
    below.register([Hook(event=PRE, command=("y",))], skill="own")
    assert (await below.fire(bash_call())).ran == 3
    assert (await runner.fire(bash_call())).ran == 1
    assert (runner.count(PRE), below.count(PRE)) == (2, 3)


async def test_only_hooks_that_are_meant_run_and_each_is_attached_once() -> None:
    runner = HookRunner(answering(x=printed("", 2, "no")))
    only = Hook(event=PRE, matcher="Write|Edit", command=("x",))
    assert runner.register([only, only]) == 1
    assert runner.register([only]) == 0
    assert runner.register([only], skill="other") == 1
    assert (runner.count(PRE), runner.count(POST)) == (2, 0)
    assert (await runner.fire(bash_call())).ran == 0
    assert (await runner.fire(bash_call(name="Edit"))).ran == 2
    after = post_tool_use(bash_call(name="Edit"), "done")
    assert (await runner.fire(after)).ran == 0
    assert json.loads(after.payload())["tool_response"] == "done"
    assert json.loads(after.payload())["hook_event_name"] == "PostToolUse"


async def test_a_matcher_that_makes_no_sense_guards_every_tool_and_is_told() -> None:
    runner = HookRunner(answering(x=printed("", 2, "no")))
    runner.register([Hook(event=event, matcher="(", command=("x",)) for event in (PRE, POST)])
    before = await runner.fire(bash_call())
    assert before.is_blocked
    assert before.warnings[0].code == "hook_matcher_invalid"
    after = await runner.fire(post_tool_use(bash_call(), ""))
    assert (after.ran, len(after.warnings)) == (0, 1)


@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize(
    "command",
    [
        ("${CLAUDE_PLUGIN_ROOT}/hooks/check.sh", "a b"),
        ("hooks/check.sh", "a b"),
        ("bash", "hooks/check.sh", "a b"),
        ("env", "A=1", "bash", "${CLAUDE_PLUGIN_ROOT}/hooks/check.sh", "a b"),
        ("bash", "$CLAUDE_SKILL_DIR/hooks/check.sh", "a b"),
        ("python3", "hooks/check.py", "a b"),
        ("hooks/check.py", "a b"),
        ("sh", "-c", 'echo "a b:$CLAUDE_PLUGIN_ROOT" >&2; exit 2'),
        ("/bin/sh", "-c", 'echo "a b:$CLAUDE_PLUGIN_ROOT" >&2; exit 2'),
    ],
    ids=range(9),
)
async def test_commands_are_found_below_their_own_folder(
    run: HookCommandRunner, tmp_path: Path, command: tuple[str, ...]
) -> None:
    root = (tmp_path / "skill").resolve()
    (root / "hooks").mkdir(parents=True)
    shell = '#!/bin/bash\necho "$1:$CLAUDE_PLUGIN_ROOT" >&2\nexit 2\n'
    python = (
        "import os, sys\n"
        "print(f\"{sys.argv[1]}:{os.environ['CLAUDE_PLUGIN_ROOT']}\", file=sys.stderr)\n"
        "sys.exit(2)\n"
    )
    for name, text in (("check.sh", shell), ("check.py", python)):
        (root / "hooks" / name).write_text(text, encoding="utf-8")
        (root / "hooks" / name).chmod(0o755)
    runner = HookRunner(run)
    runner.register([Hook(event=PRE, command=command)], skill="s", root=root)
    with anyio.fail_after(60):
        verdict = await runner.fire(bash_call())
    assert verdict.reason == f"a b:{root}"


@pytest.mark.needs("bubblewrap")
async def test_a_command_sees_nothing_else_of_this_machine(
    run: HookCommandRunner, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("hidden", encoding="utf-8")
    (tmp_path / "skill").mkdir()
    tries = f"cat {tmp_path}/secret; touch {tmp_path}/skill/made; env | sort >&2; exit 2"
    runner = HookRunner(run)
    runner.register([hook(tries)], root=tmp_path / "skill")
    with anyio.fail_after(60):
        verdict = await runner.fire(bash_call())
    assert "hidden" not in verdict.reason
    assert "No such file" in verdict.reason
    assert not (tmp_path / "skill" / "made").exists()
    assert "CLAUDE_PLUGIN_ROOT=" in verdict.reason


async def test_a_program_that_is_not_there_denies(tmp_path: Path) -> None:
    async def opened() -> ScriptExecutor:
        return ScriptExecutor(RecordingSandbox(), Workspaces(tmp_path / "w"))

    runner = HookRunner(sandbox_runner(opened))
    runner.register([Hook(event=PRE, command=("no-such-program", "x"))])
    runner.register([Hook(event=PRE, command=("./missing.sh",))], root=tmp_path)
    verdict = await runner.fire(bash_call())
    assert "no program 'no-such-program'" in verdict.reason
    assert "missing.sh" in verdict.reason


def _hostile_skill(place: Path) -> Path:
    """Create a skill whose files are a FIFO, and links to a device and out of the skill."""
    root = place / "skill"
    root.mkdir()
    (place / "outside.sh").write_text("#!/bin/sh\necho outside\n", encoding="utf-8")
    os.mkfifo(root / "fifo.sh")
    (root / "device.sh").symlink_to("/dev/ptmx")
    (root / "link.sh").symlink_to(place / "outside.sh")
    (root / "folder.sh").mkdir()
    return root


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("/dev/ptmx", "outside of the skill"),
        ("/dev/../dev/tty", "outside of the skill"),
        ("/etc/passwd", "outside of the skill"),
        ("../outside.sh", "outside of the skill"),
        ("${CLAUDE_SKILL_DIR}/../outside.sh", "outside of the skill"),
        ("./device.sh", "outside of the skill"),
        ("./link.sh", "outside of the skill"),
        ("./fifo.sh", "a FIFO"),
        ("./folder.sh", "a directory"),
    ],
)
async def test_a_hook_of_a_skill_starts_files_of_the_skill_only(
    run: HookCommandRunner, tmp_path: Path, program: str, words: str
) -> None:
    runner = HookRunner(run)
    root = _hostile_skill(tmp_path)
    runner.register([Hook(event=PRE, command=(program,))], skill="s", root=root)
    with anyio.fail_after(20):
        verdict = await runner.fire(bash_call())
    assert verdict.is_blocked
    assert words in verdict.reason


async def test_a_hook_of_settings_that_is_a_device_is_not_opened(
    run: HookCommandRunner, tmp_path: Path
) -> None:
    runner = HookRunner(run)
    runner.register([Hook(event=PRE, command=("/dev/ptmx",))], root=tmp_path)
    with anyio.fail_after(20):
        verdict = await runner.fire(bash_call())
    assert verdict.is_blocked
    assert "a device" in verdict.reason


@pytest.mark.needs("bubblewrap")
async def test_the_event_loop_runs_while_a_hooks_file_is_looked_at(
    run: HookCommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran_in, loop = list[int](), threading.get_ident()

    def opened(path: Path) -> BinaryIO:
        ran_in.append(threading.get_ident())
        return open_regular(path)

    monkeypatch.setattr("apexbridge.hooks.commands.open_regular", opened)
    (tmp_path / "guard.sh").write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    runner = HookRunner(run)
    runner.register([Hook(event=PRE, command=("./guard.sh",))], skill="s", root=tmp_path)
    verdict = await runner.fire(bash_call())
    assert not verdict.is_blocked
    assert ran_in
    assert loop not in ran_in


@pytest.mark.needs("bubblewrap")
@pytest.mark.parametrize("program", ["/bin/bash", "/usr/bin/env", "bash"])
async def test_a_hook_of_a_skill_may_start_programs_of_the_system(
    run: HookCommandRunner, tmp_path: Path, program: str
) -> None:
    words = ("bash",) if program.endswith("env") else ()
    command = (program, *words, "-c", "echo no >&2; exit 2")
    runner = HookRunner(run)
    runner.register([Hook(event=PRE, command=command)], skill="s", root=tmp_path)
    verdict = await runner.fire(bash_call())
    assert (verdict.outcome, verdict.reason) == ("block", "no")


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def server(answer: Answer) -> AsyncGenerator[str]:
    app = web.Application(client_max_size=10**8)
    app.router.add_post("/hook", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port: int = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}/hook"
    finally:
        await runner.cleanup()


async def _send(url: str, body: bytes, seconds: float) -> HookReply:
    limits = FetchLimits.from_cidr(
        seconds=seconds, max_bytes=10_000, allow_networks=["127.0.0.1/32"]
    )
    return HookReply(*await post(url, body, limits))


async def test_an_address_is_told_by_post_and_answers_in_json() -> None:
    seen = list[Any]()

    async def answer(request: web.Request) -> web.Response:
        seen.append((request.content_type, await request.json()))
        return web.json_response({"decision": "block", "reason": "不行"})

    async with server(answer) as url:
        runner = HookRunner(answering(), _send)
        runner.register([Hook(event=PRE, url=url)])
        with anyio.fail_after(30):
            verdict = await runner.fire(bash_call())
    assert (verdict.outcome, verdict.reason) == ("block", "不行")
    assert seen[0][0] == "application/json"
    assert seen[0][1]["tool_input"] == {"command": "ls"}


async def _hang(request: web.Request) -> web.Response:
    await anyio.sleep_forever()
    return web.Response()


async def _flood(request: web.Request) -> web.Response:
    return web.Response(body=b"{" + b" " * 20_000 + b"}")


async def _page(request: web.Request) -> web.Response:
    return web.Response(text="<html>", content_type="text/html")


async def _fault(request: web.Request) -> web.Response:
    return web.Response(status=500)


async def _elsewhere(request: web.Request) -> web.Response:
    return web.Response(status=307, headers={"Location": "http://127.0.0.1:1/hook"})


async def _reset(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


@pytest.mark.promise("G06")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (_hang, "no answer within 0.5 s"),
        (_flood, "more than 10000 bytes"),
        (_page, "no JSON object"),
        (_fault, "it answered 500"),
        (_elsewhere, "it answered 307"),
        (_reset, "closed the connection"),
    ],
    ids=["hang", "flood", "page", "fault", "redirect", "reset"],
)
async def test_an_address_that_fails_denies(answer: Answer, words: str) -> None:
    async with server(answer) as url:
        runner = HookRunner(answering(), _send)
        seconds = 0.5 if answer is _hang else 30
        runner.register([Hook(event=PRE, url=url, timeout_seconds=seconds)])
        with anyio.fail_after(60):
            verdict = await runner.fire(bash_call())
    assert verdict.is_blocked
    assert words in verdict.reason


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/x", "http://127.0.0.2:9/x", "file:///etc/passwd"]
)
async def test_an_address_that_may_not_be_asked_denies(url: str) -> None:
    runner = HookRunner(answering(), _send)
    runner.register([Hook(event=PRE, url=url)])
    with anyio.fail_after(30):
        assert (await runner.fire(bash_call())).is_blocked


async def test_an_address_that_says_nothing_is_given_up() -> None:
    limits = FetchLimits.from_cidr(seconds=0.3, max_bytes=10, allow_networks=["127.0.0.1/32"])
    async with server(_hang) as url:
        with anyio.fail_after(30), pytest.raises(SourceError, match=r"no response within 0\.3 s"):
            await post(url, b"{}", limits)


async def test_without_a_way_to_the_network_an_address_denies() -> None:
    runner = HookRunner(answering())
    runner.register([Hook(event=PRE, url="http://x.example/")])
    assert "may not reach the network" in (await runner.fire(bash_call())).reason


def _running(word: str) -> bool:
    """Whether any process has this word on its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in path.read_bytes().split(b"\0"):
                return True
    return False


@pytest.mark.needs("bubblewrap")
async def test_a_cancelled_turn_leaves_no_hook_running(run: HookCommandRunner) -> None:
    length = str(100_000 + os.getpid())
    runner = HookRunner(run)
    runner.register([Hook(event=PRE, command=("sleep", length))])
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(runner.fire, bash_call())
            while not _running(length):
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
    assert not _running(length)
