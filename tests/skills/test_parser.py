"""Skill parser: from a folder to a skill, whatever the folder contains."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.skills import frontmatter, parser
from apexbridge.skills.model import Origin, Problem, Provenance
from apexbridge.skills.parser import (
    ParseResult,
    first_paragraph,
    parse_body,
    parse_skill,
    read_skill,
)
from apexbridge.testing import make_skill

USER = Provenance(origin=Origin.USER, source_id="user:test")


def _parse(text: str, folder: str = "pdf") -> ParseResult:
    return parse_skill(text.encode(), folder=folder, provenance=USER)


def _codes(reading: ParseResult) -> list[str]:
    return [problem.code for problem in reading.problems]


def test_a_valid_folder_becomes_a_skill(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "pdf", description="Reads PDF.", when_to_use="On PDFs.")
    reading = read_skill(root, USER)
    assert reading.problems == ()
    assert reading.skill is not None
    assert (reading.skill.name, reading.skill.summary) == ("pdf", "Reads PDF. On PDFs.")
    assert reading.skill.root == root
    assert reading.skill.fingerprint is not None
    assert reading.skill.fingerprint.files == 1
    assert not reading.skill.is_conditional


@pytest.mark.parametrize(
    ("declared", "folder", "name", "codes"),
    [
        ("pdf", "pdf", "pdf", []),
        ("pdf", "other", "pdf", ["name_mismatch"]),
        ("PDF Miner", "pdf-miner", "pdf-miner", ["name_replaced"]),
        ("PDF Miner", "PDF_Miner", "pdf-miner", ["name_replaced"]),
        ("../../x", "..", "x", ["name_replaced"]),
        ("café", "cafe\u0301", "café", []),
        ("3000", "3000", "3000", []),
    ],
)
@pytest.mark.promise("M07", "M08")
def test_a_skill_is_known_by_a_valid_name(
    declared: str, folder: str, name: str, codes: list[str]
) -> None:
    reading = _parse(f"---\nname: {declared}\ndescription: d\n---\n", folder)
    assert reading.skill is not None
    assert (reading.skill.name, _codes(reading)) == (name, codes)


def test_a_missing_name_is_the_folders() -> None:
    reading = _parse("---\ndescription: d\n---\n", "pdf")
    assert reading.skill is not None
    assert (reading.skill.name, _codes(reading)) == ("pdf", [])


def test_a_skill_without_any_usable_name_is_none() -> None:
    reading = _parse("---\ndescription: d\n---\n", "...")
    assert (reading.skill, _codes(reading)) == (None, ["name_characters"])


@pytest.mark.promise("M09")
@pytest.mark.parametrize(
    ("front", "body", "description", "code"),
    [
        ("", "\n# The title\n\ntext", "The title", "description_derived"),
        (
            "description:\n",
            "First\nparagraph.\n\nSecond.",
            "First paragraph.",
            "description_derived",
        ),
        ("description: '  '\n", "", "pdf", "description_derived"),
        ("description: [a]\n", "<!-- x -->\n\nText", "Text", "description_derived"),
        (f"description: {'x' * 1025}\n", "", "x" * 1025, "description_too_long"),
    ],
)
def test_a_description_is_found_where_none_is_given(
    front: str, body: str, description: str, code: str
) -> None:
    reading = _parse(f"---\nname: pdf\n{front}---\n{body}")
    assert reading.skill is not None
    assert reading.skill.description == description
    assert code in _codes(reading)


@pytest.mark.promise("M15")
def test_a_skill_md_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    for name in ("folder", "link", "pipe"):
        (tmp_path / name).mkdir()
    (tmp_path / "folder/SKILL.md").mkdir()
    (tmp_path / "link/SKILL.md").symlink_to(make_skill(tmp_path, "real") / "SKILL.md")
    os.mkfifo(tmp_path / "pipe/SKILL.md")
    for name in ("folder", "link", "pipe"):
        reading = read_skill(tmp_path / name, USER)
        assert (reading.skill, _codes(reading)) == (None, ["skill_md_not_a_file"])


@pytest.mark.promise("M15")
def test_a_huge_skill_md_is_refused_unread(tmp_path: Path) -> None:
    root = make_skill(tmp_path)
    with (root / "SKILL.md").open("ab") as file:
        file.truncate(50_000_000)
    assert _codes(read_skill(root, USER)) == ["skill_md_too_large"]


def test_other_letter_case_is_read_and_reported(tmp_path: Path) -> None:
    root = make_skill(tmp_path)
    (root / "SKILL.md").rename(root / "skill.md")
    reading = read_skill(root, USER)
    assert reading.skill is not None
    assert _codes(reading) == ["skill_md_case"]


def test_the_exact_name_wins_over_a_variant(tmp_path: Path) -> None:
    root = make_skill(tmp_path)
    (root / "skill.md").write_bytes(b"not this")
    assert _codes(read_skill(root, USER)) == []


def test_a_missing_file_or_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert _codes(read_skill(tmp_path / "empty", USER)) == ["skill_md_missing"]
    assert _codes(read_skill(tmp_path / "gone", USER)) == ["folder_unreadable"]


def test_a_link_below_a_skill_does_not_hide_it(tmp_path: Path) -> None:
    root = make_skill(tmp_path)
    (root / "away").symlink_to("/")
    reading = read_skill(root, USER)
    assert reading.skill is not None
    assert reading.skill.fingerprint is not None
    assert reading.skill.fingerprint.files == 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", ""),
        ("\n\n", ""),
        ("## Two words\nand text", "Two words"),
        ("```\ncode\n```\n\nText *here*\nand there", "Text *here* and there"),
    ],
)
def test_the_first_paragraph_of_a_body_describes_it(body: str, words: str) -> None:
    assert first_paragraph(body) == words


@given(st.binary(max_size=400))
def test_no_bytes_make_the_reader_fail(data: bytes) -> None:
    reading = parse_skill(b"---\n" + data, folder="x", provenance=USER)
    assert reading.skill is not None or reading.problems


def test_a_body_below_a_frontmatter_that_was_read_is_had_without_reading_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, other = "---\nname: kept\ndescription: A.\n---\n", "---\nname: [\n---\n"
    assert _parse(f"{good}First.").skill is not None
    monkeypatch.setattr(frontmatter, "read", None)
    assert parse_body(f"{good}Another.".encode()) == "Another."
    monkeypatch.undo()
    for _ in range(2):  # what could not be read is not taken for what could
        refused = parse_body(f"{other}Text.".encode())
        assert isinstance(refused, Problem)
        assert refused.code == "yaml_invalid"
    assert parse_body(b"---\nname: unseen\ndescription: B.\n---\nNew.") == "New."


def test_a_skill_md_that_cannot_be_opened_is_reported_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make_skill(tmp_path, "pdf", description="Reads PDF.")

    def refuse(*_: object, **_options: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("apexbridge.regular_files.os.open", refuse)
    reading = read_skill(root, USER)
    assert reading.skill is None
    assert _codes(reading) == ["skill_md_unreadable"]
    assert reading.problems[0].details["detail"] == "Permission denied"


def test_the_memory_for_parsed_frontmatter_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "_MAX_PARSED_HASHES", 2)
    seen = set[int]()
    monkeypatch.setattr(parser, "_parsed_hashes", seen)
    for number in range(5):
        assert _parse(f"---\nname: a{number}\ndescription: d\n---\nb\n", f"a{number}").skill
        assert len(seen) <= 2
