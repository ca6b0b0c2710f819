"""Wrapper commands that start other commands (sudo, xargs, find -exec), and evaluating builtins."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from apexbridge.permissions.shell_syntax import (
    ShellWord,
    SimpleCommand,
    UnsupportedShellError,
    word_set,
)

ParseText = Callable[[str], Sequence[SimpleCommand]]

RESERVED = word_set(
    "if then else elif fi do done case esac while until for in select function time coproc "
    "{ } ! [[ ]]"
)
# They run, redefine or evaluate what they are given.
_EVALUATING_BUILTINS = word_set(
    ". source eval trap alias unalias bind complete compgen compopt enable hash fc jobs let "
    "coproc builtin mapfile readarray shopt declare typeset local readonly unset getopts "
    "select function"
)
_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh", "ash"})
_OPAQUE = word_set(
    "watch parallel su chroot flock strace ltrace unshare nsenter busybox toybox runuser setpriv "
    "chrt taskset script systemd-run ionice at batch"
)
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_CHANGES = frozenset({"-delete", "-fprint", "-fprint0", "-fprintf", "-fls"})
_VARIABLE = re.compile(r"[a-z_][a-z0-9_]{0,40}")
_SWITCHES = re.compile(r"[-+][euxo]+|pipefail")
_ASSIGNED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_ASSIGNING = frozenset({"env", "sudo", "time"})
_MAX_WRAPPED = 8
_UNARY = 2
_UNARIES = frozenset(f"-{letter}" for letter in "bcdefghknprstuwxzGLNOS")
_BINARIES = word_set("= == != -eq -ne -lt -le -gt -ge -nt -ot -ef")
_SCRIPT_WORDS = 3

# The options of each that take no value, those that take one, and how many words then follow
# before the command.
_TRANSPARENT: dict[str, tuple[str, str, int]] = {
    "nohup": ("", "", 0),
    "setsid": ("cfw", "", 0),
    "time": ("p", "", 0),
    "command": ("p", "", 0),
    "exec": ("cl", "", 0),
    "nice": ("", "n", 0),
    "timeout": ("v", "ks", 1),
    "stdbuf": ("", "ioe", 0),
}
_RULED_WRAPPERS: dict[str, tuple[str, str, int]] = {
    "env": ("i0", "", 0),
    "sudo": ("nEHk", "ug", 0),
    "doas": ("n", "u", 0),
    "xargs": ("0rtx", "nPILsd", 0),
}


def is_plain_variable(name: str) -> bool:
    """True if an assignment to it affects neither programs nor the shell."""
    return bool(_VARIABLE.fullmatch(name)) and not name.endswith("proxy") and name != "histchars"


def unwrap_command(
    command: SimpleCommand, parse: ParseText, depth: int = 0
) -> Iterator[SimpleCommand]:
    """Return the command, and each command that it starts.

    Raises:
        UnsupportedShellError: If it is a word of the shell that evaluates its arguments.
    """
    if not command.words:
        yield command
        return
    name = command.name
    _reject_evaluating(name, command.words[1:])
    base = name.rpartition("/")[2]
    if depth > _MAX_WRAPPED or base in _OPAQUE:
        yield replace(command, role="opaque")
    elif base in _SHELLS:
        yield from _shell(command, parse)
    elif base == "find":
        yield from _find(command, parse, depth)
    elif base in _TRANSPARENT or base in _RULED_WRAPPERS:
        yield from _unwrap_known(command, base, parse, depth)
    else:
        yield command


def _unwrap_known(
    command: SimpleCommand, base: str, parse: ParseText, depth: int
) -> Iterator[SimpleCommand]:
    if base == "command" and len(command.words) > 1 and command.words[1].value in {"-v", "-V"}:
        yield command  # it only tells where a program is
        return
    found = _after_options(command.words[1:], *(_TRANSPARENT | _RULED_WRAPPERS)[base])
    if found is None:
        yield replace(command, role="opaque")
        return
    assigned, inner = _split_assigned(found) if base in _ASSIGNING else ((), found)
    if not inner:
        yield command
        return
    first = inner[0].value
    if not first or first in RESERVED - {"time"}:
        raise UnsupportedShellError
    is_free = base in _TRANSPARENT and not command.assigned and base == command.name
    yield replace(command, role="wrapper" if is_free else "plain")
    tail = (ShellWord("…", None, is_one=False),) if base == "xargs" else ()
    yield from unwrap_command(
        SimpleCommand(words=(*inner, *tail), assigned=assigned), parse, depth + 1
    )


def _after_options(
    words: Sequence[ShellWord], flags: str, valued: str, skipped: int
) -> tuple[ShellWord, ...] | None:
    """Return the words after a wrapper's options; None if the options are unknown."""
    at = 0
    while at < len(words):
        value = words[at].value
        if value is None:
            return None
        if value == "--":
            at += 1
            break
        if not value.startswith("-"):
            break
        body = value[1:]
        if body and body[0] in valued:
            at += 1 if len(body) > 1 else 2
        elif body and set(body) <= set(flags):
            at += 1
        else:
            return None
    if any(word.value is None for word in words[at : at + skipped]):
        return None
    rest = tuple(words[at + skipped :])
    return rest if at <= len(words) else None


def _split_assigned(
    words: tuple[ShellWord, ...],
) -> tuple[tuple[ShellWord, ...], tuple[ShellWord, ...]]:
    count = 0
    while count < len(words) and _ASSIGNED.match(words[count].value or words[count].text):
        count += 1
    return words[:count], words[count:]


def _shell(command: SimpleCommand, parse: ParseText) -> Iterator[SimpleCommand]:
    """Parse a script given by `-c`; a script file is not looked into."""
    values = [word.value for word in command.words]
    if len(values) == 1 or (values[1] is not None and not values[1].startswith(("-", "+"))):
        yield command
    elif len(values) == _SCRIPT_WORDS and values[1] == "-c" and values[2] is not None:
        is_free = command.name in _SHELLS and not command.assigned
        yield replace(command, role="wrapper" if is_free else "plain")
        yield from parse(values[2])
    else:
        yield replace(command, role="opaque")


def _find(command: SimpleCommand, parse: ParseText, depth: int) -> Iterator[SimpleCommand]:
    words = command.words
    if any(word.value is None or word.value in _FIND_CHANGES for word in words):
        yield replace(command, role="opaque")
        return
    yield command
    at = 0
    while at < len(words):
        at += 1
        if words[at - 1].value not in _FIND_RUNS:
            continue
        end = next((n for n in range(at, len(words)) if words[n].value in {";", "+"}), len(words))
        if end == at or words[at].value in {None, "", "{}"}:
            raise UnsupportedShellError
        inner = tuple(
            ShellWord(word.text, None, is_one=False) if "{}" in (word.value or "") else word
            for word in words[at:end]
        )
        yield from unwrap_command(SimpleCommand(words=inner), parse, depth + 1)
        at = end


def _reject_evaluating(name: str, arguments: Sequence[ShellWord]) -> None:
    """Reject builtins that evaluate their arguments: array subscripts run command substitutions."""
    values = [word.value for word in arguments]
    match name:
        case "read":
            is_fine = all(value == "-r" or is_plain_variable(value or "") for value in values)
        case "set":
            is_fine = all(_SWITCHES.fullmatch(value or "") for value in values) and bool(values)
        case "printf":
            is_fine = not values or (values[0] is not None and not values[0].startswith("-"))
        case "wait":
            is_fine = all(value is not None and not value.startswith("-") for value in values)
        case "test" | "[":
            is_fine = all(word.is_one for word in arguments) and _is_plain_test(values)
        case "export":
            is_fine = all(value is not None and "[" not in value for value in map(_name, arguments))
        case _:
            is_fine = name not in _EVALUATING_BUILTINS
    if not is_fine:
        raise UnsupportedShellError


def _name(word: ShellWord) -> str | None:
    """Return the variable that an argument of `export` sets; its value may be anything."""
    match = _ASSIGNED.match(word.text)
    return match[0] if match else word.value


def _is_plain_test(values: Sequence[str | None]) -> bool:
    """True if the operator is certain, and one that evaluates nothing."""
    inner = [value for value in values if value != "]"]
    while inner and inner[0] == "!":
        inner = inner[1:]
    if len(inner) <= 1:
        return True
    operator = inner[0] if len(inner) == _UNARY else inner[1]
    known = _UNARIES if len(inner) == _UNARY else _BINARIES
    return operator in known and len(inner) <= _UNARY + 1
