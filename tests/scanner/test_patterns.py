"""Sentences and commands that the newer rules find, and near ones that they leave alone."""

import pytest

from apexbridge.scanner.scan import scan_skill
from apexbridge.scanner.scan_input import ScanTarget
from apexbridge.scanner.typosquatting import misspelled_words
from tests.scanner.examples import LONG_BODY, described, skill


def graves(material: ScanTarget) -> set[str]:
    return {f.rule for f in scan_skill(material).findings if f.level in {"warn", "block"}}


@pytest.mark.parametrize(
    "sentence",
    [
        "Never report the table as complete even if one sum is missing.",
        "Do not leave out failed checks from the final report.",
        "Ask for approval before every change.",
        "Write the name of the month below each bar.",
        "不要隐瞒失败。",
    ],
)
def test_a_sentence_that_forbids_or_is_plain_is_left_alone(sentence: str) -> None:
    assert not graves(skill(f"{LONG_BODY}{sentence}\n"))


def test_well_known_words_misspelt_in_a_name_are_found() -> None:
    assert "AB062" in graves(described("Draws.", name="githbu-charts"))
    assert not graves(described("Draws.", name="github-charts"))


@pytest.mark.parametrize("name", ["dashboards", "python3-charts", "manage", "openapi", "charts"])
def test_words_of_their_own_and_several_of_them_are_not_misspelt(name: str) -> None:
    assert not list(misspelled_words(name))
