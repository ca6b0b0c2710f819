"""Reading a skill's archive in memory: zip and tar.gz, flat and in a folder, and hostile ones."""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from apexbridge.errors import ArchiveError
from apexbridge.lifecycle.zip.archive import pack_skill
from apexbridge.lifecycle.zip.contents import read_skill_archive
from apexbridge.lifecycle.zip.limits import ArchiveLimits
from apexbridge.testing import make_skill, skill_md

FILES = {
    "SKILL.md": skill_md("pdf"),
    "scripts/main.py": b"print(1)\n",
    "assets/dot.png": bytes(range(256)),
    "\u56fe.md": b"",
}


def _zip(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in files.items():
            archive.writestr(zipfile.ZipInfo(path), data)
    return buffer.getvalue()


def _member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.type, member.mode = len(data), kind, 0o644
    return member


def _tar(
    files: Mapping[str, bytes], *more: tarfile.TarInfo, style: int = tarfile.PAX_FORMAT
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=style) as archive:
        for path, data in files.items():
            archive.addfile(_member(path, data), io.BytesIO(data))
        for member in more:
            archive.addfile(member)
    return buffer.getvalue()


def _tgz(files: Mapping[str, bytes], *more: tarfile.TarInfo) -> bytes:
    return gzip.compress(_tar(files, *more))


def _refusal(data: bytes, limits: ArchiveLimits | None = None) -> str:
    with pytest.raises(ArchiveError) as caught:
        read_skill_archive(data, limits or ArchiveLimits())
    return caught.value.code


@pytest.mark.parametrize("pack", [_zip, _tgz])
def test_skill_md_may_be_at_the_root_or_in_one_folder(
    pack: Callable[[Mapping[str, bytes]], bytes],
) -> None:
    assert read_skill_archive(pack(FILES)) == FILES
    assert read_skill_archive(pack({f"pdf/{path}": data for path, data in FILES.items()})) == FILES


@pytest.mark.parametrize("style", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar_archives_of_every_program_are_read(style: int) -> None:
    files = {"./SKILL.md": FILES["SKILL.md"], "./" + "a" * 90 + "/" + "b" * 90: b"x"}
    folders = (_member(".", kind=tarfile.DIRTYPE), _member("./empty", kind=tarfile.DIRTYPE))
    found = read_skill_archive(gzip.compress(_tar(files, *folders, style=style)))
    assert found == {path.removeprefix("./"): data for path, data in files.items()}


def test_what_is_packed_without_a_folder_is_read_back(tmp_path: Path) -> None:
    root = make_skill(tmp_path / "pdf")
    for path, data in FILES.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(data)
    assert read_skill_archive(pack_skill(root, "")) == FILES
    assert pack_skill(root, "") == pack_skill(root, "")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../x", "zip_path_traversal"),
        ("a/../../x", "zip_path_traversal"),
        ("/etc/x", "zip_absolute_path"),
        ("SKILL.MD", "zip_name_collision"),
        ("a\\b", "zip_name_encoding"),
        ("con", "zip_reserved_name"),
        ("/".join("a" * 20), "zip_path_too_long"),
    ],
)
def test_a_hostile_path_in_a_tar_is_refused(name: str, code: str) -> None:
    assert _refusal(_tgz({"SKILL.md": FILES["SKILL.md"], name: b"x"})) == code


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (tarfile.SYMTYPE, "zip_link_entry"),
        (tarfile.LNKTYPE, "zip_link_entry"),
        (tarfile.CHRTYPE, "zip_special_entry"),
        (tarfile.FIFOTYPE, "zip_special_entry"),
    ],
)
def test_links_and_devices_in_a_tar_are_refused(kind: bytes, code: str) -> None:
    member = _member("x", kind=kind)
    member.linkname = "/etc/passwd"
    assert _refusal(_tgz({"SKILL.md": FILES["SKILL.md"]}, member)) == code


def test_a_file_that_is_twice_in_a_tar_is_refused() -> None:
    assert _refusal(_tgz(FILES, _member("SKILL.md"))) == "zip_duplicate_entry"


def test_a_name_that_is_not_utf_8_is_refused() -> None:
    tar = _tar({"SKILL.md": FILES["SKILL.md"], "x\udcff": b""}, style=tarfile.GNU_FORMAT)
    assert _refusal(gzip.compress(tar)) == "zip_name_encoding"


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    limits = ArchiveLimits(unpacked_bytes=100_000, files=10)
    bomb = gzip.compress(bytes(50_000_000))
    assert _refusal(bomb, limits) == "zip_too_large"
    assert _refusal(_tgz(FILES), ArchiveLimits(packed_bytes=10)) == "zip_too_large"
    many = {f"{number}": b"" for number in range(60)}
    assert _refusal(_tgz({**FILES, **many}), limits) == "zip_too_large"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK",
        gzip.compress(b""),
        gzip.compress(b"x" * 600),
        _tgz(FILES)[:-20],
        _tgz(FILES) + _tgz({"SKILL.md": b"other"}),
        gzip.compress(_tar(FILES) + _tar({"SKILL.md": b"other"})),
        gzip.compress(_tar(FILES)[:700]),
        _tgz({"README.md": b"no skill"}),
        _tgz({}),
    ],
    ids=["empty", "zip", "no tar", "garbage", "cut", "second stream", "second tar", "cut tar",
         "no skill", "nothing"],
)  # fmt: skip
def test_what_is_no_skill_archive_is_refused(data: bytes) -> None:
    assert _refusal(data) in {"zip_invalid", "zip_no_root_folder"}
