"""Indexed document of a skill or tool."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.retrieval.skill_document import (
    MAX_BODY_CHARS,
    MAX_VIEWS,
    SkillDocument,
    SkillText,
    build_document,
    main_text,
    name_as_words,
    strip_markup,
    trigger_phrases,
)
from apexbridge.retrieval.tokenizer import term_hash

ANY_TEXT = st.text(st.characters(), max_size=80)
LARGE = 200_000
"""Time that grows with the square of this would not end while anyone waits."""


def _views(summary: str = "", body: str = "", *, other_language: str = "") -> list[str]:
    text = SkillText(name="x", summary=summary, body=body, other_language=other_language)
    return list(trigger_phrases(text))


def _has(digested: SkillDocument, word: str) -> int:
    named = dict(zip(digested.terms.tolist(), digested.counts.tolist(), strict=True))
    return named.get(term_hash(word), 0)


def test_a_name_is_split_into_words() -> None:
    assert name_as_words("pdf-form_filler:v2") == "pdf form filler v2"
    assert name_as_words("a.b/c--d") == "a b c d"
    assert name_as_words("-_-") == ""
    assert name_as_words("数据-分析") == "数据 分析"


def test_the_main_text_is_name_and_summary_within_bounds() -> None:
    assert main_text(SkillText(name="pdf-tools", summary="Read PDF.")) == "pdf tools. Read PDF."
    assert len(main_text(SkillText(name="x", summary="y" * 9_999))) == 1_600
    assert main_text(SkillText(name="", summary="")) == ". "


@pytest.mark.parametrize(
    ("summary", "expected"),
    [
        ('Use for "merge my two PDF files" and more.', "merge my two PDF files"),
        ("Use for “merge my two PDF files” and more.", "merge my two PDF files"),
        ("当用户说「把两个文件合并」时使用。", "把两个文件合并"),
        ("当用户说『把两个文件合并』时使用。", "把两个文件合并"),
        ("当用户说“把两个文件合并”时使用。", "把两个文件合并"),
    ],
)
def test_quoted_triggers_are_views(summary: str, expected: str) -> None:
    assert expected in _views(summary)


def test_quotes_come_before_bullets_and_the_sentences_around_them_are_no_views() -> None:
    found = _views(
        'Fills in paper forms. Say "fill in this form" to start.',
        "## When to use\n\n- somebody has a form to fill in\n",
    )
    assert found == ["fill in this form", "somebody has a form to fill in"]


def test_the_other_language_and_the_tags_made_with_it_come_first() -> None:
    text = SkillText(
        name="x",
        summary="Fills in paper forms.",
        tags=("forms", "paper", "填写表格"),
        other_language="填写纸质表格和申请书",
    )
    assert list(trigger_phrases(text)) == ["填写纸质表格和申请书", "forms, paper, 填写表格"]
    mined = SkillText(name="x", summary="Fills in paper forms.", tags=("forms", "paper"))
    assert list(trigger_phrases(mined)) == []


@pytest.mark.parametrize(
    ("heading", "bullet", "view"),
    [
        ("## When to use", "- turning notes into slides", "turning notes into slides"),
        ("# USE CASES", "* turning notes into slides", "turning notes into slides"),
        ("### Examples ###", "1. turning notes into slides", "turning notes into slides"),
        ("###### trigger phrases", "  + turning notes into slides", "turning notes into slides"),
        ("## 使用场景", "- 把笔记做成幻灯片", "把笔记做成幻灯片"),
        ("## 何时使用", "1、 把笔记做成幻灯片", "把笔记做成幻灯片"),
        ("## 触发条件", "• 把笔记做成幻灯片", "把笔记做成幻灯片"),
        ("## When to use", "-      turning notes into slides   ", "turning notes into slides"),
    ],
)
def test_bullets_that_say_when_are_views(heading: str, bullet: str, view: str) -> None:
    body = (
        f"# Title\n\n- this one says nothing of it\n\n{heading}\n\n{bullet}\n\n## Setup\n\n- no!\n"
    )
    assert _views("One sentence.", body) == [view]
    assert _views("One sentence.", body.replace("\n", "\r\n")) == [view]


def test_bullets_elsewhere_and_in_code_are_no_views() -> None:
    body = (
        "## Installation\n- install it with the usual tools\n"
        "## When to use\n"
        "```\n- a bullet in a block of code\n```\n"
        "~~~md\n# When to use\n- another one in such a block\n~~~\n"
        "- this one can be seen by all\n"
        "```\n- the block that is never closed\n## When\n- nothing of it is seen\n"
    )
    assert _views("One sentence.", body) == ["this one can be seen by all"]


def test_a_view_is_plain_text_of_a_sensible_length() -> None:
    body = (
        "## When to use\n"
        "- **Fill** in `forms` for [the tax office](https://x.example/y), _quickly_\n"
        "- ![picture](a.png) <b>of</b> something | that helps:\n"
        "- too short\n"
        f"- {'long ' * 59}\n"
        f"- {'far too long to be a bullet ' * 20}\n"
    )
    found = _views("One sentence.", body)
    assert found[:2] == [
        "Fill in forms for the tax office , quickly",
        "picture of something that helps",
    ]
    assert [len(view) for view in found[2:]] == [200]


def test_a_view_is_there_once_and_never_the_summary_again() -> None:
    bullets = "- do what nobody else can do\n" * 3 + "- One sentence that says it all.\n"
    found = _views("One sentence that says it all.", f"## Usage\n{bullets}")
    assert found == ["do what nobody else can do"]
    assert _views("One sentence that says it all.") == []


def test_short_chinese_says_as_much_as_longer_english() -> None:
    summary = "Say “写代码” or “生成一份周报” or “be quick” or “write a weekly report”."
    assert _views(summary) == ["生成一份周报", "write a weekly report"]


def test_there_are_never_more_views_than_allowed() -> None:
    body = "## When\n" + "".join(f"- the case number {n} of them\n" for n in range(100))
    digested = build_document(SkillText(name="x", summary="One sentence.", body=body))
    assert digested.views == tuple(f"the case number {n} of them" for n in range(MAX_VIEWS))


def test_words_come_from_name_summary_tags_headings_and_the_bodys_beginning() -> None:
    body = "start " + "filler " * MAX_BODY_CHARS + "\n# Heading far below\n\nbottom\n"
    digested = build_document(
        SkillText(
            name="zebra-kit",
            summary="stripes",
            body=body,
            tags=("giraffe", *(f"tag{n}" for n in range(100))),
            other_language="斑马",
        )
    )
    assert _has(digested, "zebra") == 3
    for word in ("stripe", "giraff", "斑马", "start", "head"):
        assert _has(digested, word) >= 1
    assert (_has(digested, "bottom"), _has(digested, "tag99")) == (0, 0)
    assert _has(digested, "filler") == 255


def test_headings_in_code_blocks_are_ignored() -> None:
    filler = "x " * MAX_BODY_CHARS
    digested = build_document(
        SkillText(name="n", summary="s", body=f"{filler}\n```\n# zebra\n```\n# lion\n")
    )
    assert (_has(digested, "zebra"), _has(digested, "lion")) == (0, 1)


def test_an_overlong_heading_is_truncated() -> None:
    endless = "# " + " ".join(f"word{n}" for n in range(50_000))
    body = "x" * MAX_BODY_CHARS + f"\n{endless}\n"
    assert len(build_document(SkillText(name="n", summary="s", body=body)).terms) < 100


def test_nothing_gives_nothing() -> None:
    digested = build_document(SkillText(name="", summary=""))
    assert (digested.whole, digested.views, len(digested.terms)) == (". ", (), 0)


def test_markdown_is_stripped() -> None:
    assert strip_markup("**a** [b](c) ![d](e) <f> `g` _h_ | i") == "a b d g h i"
    assert strip_markup(" - a:\n b; ") == "a: b"
    assert strip_markup("[a] (b) [c]\n(d)") == "[a] (b) [c] (d)"
    assert strip_markup("a < b and c > d") == "a d"  # looks like a tag, and is taken for one


@pytest.mark.parametrize(
    "unit",
    [
        "#", "# ", "# #", "#\n", "# when\n", "[", "![", "[](", "](", "<", "`", "*", "_", "'", '"',
        "“", "「", " ", "\n", "\t-", "- ", "- x\n", "1. ", "```\n", "~~~\n", "```\n~~~\n", ". ",
        "。", "A", "字", "\u0301", "\ud800",
    ],
)  # fmt: skip
@pytest.mark.unmeasured
def test_a_hostile_text_is_parsed_in_bounded_time(unit: str) -> None:
    body = unit * (LARGE // len(unit))
    line = body.replace("\n", " ")
    for hostile in (
        body,
        f"# when {line}x\n- do this or do that\n",
        f"# when\n- {line}x\n{body}",
    ):
        digested = build_document(SkillText(name="n", summary="s", body=hostile))
        assert len(digested.views) <= MAX_VIEWS
        assert len(digested.terms) < 3 * MAX_BODY_CHARS


@pytest.mark.parametrize(
    "unit", ["[", "![", "[](", "'", '"a', "“", "「", ". ", "。", "<", "*", "-"]
)
@pytest.mark.unmeasured
def test_a_hostile_summary_is_parsed_in_bounded_time(unit: str) -> None:
    summary = unit * (60_000 // len(unit))
    digested = build_document(SkillText(name="n", summary=summary, tags=(summary,) * 3))
    assert len(digested.views) <= MAX_VIEWS
    assert len(digested.whole) <= 1_600


def test_many_bullets_are_parsed_in_bounded_time() -> None:
    body = "# when\n" + "- the same again and again\n" * 40_000
    assert _views("s", body) == ["the same again and again"]


@given(name=ANY_TEXT, summary=ANY_TEXT, body=ANY_TEXT, tag=ANY_TEXT, other=ANY_TEXT)
def test_any_text_has_a_document(name: str, summary: str, body: str, tag: str, other: str) -> None:
    text = SkillText(name=name, summary=summary, body=body, tags=(tag,), other_language=other)
    digested = build_document(text)
    assert len(digested.terms) == len(digested.counts)
    assert len(set(digested.views)) == len(digested.views) <= MAX_VIEWS
    assert all(6 <= len(view) <= 200 for view in digested.views)


def test_a_tool_is_described_by_its_name_and_its_parameters() -> None:
    address = {"type": "object", "properties": {"zip_code": {"description": "Postal code."}}}
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where\nto look."},
            "addresses": {"type": "array", "items": address},
            "days": {"type": "integer"},
        },
    }
    text = SkillText.from_tool("getWeatherForecast", "Weather of the next days.", schema)
    assert text == SkillText(
        name="get Weather Forecast",
        summary="Weather of the next days.",
        body="city: Where to look.\naddresses\nzip code: Postal code.\ndays",
        kind="tool",
    )
    document = build_document(text)
    assert document.kind == "tool"
    assert document.whole == "get Weather Forecast. Weather of the next days."
    assert _has(document, "postal")
    assert build_document(SkillText(name="x", summary="y")).kind == "skill"


_JSON = st.recursive(
    st.none() | st.integers() | ANY_TEXT,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["properties", "items", "description", "a"]), inner)
    ),
    max_leaves=30,
)


@given(name=ANY_TEXT, description=ANY_TEXT, schema=_JSON)
def test_any_schema_has_a_document(name: str, description: str, schema: Any) -> None:
    text = SkillText.from_tool(name, description, schema)
    for part in (text.name, text.summary, text.body):
        part.encode()  # no lone surrogates
    assert build_document(text).kind == "tool"


def test_a_hostile_schema_is_read_within_bounds() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"properties": {"p": deep}, "items": deep}
    long = {"description": "x" * LARGE}
    wide = {"properties": {f"p{number}": long for number in range(LARGE)}}
    for schema in (deep, wide, {"properties": ["a"]}, {"properties": {"a": "b"}}):
        text = SkillText.from_tool("n" * LARGE, "word " * LARGE, schema)
        assert (len(text.name), len(text.summary) <= 1_024) == (128, True)
        assert len(text.body) <= MAX_BODY_CHARS
    assert SkillText.from_tool("x", "y").body == ""
