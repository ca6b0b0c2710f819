"""The secret store: encrypted, authenticated, changed by one rename."""

import json
import os
import stat
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from apexbridge import paths
from apexbridge.errors import ConfigError, StorageError
from apexbridge.secrets import encryption_key
from apexbridge.secrets.encryption_key import EncryptionKeys
from apexbridge.secrets.store import SecretGrant, SecretStore

VALUE = "sk-live-0123456789abcdef"
GRANT = SecretGrant(secret="A", skill="s", sha256="0" * 64, hosts=("api.example",))  # noqa: S106


@pytest.fixture
def store(tmp_path: Path) -> SecretStore:
    keys = EncryptionKeys(file=tmp_path / "key/secrets.key", uses_keyring=False)
    return SecretStore(tmp_path / "data/secrets.json", keys)


def test_values_and_grants_are_read_again_by_another_process(
    store: SecretStore, tmp_path: Path
) -> None:
    store.set("A", VALUE)
    store.grant([GRANT])
    keys = EncryptionKeys(file=tmp_path / "key/secrets.key", uses_keyring=False)
    state = SecretStore(tmp_path / "data/secrets.json", keys).read()
    assert state.values["A"].value == VALUE
    assert state.grants_of("s")["A"].hosts == ("api.example",)
    assert VALUE not in repr(state)


def test_files_are_for_their_owner_only_and_hold_no_value(
    store: SecretStore, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        store.set("A", VALUE)
        store.set("A", VALUE + "2")
    finally:
        os.umask(before)
    for path in (tmp_path / "data/secrets.json", tmp_path / "key/secrets.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert VALUE.encode() not in path.read_bytes()
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert names == {"secrets.json", "secrets.lock"}


def _flip_data(data: bytes) -> bytes:
    sealed = json.loads(data)
    sealed["data"] = sealed["data"][:-8] + ("A" if sealed["data"][-8] != "A" else "B") + "AAAAAAA"
    return json.dumps(sealed).encode()


def _other_id(data: bytes) -> bytes:
    return json.dumps({**json.loads(data), "id": "other"}).encode()


def _empty(_: bytes) -> bytes:
    return b""


def _cut(data: bytes) -> bytes:
    return data[:-9]


def _no_fields(_: bytes) -> bytes:
    return b"{}"


@pytest.mark.parametrize("damage", [_empty, _cut, _no_fields, _flip_data, _other_id])
def test_damage_is_an_error_and_never_an_empty_store(
    store: SecretStore, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    store.set("A", VALUE)
    path = tmp_path / "data/secrets.json"
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    for call in (store.read, lambda: store.set("B", VALUE), lambda: store.remove("A")):
        with pytest.raises(StorageError) as error:
            call()
        assert error.value.code == "secrets_damaged"
        assert VALUE not in str(error.value)
    assert path.read_bytes() == damaged


def test_a_missing_or_damaged_key_is_an_error_and_is_not_replaced(
    store: SecretStore, tmp_path: Path
) -> None:
    store.set("A", VALUE)
    key = tmp_path / "key/secrets.key"
    for text, code in ((None, "secrets_key_missing"), ("zzz", "secrets_key_damaged")):
        key.unlink(missing_ok=True)
        if text is not None:
            key.write_text(text, encoding="utf-8")
        with pytest.raises(StorageError) as error:
            store.set("B", VALUE)
        assert error.value.code == code


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "PATH", "ld_preload", "A\0", "A" * 65])
def test_a_name_that_is_no_harmless_variable_is_refused(store: SecretStore, name: str) -> None:
    with pytest.raises(ConfigError) as error:
        store.set(name, VALUE)
    assert error.value.code == "secret_name_invalid"


@pytest.mark.parametrize(
    "value", ["", "short", "a" * 4_097, "line\nbreak", " " + VALUE, "x\r\ny: zzzzzz", "nul\0nulnul"]
)
def test_a_value_that_cannot_be_sent_is_refused_and_not_repeated(
    store: SecretStore, value: str
) -> None:
    with pytest.raises(ConfigError) as error:
        store.set("A", value)
    assert error.value.code == "secret_value_invalid"
    assert not value or value not in str(error.value)


@pytest.mark.parametrize("at", ["create_bytes", "replace_bytes"])
def test_a_crash_while_a_value_is_set_keeps_the_old_state(
    store: SecretStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    if at == "replace_bytes":
        store.set("A", VALUE)

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(paths, "fsync_dir", crash)
    monkeypatch.setattr(Path, "replace", crash)
    monkeypatch.setattr(Path, "hardlink_to", crash)
    with pytest.raises(KeyboardInterrupt):
        store.set("B", VALUE)
    monkeypatch.undo()
    assert set(store.read().values) == ({"A"} if at == "replace_bytes" else set())
    store.set("C", VALUE)
    assert "C" in store.read().values
    assert VALUE.encode() not in b"".join(
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    )


def test_removing_a_secret_removes_its_grants(store: SecretStore) -> None:
    store.set("A", VALUE)
    store.grant([GRANT])
    assert store.remove("A")
    assert not store.remove("A")
    assert store.read().grants == ()


def test_a_new_grant_replaces_the_old_one_and_revoking_ends_it(store: SecretStore) -> None:
    store.grant([GRANT, GRANT.model_copy(update={"skill": "t"})])
    store.grant([GRANT.model_copy(update={"sha256": "1" * 64})])
    assert store.read().grants_of("s")["A"].sha256 == "1" * 64
    assert [grant.skill for grant in store.revoke("s")] == ["s"]
    assert [grant.skill for grant in store.read().grants] == ["t"]


class _Keyring:
    def __init__(self, *, works: bool = True) -> None:
        self.kept, self._works = dict[tuple[str, str], str](), works

    def get_keyring(self) -> "_Keyring":
        return self

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self._works:
            self.kept[service, username] = password


def _use_keyring(monkeypatch: pytest.MonkeyPatch, keyring: _Keyring | Exception) -> None:
    def find(name: str) -> object:
        if name != "keyring":
            return import_module(name)
        if isinstance(keyring, Exception):
            raise keyring
        return keyring

    monkeypatch.setattr(encryption_key, "import_module", find)


def test_a_keyring_that_works_holds_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring = _Keyring()
    _use_keyring(monkeypatch, keyring)
    store = SecretStore(tmp_path / "secrets.json", EncryptionKeys(file=tmp_path / "key"))
    store.set("A", VALUE)
    assert len(keyring.kept) == 1
    assert not (tmp_path / "key").exists()
    assert store.read().values["A"].value == VALUE
    keyring.kept.clear()
    with pytest.raises(StorageError) as error:
        store.read()
    assert error.value.code == "secrets_key_missing"


@pytest.mark.parametrize("keyring", [_Keyring(works=False), ImportError(), RuntimeError("D-Bus")])
def test_without_a_keyring_that_works_the_key_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyring: _Keyring | Exception
) -> None:
    _use_keyring(monkeypatch, keyring)
    store = SecretStore(tmp_path / "secrets.json", EncryptionKeys(file=tmp_path / "key"))
    store.set("A", VALUE)
    assert (tmp_path / "key").exists()
    assert store.read().values["A"].value == VALUE
