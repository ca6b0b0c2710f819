"""State files: unreadable is an error and never an empty file; new ones are private."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from apexbridge.errors import StateDamagedError, StorageError
from apexbridge.state_files import StateFile


class _Names(BaseModel):
    names: set[str] = set()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data/names.json"


def _add(path: Path, name: str) -> None:
    with StateFile(path, _Names).change() as content:
        content.names.add(name)


def test_a_change_is_read_again_and_only_the_owner_can(path: Path) -> None:
    assert StateFile(path, _Names).read() == _Names()
    _add(path, "a")
    _add(path, "b")
    assert StateFile(path, _Names).read().names == {"a", "b"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_is_written_without_a_change(path: Path) -> None:
    with StateFile(path, _Names).change():
        pass
    assert not path.exists()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"names": "secret-text"}', b"\xff\xfe"])
def test_damage_is_an_error_that_quotes_nothing_and_the_file_stays(path: Path, data: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(data)
    for use in (StateFile(path, _Names).read, lambda: _add(path, "a")):
        with pytest.raises(StateDamagedError) as damaged:
            use()
        text = f"{damaged.value} {damaged.value.hint}"
        assert "names.json" in text
        assert "secret-text" not in text
    assert path.read_bytes() == data


def test_what_is_no_file_is_damage(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StateDamagedError, match="directory"):
        StateFile(path, _Names).read()


def test_a_full_disk_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _add(path, "a")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError, match="No space"):
        _add(path, "b")
    assert StateFile(path, _Names).read().names == {"a"}
