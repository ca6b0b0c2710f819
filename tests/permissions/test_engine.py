"""The permission engine: the strictest effect wins, for tools and for skills."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.permissions.engine import (
    PermissionContext,
    Restriction,
    ToolsMode,
    decide,
    permission_error,
    skill_grants,
)
from apexbridge.permissions.rules import (
    Decision,
    DecisionReason,
    Effect,
    PermissionRequest,
    Rule,
    ToolPattern,
    resolve_symlinks,
    unknown_tools,
)
from apexbridge.permissions.wildcards import PathRoots

PROJECT, HOME = Path("/srv/project"), Path("/home/me")
CONTEXT = PermissionContext(roots=PathRoots(project=PROJECT, home=HOME))


def rules(*lines: str) -> list[Rule]:
    """Rules as `effect pattern`."""
    made = list[Rule]()
    for line in lines:
        word, _, pattern = line.partition(" ")
        effect: Effect = "deny" if word == "deny" else "ask" if word == "ask" else "allow"
        made.append(Rule(effect=effect, pattern=ToolPattern.parse(pattern)))
    return made


def patterns(*texts: str) -> list[ToolPattern]:
    return [ToolPattern.parse(text) for text in texts]


@pytest.mark.parametrize(
    ("lines", "request_", "effect", "why"),
    [
        ([], PermissionRequest(tool="Skill", argument="pdf"), "ask", "unsettled"),
        ([], PermissionRequest(tool="Skill", argument="pdf", harmless=True), "allow", "harmless"),
        ([], PermissionRequest(tool="Skill", argument="pdf", is_managed=True), "allow", "managed"),
        ([], PermissionRequest(tool="Skill", argument="x", sha256="one"), "allow", "approval"),
        (["allow Skill(pdf)"], PermissionRequest(tool="Skill", argument="pdf"), "allow", "rule"),
        ([], PermissionRequest(tool="Skill", argument="allowed"), "allow", "grant"),
        (
            ["deny Skill(pdf)", "allow Skill"],
            PermissionRequest(tool="Skill", argument="pdf", is_managed=True, harmless=True),
            "deny",
            "rule",
        ),
        (
            ["ask Skill(x)", "allow Skill"],
            PermissionRequest(tool="Skill", argument="x", sha256="one", harmless=True),
            "ask",
            "rule",
        ),
        (
            ["ask Skill(allowed)"],
            PermissionRequest(tool="Skill", argument="allowed"),
            "ask",
            "rule",
        ),
    ],
)
def test_a_skill_is_judged_layer_by_layer(
    lines: list[str], request_: PermissionRequest, effect: Effect, why: DecisionReason
) -> None:
    context = PermissionContext(approved=frozenset({"one"}))
    decision = decide(request_, rules(*lines), patterns("Skill(allowed)"), context)
    assert (decision.effect, decision.why) == (effect, why)


@pytest.mark.promise("G13")
def test_an_approval_is_for_one_state_of_a_skill() -> None:
    context = PermissionContext(approved=frozenset({"old"}))
    before = PermissionRequest(tool="Skill", argument="pdf", sha256="old")
    after = PermissionRequest(tool="Skill", argument="pdf", sha256="new")
    assert decide(before, [], (), context).effect == "allow"
    assert decide(after, [], (), context).effect == "ask"
    assert decide(PermissionRequest(tool="Skill", argument="pdf"), [], (), context).effect == "ask"


@pytest.mark.promise("G08")
def test_a_question_about_a_skill_comes_with_two_rules() -> None:
    decision = decide(PermissionRequest(tool="Skill", argument="review:code"), [])
    texts = [str(rule.pattern) for rule in decision.suggestions]
    assert texts == ["Skill(review:code)", "Skill(review *)"]


def test_a_question_without_an_argument_comes_with_the_tool() -> None:
    (rule,) = decide(PermissionRequest(tool="Platform"), []).suggestions
    assert str(rule.pattern) == "Platform"


@pytest.mark.parametrize(
    ("line", "tool", "path", "effect"),
    [
        ("allow Read(src/**)", "Read", "/srv/project/src/a/b.py", "allow"),
        ("allow Read(src/**)", "Grep", "/srv/project/src/a", "allow"),
        ("allow Read(src/**)", "Glob", "/srv/project/srcs", "ask"),
        ("allow Read(src)", "Read", "/srv/project/src/a", "allow"),
        ("allow Read(src/)", "Read", "/srv/project/lib/src/a", "allow"),
        ("allow Read(./src)", "Read", "/srv/project/lib/src/a", "ask"),
        ("allow Read(/src)", "Read", "/srv/project/src/a", "allow"),
        ("allow Read(/src)", "Read", "/src/a", "ask"),
        ("deny Read(/src)", "Read", "/src/a", "deny"),
        ("allow Read(//src)", "Read", "/src/a", "allow"),
        ("allow Read(//)", "Read", "/anything", "allow"),
        ("allow Read(.)", "Read", "/srv/project/x", "allow"),
        ("allow Read(.)", "Read", "/srv/other", "ask"),
        ("allow Read(..)", "Read", "/srv/other", "allow"),
        ("allow Read(../other)", "Read", "/srv/other/x", "allow"),
        ("allow Read(~/notes/*.md)", "Read", "/home/me/notes/a.md", "allow"),
        ("allow Read(~/notes/*.md)", "Read", "/home/me/notes/a/b.md", "ask"),
        ("allow Read(~)", "Read", "/home/me/x", "allow"),
        ("allow Read(*.md)", "Read", "/srv/project/deep/in/a.md", "allow"),
        ("allow Read(*.md)", "Read", "/srv/other/a.md", "ask"),
        ("deny Read(.env)", "Read", "/srv/project/a/.env", "deny"),
        ("deny Read(**/.env)", "Read", "/srv/project/.env", "deny"),
        ("deny Read(~/.ssh)", "Grep", "/home/me/.ssh/id", "deny"),
        ("allow Read(a/**/z)", "Read", "/srv/project/a/z", "allow"),
        ("allow Read(a/**/z)", "Read", "/srv/project/a/b/c/z", "allow"),
        ("allow Read(a?c)", "Read", "/srv/project/abc", "allow"),
        ("allow Read([a-c]x[!0-9])", "Read", "/srv/project/bxy", "allow"),
        ("allow Read([a-c]x[!0-9])", "Read", "/srv/project/bx1", "ask"),
        ("allow Read([xy])", "Read", "/srv/project/y", "allow"),
        ("allow Read(\\*)", "Read", "/srv/project/x", "ask"),
        ("allow Read(\\*)", "Read", "/srv/project/*", "allow"),
        ("allow Read([)", "Read", "/srv/project/[", "allow"),
        ("allow Read(中文/**)", "Read", "/srv/project/中文/稿", "allow"),
        ("allow Read", "Write", "/srv/project/a", "ask"),
        ("allow Write(out)", "Edit", "/srv/project/out/a", "allow"),
        ("allow Edit(out)", "Write", "/srv/project/out/a", "allow"),
        ("deny Write", "Edit", "/srv/project/a", "deny"),
        ("allow Glob(src)", "Read", "/srv/project/src/a", "ask"),
        ("allow Read(*)", "Read", "/etc/passwd", "allow"),
        ("allow Read()", "Read", "/srv/project/a", "ask"),
        ("deny Read()", "Read", "/srv/project/a", "deny"),
    ],
)
def test_path_patterns_read_like_a_gitignore(
    line: str, tool: str, path: str, effect: Effect
) -> None:
    request = PermissionRequest(tool=tool, argument="as asked", path=Path(path))
    assert decide(request, rules(line), (), CONTEXT).effect == effect
    named = PermissionRequest(tool=tool, argument=path)
    assert decide(named, rules(line), (), CONTEXT).effect == effect


@pytest.mark.parametrize(
    ("lines", "effect"), [(["allow Read(src)"], "ask"), (["deny Read(src)"], "deny")]
)
def test_an_unknown_path_is_denied_rather_than_allowed(lines: list[str], effect: Effect) -> None:
    nowhere = PermissionRequest(tool="Read", argument="x")
    assert decide(nowhere, rules(*lines), (), CONTEXT).effect == effect
    groundless = PermissionRequest(tool="Read", path=Path("/srv/project/other"))
    assert decide(groundless, rules(*lines)).effect == effect
    assert decide(nowhere, rules("allow Read")).effect == "allow"


def test_a_pattern_full_of_stars_takes_no_time() -> None:
    request = PermissionRequest(tool="Read", path=PROJECT / ("a" * 4000) / "x")
    slow = [f"allow Read({'*a' * 100}b)", f"allow Read({'**/a*/' * 100}b)"]
    assert decide(request, rules(*slow), (), CONTEXT).effect == "ask"
    text = PermissionRequest(tool="mcp__x", argument="a" * 20_000)
    assert decide(text, rules(f"allow mcp__x({'*a' * 100}b)")).effect == "ask"


def test_a_question_about_a_path_comes_with_the_file_and_its_folder() -> None:
    request = PermissionRequest(tool="Write", path=PROJECT / "a*b" / "c")
    first, second = decide(request, [], (), CONTEXT).suggestions
    assert (str(first.pattern), str(second.pattern)) == (
        "Write(//srv/project/a\\*b/c)",
        "Write(//srv/project/a\\*b/**)",
    )
    other = PermissionRequest(tool="Write", path=PROJECT / "axb" / "c")
    for rule in (first, second):
        assert decide(request, [rule], (), CONTEXT).effect == "allow"
        assert decide(other, [rule], (), CONTEXT).effect == "ask"
    top = decide(PermissionRequest(tool="Write", path=Path("/x")), [], (), CONTEXT)
    assert [str(rule.pattern) for rule in top.suggestions] == ["Write(//x)"]


def test_a_refusal_follows_the_links_in_its_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    ground = PathRoots.resolved(tmp_path, tmp_path)
    written = rules("deny Read(link/*.env)", "allow Read(./link)", "deny Read(x)", "deny Bash(x)")
    followed = resolve_symlinks(written, ground)
    assert len(followed) == len(written) + 1
    request = PermissionRequest(tool="Read", path=ground.project / "real" / "a.env")
    context = PermissionContext(roots=ground)
    assert decide(request, written, (), context).effect == "ask"
    assert decide(request, followed, (), context).effect == "deny"


@pytest.mark.promise("G09")
@pytest.mark.parametrize(
    ("tools", "request_", "effect"),
    [
        (["Read"], PermissionRequest(tool="Write", path=PROJECT / "x"), "deny"),
        (["Read"], PermissionRequest(tool="Read", path=PROJECT / "x"), "allow"),
        (["Read(src)"], PermissionRequest(tool="Read", path=PROJECT / "x"), "deny"),
        (["Read"], PermissionRequest(tool="Now", harmless=True), "deny"),
        (["Bash(git *)"], PermissionRequest(tool="Bash", argument="git status"), "allow"),
        (["Bash(git *)"], PermissionRequest(tool="Bash", argument="git x && rm y"), "deny"),
        (["Bash(git *)"], PermissionRequest(tool="Bash", argument="eval git"), "deny"),
        (
            ["Bash(git *)"],
            PermissionRequest(tool="Bash", argument="git x > y", cwd=PROJECT),
            "deny",
        ),
        (["mcp__git"], PermissionRequest(tool="mcp__git__log"), "allow"),
        (["mcp__git"], PermissionRequest(tool="mcp__github__log"), "deny"),
    ],
)
def test_a_tool_outside_of_allowed_tools_is_denied_with_the_reason(
    tools: list[str], request_: PermissionRequest, effect: Effect
) -> None:
    granted, bound = skill_grants("writer", patterns(*tools), "restrict")
    assert granted == ()
    assert bound is not None
    context = PermissionContext(roots=CONTEXT.roots, restrictions=(bound,))
    everything = rules("allow *")
    assert decide(request_, everything, (), CONTEXT).effect == "allow"
    decision = decide(request_, everything, (), context)
    assert decision.effect == effect
    if effect == "deny":
        assert (decision.why, decision.about) == ("restricted", "writer")
        assert "writer" in permission_error(request_, decision).message
        assert "writer" in permission_error(request_, decision).localized("zh").message


def test_a_restriction_allows_nothing_by_itself_and_several_hold_together() -> None:
    request = PermissionRequest(tool="Bash", argument="git status")
    one = Restriction(skill="a", tools=tuple(patterns("Bash")))
    assert decide(request, [], (), PermissionContext(restrictions=(one,))).effect == "ask"
    other = Restriction(skill="b", tools=tuple(patterns("Read")))
    both = PermissionContext(restrictions=(one, other))
    assert decide(request, rules("allow Bash"), (), both).about == "b"
    assert decide(request, rules("deny Bash"), (), both).why == "rule"


@pytest.mark.promise("G09")
@pytest.mark.parametrize(
    ("mode", "granted", "is_bound"),
    [("preapprove", 1, False), ("restrict", 0, True), ("advise", 0, False)],
)
def test_allowed_tools_grant_restrict_or_advise(
    mode: ToolsMode, granted: int, is_bound: bool
) -> None:
    allowed, bound = skill_grants("a", patterns("Read"), mode)
    assert (len(allowed), bound is not None) == (granted, is_bound)
    assert skill_grants("a", (), mode) == ((), None)


def test_patterns_that_name_no_tool_are_reported() -> None:
    given_ = patterns("Read", "Raed(x)", "mcp__git", "mcp__*", "Edit(x)", "*")
    assert unknown_tools(given_, {"Read", "Write"}) == ("Raed(x)", "mcp__git", "mcp__*")
    assert unknown_tools(given_, {"Read", "Write", "mcp__git__log"}) == ("Raed(x)",)


@pytest.mark.parametrize(
    ("decision", "answer", "code"),
    [
        (Decision(effect="deny", why="rule", rule=rules("deny X")[0]), None, "rule_denied"),
        (Decision(effect="ask"), "no", "person_denied"),
        (Decision(effect="ask"), None, "nobody_allowed"),
    ],
)
def test_a_refusal_says_who_refused(decision: Decision, answer: None, code: str) -> None:
    error = permission_error(PermissionRequest(tool="X", argument="y"), decision, answer=answer)
    assert error.code == code
    assert "X" in error.message


def test_a_rules_reason_is_reported() -> None:
    rule = Rule(effect="deny", pattern=ToolPattern("X"), reason="it costs money")
    decision = decide(PermissionRequest(tool="X"), [rule])
    assert "it costs money" in permission_error(PermissionRequest(tool="X"), decision).message


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_a_suggested_rule_for_a_file_means_no_other(name: str, other: str) -> None:
    path = PROJECT / name.replace("/", "_").replace("\0", "_")
    request = PermissionRequest(tool="Write", path=path)
    exact = decide(request, [], (), CONTEXT).suggestions[0]
    assert decide(request, [exact], (), CONTEXT).effect == "allow"
    elsewhere = PROJECT / other.replace("/", "_").replace("\0", "_")
    same = elsewhere.is_relative_to(path)
    effect = decide(PermissionRequest(tool="Write", path=elsewhere), [exact], (), CONTEXT).effect
    assert (effect == "allow") is same


@given(st.text(max_size=30).filter(str.strip))
def test_a_suggested_rule_means_what_was_asked_and_nothing_else(text: str) -> None:
    request = PermissionRequest(tool="mcp__x", argument=text.strip())
    exact = decide(request, []).suggestions[0]
    assert exact.pattern.matches("mcp__x", request.argument)
    assert not exact.pattern.matches("mcp__x", request.argument + "x")
    again = ToolPattern.parse(str(exact.pattern))
    assert again.matches("mcp__x", request.argument)
    assert not again.matches("mcp__x", "x" + request.argument)
