"""Content pinning (trust on first use) across restarts, threads and corruption."""

import threading
from pathlib import Path

import pytest

from apexbridge.errors import SourceError, StorageError
from apexbridge.sources.remote.download_cache import PinChange, PinStore, sha256_hex

URL = "https://a.example/SKILL.md"
OLD, NEW, NEWER = b"old", b"new", b"newer"


@pytest.fixture
def pins(tmp_path: Path) -> PinStore:
    return PinStore(tmp_path / "remote")


def _kept(folder: Path) -> set[str]:
    return {path.name for path in (folder / "remote/kept").iterdir()}


def test_what_came_first_is_remembered_and_the_same_again_is_fine(
    pins: PinStore, tmp_path: Path
) -> None:
    assert pins.pinned(URL) == ""
    assert pins.last_good(URL) is None
    assert pins.pin_first(URL, OLD) is None
    again = PinStore(tmp_path / "remote")
    assert again.pin_first("https://A.example:443/SKILL.md", OLD) is None
    assert (again.pinned(URL), again.last_good(URL)) == (sha256_hex(OLD), OLD)


@pytest.mark.promise("R07")
def test_other_bytes_are_a_change_that_waits_to_be_accepted(pins: PinStore, tmp_path: Path) -> None:
    pins.pin_first(URL, OLD)
    for _ in range(2):
        assert pins.pin_first(URL, NEW) == PinChange(old=sha256_hex(OLD), new=sha256_hex(NEW))
        assert (pins.last_good(URL), pins.offered(URL)) == (OLD, NEW)
    assert pins.accept_change(URL)
    assert (pins.last_good(URL), pins.offered(URL)) == (NEW, None)
    assert pins.pin_first(URL, NEW) is None
    assert pins.pin_first(URL, OLD) == PinChange(old=sha256_hex(NEW), new=sha256_hex(OLD))
    assert _kept(tmp_path) == {sha256_hex(OLD), sha256_hex(NEW)}


@pytest.mark.promise("R07")
def test_what_is_accepted_is_what_was_seen_last_and_nothing_else(
    pins: PinStore, tmp_path: Path
) -> None:
    assert not pins.accept_change(URL)
    pins.pin_first(URL, OLD)
    assert not pins.accept_change(URL)
    assert pins.offered(URL) is None
    assert pins.offered("https://other.example/") is None
    pins.pin_first(URL, NEW)
    pins.pin_first(URL, NEWER)
    assert pins.accept_change(URL)
    assert pins.pin_first(URL, NEW) == PinChange(old=sha256_hex(NEWER), new=sha256_hex(NEW))


def test_bytes_that_no_address_needs_any_more_are_dropped(pins: PinStore, tmp_path: Path) -> None:
    pins.pin_first(URL, OLD)
    pins.pin_first("https://b.example/", OLD)
    pins.pin_first(URL, NEW)
    pins.accept_change(URL)
    assert _kept(tmp_path) == {sha256_hex(OLD), sha256_hex(NEW)}
    pins.pin_first("https://b.example/", NEW)
    pins.accept_change("https://b.example/")
    assert _kept(tmp_path) == {sha256_hex(NEW)}


def test_a_list_may_say_something_else_each_time(pins: PinStore, tmp_path: Path) -> None:
    assert pins.latest(URL) is None
    pins.store_latest(URL, OLD)
    pins.store_latest(URL, NEW)
    assert (pins.latest(URL), pins.last_good(URL)) == (NEW, None)
    assert _kept(tmp_path) == {sha256_hex(NEW)}


def test_corrupt_bytes_are_not_returned_and_are_replaced(pins: PinStore, tmp_path: Path) -> None:
    pins.pin_first(URL, OLD)
    kept = tmp_path / "remote/kept" / sha256_hex(OLD)
    kept.write_bytes(b"evil")
    assert pins.last_good(URL) is None
    assert pins.pin_first(URL, OLD) is None
    assert pins.last_good(URL) == OLD


@pytest.mark.parametrize(
    "written",
    [b"", b"{", b"[]", b'{"pins": {"a": {"sha256": "../../etc/passwd"}}}', b'{"other": 1}',
     b"[" * 100_000, b"\xff\xfe"],
    ids=["empty", "cut", "list", "path", "unknown", "deep", "binary"],
)  # fmt: skip
def test_a_corrupt_pin_file_is_reported_and_not_overwritten(
    pins: PinStore, tmp_path: Path, written: bytes
) -> None:
    pins.pin_first(URL, OLD)
    file = tmp_path / "remote/pins.json"
    file.write_bytes(written)
    for use in (lambda: pins.pin_first(URL, NEW), lambda: pins.pinned(URL)):
        with pytest.raises(SourceError) as caught:
            use()
        assert caught.value.code == "pins_unreadable"
    assert file.read_bytes() == written


def test_a_pin_file_that_is_a_folder_is_reported(pins: PinStore, tmp_path: Path) -> None:
    (tmp_path / "remote/pins.json").mkdir(parents=True)
    with pytest.raises(SourceError) as caught:
        pins.pinned(URL)
    assert caught.value.code == "pins_unreadable"


def test_an_unusable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        PinStore(tmp_path / "file/remote").store_latest(URL, OLD)


def test_secrets_of_an_address_are_not_written_down(pins: PinStore, tmp_path: Path) -> None:
    pins.pin_first(f"{URL}?token=geheim", OLD)
    assert b"geheim" not in (tmp_path / "remote/pins.json").read_bytes()


def test_many_at_once_lose_nothing(tmp_path: Path) -> None:
    def work(number: int) -> None:
        own = PinStore(tmp_path / "remote")
        for each in range(3):
            own.pin_first(f"{URL}/{number}/{each}", b"%d" % each)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    pins = PinStore(tmp_path / "remote")
    found = [pins.last_good(f"{URL}/{number}/{each}") for number in range(4) for each in range(3)]
    assert found == [b"0", b"1", b"2"] * 4
