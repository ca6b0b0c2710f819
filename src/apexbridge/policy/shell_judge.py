"""A shell command held against rules: every part of it, and every file it is led to."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from apexbridge.policy.judging import Standing, allowing, judge_one
from apexbridge.policy.rules import Decision, PermissionRequest, Rule, ToolPattern
from apexbridge.policy.shell_model import Parsed, SimpleCommand, names
from apexbridge.policy.shell_rules import SHELL, allows, needs_no_rule, refuses
from apexbridge.policy.shell_words import parse_shell
from apexbridge.policy.wildcards import escaped, text_fits

# A rule for everything that begins with these would be a rule for everything.
_TOO_WIDE = names(
    "bash sh dash zsh ksh sudo doas env xargs find python python3 node perl ruby php ssh"
)


def judge_shell(
    request: PermissionRequest,
    rules: Sequence[Rule],
    granted: Sequence[ToolPattern],
    standing: Standing,
) -> Decision:
    """Judge every command that a text would run; what is not understood no prefix can allow."""
    parsed = parse_shell(request.argument)
    refused = _by_rules(request.argument, parsed, rules)
    files = [judge_one(file, rules, granted, standing) for file in _files(parsed, request)]
    for strict in (refused, *files):
        if strict is not None and strict.effect == "deny":
            return strict
    patterns = (*(rule.pattern for rule in rules if rule.effect == "allow"), *granted)
    question = refused or next((f for f in files if f.effect == "ask" and f.rule), None)
    is_whole = any(_means_all(pattern, request.argument) for pattern in patterns)
    if question is None:
        question = _open_question(parsed, patterns, files, rules, is_whole=is_whole)
    if question is None or (request.harmless and question.rule is None):
        return _allowed(request.argument, parsed, rules)
    return _with_suggestions(question, request.argument, parsed, patterns, files)


def _by_rules(text: str, parsed: Parsed | None, rules: Sequence[Rule]) -> Decision | None:
    """The strictest of the rules that refuse or ask, for the whole or for a part."""
    found: Decision | None = None
    for rule in rules:
        if rule.effect == "allow":
            continue
        about, likeness = text[:200], "yes" if rule.pattern.matches(SHELL, text) else "no"
        for command in parsed.commands if parsed and likeness == "no" else ():
            about, likeness = command.text[:200], refuses(rule.pattern, command)
            if likeness == "yes" or (likeness == "maybe" and found is None):
                break
        if likeness == "yes" and rule.effect == "deny":
            return Decision(effect="deny", why="rule", rule=rule, about=about)
        if likeness != "no" and (found is None or likeness == "yes"):
            why = "rule" if likeness == "yes" else "unclear"
            found = Decision(effect="ask", why=why, rule=rule, about=about)
    return found


def _files(parsed: Parsed | None, request: PermissionRequest) -> Iterator[PermissionRequest]:
    if parsed is None:
        return
    for target in parsed.writes:
        yield _file("Write", target, parsed, request)
    for target in parsed.reads:
        yield _file("Read", target, parsed, request)


def _file(tool: str, target: str, parsed: Parsed, request: PermissionRequest) -> PermissionRequest:
    path: Path | None = None
    if target.startswith("/") or (request.cwd is not None and not parsed.moves):
        try:
            path = (request.cwd or Path("/")).joinpath(target).resolve()
        except (OSError, RuntimeError):
            target = "links in a circle"
    return PermissionRequest(tool=tool, argument=target, path=path, harmless=tool == "Read")


def _means_all(pattern: ToolPattern, text: str) -> bool:
    """Whether a pattern allows any command, or exactly this text."""
    if not pattern.names(SHELL):
        return False
    written = pattern.argument or ""
    has_stars = "*" in written.replace("\\\\", "").replace("\\*", "")
    return pattern.is_any or (not has_stars and text_fits(written.strip(), text.strip()))


def _open_question(
    parsed: Parsed | None,
    patterns: Sequence[ToolPattern],
    files: Sequence[Decision],
    rules: Sequence[Rule],
    *,
    is_whole: bool,
) -> Decision | None:
    """What is left to ask where no rule asks; None where all of it is allowed."""
    hidden = next((c.text for c in parsed.commands if c.role == "opaque"), None) if parsed else ""
    if is_whole:
        is_bound = any(
            rule.effect != "allow" and rule.pattern.names(SHELL) and not rule.pattern.is_any
            for rule in rules
        )
        is_hidden = hidden is not None and is_bound
        return Decision(effect="ask", why="unclear", about=hidden or "") if is_hidden else None
    if parsed is None:
        return Decision(effect="ask", why="unclear")
    for command in _uncovered(parsed, patterns):
        why = "unclear" if command.role == "opaque" else "unsettled"
        return Decision(effect="ask", why=why, about=command.text[:200])
    for file in files:
        if file.effect == "ask":
            return file
    is_meant = any(allows(p, c) for c in parsed.commands for p in patterns)
    is_meant = is_meant or (not parsed.commands and bool(parsed.writes))
    return None if is_meant else Decision(effect="ask")


def _uncovered(parsed: Parsed, patterns: Sequence[ToolPattern]) -> Iterator[SimpleCommand]:
    for command in parsed.commands:
        if not needs_no_rule(command) and not any(allows(p, command) for p in patterns):
            yield command


def _allowed(text: str, parsed: Parsed | None, rules: Sequence[Rule]) -> Decision:
    for rule in rules:
        if rule.effect == "allow" and (
            _means_all(rule.pattern, text)
            or any(allows(rule.pattern, c) for c in (parsed.commands if parsed else ()))
        ):
            return Decision(effect="allow", why="rule", rule=rule)
    return Decision(effect="allow", why="grant")


def _with_suggestions(
    question: Decision,
    text: str,
    parsed: Parsed | None,
    patterns: Sequence[ToolPattern],
    files: Sequence[Decision],
) -> Decision:
    """The text itself; and a prefix, where one would settle it and is not far too wide."""
    wider = ""
    asked = list(_uncovered(parsed, patterns)) if parsed and not question.rule else []
    if not asked and parsed and len(parsed.commands) == 1 and not question.rule:
        asked = list(parsed.commands)
    is_settled = len(asked) == 1 and not any(file.effect == "ask" for file in files)
    if is_settled and asked[0].role == "plain" and not asked[0].assigned:
        head = asked[0].words[0].said
        wider = "" if head.rpartition("/")[2] in _TOO_WIDE else f"{escaped(head)} *"
    suggestions = allowing(SHELL, escaped(text.strip()), wider)
    return Decision(
        effect="ask",
        why=question.why,
        rule=question.rule,
        about=question.about,
        suggestions=suggestions,
    )
