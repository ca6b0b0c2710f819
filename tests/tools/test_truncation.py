"""Tool output is truncated for the model, with a notice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.tools.truncation import MIN_CHARS, truncate_text


def test_a_short_text_stays_as_it_is() -> None:
    assert truncate_text("字" * 500, 500) == "字" * 500


def test_the_middle_is_truncated_with_a_notice_and_a_hint() -> None:
    text = "a" * 1_000 + "z" * 1_000
    capped = truncate_text(text, 500, hint="use head")
    assert capped.startswith("a" * 200)
    assert capped.endswith("z" * 100)
    kept = capped.count("a", 0, capped.index("[")) + len(capped[capped.rindex("]") + 2 :])
    assert f"[{2_000 - kept:,} of 2,000 characters are left out here; use head]" in capped


def test_only_the_start_can_be_kept() -> None:
    capped = truncate_text("a" * 1_000 + "z", 500, keeps="start")
    assert capped.rstrip().endswith("characters are left out here]")
    assert "z" not in capped.replace("characters", "")


@given(
    st.text(max_size=2_000), st.integers(-5, 1_500), st.sampled_from(["start", "ends"]), st.text()
)
def test_no_text_comes_out_longer_than_the_cap(
    text: str, limit: int, keeps: str, hint: str
) -> None:
    capped = truncate_text(text, limit, keeps="start" if keeps == "start" else "ends", hint=hint)
    assert len(capped) <= max(limit, MIN_CHARS)
    assert (capped == text) is (len(text) <= max(limit, MIN_CHARS))


@pytest.mark.parametrize("limit", [MIN_CHARS, 1_000])
def test_a_very_long_hint_is_truncated_too(limit: int) -> None:
    assert truncate_text("a" * 5_000, limit, hint="h" * 9_000).startswith("a" * 50)
