"""Noise in requests: typing errors, background sentences and pasted logs."""

import random
from pathlib import Path

import pytest

from training.long_requests import Background
from training.pasted_logs import KnownError, ask_about, read_errors, with_log
from training.typos import Typos

_REQUESTS = Path(__file__).parent.parent / "requests"


@pytest.fixture
def chance() -> random.Random:
    return random.Random(5)  # noqa: S311


def test_an_english_word_gets_a_slip_and_short_words_get_none(chance: random.Random) -> None:
    typos = Typos()
    said = {typos.misspelt("convert it", chance) for _ in range(200)}
    assert len(said) > 20
    assert not {"convert it"} >= said
    assert all(text.endswith("it") for text in said)
    assert typos.misspelt("a b 1 2", chance) == "a b 1 2"
    assert typos.misspelt("", chance) == ""


def test_a_chinese_word_gets_one_that_sounds_the_same(chance: random.Random) -> None:
    typos = Typos([("表格", "表哥"), ("式", "是", "事")])
    said = {typos.misspelt("表格", chance) for _ in range(200)}
    assert {"表哥", "格表", "表", "格"} <= said
    assert "公是" in {typos.misspelt("公式", chance) for _ in range(200)}


def test_a_character_may_be_taken_for_one_that_looks_alike(chance: random.Random) -> None:
    assert "末来" in {Typos().misspelt("未来", chance) for _ in range(300)}


def test_both_languages_of_a_mixed_text_get_slips(chance: random.Random) -> None:
    typos = Typos([("文", "闻")])
    said = [typos.misspelt("文 spreadsheet", chance) for _ in range(200)]
    assert any("闻" in text for text in said)
    assert any("spreadsheet" not in text for text in said)


def test_the_table_of_homophones_is_symmetric_and_has_no_duplicates() -> None:
    groups = [
        line.split() for line in (_REQUESTS / "homophones.txt").read_text("utf-8").split("\n")
    ]
    words = [word for group in groups for word in group]
    assert len(words) == len(set(words)) > 3_000
    assert all(len({len(word) for word in group}) == 1 for group in groups if group)


@pytest.mark.parametrize(
    ("language", "request_text"), [("en", "merge two PDFs"), ("zh", "合并两个文件")]
)
def test_background_surrounds_a_request(
    language: str, request_text: str, chance: random.Random
) -> None:
    background = Background.read(_REQUESTS / "background.jsonl")
    said = [background.around(request_text, language, chance) for _ in range(200)]
    assert all(request_text in text and len(text) > len(request_text) + 5 for text in said)
    assert all("{" not in text for text in said)
    places = {text.startswith(request_text) for text in said}
    assert places == {True, False}
    # What comes before leaves it among the first 128 tokens.
    assert max(text.index(request_text) for text in said) < 390


def test_background_may_have_a_second_request_in_it(chance: random.Random) -> None:
    background = Background({"en": ["We are {size}."], "zh": []})
    assert "split them again" in background.around("merge", "en", chance, ["split them again"])


def test_a_log_stands_before_or_after_a_request_and_may_name_its_subject(
    chance: random.Random,
) -> None:
    said = [with_log("it fails", chance, "pdf merger") for _ in range(200)]
    assert all("it fails" in text and len(text) > 10 for text in said)
    assert {text.startswith("it fails") for text in said} == {True, False}
    assert any("pdf_merger" in text for text in said)
    assert any("pdf" not in text.lower() for text in said)


def test_a_known_error_is_pasted_with_or_without_a_question(chance: random.Random) -> None:
    error = KnownError("No module named '{name}' {0}", "python import", "python 导入")
    said = [ask_about(error, "en", chance) for _ in range(50)]
    assert all("No module named '" in text and "{name}" not in text for text in said)
    assert all("{0}" in text for text in said)  # a brace of the message is no slot
    assert (error.about("en"), error.about("zh")) == ("python import", "python 导入")
    assert all(one.log and one.en and one.zh for one in read_errors(_REQUESTS / "errors.jsonl"))
