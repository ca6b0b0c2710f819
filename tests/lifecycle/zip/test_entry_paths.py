"""Entry paths: decoding, path traversal, reserved names and collisions."""

import struct
import unicodedata
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.errors import ArchiveError
from apexbridge.lifecycle.zip.archive import ArchiveLimits, ExtractionPlan, inspect_archive
from apexbridge.lifecycle.zip.entry_paths import (
    DecodedNames,
    EntryPath,
    RawName,
    check_collisions,
    decode_names,
    fold_part,
    normalize_separators,
    safe_parts,
)
from tests.lifecycle.zip.raw_zip import FOLDER, SKILL, Raw, raw_zip, refusal


def _refused(tmp_path: Path, *names: str | bytes) -> str:
    return refusal(tmp_path, raw_zip([SKILL, *(Raw(name=name, data=b"x") for name in names)]))


def _plan(tmp_path: Path, *entries: Raw) -> ExtractionPlan:
    (tmp_path / "x.zip").write_bytes(raw_zip(entries))
    return inspect_archive(tmp_path / "x.zip")


def _paths(plan: ExtractionPlan) -> list[str]:
    return [str(file.path) for file in plan.files]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        pytest.param("s/../../evil", "zip_path_traversal", marks=pytest.mark.promise("Z01")),
        pytest.param("pdf/..", "zip_path_traversal", marks=pytest.mark.promise("Z01")),
        pytest.param("../", "zip_path_traversal", marks=pytest.mark.promise("Z01")),
        pytest.param("pdf/..\\..\\x", "zip_path_traversal", marks=pytest.mark.promise("Z01")),
        pytest.param("pdf/\uff0e\uff0e/x", "zip_path_traversal",
                     marks=pytest.mark.promise("Z01"), id="wide dots"),
        pytest.param("pdf/\u2025/x", "zip_path_traversal",
                     marks=pytest.mark.promise("Z01"), id="two dot leader"),
        pytest.param("/abs/path", "zip_absolute_path", marks=pytest.mark.promise("Z02")),
        pytest.param("/", "zip_absolute_path", marks=pytest.mark.promise("Z02")),
        pytest.param("//host/x", "zip_absolute_path", marks=pytest.mark.promise("Z03")),
        pytest.param("C:\\evil", "zip_absolute_path", marks=pytest.mark.promise("Z03")),
        pytest.param("c:evil", "zip_absolute_path", marks=pytest.mark.promise("Z03")),
        pytest.param("\\\\host\\share", "zip_absolute_path", marks=pytest.mark.promise("Z03")),
        pytest.param("\\\\?\\C:\\x", "zip_absolute_path", marks=pytest.mark.promise("Z03")),
        pytest.param("pdf/a\\b", "zip_name_invalid", marks=pytest.mark.promise("Z04")),
        pytest.param("pdf//a", "zip_name_invalid"),
        pytest.param("pdf/a//", "zip_name_invalid"),
        pytest.param("", "zip_name_invalid"),
        pytest.param("pdf/./a", "zip_reserved_name", marks=pytest.mark.promise("Z13")),
        pytest.param("pdf/CON", "zip_reserved_name", marks=pytest.mark.promise("Z13")),
        pytest.param("pdf/aux.txt", "zip_reserved_name", marks=pytest.mark.promise("Z13")),
        pytest.param("pdf/nul .tar.gz", "zip_reserved_name", marks=pytest.mark.promise("Z13")),
        pytest.param("pdf/COM9/x", "zip_reserved_name", marks=pytest.mark.promise("Z13")),
        pytest.param("pdf/lpt\u00b2", "zip_reserved_name",
                     marks=pytest.mark.promise("Z13"), id="lpt superscript"),
        pytest.param("pdf/a.", "zip_reserved_name", marks=pytest.mark.promise("Z13")),
        pytest.param("pdf/a /b", "zip_reserved_name", marks=pytest.mark.promise("Z13")),
        pytest.param("pdf/a\u3000", "zip_reserved_name",
                     marks=pytest.mark.promise("Z13"), id="wide blank"),
        pytest.param("pdf/x:ads", "zip_reserved_name", marks=pytest.mark.promise("Z13")),
    ],
)  # fmt: skip
def test_a_name_that_some_system_cannot_have_is_refused(
    tmp_path: Path, name: str, code: str
) -> None:
    assert _refused(tmp_path, name) == code


@pytest.mark.promise("Z14", "Z15")
@pytest.mark.parametrize(
    "char",
    ["\0", "\n", "\x1b", "\x7f", "\x85", "\xad", "\u200b", "\u200d", "\u202e", "\u2028", "\u2066",
     "\u2800", "\u3164", "\ufe00", "\ufeff", "\U000e0041", "\U000e0100"],
    ids=ascii,
)  # fmt: skip
def test_a_character_that_cannot_be_seen_is_refused_and_shown(tmp_path: Path, char: str) -> None:
    name = f"pdf/a{char}b.md"
    with pytest.raises(ArchiveError) as caught:
        safe_parts(name)
    assert f"U+{ord(char):04X}" in caught.value.message
    assert caught.value.message.isprintable()
    assert _refused(tmp_path, name) == "zip_name_invalid"


@pytest.mark.promise("Z15")
def test_a_name_is_not_cut_at_a_nul(tmp_path: Path) -> None:
    assert _refused(tmp_path, b"pdf/SKIL\0L.md") == "zip_name_invalid"


@pytest.mark.parametrize(
    "name",
    ["参考/表格.md", "⚠️ notes.md", ".config/x", "a b.md", "con-d/y", "consol", "...a", "x~1"],
)
def test_a_sound_name_stays_as_it_is(tmp_path: Path, name: str) -> None:
    assert name in _paths(_plan(tmp_path, SKILL, Raw(name=f"pdf/{name}")))


@pytest.mark.promise("Z04")
def test_backslashes_are_separators_where_no_entry_has_slashes(tmp_path: Path) -> None:
    plan = _plan(
        tmp_path,
        replace(SKILL, name="pdf\\SKILL.md"),
        Raw(name="pdf\\scripts\\"),
        Raw(name="pdf\\scripts\\a.sh"),
    )
    assert (plan.folder, _paths(plan)) == ("pdf", ["SKILL.md", "scripts/a.sh"])
    with pytest.raises(ArchiveError) as caught:
        _plan(tmp_path, replace(SKILL, name="pdf\\SKILL.md"), Raw(name="pdf\\con"))
    assert caught.value.code == "zip_reserved_name"


@pytest.mark.promise("Z09")
def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    assert _refused(tmp_path, "pdf/a", "pdf/a") == "zip_duplicate_entry"
    # The same name in two encodings.
    chinese = "pdf/中文"
    marked = Raw(name=chinese)
    unmarked = Raw(name=chinese.encode("gb18030"))
    assert refusal(tmp_path, raw_zip([SKILL, marked, unmarked])) == "zip_duplicate_entry"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("pdf/SKILL.MD", "pdf/b", marks=pytest.mark.promise("Z10")),
        pytest.param("pdf/A.md", "pdf/a.md", marks=pytest.mark.promise("Z10")),
        pytest.param("PDF/x", "pdf/y", marks=pytest.mark.promise("Z10")),
        pytest.param("pdf/Sub/a", "pdf/sub/b", marks=pytest.mark.promise("Z10")),
        pytest.param("pdf/caf\u00e9", "pdf/cafe\u0301", marks=pytest.mark.promise("Z11"), id="NFD"),
        pytest.param("pdf/\u00e9/a", "pdf/e\u0301/b", marks=pytest.mark.promise("Z11"),
                     id="NFD folder"),
        pytest.param("pdf/straße", "pdf/STRASSE", marks=pytest.mark.promise("Z11"), id="sharp s"),
        pytest.param("pdf/ﬁle", "pdf/file", marks=pytest.mark.promise("Z11"), id="ligature"),
        pytest.param("pdf/☎", "pdf/☎\ufe0f", marks=pytest.mark.promise("Z11"), id="picture"),
        pytest.param("pdf/a", "pdf/a/b", marks=pytest.mark.promise("Z12")),
        pytest.param("pdf/a/b/c", "pdf/a", marks=pytest.mark.promise("Z12")),
        pytest.param("pdf/a", "pdf/A/b", marks=pytest.mark.promise("Z12")),
    ],
)  # fmt: skip
def test_names_that_cannot_lie_side_by_side_are_refused(
    tmp_path: Path, first: str, second: str
) -> None:
    assert _refused(tmp_path, first, second) == "zip_name_collision"


@pytest.mark.promise("Z12")
def test_a_file_and_a_folder_of_one_name_are_refused(tmp_path: Path) -> None:
    folder = Raw(name="pdf/a/", mode=FOLDER)
    assert refusal(tmp_path, raw_zip([SKILL, Raw(name="pdf/a"), folder])) == "zip_name_collision"


@pytest.mark.promise("Z16")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("pdf/" + "a/" * 3_000 + "b", id="3000 deep"),
        pytest.param("pdf/" + "a/" * 15 + "b", id="17 deep"),
        pytest.param("pdf/" + "a" * 300, id="300 long"),
        pytest.param("pdf/" + "中" * 79, id="241 bytes"),
    ],
)
def test_too_deep_or_too_long_a_path_is_refused(tmp_path: Path, name: str) -> None:
    assert _refused(tmp_path, name) == "zip_path_too_long"


@pytest.mark.promise("Z16")
def test_no_time_is_spent_on_litter_that_is_far_too_deep(tmp_path: Path) -> None:
    assert _refused(tmp_path, "__MACOSX/" + "a/" * 40 + "._b") == "zip_path_too_long"
    assert _refused(tmp_path, "__MACOSX/" + "a" * 500) == "zip_path_too_long"


@pytest.mark.promise("Z16")
def test_the_longest_path_is_taken(tmp_path: Path) -> None:
    longest = ["a/" * 14 + "b", "中" * 78]
    plan = _plan(tmp_path, SKILL, *(Raw(name=f"pdf/{name}") for name in longest))
    assert set(longest) < set(_paths(plan))
    wide = ArchiveLimits(path_bytes=1_000)
    entries = [SKILL, Raw(name="pdf/" + "a" * 256)]
    assert refusal(tmp_path, raw_zip(entries), wide) == "zip_path_too_long"


@pytest.mark.promise("Z32")
def test_chinese_names_from_windows_are_read_and_told(tmp_path: Path) -> None:
    skill = replace(SKILL, name="技能/SKILL.md".encode("gbk"))
    names = [f"技能/{name}.md".encode("gbk") for name in ("中文", "图", "表", "一", "二", "三")]
    plan = _plan(tmp_path, skill, *(Raw(name=name) for name in names))
    assert plan.folder == "技能"
    assert {"中文.md", "图.md"} < set(_paths(plan))
    (problem,) = plan.problems
    assert (problem.code, problem.severity) == ("zip_names_decoded", "warning")
    assert problem.message == (
        "The names are not marked as UTF-8 and were read as GB18030: "
        "技能/SKILL.md, 技能/中文.md, 技能/图.md, 技能/表.md, 技能/一.md (+2)"
    )


@pytest.mark.promise("Z33")
def test_names_in_utf8_need_no_mark(tmp_path: Path) -> None:
    plan = _plan(tmp_path, SKILL, Raw(name="pdf/中文.md".encode()))
    assert (_paths(plan), plan.problems) == (["SKILL.md", "中文.md"], ())


@pytest.mark.promise("Z32")
@pytest.mark.parametrize("name", [b"pdf/\xff.md", b"pdf/\x82", b"\x80\x80"])
def test_names_in_no_known_encoding_are_refused(tmp_path: Path, name: bytes) -> None:
    assert _refused(tmp_path, name) == "zip_name_encoding"
    assert decode_names([RawName(b"a")]).names == ("a",)


@pytest.mark.promise("Z33")
def test_a_name_marked_as_utf8_that_is_not_is_refused(tmp_path: Path) -> None:
    wrong = Raw(name="pdf/中".encode("gbk"), flags=0x800)
    assert refusal(tmp_path, raw_zip([SKILL, wrong])) == "zip_name_encoding"


def test_the_name_that_cannot_be_read_is_the_one_that_is_told() -> None:
    names = [RawName(b"a"), RawName("é".encode()), RawName(b"b\xff"), RawName(b"c\xff")]
    with pytest.raises(ArchiveError) as caught:
        decode_names(names)
    assert caught.value.details["name"] == "b\\xff"
    mixed = [RawName("中".encode()), RawName("中".encode("gbk"))]
    with pytest.raises(ArchiveError) as caught:
        decode_names(mixed)
    assert caught.value.details["name"] == "中"


def _second(raw: bytes, text: str, *, version: int = 1, crc: int | None = None) -> bytes:
    checksum = zlib.crc32(raw) if crc is None else crc
    data = struct.pack("<BL", version, checksum) + text.encode()
    return struct.pack("<HH", 0x7075, len(data)) + data


GBK = "pdf/图".encode("gbk")


@pytest.mark.promise("Z32")
def test_a_second_name_in_utf8_settles_the_encoding(tmp_path: Path) -> None:
    """These bytes alone are sound UTF-8 too: a Greek letter."""
    assert GBK.decode() == "pdf/ͼ"
    extra = _second(GBK, "pdf/图")
    plan = _plan(tmp_path, SKILL, Raw(name=GBK, header_extra=extra, listed_extra=extra))
    assert "图" in _paths(plan)


@pytest.mark.promise("Z24")
@pytest.mark.parametrize("where", ["header_extra", "listed_extra"])
def test_a_second_name_that_differs_is_refused(tmp_path: Path, where: str) -> None:
    for raw, text in ((b"pdf/a", "pdf/b"), (GBK, "pdf/x"), (b"pdf/a", "../../x")):
        entry = replace(Raw(name=raw), **{where: _second(raw, text)})
        assert refusal(tmp_path, raw_zip([SKILL, entry])) == "zip_ambiguous"
    short = replace(Raw(name=b"pdf/a"), **{where: struct.pack("<HHL", 0x7075, 4, 0)})
    assert refusal(tmp_path, raw_zip([SKILL, short])) == "zip_invalid"


def test_a_second_name_made_for_another_name_counts_for_nothing(tmp_path: Path) -> None:
    stale = Raw(name=b"pdf/a", listed_extra=_second(b"pdf/a", "pdf/b", crc=1))
    newer = Raw(name=b"pdf/c", header_extra=_second(b"pdf/c", "pdf/b", version=2))
    assert _paths(_plan(tmp_path, SKILL, stale, newer)) == ["SKILL.md", "a", "c"]


def test_names_come_out_composed(tmp_path: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "é/ü.md")
    skill = replace(SKILL, name=unicodedata.normalize("NFD", "é/SKILL.md"))
    plan = _plan(tmp_path, skill, Raw(name=unicodedata.normalize("NFD", f"é/{decomposed}")))
    assert (plan.folder, _paths(plan)) == ("é", ["SKILL.md", "é/ü.md"])


NAMES = st.text(st.characters(codec="utf-8"), max_size=12)


def _judged(names: list[str]) -> list[tuple[str, ...]] | ArchiveError:
    try:
        taken = [safe_parts(name) for name in normalize_separators(names)]
        check_collisions(EntryPath(parts, is_folder=False) for parts in taken)
    except ArchiveError as error:
        return error
    return taken


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_what_is_taken_stays_inside_on_every_system(names: list[str]) -> None:
    taken = _judged(names)
    if isinstance(taken, ArchiveError):
        assert taken.message.isprintable()
        return
    for parts in taken:
        assert not {"", ".", ".."} & set(parts)
        assert not any(char in "/\\:\0" for part in parts for char in part)
    assert len({tuple(map(fold_part, parts)) for parts in taken}) == len(names)


def _read(raws: list[bytes]) -> DecodedNames | ArchiveError:
    try:
        return decode_names([RawName(raw) for raw in raws])
    except ArchiveError as error:
        return error


@given(st.lists(st.binary(max_size=8), min_size=1, max_size=4))
def test_any_bytes_are_read_or_refused(raws: list[bytes]) -> None:
    read = _read(raws)
    if isinstance(read, ArchiveError):
        assert read.code == "zip_name_encoding"
    else:
        assert [name.encode(read.encoding) for name in read.names] == raws
