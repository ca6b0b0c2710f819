"""Manifest checks: hooks, inline commands, similar names and descriptions."""

import pytest

from apexbridge.scanner.scan import scan_skill
from tests.scanner.examples import described, fronted, level_of, skill


def test_invalid_hooks_are_reported_by_event() -> None:
    broken = fronted("description: Draws.\nhooks:\n  Whenever:\n    - command: ./go")
    (finding,) = [f for f in scan_skill(broken).findings if f.rule == "AB051"]
    assert finding.excerpt == "Whenever"


def test_the_number_of_inline_commands_is_bounded() -> None:
    assert len([f for f in scan_skill(skill("!`date`\n" * 50)).findings if f.rule == "AB052"]) == 1


@pytest.mark.parametrize(
    ("name", "is_alike"),
    [
        ("pdf-reader", False),
        ("pdf-raeder", True),
        ("pdf-readr", True),
        ("pdf-readers", True),
        ("pdfreader", True),
        ("pdf_reader", True),
        ("рdf-reader", True),
        ("pdf-reader-2", False),
        ("pdf-writer", False),
        ("xls-reader", False),
    ],
)
def test_names_one_edit_apart_are_confusable(name: str, is_alike: bool) -> None:
    target = described("Draws.", name=name, others={"pdf-reader": "Reads."})
    assert (level_of("AB062", target) is not None) == is_alike


def test_versions_of_a_name_are_not_confusable() -> None:
    assert level_of("AB062", described("D.", name="draw5", others={"draw4": "D."})) is None


def test_a_different_description_is_not_a_clone() -> None:
    one = "Reads letters and sorts them by sender, date and subject for the office."
    other = "Plays chess and checks openings by name, year and player for the club!"
    assert level_of("AB061", described(one, others={"b": other})) is None
