"""Input files of scripts: folders of this machine, and what of them is left out."""

from pathlib import Path

import pytest

from apexbridge.activation.input_files import InputFiles
from apexbridge.errors import ToolInputError


def test_a_name_that_no_script_can_be_given_does_not_refuse_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in (b"good.txt", b"back\\slash", b"line\nbreak", b"bad\xff.txt"):
        Path(f"{folder}/{name.decode('utf-8', 'surrogateescape')}").write_bytes(b"1")
    inputs = InputFiles.from_disk([folder])
    assert list(inputs.files) == ["data/good.txt"]
    assert inputs.skipped == {
        "data/back\\slash": "the folders of its path must be separated by '/'",
        "data/line\nbreak": "its name has characters that cannot be shown",
        "data/bad\udcff.txt": "its name has characters that cannot be shown",
    }


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "data/inner").mkdir(parents=True)
    (tmp_path / "data/.git").mkdir()
    assert InputFiles.from_disk([tmp_path / "data"]).skipped == {
        "data/.git": "a folder of tools",
        "data/inner": "an empty folder",
    }


def test_a_folder_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(PermissionError):
        InputFiles.from_disk([tmp_path])


def test_the_message_says_what_is_wrong_with_a_name() -> None:
    for name, why in (("x" * 256, "255 bytes"), ("a\x1bb", "cannot be shown"), ("..", "relative")):
        with pytest.raises(ToolInputError, match=why):
            InputFiles().add(name, b"")
