"""Copies of well-known skills are told from the originals and from other skills."""

import pytest

from apexbridge.vetting.examine import examine
from apexbridge.vetting.material import Material
from tests.vetting.examples import COPIED, copied, skill

NEW = "Line {} of those that somebody has put into this copy for a reason.\n"


def levels(material: Material) -> list[str]:
    return [f.level for f in examine(material).findings if f.rule == "AB075"]


@pytest.mark.parametrize(("count", "found"), [(0, []), (1, ["warn"]), (4, ["review"] * 4), (9, [])])
def test_the_less_is_new_the_more_it_was_put_in(count: int, found: list[str]) -> None:
    assert levels(copied("".join(NEW.format(number) for number in range(count)))) == found


def test_what_is_new_is_shown() -> None:
    (finding,) = [f for f in examine(copied(NEW.format("one"))).findings if f.rule == "AB075"]
    assert finding.excerpt.startswith("Line one of those")


def test_the_front_a_cut_end_and_short_lines_are_not_compared() -> None:
    front = (
        "---\nname: other\ndescription: Quite another description than the one they know.\n---\n"
    )
    assert not levels(
        skill(f"{COPIED}Draw.\nAnd a last line of many words that was cut", front=front)
    )


def test_a_few_known_lines_are_no_copy() -> None:
    assert not levels(skill("".join(COPIED.splitlines(keepends=True)[:8]) + NEW.format(1)))
