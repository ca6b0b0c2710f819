"""Description editor: no other byte changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.errors import SkillInvalidError
from apexbridge.skills import editor
from apexbridge.skills.document import Document
from apexbridge.skills.editor import edit_description
from apexbridge.skills.frontmatter import Frontmatter
from apexbridge.skills.model import Problem
from apexbridge.skills.parser import parse_document

BODY = "# Body\n\ndescription: not this one\n"


def _open(data: bytes) -> tuple[Document, Frontmatter]:
    opened = parse_document(data)
    assert not isinstance(opened, Problem), opened
    return opened


STYLES = {
    "plain": "description: old text",
    "plain with comment": "description: old text   # why",
    "single": "description: 'old ''text'''",
    "double": 'description: "old \\"text\\""',
    "folded": "description: >-\n  old\n  text",
    "literal with gap": "description: |+\n  old\n\n  text\n\n",
    "plain over lines": "description: old\n  text goes\n  on",
    "double over lines": 'description: "old\n  text"',
    "empty": "description:",
    "empty with comment": "description: # later",
    "tagged": "description: !!str old",
    "unquoted colon": "description: Build for AWS: ECS",
    "unquoted colon over lines": "description: Use when: the\n  user asks",
    "chinese": "description: 旧的描述，带标点。",
    "odd blanks": "description:    old text   ",
    "quoted key": '"description": old',
}


@pytest.mark.promise("L11")
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("style", STYLES)
def test_every_style_of_value_is_replaced_and_nothing_else(style: str, newline: str) -> None:
    before, after = "---\n# top\nname:   x  # keep\n", "\nlist:\n    - a\n# end\n---\n"
    text = (before + STYLES[style] + after + BODY).replace("\n", newline)
    edited = edit_description(text.encode(), '新的: "description"\n---\nallowed-tools: Bash')
    _, values = _open(edited)
    assert values.values == {
        "name": "x",
        "description": '新的: "description"\n---\nallowed-tools: Bash',
        "list": ["a"],
    }
    assert edited.startswith(before.replace("\n", newline).encode())
    assert edited.endswith((after + BODY).replace("\n", newline).encode())


def test_a_byte_order_mark_stays() -> None:
    edited = edit_description(b"\xef\xbb\xbf---\nname: x\ndescription: y\n---\n", "z")
    assert edited == b'\xef\xbb\xbf---\nname: x\ndescription: "z"\n---\n'


def test_a_comment_behind_the_value_stays() -> None:
    edited = edit_description(b"---\ndescription: y # why\nname: x\n---\n", "z")
    assert edited == b'---\ndescription: "z" # why\nname: x\n---\n'


def test_a_missing_description_is_put_first() -> None:
    assert edit_description(b"---\r\nname: x\r\n---\r\nHi", "z") == (
        b'---\r\ndescription: "z"\r\nname: x\r\n---\r\nHi'
    )


def test_a_flow_mapping_is_edited_in_place() -> None:
    assert edit_description(b"---\n{name: x, description: y}\n---\n", "z, }") == (
        b'---\n{name: x, description: "z, }"}\n---\n'
    )


def test_another_value_without_quotes_stays_as_it_is() -> None:
    data = b"---\npaths: **/*.ts\ndescription: old\nnote: a: b\n---\n"
    assert edit_description(data, "new") == (
        b'---\npaths: **/*.ts\ndescription: "new"\nnote: a: b\n---\n'
    )


@pytest.mark.promise("L11")
def test_the_same_text_changes_no_byte() -> None:
    data = b"---\nname: x\ndescription: 'same'\n---\n"
    assert edit_description(data, "same") is data


@pytest.mark.promise("L11")
def test_the_longest_chinese_description_fits() -> None:
    edited = edit_description(b"---\nname: x\ndescription: y\n---\n", "技" * 1024)
    assert _open(edited)[1].values["description"] == "技" * 1024


@pytest.mark.promise("L11")
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "must not be empty"),
        (" \n\t", "must not be empty"),
        ("x" * 1025, "1025 characters"),
        ("x" * 5_000_000, "5000000 characters"),
        ("\ud800", "must be a string"),
    ],
)
def test_a_description_against_the_rules_is_refused(text: str, rule: str) -> None:
    with pytest.raises(SkillInvalidError, match=rule):
        edit_description(b"---\nname: x\ndescription: y\n---\n", text)


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"no frontmatter", "first line"),
        (b"---\ndescription: [a, b]\n---\n", "must be a string"),
        (b"---\n{name: x}\n---\n", "must be a string"),
        (b"---\nname: [\n---\n", "not valid YAML"),
    ],
)
def test_a_file_that_cannot_be_edited_safely_is_refused(data: bytes, rule: str) -> None:
    with pytest.raises(SkillInvalidError, match=rule):
        edit_description(data, "new")


def test_a_change_that_would_break_the_file_is_refused() -> None:
    with pytest.raises(SkillInvalidError, match="cannot be replaced without"):
        edit_description(b"---\n  name: x\n---\n", "new")
    with pytest.raises(SkillInvalidError, match="more than 65536 bytes"):
        edit_description(b"---\ndescription: x\nnote: " + b"y" * 65_000 + b"\n---\n", "z" * 1_000)


@pytest.mark.promise("L11")
def test_a_change_that_would_touch_another_field_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(editor, "quote", lambda _: '"new"\nname: evil')  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(SkillInvalidError, match="cannot be replaced without"):
        edit_description(b"---\ndescription: old\n---\n", "new")


@given(
    st.sampled_from(sorted(STYLES)),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=80).filter(str.strip),
)
def test_any_text_comes_back_as_it_went_in(style: str, description: str) -> None:
    data = f"---\nname: x\n{STYLES[style]}\nlist: [a]\n---\n{BODY}".encode()
    edited = edit_description(data, description)
    cut, values = _open(edited)
    assert values.values == {"name": "x", "description": description, "list": ["a"]}
    assert cut.body == BODY


def test_a_comment_stays_when_another_value_needed_repair() -> None:
    data = b"---\nname: a\ndescription: yes # keep: me\nx: @me\n---\n"
    assert edit_description(data, "New") == (
        b'---\nname: a\ndescription: "New" # keep: me\nx: @me\n---\n'
    )
    data = b"---\nname: a # v: 1\ndescription: Ends: x # why\n---\n"
    assert edit_description(data, "New") == b'---\nname: a # v: 1\ndescription: "New" # why\n---\n'
