"""The lock file: round trips, stable text, and damaged files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.errors import ConfigError
from apexbridge.lifecycle.lockfile import (
    LockedSkill,
    format_lock,
    lock_record,
    locked_source,
    read_lock,
    write_lock,
)
from apexbridge.lifecycle.source_records import SourceRecord

PDF = LockedSkill(
    name="pdf",
    source="github:o/r",
    ref="main",
    revision="0" * 40,
    path="skills/pdf",
    sha256="a" * 64,
)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


_ENTRIES = st.dictionaries(_TEXT, st.tuples(_TEXT, st.one_of(st.just(""), _TEXT)), max_size=5)


@given(_ENTRIES)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("lock") / "apexbridge.lock"
    skills = {
        name: LockedSkill(name=name, source=source, version=version)
        for name, (source, version) in entries.items()
    }
    write_lock(path, skills)
    assert read_lock(path) == skills


def test_equal_skills_give_equal_text_and_one_change_is_a_change_of_its_line() -> None:
    csv = PDF.model_copy(update={"name": "csv"})
    one, other = format_lock({"pdf": PDF, "csv": csv}), format_lock({"csv": csv, "pdf": PDF})
    assert one == other
    changed = format_lock({"csv": csv, "pdf": PDF.model_copy(update={"revision": "1" * 40})})
    lines = zip(one.splitlines(), changed.splitlines(), strict=True)
    assert sum(before != after for before, after in lines) == 1


def test_an_unchanged_lock_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "apexbridge.lock"
    assert write_lock(path, {"pdf": PDF})
    before = path.stat()
    assert not write_lock(path, {"pdf": PDF})
    assert path.stat().st_ino == before.st_ino


@pytest.mark.parametrize(
    "text",
    [
        "version = 2\n",
        "skill = 1\nversion = 1\n",
        "version = 1\n[[skill]]\nname = 'a'\n",
        "version = 1\n[[skill]]\nname = 'a'\nsource = 'o/r'\nsha256 = 'x'\n",
        "version = 1\n[[skill]]\nname = 'a'\nsource = 'o/r'\nextra = 'x'\n",
        "version = 1\n" + "[[skill]]\nname = 'a'\nsource = 'o/r'\n" * 2,
        "<<<<<<< ours\n",
        "version = 1\n\xff",
    ],
)
def test_a_damaged_lock_file_is_a_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "apexbridge.lock"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        read_lock(path)
    assert caught.value.code == "lock_invalid"


def test_a_source_inside_the_project_is_locked_relative_to_it(tmp_path: Path) -> None:
    record = SourceRecord(source=str(tmp_path / "skills"), path="pdf")
    entry = lock_record("pdf", record, tmp_path)
    assert entry.source == "./skills"
    elsewhere = tmp_path / "clone"
    assert locked_source(entry, elsewhere).source == str(elsewhere / "skills")
    outside = lock_record("pdf", SourceRecord(source="/srv/skills"), tmp_path)
    assert outside.source == "/srv/skills"
