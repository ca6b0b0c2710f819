"""Skill name rules and slugs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.skills.names import is_device, is_of_vendor, name_problems, slug


def _broken(name: str) -> list[str]:
    return [problem.code for problem in name_problems(name, "here")]


@pytest.mark.promise("M08")
@pytest.mark.parametrize(
    "name", ["a", "pdf-tools", "技能", "мой-навык", "cafe\u0301", "x" * 64, "3d"]
)
def test_a_valid_name_breaks_no_rule(name: str) -> None:
    assert _broken(name) == []


@pytest.mark.promise("M08")
@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("", ["name_empty"]),
        ("  ", ["name_empty"]),
        ("x" * 65, ["name_too_long"]),
        ("PDF", ["name_not_lowercase"]),
        ("НАВЫК", ["name_not_lowercase"]),
        ("-a", ["name_edge_hyphen"]),
        ("a-", ["name_edge_hyphen"]),
        ("a--b", ["name_double_hyphen"]),
        ("a_b", ["name_characters"]),
        ("../../x", ["name_characters"]),
        ("a b", ["name_characters"]),
        ("-A--", ["name_not_lowercase", "name_edge_hyphen", "name_double_hyphen"]),
    ],
)
def test_every_violation_of_a_name_is_reported_at_once(name: str, codes: list[str]) -> None:
    assert _broken(name) == codes


@pytest.mark.promise("M08")
@pytest.mark.parametrize("name", ["con", "nul", "com1"])
def test_names_of_devices_are_reserved(name: str) -> None:
    assert is_device(name)
    assert not is_device(f"my-{name}")


@pytest.mark.parametrize("name", ["claude", "claude-helper", "anthropic-x"])
def test_names_of_vendors_are_recognised(name: str) -> None:
    assert is_of_vendor(name)
    assert not is_of_vendor(f"my-{name}")


@given(st.text(max_size=200))
def test_what_a_slug_makes_is_empty_or_valid(text: str) -> None:
    made = slug(text)
    assert made == "" or _broken(made) == []
