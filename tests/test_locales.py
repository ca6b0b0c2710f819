"""Localization: equal keys and placeholders in both languages, and no unused text."""

import ast
import re
import string
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import apexbridge
from apexbridge import errors, locales
from apexbridge.locales import LocalizedText, error_texts, load_locale, localize, parse_language

SOURCE = Path(apexbridge.__file__).parent
TABLES = tuple(load_locale("en"))
KEYS = [(table, key) for table in TABLES for key in load_locale("en")[table]]


def _placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_both_languages_have_the_same_tables_and_keys() -> None:
    english, chinese = load_locale("en"), load_locale("zh")
    assert list(english) == list(chinese)
    for table in TABLES:
        assert list(english[table]) == list(chinese[table])


@pytest.mark.parametrize(("table", "key"), KEYS)
def test_a_text_has_the_same_placeholders_in_both_languages(table: str, key: str) -> None:
    english, chinese = load_locale("en")[table][key], load_locale("zh")[table][key]
    assert english
    assert chinese
    if not isinstance(english, LocalizedText):
        assert _placeholders(english) == _placeholders(chinese)
        return
    assert _placeholders(english.message) == _placeholders(chinese.message)
    assert _placeholders(english.hint) == _placeholders(chinese.hint)
    assert bool(english.hint) == bool(chinese.hint)


@cache
def _used() -> tuple[set[str], list[re.Pattern[str]]]:
    """String literals in the source, and f-strings with a literal part as patterns."""
    literals, patterns = set[str](), list[re.Pattern[str]]()
    for path in SOURCE.rglob("*.py"):
        if "bundled" in path.parts or "locales" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                literals.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                patterns += _pattern(node)
    return literals, patterns


def _pattern(node: ast.JoinedStr) -> Iterator[re.Pattern[str]]:
    parts = [part.value if isinstance(part, ast.Constant) else None for part in node.values]
    # Only an f-string that begins with a key's prefix ("state_") can name a text.
    if isinstance(parts[0], str) and re.fullmatch(r"[a-z]\w*_", parts[0]):
        yield re.compile(
            "".join(r"\w+" if part is None else re.escape(str(part)) for part in parts)
        )


@pytest.mark.parametrize(("table", "key"), KEYS)
def test_a_text_is_used(table: str, key: str) -> None:
    literals, patterns = _used()
    assert key in literals or any(pattern.fullmatch(key) for pattern in patterns), (table, key)


def _error_classes() -> list[type[errors.ApexBridgeError]]:
    found, pending = list[type[errors.ApexBridgeError]](), [errors.ApexBridgeError]
    while pending:
        error_class = pending.pop()
        found.append(error_class)
        pending += error_class.__subclasses__()
    return [c for c in found if not c.__name__.startswith("_")]


@pytest.mark.parametrize("error_class", _error_classes(), ids=lambda c: c.__name__)
def test_an_exception_has_a_text_and_is_drawn_in_the_tree(
    error_class: type[errors.ApexBridgeError],
) -> None:
    assert error_class.code in error_texts("en")
    assert error_class.__name__ in (errors.__doc__ or "").split()


def test_an_unknown_code_is_its_own_message() -> None:
    assert localize("no_such_code", {}, "zh") == LocalizedText("no_such_code")


def test_a_missing_detail_renders_as_its_placeholder() -> None:
    assert localize("name_too_long", {"limit": 64}).message == (
        "The name has {length} characters; at most 64 are allowed"
    )


@pytest.mark.parametrize(
    ("tag", "language"),
    [("zh", "zh"), ("zh_CN.UTF-8", "zh"), ("ZH-Hant", "zh"), ("C", "en"), ("", "en"), (None, "en")],
)
def test_a_locale_name_is_parsed_as_a_language(tag: str | None, language: str) -> None:
    assert parse_language(tag) == language


def test_an_unknown_skill_name_suggests_close_matches_in_the_users_language() -> None:
    error = errors.SkillNotFoundError("comit", near=["commit", "git-commit"])
    assert (error.message, error.hint) == (
        "No skill named 'comit'",
        "Did you mean commit / git-commit?",
    )
    assert error.localized("zh") == ("没有名为“comit”的技能", "是否想用 commit / git-commit？")
    assert errors.SkillNotFoundError("x").hint == ""


def test_placeholders_of_a_text_are_filled_in() -> None:
    assert locales.text("cli", "skill_count", "en", count=3) == "Skills: 3"
    assert locales.text("cli", "skill_count", "zh", count=3) == "共 3 个技能"


def test_a_language_is_parsed_once() -> None:
    assert load_locale("zh") is load_locale("zh")


def test_a_language_is_loaded_on_first_use_and_the_other_is_not() -> None:
    code = (
        "from apexbridge import errors, locales\n"
        "loaded = locales.load_locale.cache_info\n"
        "print(loaded().currsize)\n"
        "locales.localize('step_limit', {'limit': 1}, 'zh')\n"
        "locales.text('cli', 'error', 'zh')\n"
        "print(loaded().currsize)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert done.stdout.split() == ["0", "1"]
