"""Permission rules: parsing and matching of tool patterns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.errors import ConfigError
from apexbridge.permissions.engine import decide
from apexbridge.permissions.rules import (
    Effect,
    PermissionRequest,
    Rule,
    ToolPattern,
    split_patterns,
)


@pytest.mark.parametrize(
    ("pattern", "tool", "argument", "expected"),
    [
        ("Read", "Read", "/etc/hosts", True),
        ("Read", "Reader", "", False),
        ("Skill(commit)", "Skill", "commit", True),
        ("Skill(commit)", "Skill", "commits", False),
        ("Bash(git:*)", "Bash", "git status", True),
        ("Bash(git:*)", "Bash", "git", True),
        ("Bash(git:*)", "Bash", "gitk", False),
        ("Bash(git:*)", "Bash", "rm -rf /", False),
        ("Bash(git add *)", "Bash", "git add .", True),
        ("Bash(git add *)", "Bash", "git address", False),
        ("Bash(*)", "Bash", "anything", True),
        ("Bash()", "Bash", "anything", False),
        ("mcp__github__*", "mcp__github__list", "x", True),
        ("mcp__github__*", "mcp__gitlab__list", "x", False),
        ("*", "Write", "x", True),
        ("Skill(review:*)", "Skill", "review", True),
        ("Skill(review:*)", "Skill", "review:code", True),
        ("Skill(review:*)", "Skill", "review now", True),
        ("Skill(review:*)", "Skill", "reviewer", False),
        ("Bash(npm run test:*)", "Bash", "npm run test:unit", False),
    ],
)
@pytest.mark.promise("G08")
def test_a_pattern_matches_its_tool_and_argument_up_to_a_word(
    pattern: str, tool: str, argument: str, expected: bool
) -> None:
    assert ToolPattern.parse(pattern).matches(tool, argument) is expected


@pytest.mark.parametrize("text", ["", "(x)", "Bash(git", "Two words", "a)b", "Bash)("])
def test_a_pattern_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Invalid tool pattern"):
        ToolPattern.parse(text)


def test_a_trailing_colon_star_is_written_as_a_blank_and_star() -> None:
    assert str(ToolPattern.parse("Bash(git:*)")) == "Bash(git *)"
    assert str(ToolPattern.parse(" Read ")) == "Read"


@given(st.text(st.sampled_from("ab:* /")), st.text(st.sampled_from("ab: /")))
def test_a_prefix_never_matches_the_middle_of_a_word(prefix: str, rest: str) -> None:
    pattern = ToolPattern.parse(f"Bash({prefix}x:*)")
    assert not pattern.matches("Bash", f"{prefix.lstrip()}xy{rest}")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        ("Read,Grep  Glob", ("Read", "Grep", "Glob")),
        ("Bash(git add *), Bash(ls, -l) Read", ("Bash(git add *)", "Bash(ls, -l)", "Read")),
        ("Bash(a (b) c) Read", ("Bash(a (b) c)", "Read")),
        ("Bash(open Read", ("Bash(open Read",)),
        (") Read", (")", "Read")),
    ],
)
def test_a_list_is_cut_outside_of_brackets_only(text: str, parts: tuple[str, ...]) -> None:
    assert split_patterns(text) == parts


def _rule(effect: Effect, pattern: str) -> Rule:
    return Rule(effect=effect, pattern=ToolPattern.parse(pattern))


@pytest.mark.promise("G08")
@pytest.mark.parametrize(
    ("rules", "effect"),
    [
        ([], "ask"),
        ([("allow", "Skill(review:x)")], "allow"),
        ([("allow", "Skill(review:x)"), ("deny", "Skill(review:*)")], "deny"),
        ([("deny", "Skill(review:*)"), ("allow", "Skill")], "deny"),
        ([("allow", "Skill"), ("ask", "Skill(review:*)")], "ask"),
        ([("deny", "Skill(reviewer:*)"), ("allow", "Skill")], "allow"),
    ],
)
def test_the_strictest_rule_wins_in_any_order(
    rules: list[tuple[Effect, str]], effect: Effect
) -> None:
    request = PermissionRequest(tool="Skill", argument="review:x")
    made = [_rule(kind, pattern) for kind, pattern in rules]
    assert decide(request, made).effect == effect
    assert decide(request, reversed(made)).effect == effect


def test_grants_and_harmlessness_allow_what_no_rule_speaks_of() -> None:
    request = PermissionRequest(tool="Bash", argument="git status")
    granted = [ToolPattern.parse("Bash(git:*)")]
    assert decide(request, [], granted).effect == "allow"
    assert decide(request, [_rule("deny", "Bash")], granted).effect == "deny"
    assert decide(PermissionRequest(tool="Skill", harmless=True), []).effect == "allow"


def test_a_question_comes_with_an_exact_and_a_wider_rule() -> None:
    decision = decide(PermissionRequest(tool="Bash", argument="git push origin"), [])
    assert [str(rule.pattern) for rule in decision.suggestions] == [
        "Bash(git push origin)",
        "Bash(git *)",
    ]


def test_a_rule_whose_example_does_not_match_is_refused() -> None:
    pattern = ToolPattern.parse("Bash(rm:*)")
    assert Rule(effect="deny", pattern=pattern, examples=("rm -rf /",)).examples
    with pytest.raises(ConfigError, match="does not match"):
        Rule(effect="deny", pattern=pattern, examples=("rmdir x",))
    paths = ToolPattern.parse("Read(src/**)")
    assert Rule(effect="deny", pattern=paths, examples=("src/a/b",)).examples
    with pytest.raises(ConfigError, match="does not match"):
        Rule(effect="deny", pattern=paths, examples=("srcs/a",))
