"""The commands that stand in a skill's text, to be replaced by what they print. Pure.

An exclamation mark and a command in backticks, at the beginning of a line or after a blank; and
fenced blocks whose fence is followed by an exclamation mark.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMMAND = re.compile(
    r"^[ \t]*```![ \t]*\n(?P<block>.*?)^[ \t]*```[ \t]*$|(?<![^\s])!`(?P<line>[^`\n]+)`",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class InlineCommand:
    """A command, and the part of the text that its output takes the place of."""

    start: int
    end: int
    command: str


def inline_commands(text: str) -> Iterator[InlineCommand]:
    """Every command in a text, in order; a blank one is none.

    >>> [found.command for found in inline_commands("Now: !`date` and not a!`b`")]
    ['date']
    """
    for match in _COMMAND.finditer(text):
        command = (match["block"] or match["line"] or "").strip()
        if command:
            yield InlineCommand(match.start(), match.end(), command)
