"""Tar archives: real ones made with tarfile, and hostile ones; refused ones leave nothing."""

import gzip
import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from apexbridge.errors import ArchiveError
from apexbridge.lifecycle.tar import extract_tar
from apexbridge.lifecycle.zip.limits import ArchiveLimits

LIMITS = ArchiveLimits(
    packed_bytes=100_000, unpacked_bytes=200_000, file_bytes=100_000, files=40, depth=8
)
Entry = tuple[str, bytes | None, bytes, str]
"""Name, content (None for none), type and link target."""
SKILL: Entry = ("pdf/SKILL.md", b"---\nname: pdf\n---\n", tarfile.REGTYPE, "")


def file(name: str, data: bytes = b"x") -> Entry:
    return name, data, tarfile.REGTYPE, ""


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Entry:
    return name, None, kind, target


def make_tar(path: Path, entries: Sequence[Entry], *, mode: str = "w:gz") -> Path:
    with tarfile.open(path, "w:gz" if mode == "w:gz" else "w") as archive:
        for name, data, kind, target in entries:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, target, 0o755
            member.size = len(data or b"")
            archive.addfile(member, io.BytesIO(data) if data is not None else None)
    return path


def _refusal(tmp_path: Path, entries: Sequence[Entry], *, is_repository: bool = False) -> str:
    archive = make_tar(tmp_path / "a.tar.gz", entries)
    return _refused(archive, tmp_path / "out", is_repository=is_repository)


def _refused(archive: Path, into: Path, *, is_repository: bool = False) -> str:
    into.mkdir()
    with pytest.raises(ArchiveError) as caught:
        extract_tar(archive, into, LIMITS, is_repository=is_repository)
    assert list(into.iterdir()) == []
    return caught.value.code


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_files_and_their_modes_are_extracted(tmp_path: Path, mode: str) -> None:
    long = "pdf/" + "a" * 120 + ".md"  # longer than a plain header holds
    archive = make_tar(tmp_path / "a", [SKILL, file("pdf/scripts/x.py"), file(long)], mode=mode)
    (out := tmp_path / "out").mkdir()
    extract_tar(archive, out, LIMITS)
    assert (out / "pdf/SKILL.md").read_bytes() == SKILL[1]
    assert os.access(out / "pdf/scripts/x.py", os.X_OK)
    assert (out / long).read_bytes() == b"x"


def test_the_dot_folder_that_tar_writes_is_no_part_of_the_names(tmp_path: Path) -> None:
    entries = [("./", None, tarfile.DIRTYPE, ""), file("./pdf/SKILL.md"), file("././b")]
    archive = make_tar(tmp_path / "a.tar.gz", entries)
    (out := tmp_path / "out").mkdir()
    extract_tar(archive, out, LIMITS)
    assert sorted(path.name for path in out.rglob("*")) == ["SKILL.md", "b", "pdf"]


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (file("../x"), "zip_path_traversal"),
        (file("pdf/../../x"), "zip_path_traversal"),
        (file("/etc/x"), "zip_absolute_path"),
        (file("C:x"), "zip_absolute_path"),
        (link("pdf/x", "/etc/passwd"), "zip_link_entry"),
        (link("pdf/x", "SKILL.md"), "zip_link_entry"),
        (link("pdf/x", "pdf/SKILL.md", tarfile.LNKTYPE), "zip_link_entry"),
        (link("pdf/x", "", tarfile.CHRTYPE), "zip_special_entry"),
        (link("pdf/x", "", tarfile.BLKTYPE), "zip_special_entry"),
        (link("pdf/x", "", tarfile.FIFOTYPE), "zip_special_entry"),
        (file("pdf/SKILL.md"), "zip_duplicate_entry"),
        (file("pdf/skill.MD"), "zip_name_collision"),
        (file("pdf/SKILL.md/x"), "zip_name_collision"),
        (file("pdf/aux.py"), "zip_reserved_name"),
        (file("pdf/a\u202eb"), "zip_name_invalid"),
        (file("a/" * 9 + "x"), "zip_path_too_long"),
        (file("pdf/big", bytes(100_001)), "zip_too_large"),
    ],
)
def test_an_unsafe_entry_refuses_the_archive(tmp_path: Path, entry: Entry, code: str) -> None:
    assert _refusal(tmp_path, [SKILL, entry]) == code


@pytest.mark.parametrize(
    "entry",
    [
        file("../x"),
        file("/etc/x"),
        link("pdf/x", "pdf/SKILL.md", tarfile.LNKTYPE),
        link("pdf/x", "", tarfile.FIFOTYPE),
        file("pdf/SKILL.md"),
    ],
)
def test_a_repository_may_not_be_more_unsafe_than_an_archive(tmp_path: Path, entry: Entry) -> None:
    assert _refusal(tmp_path, [SKILL, entry], is_repository=True).startswith("zip_")


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    entries = [link("pdf", str(outside)), file("pdf/x")]
    assert _refusal(tmp_path, entries, is_repository=True) == "zip_name_collision"
    assert list(outside.iterdir()) == []


def test_links_inside_a_repository_are_kept_and_those_that_lead_out_are_named(
    tmp_path: Path,
) -> None:
    entries = [
        file("r/skills/pdf/SKILL.md"),
        link("r/.claude/skills", "../skills"),
        link("r/alias/SKILL.md", "../skills/pdf/SKILL.md"),
        link("r/out", "../../etc"),
        link("r/absolute", "/etc/passwd"),
        link("r/missing", "nowhere"),
        link("r/through", ".claude/skills/../.."),
        link("r/itself", "itself"),
    ]
    archive = make_tar(tmp_path / "a.tar.gz", entries)
    (out := tmp_path / "out").mkdir()
    dropped = extract_tar(archive, out, LIMITS, is_repository=True).dropped
    assert sorted(map(str, dropped)) == [
        "r/absolute", "r/itself", "r/missing", "r/out", "r/through",
    ]  # fmt: skip
    assert (out / "r/.claude/skills/pdf/SKILL.md").read_bytes() == b"x"
    for path in out.rglob("*"):
        assert path.resolve().is_relative_to(out)


def test_names_that_other_systems_cannot_have_are_left_out_of_a_repository(tmp_path: Path) -> None:
    entries = [SKILL, file("pdf/aux.py"), file("docs/README.md"), file("docs/readme.md")]
    archive = make_tar(tmp_path / "a.tar.gz", entries)
    (out := tmp_path / "out").mkdir()
    dropped = extract_tar(archive, out, LIMITS, is_repository=True).dropped
    assert {str(path): error.code for path, error in dropped.items()} == {
        "pdf/aux.py": "zip_reserved_name",
        "docs/readme.md": "zip_name_collision",
    }


@pytest.mark.promise("R05")
@pytest.mark.parametrize(
    "entries",
    [
        [SKILL, *(file(f"pdf/{n}", bytes(90_000)) for n in range(3))],  # 270 kB from 400 bytes
        [SKILL, *(file(f"pdf/{n}") for n in range(200))],
    ],
    ids=["unpacked size", "number of entries"],
)
def test_r05_a_bomb_is_stopped_before_anything_is_written(
    tmp_path: Path, entries: list[Entry]
) -> None:
    assert _refusal(tmp_path, entries, is_repository=True) == "zip_too_large"


def test_a_compression_ratio_that_no_text_has_is_refused(tmp_path: Path) -> None:
    wide = ArchiveLimits(unpacked_bytes=10_000_000, file_bytes=10_000_000, ratio=100)
    archive = make_tar(tmp_path / "a.tar.gz", [SKILL, file("pdf/z", bytes(9_000_000))])
    (out := tmp_path / "out").mkdir()
    with pytest.raises(ArchiveError, match="ratio"):
        extract_tar(archive, out, wide)


def test_endless_headers_are_refused(tmp_path: Path) -> None:
    """A PAX record is read as a whole by tarfile: a large one would fill the memory."""
    archive = tmp_path / "a.tar.gz"
    with tarfile.open(archive, "w:gz", format=tarfile.PAX_FORMAT) as made:
        member = tarfile.TarInfo("pdf/SKILL.md")
        member.pax_headers = {"comment": "x" * 5_000_000}
        made.addfile(member)
    assert _refused(archive, tmp_path / "out") == "zip_too_large"


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    whole = make_tar(tmp_path / "whole.tar.gz", [SKILL, file("pdf/x", os.urandom(5_000))])
    data = whole.read_bytes()
    plain = gzip.decompress(data)
    for number, damaged in enumerate(
        (
            b"",
            b"no tar at all" * 100,
            data[:-300],
            gzip.compress(plain[:1_500]),
            gzip.compress(plain + b"hidden" * 100),
            data[:200] + b"\xff\xff" + data[202:],
        )
    ):
        archive = tmp_path / f"{number}.tar.gz"
        archive.write_bytes(damaged)
        assert _refused(archive, tmp_path / f"out{number}") == "zip_invalid", number
