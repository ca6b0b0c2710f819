"""Exit codes of inline commands that count as success."""

import pytest

from apexbridge.activation.template import is_command_success
from apexbridge.sandbox.base import ExecutionResult


@pytest.mark.parametrize(
    ("command", "code", "expected"),
    [
        ("true", 0, True),
        ("false", 1, False),
        ("grep x f", 1, True),
        ("grep x f", 2, False),
        ("git diff --quiet", 1, True),
        ("git push", 1, False),
        ("cat f | grep x", 1, True),
        ("grep x f | head", 1, False),
        ("echo 'a | grep x'", 1, False),
        ("ls ; test -f x", 1, True),
        ("make && grep x f", 1, False),  # whose code it is cannot be told
        ("grep a f || grep b f", 1, True),
        ("false $(grep x f)", 1, False),
        ("grepper x", 1, False),
        ("if [", 1, False),
        ("", 1, False),
    ],
)
def test_only_commands_that_look_may_find_nothing(command: str, code: int, expected: bool) -> None:
    outcome = "ok" if code == 0 else "failed"
    assert is_command_success(command, ExecutionResult(outcome=outcome, exit_code=code)) is expected


def test_a_command_that_was_ended_failed_whatever_its_code() -> None:
    assert not is_command_success("grep x f", ExecutionResult(outcome="timeout", exit_code=1))
