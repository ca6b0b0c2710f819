"""Localization: English and Chinese texts, one TOML file per language.

Every error, and every problem found in a skill, is a stable code with details; `localize` renders
the two into a message and, where something can be done about it, a hint. `text` renders all other
texts. A language is loaded on first use and cached.
"""

import pkgutil
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

Language = Literal["en", "zh"]
Table = Literal["cli", "doctor", "embedded_model", "scaffold"]


class LocalizedText(NamedTuple):
    """A message, and a hint on how to fix the cause (empty where there is none)."""

    message: str
    hint: str = ""


class _LenientDetails(dict[str, object]):
    """Format arguments that never raise KeyError: a missing one renders as its placeholder."""

    def __missing__(self, key: str) -> str:
        return "{" + key + "}"


@cache
def load_locale(language: Language) -> Mapping[str, Mapping[str, Any]]:
    """Parse the TOML file of a language; `errors` maps codes to `LocalizedText`."""
    # pkgutil and not a path: the package may be imported from a zip file.
    data = pkgutil.get_data(__name__, f"{language}.toml") or b""
    tables: dict[str, dict[str, Any]] = tomllib.loads(data.decode("utf-8"))
    errors = tables["errors"].items()
    tables["errors"] = {
        code: LocalizedText(entry) if isinstance(entry, str) else LocalizedText(*entry)
        for code, entry in errors
    }
    return tables


def error_texts(language: Language) -> Mapping[str, LocalizedText]:
    """Message templates by error code, placeholders not filled in."""
    return load_locale(language)["errors"]


def localize(code: str, details: Mapping[str, object], language: Language = "en") -> LocalizedText:
    """Render an error code and its details; an unknown code is its own message."""
    template = error_texts(language).get(code, LocalizedText(code))
    values = _LenientDetails(details)
    return LocalizedText(template.message.format_map(values), template.hint.format_map(values))


def text(table: Table, key: str, language: Language, /, **fields: object) -> str:
    """Render one text of a table.

    Raises:
        KeyError: If the table has no such key, or a placeholder gets no value.
    """
    template: str = load_locale(language)[table][key]
    return template.format(**fields)


def parse_language(tag: str | None) -> Language:
    """Parse a language tag or locale name (`zh_CN.UTF-8`, `zh-Hant`); all else is English."""
    return "zh" if (tag or "").strip().lower().startswith("zh") else "en"
