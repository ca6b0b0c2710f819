"""State databases: private, copied whole beside a writer, and damage is told from a lock."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from apexbridge.agent.session_store import SessionStore
from apexbridge.catalog.consent import InstallerStore
from apexbridge.catalog.trust import TrustStore
from apexbridge.catalog.usage import UsageStore
from apexbridge.errors import StateDamagedError, StorageError
from apexbridge.runtime.run_store import RunStore
from apexbridge.state_databases import (
    check_database,
    copy_database,
    database_errors,
    open_database,
)

ROWS = 3_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "data/state.db"
    with closing(open_database(made)) as database, database:
        database.execute("CREATE TABLE names (name TEXT)")
        database.executemany("INSERT INTO names VALUES (?)", [(f"name-{n}",) for n in range(ROWS)])
    return made


def _overwrite(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xa5" * 3_000)


@pytest.mark.parametrize("offset", [0, 9_000], ids=["header", "page"])
def test_damage_is_found_and_changes_nothing(path: Path, offset: int) -> None:
    check_database(path)
    _overwrite(path, offset)
    before = path.read_bytes()
    with pytest.raises(StateDamagedError, match=r"state\.db"):
        check_database(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_lock_or_a_missing_file_is_no_damage(path: Path) -> None:
    check_database(path.with_name("none"))
    with closing(open_database(path)) as database:
        database.execute("BEGIN EXCLUSIVE")
        check_database(path, is_thorough=False)
        with (
            closing(open_database(path, timeout=0)) as other,
            pytest.raises(StorageError) as refused,
            database_errors(path),
        ):
            other.execute("SELECT * FROM names")
    assert refused.value.code == "storage_failed"


def test_a_copy_beside_a_writer_is_whole(path: Path, tmp_path: Path) -> None:
    with closing(open_database(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute("DELETE FROM names")  # in the log alone
        database.execute("BEGIN IMMEDIATE")
        database.execute("INSERT INTO names VALUES ('not committed')")
        names = sorted(p.name for p in path.parent.iterdir())
        assert copy_database(path, tmp_path / "copy.db")
        assert sorted(p.name for p in path.parent.iterdir()) == names
        database.execute("ROLLBACK")
    check_database(tmp_path / "copy.db")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("SELECT count(*) FROM names").fetchone() == (0,)


def test_a_copy_of_what_is_not_there_is_none(tmp_path: Path) -> None:
    assert not copy_database(tmp_path / "none.db", tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def _sessions(path: Path) -> None:
    SessionStore(path).latest()


def _runs(path: Path) -> None:
    store = RunStore(path)
    try:
        store.latest()
    finally:
        store.close()


def _trust(path: Path) -> None:
    TrustStore(path).revoke(["0" * 64])


def _installers(path: Path) -> None:
    InstallerStore(path).forget("pdf")


def _usage(path: Path) -> None:
    UsageStore(path).record("pdf", 1.0)


@pytest.mark.parametrize("use", [_sessions, _runs, _trust, _installers])
def test_a_damaged_store_is_an_error_and_is_not_replaced(
    tmp_path: Path, use: Callable[[Path], None]
) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"garbage" * 1_000)
    with pytest.raises(StateDamagedError, match=r"store\.db"):
        use(path)
    assert path.read_bytes() == b"garbage" * 1_000


@pytest.mark.parametrize("use", [_sessions, _trust, _usage])
def test_a_new_store_is_private_with_its_log(tmp_path: Path, use: Callable[[Path], object]) -> None:
    use(tmp_path / "store.db")
    modes = {p.name: oct(p.stat().st_mode & 0o777) for p in tmp_path.iterdir()}
    assert set(modes.values()) == {"0o600"}, modes
