"""One simple command held against patterns: allowed strictly, refused widely."""

import functools
import shlex
from collections.abc import Sequence
from typing import Literal

from apexbridge.policy.rules import ToolPattern
from apexbridge.policy.shell_model import SimpleCommand, names
from apexbridge.policy.wildcards import text_fits

SHELL = "Bash"
Likeness = Literal["no", "maybe", "yes"]

# They show words or end something, and need no rule beside a command that has one.
_IDLE = names(": true false test [ exit return break continue pwd echo shift set read")


def needs_no_rule(command: SimpleCommand) -> bool:
    """Whether it may stand beside commands that are allowed: what it starts is judged itself."""
    if command.assigned or command.role == "opaque":
        return False
    return command.role == "wrapper" or command.name in _IDLE


def allows(pattern: ToolPattern, command: SimpleCommand) -> bool:
    """Whether a pattern surely means this command."""
    if not pattern.names(SHELL):
        return False
    if pattern.is_any:
        return True
    written = pattern.argument or ""
    if not written.endswith(" *"):
        return text_fits(written, _texts(command)[0])
    if command.role == "opaque" or command.assigned:
        return False
    prefix = written[:-2]
    if "*" in prefix:
        text = _texts(command)[0]
        return text_fits(prefix, text) or text_fits(f"{prefix} *", text)
    wanted = _split(prefix)
    values = [word.value for word in command.words[: len(wanted)]]
    return bool(wanted) and values == wanted


def refuses(pattern: ToolPattern, command: SimpleCommand) -> Likeness:
    """Whether a pattern means this command, or may: its words may only be known to the shell."""
    if not pattern.names(SHELL):
        return "no"
    if pattern.is_any:
        return "yes"
    written = pattern.argument or ""
    base = command.name.rpartition("/")[2]
    if any(pattern.matches(SHELL, text) for text in _texts(command)):
        return "yes"
    if "*" in written.removesuffix(" *") or not command.words:
        return "no"
    wanted = _split(written.removesuffix(" *"))
    values = [base, *(word.value for word in command.words[1:])]
    return _compare(wanted, values, is_prefix=written.endswith(" *"))


def _compare(wanted: Sequence[str], values: Sequence[str | None], *, is_prefix: bool) -> Likeness:
    for want, value in zip(wanted, values, strict=False):
        if value is None:
            return "maybe"
        if value != want:
            return "no"
    if len(values) < len(wanted):
        return "no"
    return "yes" if is_prefix or len(values) == len(wanted) else "no"


@functools.lru_cache(64)
def _texts(command: SimpleCommand) -> tuple[str, ...]:
    """As it is said, without what is set for it, and without its program's folder."""
    said = [word.said for word in command.words]
    base = command.name.rpartition("/")[2]
    texts = (command.text, " ".join(said), " ".join((base, *said[1:])))
    return tuple(dict.fromkeys(texts))


@functools.lru_cache(1024)
def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
