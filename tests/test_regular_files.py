"""Regular files: what else a path can lead to is not opened, and nothing blocks."""

import fcntl
import os
import signal
import socket
from pathlib import Path

import pytest

from apexbridge.regular_files import NotRegularFileError, open_regular, read_regular


def test_a_regular_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    assert read_regular(tmp_path / "a") == b"0123456789"
    assert read_regular(tmp_path / "a", 4) == b"0123"


def test_a_name_is_opened_in_an_open_directory(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"here")
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with open_regular("a", dir_fd=directory) as file:
            assert file.read() == b"here"
    finally:
        os.close(directory)


def _make(kind: str, path: Path) -> Path:
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a symlink":
        path.symlink_to("/etc/hostname")
    elif kind == "a directory":
        path.mkdir()
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    else:
        return Path("/dev/ptmx")
    return path


@pytest.mark.parametrize("kind", ["a FIFO", "a symlink", "a directory", "a socket", "a device"])
def test_what_is_no_regular_file_is_named_and_not_opened(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _make(kind, tmp_path / "x")

    def refuse(*_: object, **_options: object) -> int:
        pytest.fail("it was opened")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(NotRegularFileError) as caught:
        open_regular(path)
    assert caught.value.kind == kind
    assert str(caught.value) == caught.value.strerror == f"it is {kind}, not a regular file"


def test_a_file_that_becomes_a_fifo_meanwhile_is_refused_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_bytes(b"")
    regular = (tmp_path / "file").stat()

    def look(*_: object, **_options: object) -> os.stat_result:
        return regular

    monkeypatch.setattr(os, "stat", look)
    with pytest.raises(NotRegularFileError, match="a FIFO"):
        open_regular(tmp_path / "fifo")


def test_a_lease_on_the_file_is_an_error_and_no_wait(tmp_path: Path) -> None:
    path = tmp_path / "leased"
    path.write_bytes(b"text")
    holder = os.open(path, os.O_WRONLY)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)  # sent to a holder whose lease is broken
    try:
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        with pytest.raises(BlockingIOError):
            open_regular(path)
        fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        assert read_regular(path) == b"text"
    finally:
        signal.signal(signal.SIGIO, before)
        os.close(holder)
