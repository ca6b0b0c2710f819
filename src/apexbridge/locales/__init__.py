"""What ApexBridge says to people, in English and Chinese, keyed by code.

A code is stable and never translated; its words may change at any time. Every error and every
problem in a skill is a code with details, and this room turns the two into a sentence and, where
something can be done about it, a hint.
"""

from collections.abc import Mapping
from typing import Literal

from apexbridge.locales import chinese, english
from apexbridge.locales.phrase import LocalizedText

Language = Literal["en", "zh"]

MESSAGES: Mapping[Language, Mapping[str, LocalizedText]] = {
    "en": english.PHRASES,
    "zh": chinese.PHRASES,
}


class _LenientDetails(dict[str, object]):
    """Details that never make a message fail: an unknown field shows as its own name."""

    def __missing__(self, key: str) -> str:
        return "{" + key + "}"


def localize(code: str, details: Mapping[str, object], language: Language = "en") -> LocalizedText:
    """Put a code and its details into words; an unknown code speaks for itself."""
    phrase = MESSAGES[language].get(code) or english.PHRASES.get(code) or LocalizedText(code)
    values = _LenientDetails(details)
    return LocalizedText(phrase.message.format_map(values), phrase.hint.format_map(values))


def parse_language(tag: str | None) -> Language:
    """Read a language tag or locale name: `zh`, `zh_CN.UTF-8`, `zh-Hant`; all else is English."""
    return "zh" if (tag or "").strip().lower().startswith("zh") else "en"
