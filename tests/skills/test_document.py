"""Decoding of SKILL.md and the end of the frontmatter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.skills.document import Document, decode_skill_md, inline_commands, split_frontmatter
from apexbridge.skills.model import Problem


def _cut(text: str) -> Document:
    cut = split_frontmatter(text)
    assert isinstance(cut, Document)
    return cut


def _refusal(outcome: object) -> str:
    assert isinstance(outcome, Problem)
    return outcome.code


def test_the_text_is_cut_into_frontmatter_and_body() -> None:
    cut = _cut("---\nname: a\n---\nHello\n")
    assert (cut.frontmatter, cut.body) == ("name: a\n", "Hello\n")


def test_a_dash_line_inside_a_value_does_not_end_the_frontmatter() -> None:
    text = "---\ndescription: foo --- bar\nnote: |\n  ---\n  still\n---\nBody --- here\n---\nmore"
    cut = _cut(text)
    assert cut.frontmatter == "description: foo --- bar\nnote: |\n  ---\n  still\n"
    assert cut.body == "Body --- here\n---\nmore"


@pytest.mark.promise("M12")
def test_a_byte_order_mark_and_windows_line_ends_are_fine() -> None:
    text = decode_skill_md(b"\xef\xbb\xbf---\r\nname: a\r\n---\r\nHi\r\n")
    assert isinstance(text, str)
    cut = _cut(text)
    assert (cut.frontmatter, cut.body, cut.newline) == ("name: a\r\n", "Hi\r\n", "\r\n")


def test_the_closing_line_may_be_the_last_of_the_file() -> None:
    assert _cut("---\nname: a\n---").body == ""
    assert _cut("--- \nname: a\n---\t\n").frontmatter == "name: a\n"


@pytest.mark.promise("M01")
@pytest.mark.parametrize("text", ["", "# Title\n", "\n---\nname: a\n---\n", "----\nname: a\n---\n"])
def test_a_text_that_does_not_start_with_the_mark_has_no_frontmatter(text: str) -> None:
    assert _refusal(split_frontmatter(text)) == "frontmatter_missing"


@pytest.mark.promise("M01")
@pytest.mark.parametrize("text", ["---", "---\n", "---\nname: a\n", "---\nname: a\n ---\n"])
def test_a_frontmatter_without_its_last_line_is_unclosed(text: str) -> None:
    assert _refusal(split_frontmatter(text)) == "frontmatter_unclosed"


@pytest.mark.promise("M12")
@pytest.mark.parametrize(
    ("data", "code", "where", "guess"),
    [
        ("---\nname: a".encode("utf-16"), "encoding_utf16", "SKILL.md", None),
        (b"---\nna\0me: a\n", "encoding_nul", "SKILL.md:2", None),
        ("---\n\n中文技能".encode("gbk"), "encoding_not_utf8", "SKILL.md:3", "GBK"),
        (b"---\ncaf\xe9", "encoding_not_utf8", "SKILL.md:2", "Latin-1"),
    ],
)
def test_another_encoding_is_named_with_its_line(
    data: bytes, code: str, where: str, guess: str | None
) -> None:
    problem = decode_skill_md(data)
    assert isinstance(problem, Problem)
    assert (problem.code, problem.where, problem.details.get("guess")) == (code, where, guess)


@given(st.text(), st.text())
def test_cutting_loses_no_character(front: str, body: str) -> None:
    text = f"---\n{front}\n---\n{body}"
    cut = split_frontmatter(text)
    assert isinstance(cut, Document)
    assert text[: cut.start] + cut.frontmatter == text[: cut.start + len(cut.frontmatter)]
    assert text.endswith(cut.body)
    assert text[cut.start + len(cut.frontmatter) : len(text) - len(cut.body)].strip() == "---"


def test_a_blank_inline_command_is_ignored() -> None:
    assert [found.command for found in inline_commands("a !` ` and !`date`")] == ["date"]
