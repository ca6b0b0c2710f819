"""Pattern matcher: run the regexes of all rules over a file and rate each match.

About half of the CPU time of a scan is spent here. A substring pre-filter (`hints`) selects the
lines on which a regex is tried; the number of matches is bounded, so that crafted input cannot
exhaust the CPU.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from apexbridge.scanner.rules import (
    ROLE_SETS,
    RiskLevel,
    Rule,
    RuleFileError,
    RulePattern,
    compile_regex,
    fragment,
    load_rules,
    lower_level,
)
from apexbridge.scanner.scan_input import MAX_LINE, LineRole, TextFile

MAX_MATCHES = 5_000
"""Matches of one pattern in one file; beyond it the scan is reported as partial."""

MAX_MATCHES_PER_LINE = 200
"""Matches of one regex in one line: a defence against ReDoS by crafted, very long lines."""

PARTIAL_SCAN = "AB070"
"""The rule that reports an incomplete scan."""

_REGEX_SYNTAX = re.compile(r"\\[sbdwS.]|\(\?[:i=!<]|\.\*|\[\^|\.\+|grep -|re\.compile|RegExp")
_COMMENT = re.compile(r"\s{0,80}(?:#|//|\*|--\s)")
_END_COMMENT = re.compile(r"\s(?:#|//)\s")
_QUOTES = "\"'`“”‘’「」《》|"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A compiled `RulePattern`; see there for the fields."""

    rule: str
    level: RiskLevel
    find: re.Pattern[str]
    hints: tuple[str, ...]
    also: tuple[re.Pattern[str], ...]
    unless: re.Pattern[str] | None
    roles: frozenset[LineRole]
    is_phrase: bool
    is_fixed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A match of a rule in a file, with its risk level; line 0 is the file as a whole."""

    rule: str
    level: RiskLevel
    line: int
    matched: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillContext:
    """Facts about the whole skill that change how a match is rated."""

    is_about_security: bool = False
    subject: str = ""
    """Name, description and folder in lower case."""


@cache
def compiled_patterns() -> tuple[Pattern, ...]:
    """Compile the patterns of all rules, once a process: this takes longer than most scans."""
    return tuple(
        _compile(rule, number, source)
        for rule in load_rules().values()
        for number, source in enumerate(rule.patterns, 1)
    )


def _compile(rule: Rule, number: int, source: RulePattern) -> Pattern:
    roles = source.roles
    try:
        return Pattern(
            rule=rule.id,
            level=source.level or rule.level,
            find=compile_regex(source.find),
            hints=source.hints,
            also=tuple(map(compile_regex, source.also)),
            unless=compile_regex(source.unless) if source.unless else None,
            roles=ROLE_SETS[roles] if isinstance(roles, str) else frozenset(roles),
            is_phrase=source.phrase,
            is_fixed=source.fixed_level,
        )
    except RuleFileError as error:
        raise RuleFileError(f"{rule.id}, pattern {number}: {error}") from error


def match_patterns(
    file: TextFile, patterns: Iterable[Pattern], context: SkillContext
) -> Iterator[Hit]:
    """Match every pattern whose line roles occur in the file."""
    # Patterns share many hints: each is searched once a file, not once a pattern.
    hint_lines = dict[str, list[int]]()
    present = frozenset(file.roles)
    for pattern in patterns:
        if pattern.roles.isdisjoint(present):
            continue
        yield from _match_pattern(file, pattern, context, hint_lines)
    if any(len(lines) >= MAX_MATCHES for lines in hint_lines.values()):
        yield Hit(rule=PARTIAL_SCAN, level="review", line=0, matched=f"size of {file.path}")


def _lines_containing(file: TextFile, hint: str) -> list[int]:
    """Return the numbers of the lines that contain a hint."""
    found, at = list[int](), file.lower.find(hint)
    while at >= 0 and len(found) < MAX_MATCHES:
        line = file.line_number(at)
        found.append(line)
        at = file.lower.find(hint, file.line_end(line))
    return found


def _candidates(
    file: TextFile, pattern: Pattern, hint_lines: dict[str, list[int]]
) -> Iterator[re.Match[str]]:
    """Return the matches of a pattern; lines without a hint are skipped, for speed."""
    if not pattern.hints:
        yield from pattern.find.finditer(file.text)
        return
    for hint in pattern.hints:
        if hint not in hint_lines:
            hint_lines[hint] = _lines_containing(file, hint)
    done = 0
    for line in sorted({line for hint in pattern.hints for line in hint_lines[hint]}):
        # A sentence may continue on the next line; a command may not.
        last = min(line + pattern.is_phrase, len(file.line_starts))
        start = max(done, file.line_starts[line - 1])
        for match in pattern.find.finditer(file.text, start, file.line_end(last)):
            done = match.end()
            yield match


def _match_pattern(
    file: TextFile, pattern: Pattern, context: SkillContext, hint_lines: dict[str, list[int]]
) -> Iterator[Hit]:
    last, tries = 0, 0
    for match in itertools.islice(_candidates(file, pattern, hint_lines), MAX_MATCHES):
        line = file.line_number(match.start())
        last, tries = line, tries + 1 if line == last else 1
        if tries >= MAX_MATCHES_PER_LINE:
            if tries == MAX_MATCHES_PER_LINE:
                yield Hit(rule=PARTIAL_SCAN, level="review", line=0, matched=f"size of {file.path}")
            continue
        role = file.role_of(line)
        if role not in pattern.roles:
            continue
        line_text = file.line_context(match.start(), match.end())
        if pattern.unless and pattern.unless.search(_exempting_text(file, match, line_text)):
            continue
        # The conditions come last: `find` rejects nearly every line before they cost anything.
        if all(also.search(line_text) for also in pattern.also):
            level = _adjusted_level(file, pattern, match, line_text, context)
            yield Hit(rule=pattern.rule, level=level, line=line, matched=match[0])


def _exempting_text(file: TextFile, match: re.Match[str], line_text: str) -> str:
    """Return a line of code without the comment that ends it, prose as it is.

    A comment has no effect, so that words in it must not exempt the command before it.
    """
    if file.role_of(file.line_number(match.start())) not in {"command", "script"}:
        return line_text
    return without_comment(line_text, line_text.find(match[0]) + len(match[0]))


def without_comment(line: str, start: int = 0) -> str:
    """Cut a line of code at the first comment after an offset.

    Only what exempts a line is searched in the rest: to a shell, a `#` in quotes is no comment.
    """
    comment = _END_COMMENT.search(line, start)
    return line[: comment.start()] if comment else line


def _adjusted_level(
    file: TextFile, pattern: Pattern, match: re.Match[str], line_text: str, context: SkillContext
) -> RiskLevel:
    """Lower the level of a match in a reference, in quotes, in a regex, or in educational text.

    A heuristic against false positives: documentation of prompt injection is not an injection.
    """
    line = file.line_number(match.start())
    role = file.role_of(line)
    steps = int(role in {"reference", "data"})
    if role == "script":
        if not pattern.is_fixed:
            steps += int(
                bool(_REGEX_SYNTAX.search(line_text)) or _is_warning_comment(file, line, match[0])
            )
        return lower_level(pattern.level, steps + int(pattern.is_phrase))
    if pattern.is_phrase and is_quoted(file.text, match.start(), match.end()):
        steps += 1
    if not pattern.is_fixed:
        # The match itself is cut out: its own words must not make it count as educational.
        is_educational = _follows_education(file, line) or bool(
            fragment("educational").search(line_text.replace(match[0], " "))
        )
        steps += int(is_educational or context.is_about_security)
    return lower_level(pattern.level, min(steps, 2))


def _follows_education(file: TextFile, line: int) -> bool:
    """Return whether the lines before a line teach or warn; kept, as a line has many matches."""
    known = file.educational_lines.get(line)
    if known is None:
        known = bool(fragment("educational").search(file.preceding_lines(line, 3)))
        file.educational_lines[line] = known
    return known


def _is_warning_comment(file: TextFile, line: int, matched: str) -> bool:
    """Return whether a line of a script is a comment that says what not to do."""
    rows = [row for row in file.lines[max(0, line - 3) : line] if _COMMENT.match(row)]
    if not _COMMENT.match(file.lines[line - 1]):
        return False
    return bool(fragment("educational").search("\n".join(rows)[:MAX_LINE].replace(matched, " ")))


def is_quoted(text: str, start: int, end: int) -> bool:
    """Return whether a phrase is in quotes: mentioned, not addressed to a model."""
    before, after = text[max(0, start - 3) : start], text[end : end + 40].split("\n", 1)[0]
    return any(quote in before for quote in _QUOTES) and any(quote in after for quote in _QUOTES)
