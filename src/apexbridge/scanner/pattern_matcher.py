"""Rules that are patterns: a phrase or command, what else its line must hold, and its weight.

Every pattern reads a text about once: repeats are bounded, none lies inside another, and every gap
is short and ends at a word. What would need long gaps is said with `also`, which looks at the line
only.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from apexbridge.scanner.rules import (
    ROLE_SETS,
    RiskLevel,
    Rule,
    RuleFileError,
    RulePattern,
    compile_regex,
    load_rules,
    lower_level,
)
from apexbridge.scanner.scan_input import LineRole, TextFile

MAX_MATCHES = 5_000
"""How many places of one file a pattern is tried at."""

MAX_MATCHES_PER_LINE = 200
"""How many places of one line; nobody writes longer ones by hand."""

PARTIAL_SCAN = "AB070"
"""The rule by which a report says that it does not reach all the way."""

_EDUCATIONAL = re.compile(
    r"(?i)\b(?:never|avoid|don't|do not|bad|wrong|unsafe|insecure|vulnerab\w{0,10}|malicious|"
    r"attack\w{0,5}"
    r"|detect\w{0,4}|example of|red flags?|anti-?patterns?|exploit\w{0,5}|dangerous|warning|"
    "block(?:s|ed)?"
    r"|reject|refuse|suspicious|threat\w{0,3}|injection|flag(?:s|ged)?|pentest|payloads?|forbidden"
    r"|prohibited|must not|look for|scan(?:s|ner|ning)?)\b"
    "|[❌✗⚠🚫🚩]|禁止|切勿|恶意|危险|攻击|检测|示例|不要使用"
)
_REGEX_SYNTAX = re.compile(r"\\[sbdwS.]|\(\?[:i=!<]|\.\*|\[\^|\.\+|grep -|re\.compile|RegExp")
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
    """A place where a pattern matches, weighed."""

    rule: str
    level: RiskLevel
    line: int
    matched: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillContext:
    """What is known about the skill as a whole."""

    is_about_security: bool = False
    subject: str = ""
    """Its name and description, in small letters."""


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
    view: TextFile, patterns: Sequence[Pattern], setting: SkillContext
) -> Iterator[Hit]:
    """Try every pattern on a text."""
    known = dict[str, list[int]]()
    present = frozenset(view.places)
    for row in patterns:
        if row.roles.isdisjoint(present):
            continue
        yield from _match_pattern(view, row, setting, known)
    if any(len(lines) >= MAX_MATCHES for lines in known.values()):
        yield Hit(rule=PARTIAL_SCAN, level="review", line=0, matched=f"size of {view.path}")


def _lines_containing(view: TextFile, hint: str) -> list[int]:
    """The numbers of the lines in which a hint stands."""
    found, at = list[int](), view.lower.find(hint)
    while at >= 0 and len(found) < MAX_MATCHES:
        line = view.line_at(at)
        found.append(line)
        at = view.lower.find(hint, view.end_of(line))
    return found


def _candidates(
    view: TextFile, row: Pattern, known: dict[str, list[int]]
) -> Iterator[re.Match[str]]:
    """Where a pattern matches; looked for only on lines that hold a hint."""
    if not row.hints:
        yield from row.find.finditer(view.text)
        return
    for hint in row.hints:
        if hint not in known:
            known[hint] = _lines_containing(view, hint)
    done = 0
    for line in sorted({line for hint in row.hints for line in known[hint]}):
        # A sentence may go on in the next line; a command may not.
        last = min(line + row.is_phrase, len(view.starts))
        start = max(done, view.starts[line - 1])
        for match in row.find.finditer(view.text, start, view.end_of(last)):
            done = match.end()
            yield match


def _match_pattern(
    view: TextFile, row: Pattern, setting: SkillContext, known: dict[str, list[int]]
) -> Iterator[Hit]:
    last, tries = 0, 0
    for match in itertools.islice(_candidates(view, row, known), MAX_MATCHES):
        line = view.line_at(match.start())
        last, tries = line, tries + 1 if line == last else 1
        if tries >= MAX_MATCHES_PER_LINE:
            if tries == MAX_MATCHES_PER_LINE:
                yield Hit(rule=PARTIAL_SCAN, level="review", line=0, matched=f"size of {view.path}")
            continue
        place = view.place_of(line)
        if place not in row.roles:
            continue
        around = view.around(match.start(), match.end())
        if row.unless and row.unless.search(around):
            continue
        if all(also.search(around) for also in row.also):
            level = _adjusted_level(view, row, match, around, setting)
            yield Hit(rule=row.rule, level=level, line=line, matched=match[0])


def _adjusted_level(
    view: TextFile, row: Pattern, match: re.Match[str], around: str, setting: SkillContext
) -> RiskLevel:
    """Lower a level for what is elsewhere, quoted, a pattern itself, or taught."""
    line = view.line_at(match.start())
    place = view.place_of(line)
    steps = int(place in {"reference", "data"})
    if place == "script":
        steps += int(row.is_phrase) + int(bool(_REGEX_SYNTAX.search(around)) and not row.is_fixed)
        return lower_level(row.level, steps)
    if row.is_phrase and is_quoted(view.text, match.start(), match.end()):
        steps += 1
    if not row.is_fixed:
        is_taught = _EDUCATIONAL.search(f"{view.before(line, 3)}\n{_without(around, match[0])}")
        steps += int(bool(is_taught) or setting.is_about_security)
    return lower_level(row.level, min(steps, 2))


def _without(around: str, matched: str) -> str:
    return around.replace(matched, " ")


def is_quoted(text: str, start: int, end: int) -> bool:
    """Say whether a phrase stands in quotes, as a thing that is spoken about."""
    before, after = text[max(0, start - 3) : start], text[end : end + 40].split("\n", 1)[0]
    return any(quote in before for quote in _QUOTES) and any(quote in after for quote in _QUOTES)
