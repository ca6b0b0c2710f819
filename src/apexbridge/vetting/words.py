"""What each rule says to people: a title and advice, in English and Chinese."""

from collections.abc import Mapping
from typing import NamedTuple

from apexbridge.vetting.words_chinese import CHINESE
from apexbridge.vetting.words_english import ENGLISH
from apexbridge.wording import Language


class Words(NamedTuple):
    """What was noticed, and what to do about it."""

    title: str
    advice: str


TABLES: Mapping[Language, Mapping[str, Words]] = {
    "en": {rule: Words(*row) for rule, row in ENGLISH.items()},
    "zh": {rule: Words(*row) for rule, row in CHINESE.items()},
}

_NOTICES: Mapping[Language, str] = {
    "en": "Findings are advice from fixed rules. A skill without findings can still do harm.",
    "zh": "这些发现是固定规则给出的建议。没有发现并不表示技能无害。",
}


def say(rule: str, language: Language = "en") -> Words:
    """The words of a rule."""
    return TABLES[language][rule]


def notice(language: Language = "en") -> str:
    """What every report says about itself."""
    return _NOTICES[language]
