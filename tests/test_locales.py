"""Two languages, one set of codes."""

import string

import pytest

from apexbridge import errors, locales
from apexbridge.cli.words import WORDS, word
from apexbridge.locales import MESSAGES, localize, parse_language


def _fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def test_both_languages_know_the_same_codes() -> None:
    assert list(MESSAGES["en"]) == list(MESSAGES["zh"])


@pytest.mark.parametrize("code", MESSAGES["en"])
def test_a_code_uses_the_same_fields_in_both_languages(code: str) -> None:
    english, chinese = MESSAGES["en"][code], MESSAGES["zh"][code]
    assert _fields(english.message) == _fields(chinese.message)
    assert _fields(english.hint) == _fields(chinese.hint)
    assert bool(english.hint) == bool(chinese.hint)


def _every_error() -> list[type[errors.ApexBridgeError]]:
    kinds, pending = list[type[errors.ApexBridgeError]](), [errors.ApexBridgeError]
    while pending:
        kind = pending.pop()
        kinds.append(kind)
        pending += kind.__subclasses__()
    return [kind for kind in kinds if not kind.__name__.startswith("_")]


@pytest.mark.parametrize("kind", _every_error(), ids=lambda kind: kind.__name__)
def test_every_error_has_words_and_stands_in_the_tree(kind: type[errors.ApexBridgeError]) -> None:
    assert kind.code in MESSAGES["en"]
    assert kind.__name__ in (errors.__doc__ or "").split()


def test_an_unknown_code_speaks_for_itself() -> None:
    assert localize("no_such_code", {}, "zh") == locales.LocalizedText("no_such_code")


def test_a_missing_detail_shows_as_its_name_instead_of_failing() -> None:
    assert localize("name_too_long", {"limit": 64}).message == (
        "The name has {length} characters; at most 64 are allowed"
    )


@pytest.mark.parametrize(
    ("tag", "language"),
    [("zh", "zh"), ("zh_CN.UTF-8", "zh"), ("ZH-Hant", "zh"), ("C", "en"), ("", "en"), (None, "en")],
)
def test_a_locale_is_read_as_a_language(tag: str | None, language: str) -> None:
    assert parse_language(tag) == language


def test_a_wrong_skill_name_offers_near_ones_in_the_readers_language() -> None:
    error = errors.SkillNotFoundError("comit", near=["commit", "git-commit"])
    assert (error.message, error.hint) == (
        "No skill named 'comit'",
        "Did you mean commit / git-commit?",
    )
    assert error.said("zh") == ("没有名为“comit”的技能", "是否想用 commit / git-commit？")
    assert errors.SkillNotFoundError("x").hint == ""


@pytest.mark.parametrize("key", WORDS)
def test_the_screens_have_both_languages_with_the_same_fields(key: str) -> None:
    english, chinese = WORDS[key]
    assert english
    assert chinese
    assert _fields(english) == _fields(chinese)


def test_a_word_of_the_screens_is_filled_in() -> None:
    assert word("skill_count", "en", count=3) == "Skills: 3"
    assert word("skill_count", "zh", count=3) == "共 3 个技能"
