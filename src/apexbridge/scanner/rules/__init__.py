"""Scanner rules: load and validate the rule files of this folder, and rank risk levels.

A rule is one `[[rules]]` entry: id, slug, level (severity), OWASP mapping, title and advice in
English and Chinese, examples, and its regular-expression patterns. LLM01-LLM10 are the OWASP Top 10
for LLM Applications 2025, ASI01-ASI10 the OWASP Top 10 for Agentic Applications. A rule without
patterns is implemented in Python, because a pattern cannot express it: taint flows, AST checks,
homoglyphs, typosquatting, correlation, the diff against known skills.

Files are parsed on first use, so that importing this module costs nothing at start-up.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from apexbridge.locales import Language
from apexbridge.scanner.scan_input import LineRole

RiskLevel = Literal["info", "review", "warn", "block"]

RISK_LEVELS: tuple[RiskLevel, ...] = ("info", "review", "warn", "block")
"""Severities that a policy decides about, lowest first."""

RoleSet = Literal["all", "runnable", "documents", "prose", "code"]

ROLE_SETS: Mapping[RoleSet, frozenset[LineRole]] = {
    "all": frozenset(("instruction", "command", "script", "reference", "data")),
    "runnable": frozenset(("instruction", "command", "script", "reference")),
    "documents": frozenset(("instruction", "command", "reference", "data")),
    "prose": frozenset(("instruction", "reference", "data")),
    "code": frozenset(("command", "script")),
}
"""Names for the sets of line roles that patterns use most."""

_FOLDER = resources.files("apexbridge.scanner.rules")
_FRAGMENTS = "fragments.toml"
# TOML literal strings hold a regex without escapes; YAML and JSON would need them doubled.
_FRAGMENT = re.compile(r"\{\{([a-z_]+)\}\}")
_STRICT = ConfigDict(extra="forbid", frozen=True)
_Regex = Annotated[str, StringConstraints(min_length=1)]


class RuleFileError(ValueError):
    """Validation of a rule file failed; the message has the file, the rule and the reason."""


class RuleText(NamedTuple):
    """Title and advice of a rule in one language."""

    title: str
    advice: str


class Translations(BaseModel):
    """The same text in each language."""

    model_config = _STRICT

    en: Annotated[str, StringConstraints(min_length=1, pattern=r"^[ -~]+$")]
    zh: Annotated[str, StringConstraints(min_length=1, pattern=r"[\u4e00-\u9fff]")]


class RuleExample(BaseModel):
    """A skill that a rule must match, or must not match."""

    model_config = _STRICT

    text: str = ""
    """Prose in the body of SKILL.md."""
    shell: str = ""
    """A bash code block in SKILL.md."""
    python: str = ""
    """The content of scripts/run.py."""
    files: Mapping[str, str] = {}
    name: str = ""
    description: str = ""
    frontmatter: str = ""
    """YAML lines beside the name."""
    long: bool = False
    """Whether harmless text is put before it: short skills are rated more strictly."""
    level: RiskLevel | None = None
    """The level of the finding, where it differs from that of the rule."""


class RulePattern(BaseModel):
    """A regex, as alternatives, and the conditions on the line that it matches.

    `{{name}}` stands for an entry of `fragments.toml`. Matching is case-insensitive. Against ReDoS
    (catastrophic backtracking) repeats are bounded, none is nested in another, and gaps are short;
    long gaps are expressed with `also`, a regex on the matching line only.
    """

    model_config = _STRICT

    level: RiskLevel | None = None
    """The level of its findings, where it differs from that of the rule."""
    roles: RoleSet | tuple[LineRole, ...] = "all"
    """Roles of lines that count, as the name of a set or a list."""
    phrase: bool = False
    """Natural language addressed to a model; rated lower where quoted or in a script."""
    fixed_level: bool = False
    """Whether the level stays the same in educational text."""
    hints: tuple[str, ...] = ()
    """Lower-case substrings, one of which must be in the text: a cheap pre-filter."""
    find: Annotated[tuple[_Regex, ...], Field(min_length=1)]
    also: tuple[tuple[_Regex, ...], ...] = ()
    """Further expressions, each of which must match in the line."""
    unless: tuple[_Regex, ...] = ()
    """An expression that must not match in the line."""


class Rule(BaseModel):
    """One scanner rule, as its entry in a rule file states it."""

    model_config = _STRICT

    id: Annotated[str, StringConstraints(pattern=r"^AB\d{3}$")]
    slug: Annotated[str, StringConstraints(pattern=r"^[a-z]+(-[a-z]+)*$")]
    level: RiskLevel
    owasp: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^(LLM|ASI)(0[1-9]|10)$")], ...],
        Field(min_length=1),
    ]
    title: Translations
    advice: Translations
    matches: tuple[RuleExample, ...] = ()
    non_matches: tuple[RuleExample, ...] = ()
    patterns: tuple[RulePattern, ...] = ()

    def text(self, language: Language = "en") -> RuleText:
        """Return the localized title and advice."""
        return RuleText(getattr(self.title, language), getattr(self.advice, language))


class _RuleFile(BaseModel):
    model_config = _STRICT

    rules: tuple[Rule, ...]


@cache
def load_rules() -> Mapping[str, Rule]:
    """Load every bundled rule, keyed by id, in the order of ids."""
    files = (f for f in _FOLDER.iterdir() if f.name.endswith(".toml") and f.name != _FRAGMENTS)
    return parse_rules({file.name: file.read_text("utf-8") for file in files})


def parse_rules(files: Mapping[str, str]) -> Mapping[str, Rule]:
    """Parse and validate TOML rule files, given by file name.

    Raise RuleFileError for a syntax error, a schema violation, or a duplicate id or slug.
    """
    rules, slugs = dict[str, Rule](), set[str]()
    for name, content in files.items():
        try:
            entries = _RuleFile.model_validate(tomllib.loads(content)).rules
        except (tomllib.TOMLDecodeError, ValidationError) as error:
            raise RuleFileError(f"{name}: {error}") from error
        for rule in entries:
            if rule.id in rules or rule.slug in slugs:
                raise RuleFileError(f"{name}: duplicate id or slug: {rule.id} {rule.slug}")
            if rule.patterns and not (rule.matches and rule.non_matches):
                raise RuleFileError(f"{name}: {rule.id} needs matches and non_matches")
            rules[rule.id] = rule
            slugs.add(rule.slug)
    return dict(sorted(rules.items()))


def compile_regex(alternatives: Sequence[str]) -> re.Pattern[str]:
    """Join alternatives, expand `{{fragment}}` references, and compile a case-insensitive regex."""
    text = _expand("|".join(alternatives))
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        raise RuleFileError(f"invalid regular expression {text!r}: {error}") from error


@cache
def regex(*alternatives: str) -> re.Pattern[str]:
    """Compile a regex once a process, for the checks that are written in Python."""
    return compile_regex(alternatives)


@cache
def fragment(name: str) -> re.Pattern[str]:
    """Compile a regex of `fragments.toml`, once a process."""
    return compile_regex(_fragments()[name])


@cache
def word_list(name: str) -> frozenset[str]:
    """Return an entry of `fragments.toml` as plain words."""
    return frozenset(_fragments()[name])


@cache
def _fragments() -> Mapping[str, Sequence[str]]:
    return tomllib.loads(_FOLDER.joinpath(_FRAGMENTS).read_text("utf-8"))


def _expand(text: str) -> str:
    """Expand fragment references by recursion, since fragments refer to others."""

    def replace(match: re.Match[str]) -> str:
        try:
            alternatives = _fragments()[match[1]]
        except KeyError as error:
            raise RuleFileError(f"unknown fragment {match[0]}") from error
        return _expand("|".join(alternatives))

    return _FRAGMENT.sub(replace, text)


def lower_level(level: RiskLevel, steps: int = 1) -> RiskLevel:
    """Lower a level by some steps, down to `info`."""
    return RISK_LEVELS[max(RISK_LEVELS.index(level) - steps, 0)]


def is_at_least(level: RiskLevel, floor: RiskLevel) -> bool:
    """Return whether a level is as severe as another."""
    return RISK_LEVELS.index(level) >= RISK_LEVELS.index(floor)
