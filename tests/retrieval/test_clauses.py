"""Query splitting: the parts of a request, in English and Chinese."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.retrieval.clauses import MAX_CLAUSES, split_query

PIECES = st.sampled_from([
    "merge two pdf files", "send an email", "画一个图表", "然后", "，然后", " and then ", " and ",
    ". ", "\n", "；", "?", "，", ", ", "以及", "pdf", "log line 1", " ", "怎么办",
])  # fmt: skip
ANY_TEXT = st.one_of(
    st.text(st.characters(), max_size=80), st.lists(PIECES, max_size=40).map("".join)
)


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        (
            "merge two pdf files and then send an email",
            ("merge two pdf files", "send an email"),
        ),
        (
            "Merge two PDF files, then send an email. Finally write a changelog",
            ("Merge two PDF files", "send an email", "Finally write a changelog"),
        ),
        (
            "translate the contract and also draw a chart; send both by mail",
            ("translate the contract", "draw a chart", "send both by mail"),
        ),
        ("把两个文件合并，然后发邮件给老板", ("把两个文件合并", "发邮件给老板")),
        (
            "把合同翻译成英文，并画一个图表。再写一份周报",
            ("把合同翻译成英文", "画一个图表", "再写一份周报"),
        ),
        ("整理会议纪要以及更新日志文件", ("整理会议纪要", "更新日志文件")),
        ("Is it broken? How do I repair it?", ("Is it broken?", "How do I repair it?")),
    ],
)
def test_each_need_is_a_part(query: str, parts: tuple[str, ...]) -> None:
    assert split_query(query) == parts


@pytest.mark.parametrize(
    "query",
    [
        "",
        " \n",
        "pdf",
        "convert this file to a pdf",
        "计算圆周率",
        "research and development",
        "black and white",
        "cats and dogs and birds",
        "Version 3.5 of node.js",
        "你好，谢谢",
        "。。。；；；",
        "Thanks. Bye.",
    ],
)
def test_a_request_for_one_thing_has_no_parts(query: str) -> None:
    assert split_query(query) == ()


def test_a_part_that_is_said_twice_is_one() -> None:
    assert split_query("send an email. send an email.") == ()
    assert split_query("send an email; draw a chart; send an email") == (
        "send an email",
        "draw a chart",
    )


@pytest.mark.parametrize("is_last", [True, False])
def test_the_question_beside_a_pasted_log_is_a_part(is_last: bool) -> None:
    log = "\n".join(f"12:00:{n:02} worker {n} connection reset by peer" for n in range(50))
    question = "how do I make the workers reconnect"
    parts = split_query(f"{log}\n{question}" if is_last else f"{question}\n{log}")
    assert question in parts
    assert len(parts) == MAX_CLAUSES


def test_of_many_parts_questions_and_the_ends_are_kept_in_order() -> None:
    said = [f"statement number {n} here" for n in range(30)]
    said[14] = "can you explain this part"
    said[17] = "这一步怎么办呢"
    parts = split_query("; ".join(said))
    assert len(parts) == MAX_CLAUSES
    assert {said[0], said[14], said[17], said[-1]} <= set(parts)
    assert list(parts) == [one for one in said if one in parts]


@given(ANY_TEXT)
def test_the_parts_are_in_the_text_distinct_and_bounded(text: str) -> None:
    parts = split_query(text)
    assert len(parts) == 0 or 2 <= len(parts) <= MAX_CLAUSES
    assert len(set(parts)) == len(parts)
    for part in parts:
        assert part in text
        assert part.strip()
        assert len(part) <= 400


def test_a_long_part_is_truncated() -> None:
    parts = split_query(f"send an email; {'very ' * 1_000}long")
    assert [len(part) <= 400 for part in parts] == [True, True]
