"""What vetting says: findings, and the forms they are handed on in."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from apexbridge.locales import Language
from apexbridge.scanner import rule_texts
from apexbridge.scanner.rules import RISK_LEVELS, RULES, RiskLevel

MAX_EXCERPT = 160

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_SARIF_LEVELS: Mapping[RiskLevel, Literal["note", "warning", "error"]] = {
    "info": "note",
    "review": "note",
    "warn": "warning",
    "block": "error",
}
_SARIF_SEVERITIES: Mapping[RiskLevel, str] = {
    "info": "1.0",
    "review": "4.0",
    "warn": "7.0",
    "block": "9.0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something a rule noticed, and where; line 0 is the file as a whole."""

    rule: str
    level: RiskLevel
    path: str
    line: int = 0
    excerpt: str = ""
    details: Mapping[str, str] = field(default_factory=dict[str, str])

    def localized(self, language: Language = "en") -> rule_texts.RuleText:
        """What it means and what to do about it, in the reader's language."""
        return rule_texts.rule_text(self.rule, language)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings about a skill, the gravest first."""

    findings: tuple[Finding, ...]
    partial: bool
    files: int
    bytes: int

    def worst(self) -> RiskLevel | None:
        """The gravest level of all findings; None if there are none."""
        return worst_level(finding.level for finding in self.findings)

    def to_json(self, language: Language = "en") -> dict[str, Any]:
        """Everything, with words in one language."""
        return {
            "worst": self.worst(),
            "partial": self.partial,
            "files": self.files,
            "bytes": self.bytes,
            "notice": rule_texts.disclaimer(language),
            "findings": [_finding_json(finding, language) for finding in self.findings],
        }

    def to_sarif(self) -> dict[str, Any]:
        """A SARIF 2.1.0 log, as code-scanning pages read it."""
        used = sorted({finding.rule for finding in self.findings})
        places = {rule: index for index, rule in enumerate(used)}
        run = {
            "tool": {"driver": {"name": "apexbridge", "rules": [_sarif_rule(r) for r in used]}},
            "columnKind": "unicodeCodePoints",
            "results": [_sarif_result(f, places[f.rule]) for f in self.findings],
            "properties": {"partial": self.partial, "files": self.files, "bytes": self.bytes},
        }
        return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def worst_level(levels: Iterable[RiskLevel]) -> RiskLevel | None:
    """The gravest of some levels."""
    return max(levels, key=RISK_LEVELS.index, default=None)


def _finding_json(finding: Finding, language: Language) -> dict[str, Any]:
    said = finding.localized(language)
    return {
        "rule": finding.rule,
        "level": finding.level,
        "title": said.title,
        "advice": said.advice,
        "path": finding.path,
        "line": finding.line,
        "excerpt": finding.excerpt,
        "details": dict(finding.details),
        "owasp": list(RULES[finding.rule].owasp),
    }


def _sarif_rule(rule: str) -> dict[str, Any]:
    english, chinese = rule_texts.rule_text(rule), rule_texts.rule_text(rule, "zh")
    level = RULES[rule].level
    return {
        "id": rule,
        "shortDescription": {"text": english.title},
        "help": {"text": english.advice},
        "defaultConfiguration": {"level": _SARIF_LEVELS[level]},
        "properties": {
            "tags": ["security", *RULES[rule].owasp],
            "security-severity": _SARIF_SEVERITIES[level],
            "title.zh": chinese.title,
            "advice.zh": chinese.advice,
        },
    }


def _sarif_result(finding: Finding, index: int) -> dict[str, Any]:
    title = rule_texts.rule_text(finding.rule).title
    location: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.path)}}
    if finding.line:
        region = {"startLine": finding.line, "snippet": {"text": finding.excerpt}}
        location["region"] = region
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": _SARIF_LEVELS[finding.level],
        "message": {"text": f"{title}: {finding.excerpt}" if finding.excerpt else title},
        "locations": [{"physicalLocation": location}],
        "properties": {"level": finding.level, **finding.details},
    }


def _uri(path: str) -> str:
    """A path as a relative address; whatever has a meaning in addresses is escaped."""
    safe = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/")
    raw = path.encode("utf-8", "surrogatepass")
    return "".join(chr(byte) if byte in safe else f"%{byte:02X}" for byte in raw)
