"""`chat` and `explain`: one question, and interactive sessions on a terminal."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from apexbridge.models.base import ModelDelta
from apexbridge.testing import BrokenStream, RawResponse, ScriptedServer, make_skill
from apexbridge.testing.model_server import ScriptedReply
from tests.cli.conftest import CommandResult, Run
from tests.cli.terminal import CTRL_C, CTRL_D, environment, open_terminal
from tests.journeys.chat_client import MARK_SCRIPT, SALES, call, calling, processes_with, saying

pytestmark = pytest.mark.anyio

HASH = {"APEXBRIDGE_INDEX__EMBEDDER": "hash"}
Piped = Callable[..., Awaitable[CommandResult]]


def _model(server: ScriptedServer) -> dict[str, str]:
    return {
        **HASH,
        "APEXBRIDGE_MODEL__BASE_URL": server.base_url,
        "APEXBRIDGE_MODEL__NAME": "tiny",
    }


@contextmanager
def _serving(*replies: ScriptedReply) -> Generator[ScriptedServer]:
    """A model server in a thread, for a command in this process."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(ScriptedServer(replies)) as server,
    ):
        yield server


@pytest.fixture
def piped(home: Path, project: Path) -> Piped:
    """A subprocess with data on stdin."""
    project.mkdir(exist_ok=True)

    async def start(*words: str, given: str = "", **variables: str) -> CommandResult:
        with anyio.fail_after(60):
            done = await anyio.run_process(
                [sys.executable, "-m", "apexbridge", *words],
                input=given.encode(),
                cwd=project,
                env=environment(home, **{**HASH, **variables}),
                check=False,
            )
        return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())

    return start


@pytest.fixture
def interruptible() -> Generator[None]:
    """Restore SIGINT: background jobs of a shell inherit it as ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_reply_goes_to_stdout_and_tool_calls_to_stderr(run: Run) -> None:
    done = run("chat", "What is 12*37?", **HASH)
    assert (done.code, done.out) == (0, "12*37 = 444\n")
    assert "No language model is configured" in done.err
    assert "· Calculate" in done.err
    assert "continue with --session" in done.err


def test_json_output_is_one_line(run: Run) -> None:
    done = run("chat", "What is 12*37?", "--json", **HASH)
    assert (done.code, done.err) == (0, "")
    assert done.data == {
        "text": "12*37 = 444",
        "finish": "stop",
        "session": done.data["session"],
        "turn": done.data["turn"],
        "skills": [],
        "tools": ["Calculate"],
        "files": [],
        "skipped_files": {},
    }


def test_what_is_left_out_of_an_attached_folder_is_named(run: Run, project: Path) -> None:
    data = project / "data"
    (data / "empty").mkdir(parents=True)
    (data / "a.csv").write_text("1", encoding="utf-8")
    (data / "link").symlink_to("/etc/passwd")
    with _serving(saying("ok"), saying("ok")) as server:
        done = run("chat", "Sum it", "--file", str(data), **_model(server))
        as_json = run("chat", "Sum it", "--file", str(data), "--json", **_model(server))
    assert "left out: data/link (a link), data/empty (an empty folder)" in done.err
    assert as_json.data["skipped_files"] == {"data/link": "a link", "data/empty": "an empty folder"}
    sent = json.dumps(server.requests[0])
    assert "data/a.csv" in sent
    assert "Left out: data/link (a link)" in sent


def test_created_files_of_any_name_are_copied(run: Run, home: Path, project: Path) -> None:
    source = 'open(b"bad\\xff", "w").close(); open("~$a\\nb", "w").close()'
    make_skill(home / ".claude/skills", "odd", files={"main.py": source})
    with _serving(calling(call("SkillScript", skill="odd")), saying("ok")) as server:
        done = run("chat", "Go", "--output", "out", **_model(server))
    assert done.code == 0, done.err
    assert {os.fsencode(path.name) for path in (project / "out").iterdir()} == {
        b"bad\xff",
        b"~$a\nb",
    }


def test_quiet_prints_nothing(run: Run) -> None:
    done = run("chat", "What is 12*37?", "--quiet", **HASH)
    assert (done.code, done.out, done.err) == (0, "", "")


def test_a_chinese_question_gets_a_chinese_reply(run: Run) -> None:
    done = run("--lang", "zh", "chat", "计算 12*37", **HASH)
    assert (done.code, "444" in done.out) == (0, True)
    assert "没有配置语言模型" in done.err
    assert "继续" in done.err


@pytest.mark.needs("sandbox")
def test_a_slash_command_runs_the_skills_script_in_the_sandbox(run: Run, project: Path) -> None:
    (project / "sales.csv").write_text(SALES, encoding="utf-8")
    done = run("chat", "/csv-report sales.csv", "--json", **HASH)
    assert done.code == 0
    assert (done.data["skills"], "SkillScript" in done.data["tools"]) == (["csv-report"], True)
    assert "| sales | 2 | 0 | 3 | 4 | 3.50 |" in done.data["text"]


def test_an_unknown_skill_exits_3_with_close_matches(run: Run) -> None:
    done = run("chat", "/csv-reprot x", **HASH)
    assert (done.code, "Traceback" in done.err) == (3, False)
    assert "No skill named 'csv-reprot'" in done.err
    assert "csv-report" in done.err
    programs = run("chat", "/nobody", "--json", **HASH)
    assert (programs.code, programs.error["code"]) == (3, "skill_not_found")


@pytest.mark.parametrize("words", [(), ("",), (" \n",)])
def test_an_empty_question_is_a_usage_error(run: Run, words: tuple[str, ...]) -> None:
    done = run("chat", *words, **HASH)
    assert (done.code, "the question is empty" in done.err) == (2, True)
    assert run("chat", *words, "--json", **HASH).error["code"] == "usage"


async def test_a_question_is_read_from_a_pipe(piped: Piped) -> None:
    done = await piped("chat", given="What is 12*37?\n")
    assert (done.code, done.out) == (0, "12*37 = 444\n")
    long = await piped("chat", given="x" * 1_000_001)
    assert (long.code, "longer than 1,000,000 characters" in long.err) == (2, True)


def test_a_session_continues_across_processes(run: Run) -> None:
    replies = [saying("Hello ", "Ann"), saying("You are Ann"), saying("Who?")]
    with _serving(*replies) as server:
        first = run("chat", "I am Ann", "--session", "a.b", **_model(server))
        second = run("chat", "Who am I?", "--session", "a.b", **_model(server))
        run("chat", "Who am I?", **_model(server))
    assert (first.code, first.out) == (0, "Hello Ann\n")
    # The index is made once, and each change of it is said.
    assert first.err == "Index: kept 0, added 6, redone 0, removed 0\n"
    assert (second.out, second.err) == ("You are Ann\n", "")
    sent = [json.dumps(request) for request in server.requests]
    assert ["I am Ann" in text for text in sent] == [True, True, False]


def test_model_and_skills_are_options(run: Run) -> None:
    with _serving(saying("ok")) as server:
        words = ("--model", "large", "--skill", "changelog", "--skill", "git-commit")
        done = run("chat", "Do it", *words, **_model(server))
    assert done.code == 0
    assert server.requests[0]["model"] == "large"
    assert "The user wants these skills used: changelog, git-commit." in str(server.requests[0])


def test_escape_sequences_in_a_reply_are_sanitized(run: Run) -> None:
    reply = saying("a\x1b[2Jb\nc\u202ed", "\x07\n")
    with _serving(reply) as server:
        done = run("chat", "hi", **_model(server))
    assert done.out == "a\\x1b[2Jb\nc\\u202ed\\x07\n"


def test_a_rejected_request_is_reported_without_a_traceback(run: Run) -> None:
    refusal = RawResponse(status=401, body=b'{"error": {"message": "bad key"}}')
    with _serving(refusal, refusal) as server:
        people = run("chat", "hi", **_model(server))
        programs = run("chat", "hi", "--json", **_model(server))
    assert run("explain", "--json", **HASH).data["turn"]["finish"] == "error"
    assert (people.code, "Traceback" in people.err) == (1, False)
    assert "The model tiny rejected the request" in people.err
    assert programs.error["code"] == "model_rejected"


def test_a_prompt_blocked_by_a_hook_is_reported_with_its_reason(run: Run) -> None:
    hook = {"type": "command", "command": "bash -c 'echo not today >&2; exit 2'"}
    hooks = json.dumps({"UserPromptSubmit": [{"hooks": [hook]}]})
    done = run("chat", "hi", APEXBRIDGE_HOOKS=hooks, **HASH)
    assert (done.code, done.out) == (5, "not today\n")
    assert "blocked" in done.err


def test_without_a_terminal_approval_is_denied(run: Run, project: Path) -> None:
    writing = calling(call("Write", path="made.txt", content="x"))
    with _serving(writing, saying("sorry"), writing, saying("sorry")) as server:
        people = run("chat", "hi", **_model(server))
        programs = run("chat", "hi", "--json", **_model(server))
    assert (people.code, people.out, "Write failed" in people.err) == (0, "sorry\n", True)
    assert (programs.code, programs.data["tools"]) == (0, ["Write"])
    assert "[nobody_allowed]" in str(server.requests[1]["messages"][-1])
    assert not (project / "made.txt").exists()


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", "· skill deploy was refused: "),
        ("zh", "· 技能 deploy 被拒绝："),
    ],
)
def test_a_refused_skill_says_why_and_who_could_allow_it(
    run: Run, home: Path, language: str, words: str
) -> None:
    make_skill(home / ".claude/skills", "deploy", allowed_tools="Bash")
    with _serving(calling(call("Skill", skill="deploy")), saying("sorry")) as server:
        done = run("--lang", language, "chat", "hi", **_model(server))
    (line,) = (line for line in done.err.splitlines() if line.startswith(words))
    assert "apexbridge trust deploy" in line


def test_an_allow_rule_needs_no_approval(run: Run, project: Path) -> None:
    writing = calling(call("Write", path="made.txt", content="x"))
    with _serving(writing, saying("done")) as server:
        rule = {"APEXBRIDGE_PERMISSIONS__ALLOW": "Write(made.txt)"}
        done = run("chat", "hi", **_model(server), **rule)
    assert (done.out, "· Write" in done.err) == ("done\n", True)
    assert (project / "made.txt").read_text(encoding="utf-8") == "x"


def test_explain_traces_the_last_turn_or_one_by_id(run: Run) -> None:
    nothing = run("explain", **HASH)
    assert (nothing.code, nothing.out) == (3, "No turn is recorded yet.\n")
    first = run("chat", "What is 12*37?", "--json", **HASH).data["turn"]
    second = run("chat", "What time is it?", "--json", **HASH).data["turn"]
    last = run("explain", **HASH)
    assert (last.code, last.out.startswith(f"Turn {second}: 2 rounds, 1 tool calls")) == (0, True)
    assert "Now\t" in last.out
    earlier = run("explain", first[:8], "--json", **HASH).data["turn"]
    assert earlier["id"] == first
    assert [one["tool"] for one in earlier["calls"]] == ["Calculate"]
    assert {"name", "score", "parts", "fate"} == set(earlier["candidates"][0])
    chinese = run("--lang", "zh", "explain", **HASH).out
    assert chinese.startswith(f"对话 {second}：2 轮")
    unknown = run("explain", "zzz", **HASH)
    assert (unknown.code, unknown.out) == (3, "No turn with the id zzz.\n")
    assert run("explain", "%", "--json", **HASH).code == 3


def test_config_hides_api_keys(run: Run) -> None:
    keys = {"OPENAI_API_KEY": "sk-theirs", "APEXBRIDGE_MODEL__API_KEY": "sk-ours"}
    for words in (("config",), ("config", "--json"), ("config", "model.api_key")):
        done = run(*words, **keys)
        assert (done.code, "model.api_key" in done.out or "***" in done.out) == (0, True)
        assert "sk-" not in done.out + done.err


async def test_an_interactive_session_on_a_terminal(home: Path, project: Path) -> None:
    project.mkdir()
    replies = [saying("Hello ", "Ann"), saying("You are Ann")]
    async with (
        ScriptedServer(replies) as server,
        open_terminal("chat", cwd=project, variables=environment(home, **_model(server))) as screen,
    ):
        await screen.sees("Model: tiny.")
        await screen.sees("> ")
        screen.types("/skills\n")
        await screen.sees("/csv-report  ")
        await screen.sees("> ")
        screen.types("/nobody at all\n")
        await screen.sees("No skill named 'nobody'")
        await screen.sees("> ")
        screen.types("I am Ann\n")
        await screen.sees("Hello Ann")
        await screen.sees("> ")
        screen.types("half a quest")
        await screen.presses_until(CTRL_C, "\r\n> ")
        screen.types("Who am I?\n")
        await screen.sees("You are Ann")
        await screen.sees("> ")
        screen.types("/exit\n")
        assert await screen.ends() == 0
    assert "continue with --session" in screen.screen
    assert "I am Ann" in json.dumps(server.requests[1])
    assert "half a quest" not in json.dumps(server.requests[1])
    history = next(home.rglob("chat_history"))
    assert history.stat().st_mode & 0o777 == 0o600
    assert "Who am I?" in history.read_text(encoding="utf-8")


@pytest.mark.unmeasured
async def test_an_interactive_session_ends_at_eof(home: Path, project: Path) -> None:
    project.mkdir()
    async with open_terminal("chat", cwd=project, variables=environment(home)) as screen:
        await screen.sees("No language model is configured")
        await screen.sees("> ")
        screen.types(CTRL_D)
        assert await screen.ends() == 0


@pytest.mark.needs("writable project")
async def test_human_approval_on_the_terminal(home: Path, project: Path) -> None:
    project.mkdir()
    (project / "seed.txt").write_text("x", encoding="utf-8")
    made = project / "made.txt"
    copying = calling(call("Bash", command="cp seed.txt made.txt"))
    replies = [reply for number in range(5) for reply in (copying, saying(f"end {number}"))]
    variables = {"APEXBRIDGE_LANG": "zh"}
    async with (
        ScriptedServer(replies) as server,
        open_terminal(
            "chat", cwd=project, variables=environment(home, **_model(server), **variables)
        ) as screen,
    ):
        for number, (key, is_made) in enumerate(
            [("n", False), ("perhaps", False), ("y", True), ("a", True), ("", True)]
        ):
            await screen.sees("> ")
            screen.types(f"go {number}\n")
            if key:
                await screen.sees("允许 Bash：cp seed.txt made.txt")
                assert "Bash(cp seed.txt made.txt)" in await screen.sees("n 不允许：")
                screen.types(f"{key}\n")
            seen = await screen.sees(f"end {number}")
            assert ("失败" in seen, made.exists()) == (not is_made, is_made)
            assert key or "允许" not in seen
            made.unlink(missing_ok=True)
        screen.types("/exit\n")
        assert await screen.ends() == 0


async def test_both_suggested_rules_for_a_skill_on_the_terminal(home: Path, project: Path) -> None:
    project.mkdir()
    make_skill(home / ".claude/skills", "review", context="fork")
    asks = calling(call("Skill", skill="review"))
    replies = [asks, saying("child"), saying("end 0"), asks, saying("child"), saying("end 1")]
    async with (
        ScriptedServer(replies) as server,
        open_terminal("chat", cwd=project, variables=environment(home, **_model(server))) as screen,
    ):
        await screen.sees("> ")
        screen.types("go 0\n")
        await screen.sees("Allow Skill: review")
        offered = await screen.sees("n no:")
        assert "a always (Skill(review))" in offered
        assert "(Skill(review *))" in offered
        screen.types("p\n")
        await screen.sees("end 0")
        await screen.sees("> ")
        screen.types("go 1\n")
        assert "Allow" not in await screen.sees("end 1")  # the stored rule allows it


async def test_the_question_about_a_skill_names_the_reasons_and_the_rule_that_asks(
    home: Path, project: Path
) -> None:
    project.mkdir()
    make_skill(home / ".claude/skills", "review", context="fork", allowed_tools="Bash(git *)")
    replies = [calling(call("Skill", skill="review")), saying("end")]
    variables = {"APEXBRIDGE_PERMISSIONS__ASK": "Skill(review)"}
    async with (
        ScriptedServer(replies * 2) as server,
        open_terminal("chat", cwd=project, variables=environment(home, **_model(server))) as screen,
    ):
        await screen.sees("> ")
        screen.types("go\n")
        assert "because of: allowed-tools: Bash(git *); context: fork" in await screen.sees("n no:")
        screen.types("n\n")
        await screen.sees("end")
    async with (
        ScriptedServer(replies) as server,
        open_terminal(
            "chat", cwd=project, variables=environment(home, **_model(server), **variables)
        ) as screen,
    ):
        await screen.sees("> ")
        screen.types("go\n")
        asked = await screen.sees("n no:")
        assert "asked each time by the rule: Skill(review)" in asked
        assert "always (" not in asked  # no answer could store it
        screen.types("n\n")
        await screen.sees("end")


@pytest.mark.unmeasured
async def test_type_ahead_does_not_answer_an_approval(home: Path, project: Path) -> None:
    project.mkdir()
    writing = calling(call("Write", path="made.txt", content="x"))
    async with (
        ScriptedServer([writing, saying("end")]) as server,
        open_terminal("chat", cwd=project, variables=environment(home, **_model(server))) as screen,
    ):
        await screen.sees("> ")
        screen.types("go\ny\n")
        await screen.sees("n no:")
        assert not (project / "made.txt").exists()
        screen.types("n\n")
        await screen.sees("end")
    assert not (project / "made.txt").exists()


async def test_ctrl_c_cancels_the_turn_and_keeps_the_session(home: Path, project: Path) -> None:
    project.mkdir()
    hanging = BrokenStream(deltas=[ModelDelta(text="begun")], then="hang")
    asking = calling(call("Write", path="made.txt", content="x"))
    async with (
        ScriptedServer([hanging, asking, saying("well")]) as server,
        open_terminal("chat", cwd=project, variables=environment(home, **_model(server))) as screen,
    ):
        await screen.sees("> ")
        screen.types("first\n")
        await screen.sees("begun")
        screen.types(CTRL_C)
        await screen.sees("Cancelled.")
        await screen.sees("> ")
        screen.types("second\n")
        await screen.sees("n no:")
        screen.types(CTRL_C)
        await screen.sees("Cancelled.")
        await screen.sees("> ")
        screen.types("third\n")
        await screen.sees("well")
        await screen.sees("> ")
        screen.types(CTRL_D)
        assert await screen.ends() == 0
    assert "Traceback" not in screen.screen
    assert not (project / "made.txt").exists()


@pytest.mark.unmeasured
async def test_sigterm_ends_an_interactive_session(home: Path, project: Path) -> None:
    project.mkdir()
    hanging = BrokenStream(deltas=[ModelDelta(text="begun")], then="hang")
    async with (
        ScriptedServer([hanging]) as server,
        open_terminal("chat", cwd=project, variables=environment(home, **_model(server))) as screen,
    ):
        await screen.sees("> ")
        screen.types("first\n")
        await screen.sees("begun")
        screen.process.terminate()
        assert await screen.ends() == 143
    assert "Traceback" not in screen.screen


@pytest.mark.unmeasured
@pytest.mark.needs("sandbox")
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("asked", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_sigint_cancels_a_question_without_leftovers(
    home: Path, project: Path, asked: signal.Signals, code: int
) -> None:
    project.mkdir()
    mark = f"{uuid.uuid4().int % 10**12:012}.5"  # a number of seconds that only this test waits
    script = MARK_SCRIPT.format(mark=mark)
    make_skill(home / ".claude/skills", "sleeper", files={"scripts/main.sh": script})
    with subprocess.Popen(
        [sys.executable, "-m", "apexbridge", "chat", "/sleeper"],
        cwd=project,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            while not processes_with(mark):
                assert process.poll() is None, process.communicate()
                time.sleep(0.05)  # to look takes long, and the command needs the core
            process.send_signal(asked)
            _, error = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, b"Traceback" in error) == (code, False)
    assert processes_with(mark) == []
    assert [path for path in home.rglob("workspaces/*") if path.is_dir()] == []
