"""Scan report: findings, and their serialization as JSON and SARIF 2.1.0."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from apexbridge.locales import Language
from apexbridge.scanner.rules import RISK_LEVELS, RiskLevel, RuleText, load_rules

MAX_EXCERPT = 160

DISCLAIMERS: Mapping[Language, str] = {
    "en": "Findings are advice from fixed rules. A skill without findings can still do harm.",
    "zh": "这些发现是固定规则给出的建议。没有发现并不表示技能无害。",
}
"""Stated with every report, so that an empty one is not taken for a guarantee."""

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
    """A match of a rule with its location; line 0 is the file as a whole."""

    rule: str
    level: RiskLevel
    path: str
    line: int = 0
    excerpt: str = ""
    details: Mapping[str, str] = field(default_factory=dict[str, str])

    def localized(self, language: Language = "en") -> RuleText:
        """Return title and advice of its rule."""
        return load_rules()[self.rule].text(language)

    @property
    def owasp(self) -> tuple[str, ...]:
        """The OWASP codes of its rule."""
        return load_rules()[self.rule].owasp


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All findings about a skill, the most severe first."""

    findings: tuple[Finding, ...]
    partial: bool
    files: int
    bytes: int

    def worst(self) -> RiskLevel | None:
        """Return the highest level of all findings; None if there are none."""
        return worst_level(finding.level for finding in self.findings)

    def to_json(self, language: Language = "en") -> dict[str, Any]:
        """Serialize to JSON, with texts in one language."""
        return {
            "worst": self.worst(),
            "partial": self.partial,
            "files": self.files,
            "bytes": self.bytes,
            "notice": DISCLAIMERS[language],
            "findings": [_finding_json(finding, language) for finding in self.findings],
        }

    def to_sarif(self) -> dict[str, Any]:
        """Serialize to a SARIF 2.1.0 log, for code-scanning services."""
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
    """Return the highest of some levels; None if there are none."""
    return max(levels, key=RISK_LEVELS.index, default=None)


def _finding_json(finding: Finding, language: Language) -> dict[str, Any]:
    text = finding.localized(language)
    return {
        "rule": finding.rule,
        "level": finding.level,
        "title": text.title,
        "advice": text.advice,
        "path": finding.path,
        "line": finding.line,
        "excerpt": finding.excerpt,
        "details": dict(finding.details),
        "owasp": list(finding.owasp),
    }


def _sarif_rule(rule_id: str) -> dict[str, Any]:
    rule = load_rules()[rule_id]
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title.en},
        "help": {"text": rule.advice.en},
        "defaultConfiguration": {"level": _SARIF_LEVELS[rule.level]},
        "properties": {
            "tags": ["security", *rule.owasp],
            "security-severity": _SARIF_SEVERITIES[rule.level],
            "title.zh": rule.title.zh,
            "advice.zh": rule.advice.zh,
        },
    }


def _sarif_result(finding: Finding, index: int) -> dict[str, Any]:
    title = finding.localized().title
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
    """Percent-encode a path as a relative URI."""
    safe = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/")
    raw = path.encode("utf-8", "surrogatepass")
    return "".join(chr(byte) if byte in safe else f"%{byte:02X}" for byte in raw)
