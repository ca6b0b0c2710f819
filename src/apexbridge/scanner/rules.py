"""Every rule: its number, its usual level, and the OWASP risks it belongs to.

LLM01–LLM10 are the OWASP Top 10 for LLM Applications 2025, ASI01–ASI10 those for agentic
applications. A single finding can lie lower than its rule (it stands in a reference, or teaches) or
higher (it stands beside another one).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

RiskLevel = Literal["info", "review", "warn", "block"]

RISK_LEVELS: tuple[RiskLevel, ...] = ("info", "review", "warn", "block")
"""What a policy decides about, mildest first."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    id: str
    level: RiskLevel
    owasp: tuple[str, ...]


_ALL_RULES = (
    # what a reader cannot see, and what speaks over the reader's head
    Rule("AB001", "warn", ("LLM01", "ASI01")),
    Rule("AB002", "warn", ("LLM01", "ASI09")),
    Rule("AB003", "review", ("LLM01", "ASI09")),
    Rule("AB004", "warn", ("LLM01", "ASI01")),
    Rule("AB005", "warn", ("LLM01", "ASI01")),
    Rule("AB006", "review", ("LLM01", "ASI09")),
    Rule("AB007", "warn", ("LLM01", "ASI01")),
    Rule("AB008", "warn", ("LLM01", "LLM07", "ASI01")),
    Rule("AB009", "review", ("LLM06", "ASI02", "ASI09")),
    Rule("AB010", "warn", ("LLM01", "ASI01")),
    # what comes from elsewhere
    Rule("AB011", "warn", ("LLM03", "ASI04", "ASI05")),
    Rule("AB012", "warn", ("LLM03", "ASI04", "ASI05")),
    Rule("AB013", "review", ("LLM03", "ASI04")),
    Rule("AB014", "warn", ("LLM01", "LLM03", "ASI01")),
    Rule("AB015", "info", ("LLM03", "ASI04")),
    Rule("AB016", "warn", ("LLM03", "ASI04", "ASI09")),
    # what goes elsewhere
    Rule("AB017", "review", ("LLM02", "ASI03")),
    Rule("AB018", "review", ("LLM02", "ASI03")),
    Rule("AB019", "review", ("LLM02", "ASI03")),
    Rule("AB020", "review", ("LLM02", "ASI03")),
    Rule("AB021", "block", ("LLM02", "ASI02", "ASI03")),
    Rule("AB022", "review", ("LLM02", "ASI02")),
    Rule("AB023", "warn", ("LLM02", "ASI02")),
    Rule("AB024", "warn", ("LLM02", "ASI03")),
    Rule("AB025", "review", ("LLM03", "ASI04")),
    Rule("AB026", "warn", ("LLM02", "ASI02")),
    Rule("AB027", "review", ("LLM02", "ASI03")),
    # what runs
    Rule("AB028", "review", ("LLM05", "ASI05")),
    Rule("AB029", "review", ("LLM05", "ASI05")),
    Rule("AB030", "block", ("LLM05", "ASI05")),
    Rule("AB031", "review", ("LLM03", "ASI05")),
    Rule("AB032", "block", ("ASI05", "ASI10")),
    Rule("AB033", "review", ("ASI05", "ASI10")),
    Rule("AB034", "review", ("ASI05", "ASI10")),
    Rule("AB035", "review", ("LLM06", "ASI03")),
    Rule("AB036", "warn", ("LLM06", "ASI03")),
    Rule("AB037", "block", ("LLM10", "ASI05")),
    Rule("AB038", "block", ("LLM10", "ASI10")),
    Rule("AB039", "warn", ("LLM06", "ASI02")),
    # what lies in the folder
    Rule("AB040", "warn", ("LLM03", "ASI04")),
    Rule("AB041", "warn", ("LLM03", "ASI04")),
    Rule("AB042", "warn", ("LLM03", "ASI04")),
    Rule("AB043", "warn", ("LLM03", "ASI04")),
    Rule("AB044", "warn", ("LLM01", "ASI09")),
    Rule("AB045", "review", ("LLM03", "ASI04")),
    Rule("AB046", "info", ("LLM03", "ASI04")),
    Rule("AB047", "review", ("LLM05", "ASI05")),
    Rule("AB048", "warn", ("LLM06", "ASI05", "ASI10")),
    Rule("AB049", "review", ("LLM02", "ASI02")),
    # what it asks to be allowed, and what it changes
    Rule("AB050", "review", ("LLM06", "ASI02")),
    Rule("AB051", "review", ("LLM06", "ASI05")),
    Rule("AB052", "info", ("LLM06", "ASI05")),
    Rule("AB053", "warn", ("LLM04", "ASI06")),
    Rule("AB054", "review", ("LLM03", "ASI04")),
    Rule("AB055", "review", ("LLM06", "ASI01")),
    Rule("AB056", "review", ("LLM04", "ASI06")),
    Rule("AB057", "review", ("ASI10",)),
    Rule("AB058", "review", ("LLM09", "ASI09")),
    Rule("AB059", "warn", ("LLM05", "LLM09", "ASI09")),
    # how it presents itself
    Rule("AB060", "review", ("LLM08", "ASI01")),
    Rule("AB061", "warn", ("LLM03", "ASI09")),
    Rule("AB062", "review", ("LLM03", "ASI09")),
    Rule("AB063", "review", ("LLM03", "ASI09")),
    Rule("AB064", "review", ("LLM09", "ASI09")),
    # what it makes of the trust it is given
    Rule("AB065", "warn", ("LLM02", "ASI02", "ASI09")),
    Rule("AB066", "review", ("LLM09", "ASI03")),
    Rule("AB067", "warn", ("LLM01", "ASI01")),
    Rule("AB068", "warn", ("LLM02", "LLM03", "ASI07")),
    Rule("AB069", "warn", ("LLM06", "ASI10")),
    # how far this report reaches
    Rule("AB070", "review", ("LLM03",)),
    # what it makes believe, and what it leaves behind
    Rule("AB071", "warn", ("LLM09", "ASI09")),
    Rule("AB072", "review", ("LLM05", "ASI02")),
    Rule("AB073", "warn", ("LLM02", "ASI02")),
    Rule("AB074", "warn", ("ASI09", "ASI10")),
    Rule("AB075", "warn", ("LLM03", "ASI04")),
    # what it orders for every use
    Rule("AB076", "warn", ("LLM06", "ASI02")),
)

RULES: Mapping[str, Rule] = {rule.id: rule for rule in _ALL_RULES}


def lower_level(level: RiskLevel, steps: int = 1) -> RiskLevel:
    """A milder level."""
    return RISK_LEVELS[max(RISK_LEVELS.index(level) - steps, 0)]


def is_at_least(level: RiskLevel, floor: RiskLevel) -> bool:
    """Say whether a level is as grave as another."""
    return RISK_LEVELS.index(level) >= RISK_LEVELS.index(floor)
