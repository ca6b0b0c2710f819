"""A shell command is allowed only if every simple command in it is."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.permissions.engine import PermissionContext, decide
from apexbridge.permissions.rules import Decision, Effect, PermissionRequest, ToolPattern
from apexbridge.permissions.shell_evaluation import allows_command, denies_command
from apexbridge.permissions.shell_parser import parse_shell
from apexbridge.permissions.shell_syntax import ParsedShell
from apexbridge.permissions.wildcards import PathRoots
from tests.permissions.test_engine import rules

PROJECT = Path("/srv/project")
CONTEXT = PermissionContext(roots=PathRoots(project=PROJECT, home=Path("/home/me")))


def judged(command: str, *lines: str, granted: str = "") -> Decision:
    request = PermissionRequest(tool="Bash", argument=command, cwd=PROJECT)
    allowed = [ToolPattern.parse(granted)] if granted else []
    return decide(request, rules(*lines), allowed, CONTEXT)


GIT = "allow Bash(git *)"


@pytest.mark.parametrize(
    ("command", "lines", "effect"),
    [
        ("git status", [GIT], "allow"),
        ("git", [GIT], "allow"),
        ("gitk", [GIT], "ask"),
        ("./git status", [GIT], "ask"),
        ("'git status'", [GIT], "ask"),
        ("g''it status", [GIT], "allow"),
        ("git commit -m 'a; rm b'", ["allow Bash(git commit *)"], "allow"),
        ("git commit -m 'a b'", ['allow Bash(git commit -m "a b")'], "ask"),
        ("git commit -m 'a b'", ["allow Bash(git commit -m 'a b')"], "allow"),
        ("git status && rm x", [GIT], "ask"),
        ("git status && rm x", [GIT, "deny Bash(rm *)"], "deny"),
        ("git status\nrm x", [GIT], "ask"),
        ("git $(rm x)", [GIT], "ask"),
        ("git $(git log)", [GIT], "allow"),
        ("git status | git log; (git x) & ", [GIT], "allow"),
        ("for x in a; do git $x; done", [GIT], "allow"),
        ("if [ -f x ]; then git status; fi", [GIT], "allow"),
        ("echo hi && git status", [GIT], "allow"),
        ("echo hi", [], "ask"),
        ("echo hi", ["allow Bash(echo *)"], "allow"),
        ("PATH=. git status", [GIT], "ask"),
        ("PATH=.; git status", [GIT], "ask"),
        ("x=1; git $x", [GIT], "allow"),
        ("git push; rm main", ["allow Bash(git * main)"], "ask"),
        ("git push origin main", ["allow Bash(git * main)"], "allow"),
        ("git push main x", ["allow Bash(git * main *)"], "allow"),
        ("git x", ["allow Bash(git * main *)"], "ask"),
        ("lsof", ["allow Bash(ls*)"], "allow"),
        ("ls a", ["allow Bash(ls \\*)"], "ask"),
        ("ls *", ["allow Bash(ls \\*)"], "allow"),
        ("anything", ["allow Bash(:*)"], "ask"),
        # What starts others.
        ("timeout 5 git push", [GIT], "allow"),
        ("timeout 5 rm x", [GIT, "allow Bash(timeout *)"], "ask"),
        ("sudo git push", [GIT], "ask"),
        ("sudo git push", [GIT, "allow Bash(sudo *)"], "allow"),
        ("sudo rm x", ["allow Bash(sudo *)"], "ask"),
        ("xargs rm", ["allow Bash(xargs *)"], "ask"),
        ("bash -c 'git status'", [GIT], "allow"),
        ("bash -c 'git status; rm x'", [GIT, "allow Bash(bash *)"], "ask"),
        ('bash -c "$x"', ["allow Bash(bash *)"], "ask"),
        ("./bash -c 'git status'", [GIT], "ask"),
        ("./timeout 5 git status", [GIT], "ask"),
        ("watch rm", ["allow Bash(watch *)"], "ask"),
        ("watch rm", ["allow Bash(watch rm)"], "allow"),
        ("watch rm", ["allow Bash(watch rm)", "deny Bash(rm *)"], "ask"),
        ("find . -exec rm {} +", ["allow Bash(find *)"], "ask"),
        # Refusals are read widely.
        ("/bin/rm x", ["allow Bash", "deny Bash(rm *)"], "deny"),
        ("A=1 rm x", ["allow Bash", "deny Bash(rm *)"], "deny"),
        ("nohup sudo r''m x", ["allow Bash", "deny Bash(rm *)"], "deny"),
        ("rm -r x", ["allow Bash", "deny Bash(rm -r *)"], "deny"),
        ("rm -r x", ["allow Bash", "deny Bash(rm *x)"], "deny"),
        ("rm $x", ["allow Bash(rm *)", "deny Bash(rm -r *)"], "ask"),
        ("rm *", ["allow Bash(rm *)", "deny Bash(rm -r *)"], "ask"),
        ("rm", ["allow Bash(rm *)", "deny Bash(rm -r *)"], "allow"),
        ("rm a", ["allow Bash(rm *)", "deny Bash(rm a b)"], "allow"),
        ("r''m 'a'", ["allow Bash(rm *)", 'deny Bash(rm "a" b)'], "allow"),
        ("rm 'a b' c", ["allow Bash(rm *)", 'deny Bash(rm "a b" *)'], "deny"),
        ("rm 'a b' c", ["allow Bash(rm *)", 'deny Bash(rm "a b")'], "allow"),
        ("git x && rm y", ["deny Read", "allow Read", "allow Bash(*)"], "allow"),
        ("sudo watch x", ["allow Bash(watch x)", "allow Bash(sudo *)"], "allow"),
        ("X=1", ["allow Bash(X=1)", "deny Bash(rm *)"], "allow"),
        ("x", ["allow Bash", "deny Bash(x 'y *)"], "allow"),
        ("git status", ["allow Bash", "deny Bash"], "deny"),
        ("git push", [GIT, "ask Bash(git push *)"], "ask"),
        ("git push; rm $x", ["allow Bash", "ask Bash(rm -r *)", "deny Bash(git push *)"], "deny"),
        # Not understood.
        ("eval x", ["allow Bash(eval *)"], "ask"),
        ("eval x", ["allow Bash(eval x)"], "allow"),
        ("eval x", ["allow Bash"], "allow"),
        ("eval x", ["allow Bash", "deny Bash(rm *)"], "ask"),
        ("eval x", ["allow Bash", "deny Bash(eval *)"], "deny"),
        ("git status; eval 'rm x'", [GIT, "allow Bash(eval *)"], "ask"),
        ("", [], "ask"),
        ("# nothing", [GIT], "ask"),
    ],
)
def test_every_part_must_be_allowed(command: str, lines: list[str], effect: Effect) -> None:
    assert judged(command, *lines).effect == effect
    assert judged(command, *reversed(lines)).effect == effect


@pytest.mark.parametrize(
    ("command", "lines", "effect"),
    [
        ("echo hi > f", ["allow Bash(echo *)"], "ask"),
        ("echo hi > f", ["allow Bash(echo *)", "allow Write(f)"], "allow"),
        ("echo hi > ../f", ["allow Bash(echo *)", "allow Write(**)"], "ask"),
        ("echo hi > /etc/f", ["allow Bash(echo *)", "allow Write(**)"], "ask"),
        (
            "cd /etc && echo > f",
            ["allow Bash(echo *)", "allow Bash(cd *)", "allow Write(f)"],
            "ask",
        ),
        ("echo hi > f", ["allow Bash", "deny Write(f)"], "deny"),
        ("echo hi > f", ["allow Bash", "ask Write(f)"], "ask"),
        ("echo hi > f", ["allow Bash"], "allow"),
        ("echo hi > f", ["allow Bash(echo hi > f)"], "allow"),
        ("> f", ["allow Write(f)"], "allow"),
        ("> f", [], "ask"),
        ("echo > /dev/null 2>&1", ["allow Bash(echo *)"], "allow"),
        ("cat < f", ["allow Bash(cat *)"], "allow"),
        ("cat < ~x", ["allow Bash(cat *)"], "ask"),
        ("cat < /home/me/.ssh/id", ["allow Bash", "deny Read(~/.ssh)"], "deny"),
        ("bash -c 'echo > f'", ["allow Bash(echo *)"], "ask"),
    ],
)
def test_a_redirection_is_judged_like_the_file_tools(
    command: str, lines: list[str], effect: Effect
) -> None:
    assert judged(command, *lines).effect == effect


def test_a_redirection_through_links_counts_where_it_leads(tmp_path: Path) -> None:
    place = tmp_path.resolve()
    (place / "out").symlink_to("/etc")
    (place / "round").symlink_to("round")
    context = PermissionContext(roots=PathRoots(project=place, home=place))
    allowed = rules("allow Bash(echo *)", "allow Write(**)")
    for target, effect in (("x", "allow"), ("out/x", "ask"), ("round/x", "ask")):
        request = PermissionRequest(tool="Bash", argument=f"echo > {target}", cwd=place)
        assert decide(request, allowed, (), context).effect == effect


def test_one_command_falls_under_every_pattern_for_any() -> None:
    (command,) = (parse_shell("git status") or ParsedShell()).commands
    for text, is_meant in (("Bash", True), ("Bash(*)", True), ("Read", False)):
        pattern = ToolPattern.parse(text)
        assert allows_command(pattern, command) is is_meant
        assert denies_command(pattern, command) == ("yes" if is_meant else "no")


def test_a_grant_allows_what_no_rule_speaks_of() -> None:
    assert judged("git status", granted="Bash(git *)").why == "grant"
    assert judged("git status", "ask Bash(git *)", granted="Bash(git *)").effect == "ask"
    assert judged("git status", "deny Bash(git status)", granted="Bash").effect == "deny"
    assert judged("git status", GIT, granted="Bash").why == "rule"


def test_a_harmless_command_needs_no_rule_and_can_be_refused() -> None:
    request = PermissionRequest(tool="Bash", argument="ls", harmless=True)
    assert decide(request, []).effect == "allow"
    assert decide(request, rules("ask Bash(ls *)")).effect == "ask"


@pytest.mark.parametrize(
    ("command", "lines", "suggested"),
    [
        ("git push origin", [], ["Bash(git push origin)", "Bash(git *)"]),
        ("git x && npm test", [GIT], ["Bash(git x && npm test)", "Bash(npm *)"]),
        ("a && b", [], ["Bash(a && b)"]),
        ("bash x.sh", [], ["Bash(bash x.sh)"]),
        ("eval x", [], ["Bash(eval x)"]),
        ("echo > f", [], ["Bash(echo > f)"]),
        ("ls *", [], ["Bash(ls \\*)", "Bash(ls *)"]),
        ("A=1 x", [], ["Bash(A=1 x)"]),
    ],
)
def test_a_question_comes_with_rules_that_settle_it(
    command: str, lines: list[str], suggested: list[str]
) -> None:
    decision = judged(command, *lines)
    assert [str(rule.pattern) for rule in decision.suggestions] == suggested
    for text in suggested:
        assert judged(command, *lines, f"allow {text}").effect == "allow"


def test_a_question_names_the_part_it_is_about() -> None:
    assert judged("git status; npm x", GIT).about == "npm x"
    assert judged("git status > f", GIT).about == "f"
    assert judged("watch x").why == "unclear"


@given(st.text(max_size=60), st.sampled_from(["allow Bash(git *)", "allow Bash(git * x)"]))
def test_no_text_is_allowed_by_what_it_does_not_begin_with(text: str, line: str) -> None:
    command = f"rm {text}"
    assert judged(command, line).effect == "ask"
