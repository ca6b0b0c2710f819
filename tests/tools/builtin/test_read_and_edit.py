"""The Read, Write and Edit tools: line numbers, atomic writes, encodings, exact edits."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.errors import ToolFailedError, ToolInputError
from apexbridge.tools.builtin import charset_detection, edit, read
from apexbridge.tools.builtin.edit import EditTool, WriteTool
from apexbridge.tools.builtin.read import ReadTool
from tests.tools.tool_calls import context, use

pytestmark = pytest.mark.anyio


async def _read(place: Path, **arguments: object) -> str:
    return (await use(ReadTool(), context(place), arguments)).text


async def _edit(place: Path, old: str, new: str, **more: object) -> str:
    arguments = {"file_path": "a.txt", "old_string": old, "new_string": new, **more}
    return (await use(EditTool(), context(place), arguments)).text


async def test_lines_come_with_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("one\r\n二\nthree\x0bstill three\n\nlast".encode())
    result = await use(ReadTool(), context(tmp_path), {"file_path": "a.txt"})
    assert result.text.splitlines()[:2] == ["     1\tone", "     2\t二"]
    assert result.text.endswith("     3\tthree\x0bstill three\n     4\t\n     5\tlast")
    assert result.touched == (tmp_path / "a.txt",)


async def test_a_part_is_read_with_a_hint_to_continue(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)), encoding="utf-8")
    text = await _read(tmp_path, path="a.txt", offset="3", limit=2)
    assert text == "     3\tline 3\n     4\tline 4\n[Lines 3 to 4 of 10; read on with offset=5]"
    assert await _read(tmp_path, path="a.txt", offset=9) == "     9\tline 9\n    10\tline 10"
    assert await _read(tmp_path, path="a.txt", offset=0, limit=1) == await _read(
        tmp_path, path="a.txt", offset=1, limit=1
    )
    assert "there is no line 11" in await _read(tmp_path, path="a.txt", offset=11)


async def test_a_huge_file_comes_in_parts_that_fit(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x" * 99 + "\n" + "字" * 9_000 + "\n" * 5_000, encoding="utf-8")
    text = await _read(tmp_path, path="a.txt", limit=100_000)
    assert len(text) < 31_000
    assert "[7,000 more characters]" in text
    wanted = text.rpartition("offset=")[2].removesuffix("]")
    assert (await _read(tmp_path, path="a.txt", offset=wanted)).startswith(f"{wanted:>6}\t")


async def test_a_file_larger_than_can_be_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "MAX_BYTES", 100)
    (tmp_path / "a.txt").write_text("汉字汉字\n" * 50, encoding="utf-8")
    text = await _read(tmp_path, path="a.txt")
    assert "[Only the first 100 of its 650 bytes can be read]" in text
    assert "汉字汉字" in text
    (tmp_path / "b.txt").write_text("x" * 500, encoding="utf-8")
    assert "x" * 100 in await _read(tmp_path, path="b.txt")


async def test_an_empty_file_and_a_folder_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    assert await _read(tmp_path, path="a.txt") == "[The file is empty]"
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("a.txt")
    assert await _read(tmp_path, path=".") == (
        f"[{tmp_path} is a folder with 3 entries]\na.txt\nlink@\nsub/"
    )
    assert await _read(tmp_path, path="sub") == "[The folder sub is empty]"


async def test_a_folder_with_very_many_entries_is_capped(tmp_path: Path) -> None:
    for number in range(read.MAX_DIR_ENTRIES + 7):
        (tmp_path / f"{number:04}").touch()
    assert "[7 more: use Glob with a pattern]" in await _read(tmp_path, path=".")


async def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ToolFailedError, match=r"no\.txt: there is no such file"):
        await _read(tmp_path, path="no.txt")
    (tmp_path / "a.txt").touch()
    with pytest.raises(ToolFailedError, match="not a directory"):
        await _read(tmp_path, path="a.txt/b/c")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x89PNG\r\n\x1a\n" + bytes(20), "a PNG image"),
        (b"\xff\xd8\xff\xe0" + bytes(20), "a JPEG image"),
        (b"GIF89a" + bytes(20), "a GIF image"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "a WebP image"),
        (b"RIFF\x10\0\0\0AVI LIST", "a video"),
        (b"\0\0\0\x18ftypmp42", "MP4"),
        (b"%PDF-1.7\n", "a PDF document"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"\x7fELF\x02", "a compiled program"),
        (b"text\0text", "binary data"),
    ],
)
async def test_what_is_no_text_is_refused_with_what_it_is(
    tmp_path: Path, data: bytes, message: str
) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    with pytest.raises(ToolFailedError, match=message):
        await _read(tmp_path, path="a.txt")
    with pytest.raises(ToolFailedError, match="not text"):
        await _edit(tmp_path, "a", "b")


@pytest.mark.parametrize(
    ("data", "encoding", "message"),
    [
        ("中文，你好\n".encode("gb18030"), "gb18030", "GB18030"),
        ("\ufeff中文\n".encode(), "utf-8", "UTF-8 with a byte order mark"),
        ("\ufeff中文\n".encode("utf-16-le"), "utf-16-le", "UTF-16-LE"),
        ("\ufeff中文\n".encode("utf-16-be"), "utf-16-be", "UTF-16-BE"),
        ("café à la carte\n".encode("latin-1"), "latin-1", "LATIN-1"),
        (b"BM is one prefix, MZ the other!\n", "utf-8", ""),
    ],
)
async def test_other_encodings_are_read_labelled_and_preserved(
    tmp_path: Path, data: bytes, encoding: str, message: str
) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    decoded = charset_detection.decode(data)
    assert (decoded.encoding, decoded.label) == (encoding, message)
    assert decoded.encode(decoded.text) == data
    text = await _read(tmp_path, path="a.txt")
    assert (f"[The file is written in {message}]" in text) is bool(message)
    last = decoded.text.rstrip()[-1]
    await _edit(tmp_path, last, last * 2)
    assert (tmp_path / "a.txt").read_bytes() == decoded.encode(decoded.text.replace(last, last * 2))


@given(st.binary(max_size=200))
def test_reading_bytes_never_fails_and_writing_them_back_changes_nothing(data: bytes) -> None:
    decoded = charset_detection.decode(data)
    if not decoded.encoding.startswith("utf-16"):
        errors = "surrogateescape" if decoded.encoding == "utf-8" else "strict"
        assert decoded.bom + decoded.text.encode(decoded.encoding, errors) == data


async def test_what_a_files_encoding_cannot_say_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("café à la carte".encode("latin-1"))
    with pytest.raises(ToolInputError, match="LATIN-1, which has no"):
        await _edit(tmp_path, "carte", "中文")
    (tmp_path / "a.txt").write_bytes(b"\xff\xfea\0b\0c")
    with pytest.raises(ToolFailedError, match="an edit would damage it"):
        await _edit(tmp_path, "a", "b")
    assert (tmp_path / "a.txt").read_bytes() == b"\xff\xfea\0b\0c"


async def test_a_file_is_written_with_the_folders_on_the_way(tmp_path: Path) -> None:
    arguments = {"file_path": "new/deep/文件.txt", "content": "你好\nworld\n"}
    result = await use(WriteTool(), context(tmp_path), arguments)
    target = tmp_path / "new/deep/文件.txt"
    assert target.read_bytes() == "你好\nworld\n".encode()
    assert result.text == "Created new/deep/文件.txt (2 lines, 13 bytes)."
    assert result.touched == (target,)
    assert [path.name for path in target.parent.iterdir()] == ["文件.txt"]
    empty = await use(WriteTool(), context(tmp_path), {"path": "a", "text": ""})
    assert empty.text == "Created a (empty)."


async def test_a_written_file_keeps_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "run.sh"
    target.write_text("old", encoding="utf-8")
    target.chmod(0o750)
    result = await use(WriteTool(), context(tmp_path), {"path": "run.sh", "contents": "new"})
    assert result.text == "Replaced run.sh (1 lines, 3 bytes)."
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    await use(EditTool(), context(tmp_path), {"path": "run.sh", "old": "new", "new": "newer"})
    assert stat.S_IMODE(target.stat().st_mode) == 0o750
    assert target.read_text(encoding="utf-8") == "newer"


async def test_writing_is_asked_about_with_the_real_path(tmp_path: Path) -> None:
    facts = context(tmp_path)
    (asked,) = WriteTool().permissions({"path": "x/../a.txt", "content": "12"}, facts)
    assert (asked.tool, asked.path, asked.harmless) == ("Write", tmp_path / "a.txt", False)
    assert asked.summary == "Write 2 characters to a.txt"
    change = {"path": "a.txt", "old": "a", "new": "b"}
    (asked,) = EditTool().permissions(change, facts)
    assert (asked.tool, asked.argument) == ("Edit", str(tmp_path / "a.txt"))
    assert not list(tmp_path.iterdir())
    (asked,) = ReadTool().permissions({"path": "a.txt"}, facts)
    assert (asked.tool, asked.harmless, asked.path) == ("Read", True, tmp_path / "a.txt")


async def test_half_a_character_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ToolInputError, match="'content': input should be a valid string"):
        await use(WriteTool(), context(tmp_path), {"path": "a", "content": "\ud800"})
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    with pytest.raises(ToolInputError, match="UTF-8, which has no"):
        await _edit(tmp_path, "a", "\ud800")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "a"


@pytest.mark.parametrize("path", ["no-such-file", "no-such-folder/a"])
async def test_a_disk_that_refuses_is_reported(path: str) -> None:
    with pytest.raises(ToolFailedError, match=path):
        await use(WriteTool(), context(Path("/sys")), {"path": path, "content": "x"})


async def test_one_place_is_replaced_and_shown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n3\n4\n5\n6\n", encoding="utf-8")
    text = await _edit(tmp_path, "3\n4", "drei\nvier")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "1\n2\ndrei\nvier\n5\n6\n"
    assert text.splitlines()[0] == "Replaced 1 place in a.txt, line 3. It now reads:"
    assert text.splitlines()[1:] == [
        "     1\t1", "     2\t2", "     3\tdrei", "     4\tvier", "     5\t5", "     6\t6"
    ]  # fmt: skip


async def test_several_places_need_to_be_meant(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x = 1\n" * 7, encoding="utf-8")
    with pytest.raises(ToolInputError, match=r"7 times \(lines 1, 2, 3, 4, 5, …\)"):
        await _edit(tmp_path, "x = 1", "x = 2")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "x = 1\n" * 7
    text = await _edit(tmp_path, "x = 1", "x = 2", replace_all=True)
    assert text == "Replaced 7 places in a.txt, the first in line 1."
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "x = 2\n" * 7


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", b"x\r\ny\r\nz\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\nc\r\n"),
        (b"a\nb\r\nc\r\n", "a\nb", "x\ny", b"x\ny\r\nc\r\n"),
        (b"a\nb\r\nc\r\n", "b\nc", "x\ny", b"a\nx\r\ny\r\n"),
        (b"a\nb", "b", "b\n", b"a\nb\n"),
    ],
)
async def test_line_ends_stay_as_they_are(
    tmp_path: Path, before: bytes, old: str, new: str, after: bytes
) -> None:
    (tmp_path / "a.txt").write_bytes(before)
    await _edit(tmp_path, old, new)
    assert (tmp_path / "a.txt").read_bytes() == after


@pytest.mark.parametrize(
    ("text", "old", "message"),
    [
        ("def f():\n    return 1\n", "     2\t    return 1", "line numbers"),
        ("def F():\n", "def f():", r"letter case \(line 1\)"),
        (
            "a\n\tif x:\n\t\ty\n",
            "    if x:\n        y",
            r"different whitespace \(line 2\)",
        ),
        ("say “hi”\n", 'say "hi"', "quotes, dashes or punctuation"),
        ("你好，世界\n", "你好,世界", "quotes, dashes or punctuation"),
        ("first line\nother\n", "first line\nsecond", r"only its first line does \(line 1\)"),
        ("value = compute(alpha)\n", "value = compute(alpho)", "the nearest is line 1"),
        ("nothing alike\n", "zzzzzz", "no similar line"),
        ("text\n", "\n\n\n", "no similar line"),
        ("", "x", "no similar line"),
    ],
)
async def test_a_near_miss_is_explained(tmp_path: Path, text: str, old: str, message: str) -> None:
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    with pytest.raises(ToolInputError, match=message):
        await _edit(tmp_path, old, "new")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == text


@given(st.text(max_size=80), st.text(min_size=1, max_size=20))
def test_explaining_never_fails(text: str, wanted: str) -> None:
    if wanted not in text:
        assert edit.explain_mismatch(text, wanted)


async def test_an_edit_must_change_something_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a", encoding="utf-8")
    with pytest.raises(ToolInputError, match="are the same"):
        await _edit(tmp_path, "a", "a")
    with pytest.raises(ToolInputError, match="at least 1 character"):
        await _edit(tmp_path, "", "a")
    with pytest.raises(ToolFailedError, match="no such file"):
        await use(EditTool(), context(tmp_path), {"path": "b", "old": "a", "new": "b"})


async def test_a_file_too_large_to_edit_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apexbridge.tools.builtin.edit.MAX_BYTES", 10)
    (tmp_path / "a.txt").write_text("a" * 11, encoding="utf-8")
    with pytest.raises(ToolFailedError, match="larger than"):
        await _edit(tmp_path, "a", "b", replace_all=True)


@pytest.mark.parametrize("becomes", ["changed", "gone"])
async def test_an_edit_of_a_file_that_changed_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    target = tmp_path / "a.txt"
    target.write_text("a", encoding="utf-8")

    def change(data: bytes) -> charset_detection.DecodedText:
        target.unlink()
        if becomes == "changed":
            target.write_text("theirs", encoding="utf-8")
        return charset_detection.DecodedText(text=data.decode(), encoding="utf-8")

    monkeypatch.setattr(charset_detection, "decode", change)
    with pytest.raises(ToolFailedError, match="changed meanwhile"):
        await _edit(tmp_path, "a", "b")
    assert [path.read_text(encoding="utf-8") for path in tmp_path.iterdir()] == (
        ["theirs"] if becomes == "changed" else []
    )
