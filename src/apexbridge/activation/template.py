"""Skill text as a template: argument and variable substitution, inline commands, tag escaping.

One pass over the text that the author wrote. Substituted values are never expanded again: an
argument that contains `$0`, `${CLAUDE_SKILL_DIR}` or a command stays literal (injection guard).
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from apexbridge.permissions.shell_parser import simple_commands
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.skills.document import inline_commands
from apexbridge.skills.model import Skill

_PLACEHOLDER = re.compile(
    r"\\\$"
    r"|\$ARGUMENTS\[(?P<index>\d{1,4})\]"
    r"|\$(?P<all>ARGUMENTS)(?![A-Za-z0-9_])"
    r"|\$(?P<number>\d{1,4})(?![A-Za-z0-9_])"
    r"|\$\{ARG(?P<nth>[1-9]\d{0,3})\}"
    r"|\$\{(?P<variable>[A-Z][A-Z0-9_]*)\}"
    r"|\$(?P<name>[^\W\d][\w-]*)"
)
_APPENDED_PREFIX = "ARGUMENTS: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitutions:
    """Values of the placeholders in a skill's text."""

    arguments: str = ""
    """Argument string, unparsed."""
    names: tuple[str, ...] = ()
    """Names that the manifest declares, in order of position."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Values of `${…}` variables such as `CLAUDE_SKILL_DIR`."""


@dataclass(frozen=True, slots=True)
class CommandPart:
    """An inline command, to be replaced by its stdout."""

    text: str


Part = str | CommandPart


def expand(text: str, values: Substitutions, *, has_commands: bool = True) -> tuple[Part, ...]:
    """Substitute placeholders; inline commands come out as parts, their arguments shell-quoted.

    Arguments are appended to a text without any placeholder for them.

    >>> expand("Fix $0 now: !`git show $0`", Values(arguments="a;b"))
    ('Fix a;b now: ', Command(text="git show 'a;b'"))
    """
    words = split_arguments(values.arguments)
    substituter = _Substituter(values, words)
    parts, at = list[Part](), 0
    for found in inline_commands(text) if has_commands else ():
        parts.append(substituter.fill(text[at : found.start], str))
        parts.append(CommandPart(substituter.fill(found.command, shlex.quote)))
        at = found.end
    parts.append(substituter.fill(text[at:], str))
    if values.arguments.strip() and not substituter.used_arguments:
        parts.append(f"\n\n{_APPENDED_PREFIX}{values.arguments}")
    return tuple(part for part in parts if part)


def expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """Substitute `${…}` variables only, as in patterns of `allowed-tools`."""
    return re.sub(r"\$\{([A-Z][A-Z0-9_]*)\}", lambda match: variables.get(match[1], match[0]), text)


def split_arguments(text: str) -> list[str]:
    """Split arguments with shell quoting; with an unbalanced quote, at whitespace.

    >>> split_arguments("one 'two three'"), split_arguments("it's here")
    (['one', 'two three'], ["it's", 'here'])
    """
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


class _Substituter:
    """Substitute in one text, and note whether it had a placeholder for arguments."""

    def __init__(self, values: Substitutions, words: Sequence[str]) -> None:
        self._values = values
        self._words = words
        self.used_arguments = False

    def fill(self, text: str, quote: Callable[[str], str]) -> str:
        return _PLACEHOLDER.sub(lambda match: self._value(match, quote), text)

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
        """Match the longest declared name that is a prefix: `$file-old` may mean `$file`."""
        written = match["name"]
        for name in sorted(self._values.names, key=len, reverse=True):
            rest = written.removeprefix(name)
            if written.startswith(name) and (not rest or rest[0] == "-"):
                return self._at(self._values.names.index(name), "", quote) + rest
        return match[0]

    def _at(self, place: int, otherwise: str, quote: Callable[[str], str]) -> str:
        self.used_arguments = True
        return quote(self._words[place]) if place < len(self._words) else otherwise


MAX_FILES = 50
RESERVED_TAG = re.compile(r"<(?=\s{0,9}/?\s{0,9}(?:skill|reminder)\b)", re.IGNORECASE)
"""Opening of a tag that only we may write; lenient, since models accept sloppy tags too."""


def wrap_skill(skill: Skill, text: str, files: Sequence[str]) -> str:
    """Wrap the text in a `<skill>` tag with its directory and files; nested tags are escaped."""
    head = [f'<skill name="{escape(skill.name)}"']
    if skill.root is not None:
        head.append(f' folder="{escape(str(skill.root))}"')
    lines = ["".join(head) + ">"]
    others = [file for file in files if file != "SKILL.md"]
    if others:
        shown = ", ".join(escape(file, quote=False) for file in others[:MAX_FILES])
        more = f", and {len(others) - MAX_FILES} more" if len(others) > MAX_FILES else ""
        lines.append(f"Files in its folder: {shown}{more}")
    lines += ["", RESERVED_TAG.sub("&lt;", text).strip(), "</skill>"]
    return "\n".join(lines)


_SEARCH_COMMANDS = (
    ("grep",), ("rg",), ("find",), ("diff",), ("test",), ("[",), ("git", "diff"), ("git", "grep"),
)  # fmt: skip


def is_command_success(command: str, result: ExecutionResult) -> bool:
    """Return whether a command succeeded: exit code 1 of grep, find and the like is no error.

    In a sequence the last command decides, since its exit code is returned; with `&&` or `||` any
    of them may have exited, so all must be search commands. A command that cannot be parsed is
    judged by its exit code.
    """
    if result.outcome != "failed" or result.exit_code != 1:
        return result.outcome == "ok"
    commands = simple_commands(command) or ("",)
    is_open = "&&" in command or "||" in command
    return all(map(_exits_1_without_match, commands if is_open else commands[-1:]))


def _exits_1_without_match(command: str) -> bool:
    words = tuple(command.split())
    return any(words[: len(names)] == names for names in _SEARCH_COMMANDS)
