"""The hook protocol: JSON output and matchers."""

import pytest

from apexbridge.permissions.hook_protocol import (
    MAX_OUTPUT_CHARS,
    HookEvent,
    HookOutputError,
    HookVerdict,
    matches_hook,
    parse_hook_output,
)

PRE = HookEvent.PRE_TOOL_USE


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("", HookVerdict()),
        (" \n", HookVerdict()),
        ("{}", HookVerdict()),
        ('{"unknown": 1}', HookVerdict()),
        ('{"decision": "approve"}', HookVerdict()),
        ('{"decision": "block", "reason": "no"}', HookVerdict(outcome="block", reason="no")),
        ('{"decision": "ask", "reason": "eh"}', HookVerdict(asks=True, reason="eh")),
        (
            '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny",'
            ' "permissionDecisionReason": "否"}}',
            HookVerdict(outcome="block", reason="否"),
        ),
        ('{"hookSpecificOutput": {"permissionDecision": "allow"}}', HookVerdict()),
        ('{"hookSpecificOutput": {"permissionDecision": "ask"}}', HookVerdict(asks=True)),
        (
            '{"hookSpecificOutput": {"updatedInput": {"a": 1}, "additionalContext": "c"}}',
            HookVerdict(changed={"a": 1}, context="c"),
        ),
        ('{"updatedInput": {}}', HookVerdict(changed={})),
        (
            '{"continue": false, "stopReason": "enough"}',
            HookVerdict(outcome="block", reason="enough", stops=True),
        ),
        (
            '{"decision": "approve", "hookSpecificOutput": {"permissionDecision": "deny"}}',
            HookVerdict(outcome="block"),
        ),
        ('{"decision": "block", "updatedInput": {"a": 1}}', HookVerdict(outcome="block")),
    ],
)
def test_both_ways_of_answering_are_read(answer: str, verdict: HookVerdict) -> None:
    assert parse_hook_output(PRE, answer.encode()) == verdict


@pytest.mark.promise("G06")
@pytest.mark.parametrize(
    "answer",
    [
        b"{",
        b"fine",
        b"[1]",
        b'"x"',
        b"\xff\xfe{",
        b'{"decision": "maybe"}',
        b'{"decision": 1}',
        b'{"continue": "perhaps"}',
        b'{"updatedInput": []}',
        b'{"hookSpecificOutput": 3}',
        b'{"a":' * 5000,
        b"{} {}",
    ],
    ids=range(12),
)
def test_garbage_before_a_tool_is_no_answer(answer: bytes) -> None:
    with pytest.raises(HookOutputError, match="its answer is no"):
        parse_hook_output(PRE, answer)


def test_plain_text_is_context_on_context_events() -> None:
    assert parse_hook_output(HookEvent.USER_PROMPT_SUBMIT, b"be brief\n").context == "be brief"
    assert parse_hook_output(HookEvent.POST_TOOL_USE, b"done") == HookVerdict()
    with pytest.raises(HookOutputError):
        parse_hook_output(HookEvent.STOP, b"{broken")


def test_endless_words_are_cut() -> None:
    verdict = parse_hook_output(HookEvent.SESSION_START, b"x" * (MAX_OUTPUT_CHARS + 1))
    assert verdict.context == "x" * MAX_OUTPUT_CHARS + " […]"


@pytest.mark.parametrize(
    ("matcher", "subject", "expected"),
    [
        ("", "Bash", True),
        ("*", "", True),
        ("Bash", "Bash", True),
        ("Bash", "BashX", False),
        ("Read|Write", "Write", True),
        ("Read|Write", "Writer", False),
        (" Read | Write ", "Write", True),
        ("Edit.*", "EditAll", True),
        ("^Edit$", "EditAll", False),
        ("mcp__.*__write.*", "mcp__git__write_file", True),
        ("review:x", "review:x", True),
        ("技能", "技能", True),
        ("(", "x", None),
        ("(a+)+$", "a" * 60, None),
        (".*.*.*.*.*x", "a" * 60, None),
        ("a?" * 9 + "[a]", "a", None),
        (r"(.)\1", "aa", None),
        ("[x]" * 100, "x", None),
        ("x.", "a" * 500, None),
    ],
)
def test_a_matcher_means_all_a_list_or_an_expression(
    matcher: str, subject: str, expected: bool | None
) -> None:
    assert matches_hook(matcher, subject) is expected
