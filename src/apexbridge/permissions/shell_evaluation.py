"""Evaluate a shell command against rules: each simple command, and each redirected file.

Allow rules match strictly, deny rules match widely.
"""

import functools
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from apexbridge.permissions.rules import (
    Decision,
    PermissionContext,
    PermissionRequest,
    Rule,
    ToolPattern,
    allow_rules,
    evaluate_request,
)
from apexbridge.permissions.shell_parser import parse_shell
from apexbridge.permissions.shell_syntax import ParsedShell, SimpleCommand, word_set
from apexbridge.permissions.wildcards import escape_pattern, text_matches

SHELL_TOOL = "Bash"
PrefixMatch = Literal["no", "maybe", "yes"]

# They show words or end something, and need no rule beside a command that has one.
_HARMLESS_BUILTINS = word_set(
    ": true false test [ exit return break continue pwd echo shift set read"
)


def is_harmless_builtin(command: SimpleCommand) -> bool:
    """True if it needs no rule beside permitted commands; what it starts is checked itself."""
    if command.assigned or command.role == "opaque":
        return False
    return command.role == "wrapper" or command.name in _HARMLESS_BUILTINS


def allows_command(pattern: ToolPattern, command: SimpleCommand) -> bool:
    """True if an allow pattern certainly matches the command."""
    if not pattern.names(SHELL_TOOL):
        return False
    if pattern.is_any:
        return True
    written = pattern.argument or ""
    if not written.endswith(" *"):
        return text_matches(written, _command_forms(command)[0])
    if command.role == "opaque" or command.assigned:
        return False
    prefix = written[:-2]
    if "*" in prefix:
        text = _command_forms(command)[0]
        return text_matches(prefix, text) or text_matches(f"{prefix} *", text)
    wanted = _split_pattern(prefix)
    values = [word.value for word in command.words[: len(wanted)]]
    return bool(wanted) and values == wanted


def denies_command(pattern: ToolPattern, command: SimpleCommand) -> PrefixMatch:
    """Match a deny pattern; `maybe` if the shell expands words that cannot be known here."""
    if not pattern.names(SHELL_TOOL):
        return "no"
    if pattern.is_any:
        return "yes"
    written = pattern.argument or ""
    base = command.name.rpartition("/")[2]
    if any(pattern.matches(SHELL_TOOL, text) for text in _command_forms(command)):
        return "yes"
    if "*" in written.removesuffix(" *") or not command.words:
        return "no"
    wanted = _split_pattern(written.removesuffix(" *"))
    values = [base, *(word.value for word in command.words[1:])]
    return _compare(wanted, values, is_prefix=written.endswith(" *"))


def _compare(
    wanted: Sequence[str], values: Sequence[str | None], *, is_prefix: bool
) -> PrefixMatch:
    for want, value in zip(wanted, values, strict=False):
        if value is None:
            return "maybe"
        if value != want:
            return "no"
    if len(values) < len(wanted):
        return "no"
    return "yes" if is_prefix or len(values) == len(wanted) else "no"


@functools.lru_cache(64)
def _command_forms(command: SimpleCommand) -> tuple[str, ...]:
    """Return the command as written, without assignments, and without the program's directory."""
    said = [word.quoted for word in command.words]
    base = command.name.rpartition("/")[2]
    texts = (command.text, " ".join(said), " ".join((base, *said[1:])))
    return tuple(dict.fromkeys(texts))


@functools.lru_cache(1024)
def _split_pattern(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


# A rule for everything that begins with these would be a rule for everything.
_TOO_BROAD = word_set(
    "bash sh dash zsh ksh sudo doas env xargs find python python3 node perl ruby php ssh"
)


def evaluate_shell(
    request: PermissionRequest,
    rules: Sequence[Rule],
    granted: Sequence[ToolPattern],
    context: PermissionContext,
) -> Decision:
    """Evaluate every command of a text; text that cannot be parsed is not allowed by a prefix."""
    parsed = parse_shell(request.argument)
    refused = _strictest_rule(request.argument, parsed, rules)
    files = [
        evaluate_request(file, rules, granted, context) for file in _file_requests(parsed, request)
    ]
    for strict in (refused, *files):
        if strict is not None and strict.effect == "deny":
            return strict
    patterns = (*(rule.pattern for rule in rules if rule.effect == "allow"), *granted)
    question = refused or next((f for f in files if f.effect == "ask" and f.rule), None)
    is_whole = any(_allows_whole(pattern, request.argument) for pattern in patterns)
    if question is None:
        question = _unresolved(parsed, patterns, files, rules, is_whole=is_whole)
    if question is None or (request.harmless and question.rule is None):
        return _allow_decision(request.argument, parsed, rules)
    return _with_suggestions(question, request.argument, parsed, patterns, files)


def _strictest_rule(
    text: str, parsed: ParsedShell | None, rules: Sequence[Rule]
) -> Decision | None:
    """Return the strictest deny or ask rule that matches the whole text or one command."""
    found: Decision | None = None
    for rule in rules:
        if rule.effect == "allow":
            continue
        about, match = text[:200], "yes" if rule.pattern.matches(SHELL_TOOL, text) else "no"
        for command in parsed.commands if parsed and match == "no" else ():
            about, match = command.text[:200], denies_command(rule.pattern, command)
            if match == "yes" or (match == "maybe" and found is None):
                break
        if match == "yes" and rule.effect == "deny":
            return Decision(effect="deny", why="rule", rule=rule, about=about)
        if match != "no" and (found is None or match == "yes"):
            why = "rule" if match == "yes" else "unclear"
            found = Decision(effect="ask", why=why, rule=rule, about=about)
    return found


def _file_requests(
    parsed: ParsedShell | None, request: PermissionRequest
) -> Iterator[PermissionRequest]:
    if parsed is not None:
        for tool, targets in (("Write", parsed.writes), ("Read", parsed.reads)):
            yield from (_file_request(tool, target, parsed, request) for target in targets)


def _file_request(
    tool: str, target: str, parsed: ParsedShell, request: PermissionRequest
) -> PermissionRequest:
    path: Path | None = None
    if target.startswith("/") or (request.cwd is not None and not parsed.changes_directory):
        try:
            path = (request.cwd or Path("/")).joinpath(target).resolve()
        except (OSError, RuntimeError):
            target = "links in a circle"
    return PermissionRequest(tool=tool, argument=target, path=path, harmless=tool == "Read")


def _allows_whole(pattern: ToolPattern, text: str) -> bool:
    """True if a pattern allows any command, or exactly this text."""
    if not pattern.names(SHELL_TOOL):
        return False
    written = pattern.argument or ""
    has_stars = "*" in written.replace("\\\\", "").replace("\\*", "")
    return pattern.is_any or (not has_stars and text_matches(written.strip(), text.strip()))


def _unresolved(
    parsed: ParsedShell | None,
    patterns: Sequence[ToolPattern],
    files: Sequence[Decision],
    rules: Sequence[Rule],
    *,
    is_whole: bool,
) -> Decision | None:
    """Return the question that remains if no rule asks; None if everything is allowed."""
    hidden = next((c.text for c in parsed.commands if c.role == "opaque"), None) if parsed else ""
    if is_whole:
        is_bound = any(
            rule.effect != "allow" and rule.pattern.names(SHELL_TOOL) and not rule.pattern.is_any
            for rule in rules
        )
        is_hidden = hidden is not None and is_bound
        return Decision(effect="ask", why="unclear", about=hidden or "") if is_hidden else None
    if parsed is None:
        return Decision(effect="ask", why="unclear")
    for command in _uncovered_commands(parsed, patterns):
        why = "unclear" if command.role == "opaque" else "unsettled"
        return Decision(effect="ask", why=why, about=command.text[:200])
    for file in files:
        if file.effect == "ask":
            return file
    # Harmless builtins alone are no reason to allow: at least one command must be covered.
    is_meant = any(allows_command(p, c) for c in parsed.commands for p in patterns)
    is_meant = is_meant or (not parsed.commands and bool(parsed.writes))
    return None if is_meant else Decision(effect="ask")


def _uncovered_commands(
    parsed: ParsedShell, patterns: Sequence[ToolPattern]
) -> Iterator[SimpleCommand]:
    for command in parsed.commands:
        if not (is_harmless_builtin(command) or any(allows_command(p, command) for p in patterns)):
            yield command


def _allow_decision(text: str, parsed: ParsedShell | None, rules: Sequence[Rule]) -> Decision:
    for rule in rules:
        if rule.effect == "allow" and (
            _allows_whole(rule.pattern, text)
            or any(allows_command(rule.pattern, c) for c in (parsed.commands if parsed else ()))
        ):
            return Decision(effect="allow", why="rule", rule=rule)
    return Decision(effect="allow", why="grant")


def _with_suggestions(
    question: Decision,
    text: str,
    parsed: ParsedShell | None,
    patterns: Sequence[ToolPattern],
    files: Sequence[Decision],
) -> Decision:
    """Suggest a rule for the exact text, and a prefix rule if one suffices and is not too broad."""
    wider = ""
    asked = list(_uncovered_commands(parsed, patterns)) if parsed and not question.rule else []
    if not asked and parsed and len(parsed.commands) == 1 and not question.rule:
        asked = list(parsed.commands)
    is_settled = len(asked) == 1 and not any(file.effect == "ask" for file in files)
    if is_settled and asked[0].role == "plain" and not asked[0].assigned:
        head = asked[0].words[0].quoted
        wider = "" if head.rpartition("/")[2] in _TOO_BROAD else f"{escape_pattern(head)} *"
    suggestions = allow_rules(SHELL_TOOL, escape_pattern(text.strip()), wider)
    return replace(question, effect="ask", suggestions=suggestions)
