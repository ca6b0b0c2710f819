"""Zip records: their limits, and the agreement of central and local headers."""

import io
import struct
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from apexbridge.errors import ArchiveError
from apexbridge.lifecycle.zip.archive import ArchiveLimits, check_zip, inspect_archive
from apexbridge.testing import skill_md
from tests.lifecycle.zip.raw_zip import SKILL, Raw, deflate, descriptor, raw_zip, refusal

OTHER = Raw(name="pdf/a.md", data=b"a" * 100, deflated=True)
GOOD = (SKILL, OTHER)


def _taken(tmp_path: Path, data: bytes) -> dict[str, int]:
    path = tmp_path / "x.zip"
    path.write_bytes(data)
    return {str(file.path): file.size for file in inspect_archive(path).files}


SIZES = {"SKILL.md": len(SKILL.data), "a.md": 100}


def _field(kind: int, data: bytes) -> bytes:
    return struct.pack("<HH", kind, len(data)) + data


def _wide(*numbers: int) -> bytes:
    return _field(1, struct.pack(f"<{len(numbers)}Q", *numbers))


def test_a_plain_zip_is_taken(tmp_path: Path) -> None:
    assert _taken(tmp_path, raw_zip(GOOD)) == SIZES


def test_an_archive_may_have_a_comment(tmp_path: Path) -> None:
    assert _taken(tmp_path, raw_zip(GOOD, comment=b"made by PK")) == SIZES


STREAMED = {"crc": 0, "packed": 0, "size": 0}


@pytest.mark.promise("Z27")
@pytest.mark.parametrize("form", ["<3L", "<L2Q"])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("deflated", [True, False])
def test_sizes_may_follow_a_file(
    tmp_path: Path, form: str, *, signed: bool, deflated: bool
) -> None:
    entries = [replace(e, flags=8, header=STREAMED, deflated=deflated, packed=None) for e in GOOD]
    entries = [replace(e, tail=descriptor(e, form, signed=signed)) for e in entries]
    assert _taken(tmp_path, raw_zip(entries)) == SIZES


@pytest.mark.promise("Z27")
def test_sizes_may_stand_before_and_after_a_file(tmp_path: Path) -> None:
    known = replace(OTHER, flags=8, tail=descriptor(OTHER))
    assert _taken(tmp_path, raw_zip([SKILL, known])) == SIZES


@pytest.mark.promise("Z27")
def test_only_a_files_own_header_may_announce_them(tmp_path: Path) -> None:
    local_only = replace(OTHER, header={**STREAMED, "flags": 8}, tail=descriptor(OTHER))
    assert _taken(tmp_path, raw_zip([SKILL, local_only])) == SIZES
    listed_only = replace(OTHER, listed={"flags": 8})
    assert refusal(tmp_path, raw_zip([SKILL, listed_only])) == "zip_ambiguous"


@pytest.mark.promise("Z24", "Z27")
@pytest.mark.parametrize("change", [b"", b"x", b"\0" * 12, b"PK\7\x08" + b"\0" * 12, b"x" * 40])
def test_sizes_after_a_file_must_fit_it(tmp_path: Path, change: bytes) -> None:
    streamed = replace(OTHER, flags=8, header=STREAMED, tail=change)
    assert refusal(tmp_path, raw_zip([SKILL, streamed])) == "zip_ambiguous"


@pytest.mark.promise("Z27")
def test_a_zip_written_to_a_pipe_is_taken(tmp_path: Path) -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pdf/SKILL.md", skill_md("pdf"))
        with archive.open("pdf/a.md", "w", force_zip64=True) as file:
            file.write(b"a" * 100)
    assert _taken(tmp_path, pipe.getvalue()) == SIZES


@pytest.mark.promise("Z26")
def test_large_numbers_are_taken_where_they_are_true(tmp_path: Path) -> None:
    absent = {"packed": 0xFFFFFFFF, "size": 0xFFFFFFFF}
    packed = len(OTHER.bytes)
    entry = replace(
        OTHER,
        header=absent,
        header_extra=_wide(100, packed),
        listed={**absent, "disk": 0xFFFF},
        listed_extra=_field(1, struct.pack("<QQL", 100, packed, 0)),
    )
    end = {"here": 0xFFFF, "all": 0xFFFF, "size": 0xFFFFFFFF, "offset": 0xFFFFFFFF}
    assert _taken(tmp_path, raw_zip([SKILL, entry], wide={}, end=end)) == SIZES
    assert _taken(tmp_path, raw_zip(GOOD, wide={})) == SIZES


@pytest.mark.promise("Z24", "Z26")
@pytest.mark.parametrize(
    ("header", "header_extra", "listed", "listed_extra", "code"),
    [
        pytest.param({"size": 0xFFFFFFFF}, b"", {}, b"", "zip_invalid", id="no field"),
        pytest.param({"size": 0xFFFFFFFF}, _wide(100), {}, b"", "zip_invalid", id="one size"),
        pytest.param({"size": 0xFFFFFFFF}, _wide(100, 1), {}, b"", "zip_ambiguous", id="two sizes"),
        pytest.param({"size": 0xFFFFFFFF}, _wide(99, len(OTHER.bytes)), {}, b"", "zip_ambiguous",
                     id="wrong size"),
        pytest.param({}, b"", {"size": 0xFFFFFFFF}, b"", "zip_invalid", id="list without field"),
        pytest.param({}, b"", {"size": 0xFFFFFFFF}, _wide(100, 1), "zip_invalid",
                     id="list with too many"),
        pytest.param({}, b"", {"offset": 0xFFFFFFFF}, _wide(1 << 60), "zip_ambiguous",
                     id="far away"),
        pytest.param({}, b"", {"size": 0xFFFFFFFF}, _wide(1 << 40), "zip_too_large", id="large"),
        pytest.param({}, _wide(1, 1) * 2, {}, b"", "zip_ambiguous", id="twice"),
        pytest.param({}, b"xxx", {}, b"", "zip_invalid", id="three bytes"),
        pytest.param({}, b"xxxx", {}, b"", "zip_invalid", id="cut off"),
    ],
)  # fmt: skip
def test_large_numbers_that_lie_are_refused(
    tmp_path: Path,
    header: dict[str, int],
    header_extra: bytes,
    listed: dict[str, int],
    listed_extra: bytes,
    code: str,
) -> None:
    entry = replace(
        OTHER, header=header, header_extra=header_extra, listed=listed, listed_extra=listed_extra
    )
    assert refusal(tmp_path, raw_zip([SKILL, entry])) == code


@pytest.mark.promise("Z26")
@pytest.mark.parametrize("method", [1, 9, 12, 14, 93, 95])
def test_other_ways_of_packing_are_refused(tmp_path: Path, method: int) -> None:
    entry = replace(OTHER, header={"method": method}, listed={"method": method})
    assert refusal(tmp_path, raw_zip([SKILL, entry])) == "zip_unsupported"


@pytest.mark.promise("Z26")
def test_an_entry_for_newer_programs_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, raw_zip([replace(SKILL, listed={"needed": 64})])) == "zip_unsupported"
    assert len(_taken(tmp_path, raw_zip([replace(SKILL, listed={"needed": 63})]))) == 1


@pytest.mark.promise("Z26")
@pytest.mark.parametrize("number", ["disk", "list_disk", "here"])
def test_an_archive_in_several_files_is_refused(tmp_path: Path, number: str) -> None:
    assert refusal(tmp_path, raw_zip(GOOD, end={number: 1})) == "zip_unsupported"
    assert refusal(tmp_path, raw_zip(GOOD, wide={number: 1})) == "zip_unsupported"
    away = replace(OTHER, listed={"disk": 1})
    assert refusal(tmp_path, raw_zip([SKILL, away])) == "zip_unsupported"
    assert refusal(tmp_path, raw_zip(GOOD, wide={}, locator={"disks": 2})) == "zip_unsupported"


@pytest.mark.promise("Z22")
@pytest.mark.parametrize("flag", [0x1, 0x41, 0x2000])
def test_an_encrypted_entry_is_refused(tmp_path: Path, flag: int) -> None:
    assert refusal(tmp_path, raw_zip([SKILL, replace(OTHER, flags=flag)])) == "zip_encrypted"


@pytest.mark.promise("Z22")
def test_an_entry_packed_with_a_password_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, raw_zip([replace(OTHER, listed={"method": 99})])) == "zip_encrypted"


@pytest.mark.promise("Z23")
def test_data_around_the_archive_is_refused(tmp_path: Path) -> None:
    good = raw_zip(GOOD)
    cases = {
        "before": b"#!/bin/sh\n" + good,
        "before, and counted": raw_zip(GOOD, prefix=b"#!/bin/sh\n"),
        "after": good + b"\n",
        "two": good + good,
        "between": raw_zip([replace(SKILL, tail=b"x"), OTHER]),
        "before the list": raw_zip([SKILL, replace(OTHER, tail=b"xx")]),
        "nothing listed": raw_zip([], prefix=b"x"),
        "two ends": raw_zip(GOOD, comment=raw_zip(GOOD)),
        "entry with a comment": raw_zip([SKILL, replace(OTHER, comment=b"c")]),
    }
    codes = {name: refusal(tmp_path, data) for name, data in cases.items()}
    assert set(codes.values()) == {"zip_ambiguous"}, codes


@pytest.mark.promise("Z23")
def test_an_end_that_takes_the_true_one_for_its_comment_is_refused(tmp_path: Path) -> None:
    def hiding(length: int) -> bytes:
        false_end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, 0, 0, length)
        return raw_zip([SKILL, Raw(name="pdf/z.bin", data=false_end)])

    behind = len(hiding(0)) - hiding(0).index(b"PK\5\6") - 22
    assert refusal(tmp_path, hiding(behind)) == "zip_ambiguous"
    assert set(_taken(tmp_path, hiding(behind - 1))) == {"SKILL.md", "z.bin"}


@pytest.mark.promise("Z21")
def test_an_archive_inside_is_a_file_like_any(tmp_path: Path) -> None:
    inner = raw_zip(GOOD)
    taken = _taken(tmp_path, raw_zip([SKILL, Raw(name="pdf/inner.zip", data=inner)]))
    assert taken == {"SKILL.md": len(SKILL.data), "inner.zip": len(inner)}


@pytest.mark.promise("Z24")
@pytest.mark.parametrize("number", ["packed", "size", "crc", "method", "flags", "name", "extra"])
def test_a_header_that_differs_from_the_list_is_refused(tmp_path: Path, number: str) -> None:
    header = {number: 0x801 if number == "flags" else 1}
    data = raw_zip([SKILL, replace(OTHER, header=header)])
    assert refusal(tmp_path, data) in {"zip_ambiguous", "zip_invalid"}


@pytest.mark.promise("Z24")
def test_another_name_in_the_header_is_refused(tmp_path: Path) -> None:
    entry = replace(OTHER, header_name=b"pdf/b.md")
    assert refusal(tmp_path, raw_zip([SKILL, entry])) == "zip_ambiguous"


@pytest.mark.promise("Z24")
def test_a_file_missing_from_the_list_is_refused(tmp_path: Path) -> None:
    whole = raw_zip(GOOD)
    assert refusal(tmp_path, raw_zip(GOOD, end={"here": 1, "all": 1})) == "zip_ambiguous"
    assert refusal(tmp_path, raw_zip(GOOD, end={"here": 3, "all": 3})) == "zip_ambiguous"
    hidden = whole[: len(raw_zip([SKILL])) - 22]  # the first file's records without an end
    assert refusal(tmp_path, hidden) == "zip_invalid"
    listed_at = raw_zip([SKILL]).index(b"PK\1\2")
    orphan = raw_zip([SKILL])[:listed_at]
    assert refusal(tmp_path, raw_zip([OTHER], prefix=orphan)) == "zip_ambiguous"


@pytest.mark.promise("Z24")
def test_a_listed_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    data = bytearray(raw_zip(GOOD))
    data[:4] = b"PK\0\0"
    assert refusal(tmp_path, bytes(data)) == "zip_ambiguous"


@pytest.mark.promise("Z24")
@pytest.mark.parametrize("wide", [{"all": 1, "here": 1}, {"size": 1}, {"offset": 1}, {"rest": 60}])
def test_two_ends_that_differ_are_refused(tmp_path: Path, wide: dict[str, int]) -> None:
    assert refusal(tmp_path, raw_zip(GOOD, wide=wide)) == "zip_ambiguous"


@pytest.mark.promise("Z24", "Z26")
def test_a_second_end_that_is_elsewhere_or_missing_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, raw_zip(GOOD, wide={}, locator={"offset": 0})) == "zip_ambiguous"
    assert refusal(tmp_path, raw_zip(GOOD, end={"size": 0xFFFFFFFF})) == "zip_invalid"
    no_room = struct.pack("<4sLQL", b"PK\6\7", 0, 0, 1) + raw_zip([])
    assert refusal(tmp_path, no_room) == "zip_ambiguous"


@pytest.mark.promise("Z19")
def test_entries_that_share_bytes_are_refused(tmp_path: Path) -> None:
    kernel = Raw(name="pdf/b", data=bytes(500), deflated=True)
    twice = replace(kernel, name="pdf/c", listed={"offset": 0})
    assert refusal(tmp_path, raw_zip([kernel, twice])) == "zip_ambiguous"
    # An entry whose bytes are the next entry's header and bytes, as a quote.
    quoted = raw_zip([OTHER])[: raw_zip([OTHER]).index(b"PK\1\2")]
    length = 5 + len(quoted)
    packed = b"\0" + struct.pack("<HH", len(quoted), 0xFFFF ^ len(quoted))
    data = quoted + OTHER.data
    quoting = Raw(name="pdf/q", data=data, deflated=True, packed=packed,
                  header={"packed": length}, listed={"packed": length})  # fmt: skip
    assert refusal(tmp_path, raw_zip([SKILL, quoting, OTHER])) == "zip_ambiguous"


@pytest.mark.promise("Z20")
def test_too_many_entries_are_refused_before_the_list_is_read(tmp_path: Path) -> None:
    nonsense = b"\xff" * 300
    end = {"here": 0xFFFF, "all": 0xFFFF, "size": 300, "offset": 0}
    many = {"here": 200_000, "all": 200_000, "size": 300, "offset": 0}
    assert refusal(tmp_path, raw_zip([], prefix=nonsense, end=end, wide=many)) == "zip_too_large"
    fewer = {"here": 8_001, "all": 8_001, "size": 300, "offset": 0}
    assert refusal(tmp_path, raw_zip([], prefix=nonsense, end=fewer)) == "zip_too_large"
    read = {"here": 8_000, "all": 8_000, "size": 300, "offset": 0}
    assert refusal(tmp_path, raw_zip([], prefix=nonsense, end=read)) == "zip_invalid"


@pytest.mark.promise("Z20")
def test_too_long_a_list_is_refused_before_it_is_read(tmp_path: Path) -> None:
    end = {"here": 1, "all": 1, "size": 9_000_000, "offset": 0}
    assert refusal(tmp_path, raw_zip([], prefix=bytes(9_000_000), end=end)) == "zip_too_large"


@pytest.mark.promise("Z17")
def test_a_bomb_is_refused_by_what_it_says_of_itself(tmp_path: Path) -> None:
    zeros = Raw(name="pdf/z", data=bytes(2_000_000), deflated=True)
    assert refusal(tmp_path, raw_zip([SKILL, zeros])) == "zip_too_large"
    small = Raw(name="pdf/z", data=bytes(1_000_000), deflated=True)
    assert _taken(tmp_path, raw_zip([SKILL, small]))["z"] == 1_000_000
    stored = Raw(name="pdf/z", data=bytes(2_000_000))
    assert _taken(tmp_path, raw_zip([SKILL, stored]))["z"] == 2_000_000


@pytest.mark.promise("Z17")
@pytest.mark.parametrize(
    "limits",
    [
        ArchiveLimits(files=1),
        ArchiveLimits(packed_bytes=100),
        ArchiveLimits(unpacked_bytes=150),
        ArchiveLimits(file_bytes=99),
    ],
    ids=["files", "packed", "unpacked", "file"],
)
def test_every_limit_counts(tmp_path: Path, limits: ArchiveLimits) -> None:
    assert refusal(tmp_path, raw_zip(GOOD), limits) == "zip_too_large"


@pytest.mark.promise("Z18")
@pytest.mark.parametrize(
    ("packed", "deflated"),
    [
        pytest.param(deflate(bytes(50_000_000)), True, id="50 MB"),
        pytest.param(deflate(b"a" * 11), True, id="one byte more"),
        pytest.param(deflate(b"a" * 9), True, id="one byte less"),
        pytest.param(b"a" * 11, False, id="stored and larger"),
        pytest.param(b"a" * 9, False, id="stored and smaller"),
        pytest.param(deflate(b"a" * 10) + b"x", True, id="data after the stream"),
        pytest.param(deflate(b"a" * 10)[:-1], True, id="cut off"),
        pytest.param(b"", True, id="nothing"),
        pytest.param(b"\xff" * 9, True, id="no stream"),
    ],
)
def test_a_lie_about_a_size_is_found_out(tmp_path: Path, packed: bytes, *, deflated: bool) -> None:
    liar = Raw(name="pdf/z", data=b"a" * 10, packed=packed, deflated=deflated)
    assert refusal(tmp_path, raw_zip([SKILL, liar])) == "zip_invalid"


def test_a_file_larger_than_a_piece_comes_whole(tmp_path: Path) -> None:
    data = b"".join(struct.pack("<L", zlib.crc32(struct.pack("<L", n))) for n in range(60_000))
    for deflated in (True, False):
        entry = Raw(name="pdf/big", data=data + bytes(200_000), deflated=deflated)
        assert _taken(tmp_path, raw_zip([SKILL, entry]))["big"] == 440_000


@pytest.mark.parametrize("size", range(65_535, 65_541))
def test_a_stream_that_ends_beside_the_end_of_a_piece_comes_whole(
    tmp_path: Path, size: int
) -> None:
    """With some of these sizes, all is taken in when there is still something to give out."""
    entry = Raw(name="pdf/big", data=bytes(size), deflated=True)
    assert _taken(tmp_path, raw_zip([SKILL, entry]))["big"] == size


@pytest.mark.promise("Z25")
def test_a_wrong_checksum_is_noticed_even_in_litter(tmp_path: Path) -> None:
    for name in ("pdf/a", "__MACOSX/pdf/._a"):
        wrong = Raw(name=name, data=b"a", packed=b"b")
        assert refusal(tmp_path, raw_zip([SKILL, wrong])) == "zip_invalid"


@pytest.mark.promise("Z25")
@pytest.mark.parametrize("cut", [0, 1, 4, 21, 22, 60, -1, -21, -22, -60])
def test_a_cut_archive_is_refused(tmp_path: Path, cut: int) -> None:
    assert refusal(tmp_path, raw_zip(GOOD)[:cut]) == "zip_invalid"


@pytest.mark.promise("Z25")
def test_a_comment_that_is_cut_off_is_noticed(tmp_path: Path) -> None:
    assert refusal(tmp_path, raw_zip(GOOD, comment=b"hello")[:-1]) == "zip_invalid"


@pytest.mark.promise("Z25")
def test_a_list_whose_lengths_lead_out_of_it_is_refused(tmp_path: Path) -> None:
    entry = replace(OTHER, listed={"comment": 9_999})
    assert refusal(tmp_path, raw_zip([SKILL, entry])) == "zip_invalid"


def _container(tmp_path: Path, data: bytes) -> tuple[str, ...]:
    (tmp_path / "x.zip").write_bytes(data)
    return check_zip(tmp_path / "x.zip")


def test_a_container_is_judged_whatever_it_holds(tmp_path: Path) -> None:
    wheel = raw_zip([Raw(name="a.py"), Raw(name="x/", mode=0o040755)])
    assert _container(tmp_path, wheel) == ("a.py", "x")
    assert _container(tmp_path, raw_zip([])) == ()
    with pytest.raises(ArchiveError):
        _container(tmp_path, wheel + b"x")


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing", Path("/dev/null"), Path("a\0b")):
        with pytest.raises(ArchiveError, match="not a regular file"):
            inspect_archive(path)
