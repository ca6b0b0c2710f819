"""What belongs to the held-out library is known, however it is dressed."""

import pytest

from training.held_out import Described, HeldOut, close_over

LONG = (
    "Turn the minutes of a meeting into a list of tasks with owners and dates, and send it to all"
)
OTHER = "Paint a watercolour of the harbour at dawn from a photograph somebody took there last year"


@pytest.fixture
def held_out() -> HeldOut:
    """One skill is held out."""
    found = HeldOut()
    found.add("meeting-minutes", LONG)
    return found


@pytest.mark.parametrize("name", ["meeting-minutes", "Meeting_Minutes", "meeting minutes"])
def test_a_name_is_known_however_it_is_written(held_out: HeldOut, name: str) -> None:
    assert held_out.covers(name, OTHER)


@pytest.mark.parametrize(
    "text", [LONG, LONG.upper(), LONG + " members of the team.", LONG[:70], f"Helper: {LONG}"]
)
def test_a_description_is_known_though_it_was_cut_or_lengthened(
    held_out: HeldOut, text: str
) -> None:
    assert held_out.covers("another-name", text)


def test_another_skill_is_not_taken_for_it(held_out: HeldOut) -> None:
    assert not held_out.covers("harbour-paintings", OTHER, "把港口画成水彩画")


def test_a_phrase_in_common_is_not_enough(held_out: HeldOut) -> None:
    assert not held_out.covers_text(
        "Write a list of tasks with owners for the builders of a bridge"
    )


def test_a_translation_is_left_out_and_so_is_what_nearly_repeats_it(held_out: HeldOut) -> None:
    chinese = "把会议纪要整理成带负责人和日期的任务清单，并发送给所有的参会人员"
    known = [
        Described("harbour", (OTHER, "根据照片画一幅黎明时港口的水彩画")),
        Described("copy", ("Something said quite otherwise", chinese + "。")),
        Described("notes", (LONG, chinese)),
    ]
    assert list(close_over(held_out, known)) == [1, 1, 0]
    assert held_out.covers_text(chinese)
    assert held_out.covers_text("Something said quite otherwise")
    assert not held_out.covers(*("harbour", OTHER))
