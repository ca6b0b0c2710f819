"""Whether a command in a skill's text did what it should."""

from apexbridge.policy.shell_words import commands_of
from apexbridge.sandbox.base import ExecutionResult

_MAY_FIND_NOTHING = (
    ("grep",), ("rg",), ("find",), ("diff",), ("test",), ("[",), ("git", "diff"), ("git", "grep"),
)  # fmt: skip


def is_success(command: str, result: ExecutionResult) -> bool:
    """Say whether a command did what it should: 1 means nothing found for those that look.

    Of several commands the last one counts, for its code is the one that comes back; where `&&`
    or `||` leave open whose code it is, all of them have to look. What is not understood is held
    to what its code says.
    """
    if result.outcome != "failed" or result.exit_code != 1:
        return result.outcome == "ok"
    commands = commands_of(command) or ("",)
    is_open = "&&" in command or "||" in command
    return all(map(_may_find_nothing, commands if is_open else commands[-1:]))


def _may_find_nothing(command: str) -> bool:
    words = tuple(command.split())
    return any(words[: len(names)] == names for names in _MAY_FIND_NOTHING)
