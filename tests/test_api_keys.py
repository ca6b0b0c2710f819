"""API keys: creation, revocation, lookup, and hashes only on disk."""

import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from apexbridge.api_keys import SCOPES, ApiKey, ApiKeyStore, create_first_key
from apexbridge.errors import ConfigError, StorageError


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "data" / "keys.json"


def test_a_key_is_found_and_its_text_is_nowhere(place: Path) -> None:
    store = ApiKeyStore(place)
    assert store.find("apx_x") is None
    text, key = store.create("laptop", ["exec", "chat"])
    assert text.startswith("apx_")
    assert len(text) > 40
    assert key.scopes == ("chat", "exec")
    assert store.find(text) == key
    assert store.find(text + "x") is None
    assert store.find("\udcff") is None
    assert text not in place.read_text(encoding="utf-8")
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert store.all() == (key,)


def test_a_key_that_opens_nothing_is_not_made(place: Path) -> None:
    with pytest.raises(ConfigError):
        ApiKeyStore(place).create("none", [])
    assert not place.exists()


def test_a_key_ends_with_its_time(place: Path) -> None:
    store = ApiKeyStore(place)
    old, _ = store.create("old", ["chat"], expires=time.time() - 1)
    new, _ = store.create("new", ["chat"], expires=time.time() + 1_000)
    assert store.find(old) is None
    assert store.find(new) is not None
    assert store.has_any()


@pytest.mark.promise("S01")
def test_revoking_binds_other_stores_of_the_file(place: Path) -> None:
    one, other = ApiKeyStore(place), ApiKeyStore(place)
    text, key = one.create("k", ["chat"])
    assert other.find(text) == key
    assert one.get(key.id) == key
    gone = one.revoke("k")
    assert gone is not None
    assert gone.revoked is not None
    assert one.find(text) is None
    assert one.get(key.id) is None
    time.sleep(0.03)  # a look at the file is good for a blink
    assert other.find(text) is None
    assert one.revoke(key.id) is None
    assert not one.has_any()


def test_a_name_of_two_keys_revokes_neither(place: Path) -> None:
    store = ApiKeyStore(place)
    _, one = store.create("twin", ["chat"])
    _, other = store.create("twin", ["chat"])
    with pytest.raises(ConfigError) as refused:
        store.revoke("twin")
    assert refused.value.code == "key_ambiguous"
    assert one.id in refused.value.hint
    store.revoke(one.id)
    assert store.revoke("twin") is not None
    assert store.get(other.id) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"keys": [{"id": 1}]}', b"\xff"])
def test_a_file_that_makes_no_sense_opens_nothing(place: Path, content: bytes) -> None:
    text, _ = ApiKeyStore(place).create("k", ["chat"])
    place.write_bytes(content)
    store = ApiKeyStore(place)
    with pytest.raises(StorageError):
        store.find(text)
    with pytest.raises(StorageError):
        store.check()
    with pytest.raises(StorageError):
        store.create("more", ["chat"])
    assert place.read_bytes() == content


def test_a_folder_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        ApiKeyStore(tmp_path / "file" / "keys.json").check()


def test_keys_made_at_the_same_time_are_all_kept(place: Path) -> None:
    def make(at: int) -> tuple[str, ApiKey]:
        return ApiKeyStore(place).create(str(at), ["chat"])

    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(make, range(24)))
    store = ApiKeyStore(place)
    assert len(store.all()) == 24
    assert all(store.find(text) == key for text, key in made)


def test_the_first_key_is_made_once_and_is_private(place: Path) -> None:
    store, first = ApiKeyStore(place), place.with_name("first-key")
    first.parent.mkdir()
    first.write_text("left by an earlier life", encoding="ascii")
    text = create_first_key(store, first)
    assert text is not None
    assert first.read_text(encoding="ascii") == f"{text}\n"
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    key = store.find(text)
    assert key is not None
    assert key.scopes == SCOPES
    store.revoke(key.id)
    assert create_first_key(store, first) is None  # who revoked it wanted it so
