"""`sources`, `trust`, `ls --all`, `ls --budget` and `show --why`."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from apexbridge.cli.output import Output
from apexbridge.skills import tree
from apexbridge.testing import make_skill
from tests.cli.conftest import Run
from tests.cli.in_process import call

SCRIPT = "#!/usr/bin/env python3\nprint('ran')\n"


@pytest.fixture
def inside(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run commands in this process, in an empty project."""
    project.mkdir()
    monkeypatch.chdir(project)
    return call


def _project_skill(project: Path, **fields: object) -> Path:
    given: dict[str, object] = {"allowed_tools": "Bash(git *)", **fields}
    return make_skill(
        project / ".claude/skills",
        raw=None,
        name="theirs",
        files={"scripts/main.py": SCRIPT},
        **given,
    )


@pytest.mark.needs("sandbox")
def test_a_project_skill_runs_only_after_approval(run: Run, project: Path) -> None:
    root = _project_skill(project)
    denied = run("run", "--json", "theirs")
    assert (denied.code, denied.error["code"]) == (5, "skill_untrusted")
    assert "apexbridge trust theirs" in denied.error["hint"]
    given = run("trust", "theirs", "--yes", "--json")
    assert (given.code, given.data["changed"]) == (0, True)
    assert run("run", "theirs").out == "ran\n"
    (root / "scripts/main.py").write_text(SCRIPT.replace("ran", "else"), encoding="utf-8")
    assert run("run", "--json", "theirs").error["code"] == "skill_untrusted"


def test_trust_prints_capabilities_and_changes_nothing_without_confirmation(
    inside: Run, project: Path
) -> None:
    _project_skill(project, hooks={"PreToolUse": [{"command": ["true"]}]})
    done = inside("trust")
    assert done.code == 0
    assert "tools: Bash(git *)" in done.out
    assert "hooks: PreToolUse" in done.out
    assert "scripts: scripts/main.py" in done.out
    assert "Approve with apexbridge trust NAME" in done.out
    nobody = inside("trust", "--all")  # no terminal to ask, so the answer is no
    assert (nobody.code, "Nothing was changed (skills: 1)." in nobody.out) == (5, True)
    assert inside("trust", "--all", "--dry-run").code == 0
    (skill,) = inside("trust", "--json").data["skills"]
    assert (skill["name"], skill["scripts"]) == ("theirs", ["scripts/main.py"])


def test_approvals_are_revoked(inside: Run, project: Path) -> None:
    _project_skill(project)
    assert inside("trust", "--all", "--yes").code == 0
    assert inside("trust").out == "No skills to approve or revoke.\n"
    assert inside("trust", "--all", "--yes", "--revoke", "--json").data["revoked"] is True
    assert [skill["name"] for skill in inside("trust", "--json").data["skills"]] == ["theirs"]


def test_user_skills_and_unknown_ones_need_no_approval(inside: Run, home: Path) -> None:
    make_skill(home / ".claude/skills", "mine")
    assert inside("trust", "mine", "--yes").out == "No skills to approve or revoke.\n"
    assert inside("trust", "nine", "--yes", "--json").code == 3


def test_ls_shows_states_and_shadowed_skills(inside: Run, home: Path, project: Path) -> None:
    _project_skill(project, paths="*.py")
    make_skill(project / ".claude/skills", "mine", description="theirs")
    make_skill(home / ".claude/skills", "mine", disable_model_invocation=True)
    done = inside("ls")
    assert "theirs\tproject\tinactive, not approved\t" in done.out
    assert "mine\tuser\tusers only\t" in done.out
    assert (
        "Shadowed by another skill of the same name: 1; list them with 'apexbridge ls --all'"
        in done.out
    )
    assert "Waiting for approval: 1; review them with 'apexbridge trust'" in done.out
    assert "mine\tproject\tshadowed, not approved\ttheirs" in inside("ls", "--all").out
    (hidden,) = inside("ls", "--json").data["shadowed"]
    assert hidden["states"] == ["shadowed", "untrusted"]


def test_show_why_explains_precedence_and_invocation(
    inside: Run, home: Path, project: Path
) -> None:
    for place in ("packages", ""):
        (project / place / ".claude").mkdir(parents=True, exist_ok=True)
    make_skill(home / ".claude/skills", "x")
    make_skill(project / ".claude/skills", "x")
    make_skill(project / ".agents/skills", "x")
    make_skill(project / ".agents/skills", "y", paths="*.py")
    make_skill(project / ".claude/skills", "z")
    said = inside("show", "x", "--why").out
    assert "its source has the highest precedence" in said
    assert "'user' precedes 'project' in skills.precedence" in said
    assert "The model and users can invoke it." in said
    said = inside("show", "y", "--why").out
    assert "no other skill has this name" in said
    assert "Inactive until a file matching *.py is accessed" in said
    assert "apexbridge trust y" in said
    inside("--set", "skills.precedence=project", "show", "x", "--why")
    said = inside("--set", "skills.precedence=project", "show", "x", "--why").out
    assert "same origin, later in the search order" in said
    why = inside("show", "x", "--json").data["why"]
    assert [other["origin"] for other in why["wins_over"]] == ["project", "project"]
    assert why["model_may_call"] is True


def test_sources_lists_sources_by_precedence(inside: Run, home: Path, project: Path) -> None:
    make_skill(home / ".claude/skills", "mine")
    _project_skill(project)
    (home / ".agents").mkdir()
    (home / ".agents/skills").write_text("a file", encoding="utf-8")
    rows = [line.split("\t") for line in inside("sources").out.splitlines() if "\t" in line]
    found = {row[4]: row[:4] for row in rows}
    assert found[str(home / ".claude/skills")] == ["user", "ok", "1", "0"]
    assert found[str(home / ".apexbridge/skills")] == ["user", "missing", "0", "0"]
    assert found[str(home / ".agents/skills")] == ["user", "unavailable", "0", "1"]
    assert found[str(project / ".claude/skills")] == ["project", "ok", "1", "0"]
    data = inside("sources", "--json").data
    origins = [row[0] for row in rows]
    assert origins == sorted(origins, key=data["precedence"].index)
    (down,) = [source for source in data["sources"] if source["state"] == "down"]
    assert [problem["code"] for problem in down["problems"]] == ["source_unreadable"]
    assert "source_unreadable" in inside("sources").out


def test_ls_budget_shows_the_listing_of_a_model(inside: Run, home: Path) -> None:
    for number in range(30):
        make_skill(home / ".claude/skills", f"s{number:02}", description="words " * 40)
    make_skill(home / ".claude/skills", "sleeper", paths="*.py")
    whole = inside("ls", "--budget", "--json", "--window", "10000000").data
    assert {skill["extent"] for skill in whole["skills"]} == {"full"}
    assert "sleeper" not in whole["text"]
    data = inside("ls", "--budget", "--json", "--window", "100000").data
    assert data["used"] == len(data["text"]) <= data["budget"] == 4_000
    assert {skill["extent"] for skill in data["skills"]} > {"shortened"}
    said = inside("ls", "--budget", "--window", "100000").out
    assert f"Characters: {data['used']} of 4000, for a context window of 100000 tokens" in said
    assert "Not listed in full:" in said


def test_ls_budget_ranks_by_the_request(inside: Run, home: Path) -> None:
    make_skill(home / ".claude/skills", "aaa", description="Grows tomatoes.")
    make_skill(home / ".claude/skills", "zzz", description="Converts videos to gif.")
    words = ("--set", "index.embedder=hash", "ls", "--budget", "--json")
    own = [
        skill["name"]
        for skill in inside(*words, "--for", "convert a video to gif").data["skills"]
        if skill["name"] in {"aaa", "zzz"}
    ]
    assert own == ["zzz", "aaa"]


ASKS_FOR_ALL: dict[str, Any] = {
    "allowed_tools": "Bash(git *)",
    "hooks": {"PreToolUse": [{"command": ["true"]}]},
    "context": "fork",
    "agent": "Explore",
    "model": "opus",
    "secrets": ["KEY=api.example.org"],
    "surprise": "x",
    "body": "Now: !`git status`",
}
ASKED_FOR = (
    "tools: Bash(git *)", "hooks: PreToolUse", "inline commands: git status",
    "subagent: Explore", "other model: opus", "secrets: KEY (api.example.org)",
    "unknown keys: surprise",
)  # fmt: skip


def test_add_and_trust_print_every_reason_for_consent(
    inside: Run, project: Path, tmp_path: Path
) -> None:
    """To install is to consent, and so is to trust: neither may leave a reason out."""
    folder = make_skill(tmp_path / "downloads", "asks", **ASKS_FOR_ALL)
    make_skill(project / ".claude/skills", "asks", **ASKS_FOR_ALL)
    for words in (("add", str(folder)), ("trust", "asks")):
        done = inside(*words)
        assert done.code == 5  # no terminal to ask, so the answer is no
        for line in ASKED_FOR:
            assert f"  {line}\n" in done.out


def test_trust_output_in_chinese(inside: Run, project: Path) -> None:
    _project_skill(project)
    assert "等待批准" in inside("--lang", "zh", "ls").out
    assert "工具: Bash(git *)" in inside("--lang", "zh", "trust").out
    refused = inside("--lang", "zh", "run", "--json", "theirs").error
    place = f"{project}/.claude/skills"
    assert refused["message"] == f"来自 project:{place} 的技能“theirs”的当前内容尚未批准"


def test_a_skill_that_is_named_twice_is_approved_once(inside: Run, project: Path) -> None:
    _project_skill(project)
    data = inside("trust", "theirs", "/theirs", "THEIRS", "--dry-run", "--json").data
    assert [skill["name"] for skill in data["skills"]] == ["theirs"]


def test_scripts_without_the_executable_bit_are_listed(inside: Run, project: Path) -> None:
    root = _project_skill(project)
    (root / "scripts/main.py").chmod(0o644)
    (root / ".vectorized").mkdir()
    for path in ("run.sh", ".vectorized/x.py", "notes.md"):
        (root / path).write_text("x", encoding="utf-8")
    (skill,) = inside("trust", "--json").data["skills"]
    assert skill["scripts"] == ["run.sh", ".vectorized/x.py", "scripts/main.py"]
    shown = [file["path"] for file in inside("show", "theirs", "--json").data["files"]]
    assert ".vectorized/x.py" in shown


def test_a_skill_that_cannot_be_hashed_cannot_be_approved(
    inside: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _project_skill(project)
    usual: dict[str, object] = tree.fingerprint.__kwdefaults__ or {}
    monkeypatch.setattr(tree.fingerprint, "__kwdefaults__", {**usual, "max_files": 1})
    refused = inside("trust", "theirs", "--yes", "--json")
    assert refused.error["code"] == "skill_unhashed"
    every = inside("trust", "--all", "--yes", "--json").data
    assert (every["skills"], every["changed"]) == ([], False)
    assert [skill["name"] for skill in inside("trust", "--json").data["skills"]] == ["theirs"]


def test_the_approval_of_a_shadowed_skill_is_revoked(
    inside: Run, home: Path, project: Path
) -> None:
    _project_skill(project)
    assert inside("trust", "theirs", "--yes").code == 0
    make_skill(home / ".claude/skills", "theirs")
    assert inside("trust", "theirs", "--revoke", "--yes", "--json").data["changed"] is True
    shutil.rmtree(home / ".claude/skills/theirs")
    assert [skill["name"] for skill in inside("trust", "--json").data["skills"]] == ["theirs"]


def test_quiet_asks_for_no_confirmation(
    inside: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _project_skill(project)

    def agree(_: Output, key: str, **fields: object) -> bool:
        return bool(key and fields)

    monkeypatch.setattr(Output, "confirm", agree)
    assert inside("trust", "--all", "--quiet").code == 5
    assert inside("trust", "--all").code == 0


def test_the_model_invokes_unapproved_but_not_inactive_skills(inside: Run, project: Path) -> None:
    _project_skill(project)
    make_skill(project / ".claude/skills", "sleeper", paths="*.py")
    may = [inside("show", name, "--json").data["why"] for name in ("theirs", "sleeper")]
    assert [why["model_may_call"] for why in may] == [True, False]


def test_escape_sequences_in_the_prompt_block_are_sanitized(inside: Run, home: Path) -> None:
    raw = b'---\nname: esc\ndescription: "a\\e[2Jb"\n---\nx\n'
    make_skill(home / ".claude/skills", "esc", raw=raw)
    said = inside("ls", "--xml").out
    assert "a\\x1b[2Jb" in said
    assert "\x1b" not in said


@pytest.mark.parametrize("window", ["1", "99", "1" + "0" * 30])
def test_a_context_window_of_any_size_is_accepted(inside: Run, home: Path, window: str) -> None:
    make_skill(home / ".claude/skills", "mine")
    data = inside("ls", "--budget", "--window", window, "--json").data
    bundled = sum(skill["kept"] for skill in data["skills"] if skill["name"] != "mine")
    assert data["used"] - bundled <= max(data["budget"], 200)
    assert all(s["extent"] == "full" for s in data["skills"] if s["name"] != "mine")
    assert "mine" in {skill["name"] for skill in data["skills"]}
