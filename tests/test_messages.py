"""Token estimate of messages."""

from hypothesis import given
from hypothesis import strategies as st

from apexbridge.messages import estimate_tokens


def test_four_letters_or_one_chinese_character_make_a_token() -> None:
    assert estimate_tokens("") == 0
    assert estimate_tokens("abcd") == 1
    assert estimate_tokens("abcde") == 2
    assert estimate_tokens("技能") == 2
    assert estimate_tokens("技能 pdf") == 3


@given(st.text(), st.text())
def test_more_text_is_never_fewer_tokens(first: str, second: str) -> None:
    assert estimate_tokens(first + second) >= max(estimate_tokens(first), estimate_tokens(second))
