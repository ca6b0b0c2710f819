"""What each rule says to people: a title and advice, in English and Chinese."""

from collections.abc import Mapping
from typing import NamedTuple

from apexbridge.locales import Language
from apexbridge.scanner.rule_texts_en import ENGLISH
from apexbridge.scanner.rule_texts_zh import CHINESE


class RuleText(NamedTuple):
    """What was noticed, and what to do about it."""

    title: str
    advice: str


RULE_TEXTS: Mapping[Language, Mapping[str, RuleText]] = {
    "en": {rule: RuleText(*row) for rule, row in ENGLISH.items()},
    "zh": {rule: RuleText(*row) for rule, row in CHINESE.items()},
}

_DISCLAIMERS: Mapping[Language, str] = {
    "en": "Findings are advice from fixed rules. A skill without findings can still do harm.",
    "zh": "这些发现是固定规则给出的建议。没有发现并不表示技能无害。",
}


def rule_text(rule: str, language: Language = "en") -> RuleText:
    """The words of a rule."""
    return RULE_TEXTS[language][rule]


def disclaimer(language: Language = "en") -> str:
    """What every report says about itself."""
    return _DISCLAIMERS[language]
