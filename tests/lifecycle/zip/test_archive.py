"""Packing skills, and inspecting zips without extracting them."""

import io
import os
import stat
import subprocess
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from apexbridge.errors import ArchiveError
from apexbridge.lifecycle.zip.archive import (
    ArchiveLimits,
    inspect_archive,
    open_archive,
    pack_skill,
)
from apexbridge.skills.validator import validate
from apexbridge.testing import make_skill, make_zip, skill_md

GOOD = {"pdf/SKILL.md": skill_md("pdf"), "pdf/references/a.md": "x"}


def _refusal(path: Path, limits: ArchiveLimits | None = None) -> str:
    with pytest.raises(ArchiveError) as caught:
        open_archive(path, limits or ArchiveLimits())
    return caught.value.code


def test_equal_folders_give_equal_bytes(tmp_path: Path) -> None:
    files = {"scripts/main.py": "print(1)", "b.md": "b", "a.md": "a"}
    first = make_skill(tmp_path / "x", "pdf", files=files)
    second = make_skill(tmp_path / "y", "pdf", files=dict(reversed(files.items())))
    os.utime(second / "a.md", (1, 1))
    assert pack_skill(first, "pdf") == pack_skill(second, "pdf")


def test_a_pack_has_one_root_folder_and_plain_modes(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "pdf", files={"scripts/main.py": "print(1)"})
    (root / "SKILL.md").chmod(0o600)
    (root / "scripts/main.py").chmod(0o4777)
    with zipfile.ZipFile(io.BytesIO(pack_skill(root, "pdf"))) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    assert modes == {
        "pdf/SKILL.md": stat.S_IFREG | 0o644,
        "pdf/scripts/main.py": stat.S_IFREG | 0o755,
    }


def test_caches_version_control_and_evals_stay_at_home(tmp_path: Path) -> None:
    files = {
        "__pycache__/a.pyc": "", "scripts/__pycache__/b.pyc": "", "scripts/c.pyc": "",
        ".git/config": "", ".DS_Store": "", "evals/evals.json": "[]", "docs/evals/kept.md": "",
        ".vectorized": "{}",
    }  # fmt: skip
    root = make_skill(tmp_path, "pdf", files=files)

    def names(data: bytes) -> list[str]:
        return zipfile.ZipFile(io.BytesIO(data)).namelist()

    assert names(pack_skill(root, "pdf")) == ["pdf/SKILL.md", "pdf/docs/evals/kept.md"]
    assert names(pack_skill(root, "pdf", with_evals=True)) == [
        "pdf/SKILL.md",
        "pdf/docs/evals/kept.md",
        "pdf/evals/evals.json",
    ]


def test_links_are_not_packed(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "pdf")
    (root / "away").symlink_to("/etc/passwd")
    with pytest.raises(ArchiveError, match="is a symlink"):
        pack_skill(root, "pdf")


@pytest.mark.needs("unzip")
def test_another_program_reads_what_we_pack(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "pdf", files={"scripts/main.py": "print(1)", "参考.md": "中"})
    (tmp_path / "pdf.zip").write_bytes(pack_skill(root, "pdf"))
    subprocess.run(
        ["/usr/bin/env", "unzip", "-q", "pdf.zip", "-d", "out"], cwd=tmp_path, check=True
    )
    assert (tmp_path / "out/pdf/参考.md").read_text(encoding="utf-8") == "中"
    assert os.access(tmp_path / "out/pdf/scripts/main.py", os.X_OK)


def test_a_name_that_cannot_be_unpacked_everywhere_is_not_packed(tmp_path: Path) -> None:
    for name, code in (("a:b", "zip_reserved_name"), ("a\\b", "zip_name_invalid")):
        root = make_skill(tmp_path / code, "pdf", files={name: ""})
        with pytest.raises(ArchiveError) as caught:
            pack_skill(root, "pdf")
        assert caught.value.code == code
    root = make_skill(tmp_path / "bytes", "pdf")
    (root / os.fsdecode(b"\xff.md")).write_bytes(b"")
    with pytest.raises(ArchiveError) as caught:
        pack_skill(root, "pdf")
    assert (caught.value.code, caught.value.details["name"]) == (
        "zip_name_encoding",
        "pdf/\\udcff.md",
    )


def test_more_than_an_archive_may_hold_is_not_packed(tmp_path: Path) -> None:
    large = make_skill(tmp_path / "large", "pdf", files={"a": bytes(10_000_001)})
    wide = make_skill(tmp_path / "wide", "pdf", files={f"{n}": bytes(9_900_000) for n in range(7)})
    stored = make_skill(
        tmp_path / "stored", "pdf", files={f"{n}": bytes(9_000_000) for n in range(4)}
    )
    for root in (large, wide, stored):
        with pytest.raises(ArchiveError) as caught:
            pack_skill(root, "pdf")
        assert caught.value.code == "zip_too_large"


def test_what_shrinks_like_a_bomb_is_packed_so_that_it_can_be_taken(tmp_path: Path) -> None:
    files = {"zeros.bin": bytes(3_000_000), "text.md": "word " * 300_000}
    root = make_skill(tmp_path, "pdf", files=files)
    (tmp_path / "pdf.zip").write_bytes(pack_skill(root, "pdf"))
    assert inspect_archive(tmp_path / "pdf.zip").size > 4_000_000


def test_what_we_pack_can_be_looked_into(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "pdf", files={"references/a.md": "x"}, body="[a](references/a.md)")
    (tmp_path / "pdf.skill").write_bytes(pack_skill(root, "pdf"))
    package = open_archive(tmp_path / "pdf.skill")
    assert package.folder == "pdf"
    assert PurePosixPath("references") in package.files
    assert validate(package, "spec") == ()


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        pytest.param({**GOOD, "pdf/../../x": ""}, "zip_path_traversal",
                     marks=pytest.mark.promise("Z01")),
        pytest.param({**GOOD, "pdf/..\\x": ""}, "zip_path_traversal",
                     marks=pytest.mark.promise("Z01")),
        pytest.param({**GOOD, "/etc/x": ""}, "zip_absolute_path",
                     marks=pytest.mark.promise("Z02")),
        pytest.param({**GOOD, "C:\\x": ""}, "zip_absolute_path",
                     marks=pytest.mark.promise("Z03")),
        pytest.param({**GOOD, "\\\\host\\x": ""}, "zip_absolute_path",
                     marks=pytest.mark.promise("Z03")),
        pytest.param({**GOOD, "pdf/skill.md": ""}, "zip_name_collision",
                     marks=pytest.mark.promise("Z10")),
        pytest.param({}, "zip_invalid", marks=pytest.mark.promise("Z25")),
        pytest.param({"SKILL.md": skill_md("pdf")}, "zip_no_root_folder",
                     marks=pytest.mark.promise("Z29")),
        pytest.param({**GOOD, "docx/SKILL.md": ""}, "zip_multiple_roots",
                     marks=pytest.mark.promise("Z30")),
        pytest.param({**GOOD, "empty/": ""}, "zip_multiple_roots",
                     marks=pytest.mark.promise("Z30")),
        pytest.param({"pdf/README.md": ""}, "zip_no_skill_md", marks=pytest.mark.promise("Z31")),
        pytest.param({"pdf/sub/SKILL.md": ""}, "zip_no_skill_md",
                     marks=pytest.mark.promise("Z31")),
    ],
)  # fmt: skip
def test_an_archive_that_cannot_be_taken_says_why(
    tmp_path: Path, entries: dict[str, str | bytes], code: str
) -> None:
    assert _refusal(make_zip(tmp_path / "x.zip", entries)) == code


@pytest.mark.promise("Z05")
def test_a_link_entry_is_refused(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", GOOD)
    link = zipfile.ZipInfo("pdf/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    assert _refusal(path) == "zip_link_entry"


@pytest.mark.promise("Z09")
def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", GOOD)
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("pdf/SKILL.md", "other")
    assert _refusal(path) == "zip_duplicate_entry"


@pytest.mark.promise("Z17")
def test_a_bomb_is_refused_from_its_own_sizes(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", {**GOOD, "pdf/zeros": bytes(11_000_000)})
    assert _refusal(path) == "zip_too_large"
    wide = make_zip(
        tmp_path / "y.zip", {**GOOD, **{f"pdf/{n}": bytes(9_000_000) for n in range(8)}}
    )
    assert _refusal(wide) == "zip_too_large"
    assert _refusal(make_zip(tmp_path / "z.zip", GOOD), ArchiveLimits(files=1)) == "zip_too_large"
    assert _refusal(tmp_path / "z.zip", ArchiveLimits(packed_bytes=10)) == "zip_too_large"


@pytest.mark.promise("Z22")
def test_an_encrypted_entry_is_refused(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", GOOD)
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    path.write_bytes(data)
    assert _refusal(path) == "zip_encrypted"


@pytest.mark.promise("Z25")
@pytest.mark.parametrize("cut", [0, 1, 30, -1, -30])
def test_a_broken_archive_is_refused(tmp_path: Path, cut: int) -> None:
    path = make_zip(tmp_path / "x.zip", GOOD)
    path.write_bytes(path.read_bytes()[:cut])
    assert _refusal(path) == "zip_invalid"


@pytest.mark.promise("Z25")
def test_a_wrong_checksum_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("pdf/SKILL.md", skill_md("pdf"))
    path.write_bytes(path.read_bytes().replace(b"Instructions", b"INSTRUCTIONS", 1))
    assert _refusal(path) == "zip_invalid"


@pytest.mark.promise("Z25")
def test_a_broken_stream_is_noticed(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "x.zip", {"pdf/SKILL.md": skill_md("pdf", body="text " * 500)})
    data = bytearray(path.read_bytes())
    data[60:90] = b"\xff" * 30
    path.write_bytes(data)
    assert _refusal(path) == "zip_invalid"


@pytest.mark.promise("M15")
def test_a_huge_skill_md_in_an_archive_is_refused(tmp_path: Path) -> None:
    huge = {"pdf/SKILL.md": skill_md("pdf", body="x" * 2_000_000)}
    assert _refusal(make_zip(tmp_path / "x.zip", huge)) == "zip_too_large"


@pytest.mark.promise("Z28")
def test_litter_of_desktop_systems_is_overlooked(tmp_path: Path) -> None:
    litter = {"__MACOSX/pdf/._SKILL.md": "x", "pdf/.DS_Store": "x", "pdf/._a": "x", "Thumbs.db": ""}
    package = open_archive(make_zip(tmp_path / "x.zip", {**litter, **GOOD}))
    assert (package.folder, validate(package)) == ("pdf", ())


@pytest.mark.promise("Z31")
def test_other_letter_case_of_skill_md_is_taken_with_a_warning(tmp_path: Path) -> None:
    package = open_archive(make_zip(tmp_path / "x.zip", {"pdf/skill.md": skill_md("pdf")}))
    assert [(p.code, p.severity) for p in validate(package)] == [("skill_md_case", "warning")]


@pytest.mark.promise("Z35")
def test_the_root_folder_and_the_skill_must_have_one_name(tmp_path: Path) -> None:
    package = open_archive(make_zip(tmp_path / "x.zip", {"other/SKILL.md": skill_md("pdf")}))
    (problem,) = validate(package)
    assert problem.message == "The folder is named 'other', but the skill 'pdf'"
