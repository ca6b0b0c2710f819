"""Requests are framed as people say them, and products go by both their names."""

import random

import pytest

from training.colloquial import Product, Products, bare, framed

CHANCE = random.Random(3)  # noqa: S311  # no secret hangs on it
PRODUCTS = Products([Product(("飞书",), ("Feishu",), "团队聊天", "team chat")])


@pytest.mark.parametrize(
    ("phrase", "said"),
    [
        ("User wants to merge two PDFs.", "merge two PDFs"),
        ("the user asks for a chart", "a chart"),
        ("Needing to rename files", "rename files"),
        ("用户想要合并文件", "合并文件"),
        ("merge files", "merge files"),
    ],
)
def test_a_phrase_loses_the_words_about_the_user(phrase: str, said: str) -> None:
    assert bare(phrase) == said


@pytest.mark.parametrize(("phrase", "language"), [("Merge two PDFs", "en"), ("合并文件", "zh")])
def test_a_framed_phrase_holds_the_phrase(phrase: str, language: str) -> None:
    said = framed(phrase, language, CHANCE)
    assert said is not None
    assert phrase.lower() in said.lower()
    assert said.lower() != phrase.lower()


@pytest.mark.parametrize("phrase", ["", "ab", "word " * 40])
def test_what_nobody_would_say_is_not_framed(phrase: str) -> None:
    assert framed(phrase, "en", CHANCE) is None


@pytest.mark.parametrize(
    ("text", "renamed"),
    [
        ("send it to feishu now", "send it to 飞书 now"),
        ("发到飞书群里", "发到 Feishu 群里"),
        ("feishuish", None),
        ("nothing here", None),
    ],
)
def test_a_product_goes_by_its_other_name(text: str, renamed: str | None) -> None:
    assert PRODUCTS.renamed(text, CHANCE) == renamed


def test_names_and_meanings_are_translations_of_each_other() -> None:
    assert ("Feishu", "飞书") in set(PRODUCTS.pairs())
    assert ("team chat", "团队聊天") in set(PRODUCTS.pairs())


def test_without_products_nothing_is_renamed() -> None:
    assert Products([]).renamed("send it to feishu", CHANCE) is None
