"""Put values in place of what a skill's text leaves open: arguments and variables. Pure.

Everything is found in the text as its author wrote it, in one pass. What is put in is never looked
at again: an argument that says `$0` or `${CLAUDE_SKILL_DIR}` stays as it is, commands too.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from apexbridge.skills.inline import inline_commands

_PLACE = re.compile(
    r"\\\$"
    r"|\$ARGUMENTS\[(?P<index>\d{1,4})\]"
    r"|\$(?P<all>ARGUMENTS)(?![A-Za-z0-9_])"
    r"|\$(?P<number>\d{1,4})(?![A-Za-z0-9_])"
    r"|\$\{ARG(?P<nth>[1-9]\d{0,3})\}"
    r"|\$\{(?P<variable>[A-Z][A-Z0-9_]*)\}"
    r"|\$(?P<name>[^\W\d][\w-]*)"
)
_APPENDED = "ARGUMENTS: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What stands for what is left open."""

    arguments: str = ""
    """As they were typed."""
    names: tuple[str, ...] = ()
    """What the author calls them, the first first."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """`CLAUDE_SKILL_DIR` and its like."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command whose output belongs here."""

    text: str


Part = str | Command


def expand(text: str, values: Values, *, has_commands: bool = True) -> tuple[Part, ...]:
    """Fill in a skill's text; its commands come out apart, their arguments quoted.

    Arguments that the text has no place for are appended.

    >>> expand("Fix $0 now: !`git show $0`", Values(arguments="a;b"))
    ('Fix a;b now: ', Command(text="git show 'a;b'"))
    """
    words = split_arguments(values.arguments)
    filling = _Filling(values, words)
    parts, at = list[Part](), 0
    for found in inline_commands(text) if has_commands else ():
        parts.append(filling.fill(text[at : found.start], str))
        parts.append(Command(filling.fill(found.command, shlex.quote)))
        at = found.end
    parts.append(filling.fill(text[at:], str))
    if values.arguments.strip() and not filling.used_arguments:
        parts.append(f"\n\n{_APPENDED}{values.arguments}")
    return tuple(part for part in parts if part)


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """Fill in variables only, as in the rules of `allowed-tools`."""
    return re.sub(r"\$\{([A-Z][A-Z0-9_]*)\}", lambda match: variables.get(match[1], match[0]), text)


def split_arguments(text: str) -> list[str]:
    """Cut arguments as a shell would; one with an open quote is cut at its blanks.

    >>> split_arguments("one 'two three'"), split_arguments("it's here")
    (['one', 'two three'], ["it's", 'here'])
    """
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


class _Filling:
    """Fills in one text, and notes whether it had a place for arguments."""

    def __init__(self, values: Values, words: Sequence[str]) -> None:
        self._values = values
        self._words = words
        self.used_arguments = False

    def fill(self, text: str, quote: Callable[[str], str]) -> str:
        return _PLACE.sub(lambda match: self._value(match, quote), text)

    def _value(self, match: re.Match[str], quote: Callable[[str], str]) -> str:
        if match[0] == r"\$":
            return "$"
        if match["all"]:
            self.used_arguments = True
            in_command = quote is not str
            return " ".join(map(quote, self._words)) if in_command else self._values.arguments
        if match["name"]:
            return self._named(match, quote)
        if match["variable"]:
            found = self._values.variables.get(match["variable"])
            return match[0] if found is None else quote(found)
        number = match["index"] or match["number"]
        return self._at(int(number) if number else int(match["nth"]) - 1, match[0], quote)

    def _named(self, match: re.Match[str], quote: Callable[[str], str]) -> str:
        """The longest declared name that the letters begin with: `$file-old` may mean `$file`."""
        written = match["name"]
        for name in sorted(self._values.names, key=len, reverse=True):
            rest = written.removeprefix(name)
            if written.startswith(name) and (not rest or rest[0] == "-"):
                return self._at(self._values.names.index(name), "", quote) + rest
        return match[0]

    def _at(self, place: int, otherwise: str, quote: Callable[[str], str]) -> str:
        self.used_arguments = True
        return quote(self._words[place]) if place < len(self._words) else otherwise
