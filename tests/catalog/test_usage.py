"""Usage counts are exact across processes, and survive a corrupt file."""

import logging
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from apexbridge.catalog.usage import UsageStore, score

DAY = 86_400.0
NOW = 1_800_000_000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "usage.db"


@pytest.fixture
def store(path: Path) -> Generator[UsageStore]:
    with closing(UsageStore(path)) as ready:
        yield ready


@pytest.mark.parametrize(
    ("count", "days", "expected"),
    [
        (0, 0, 0.0),
        (1, 0, 1.0),
        (4, 7, 2.0),
        (8, 14, 2.0),
        (8, 21, 1.0),
        (10, 30, 1.0),
        (10, 10_000_000, 1.0),
        (3, -5, 3.0),
        (3, float("-inf"), 3.0),
        (3, float("nan"), 3.0),
    ],
)
def test_a_score_halves_each_week_down_to_a_tenth(count: int, days: float, expected: float) -> None:
    assert score(count, last=NOW - days * DAY, now=NOW) == pytest.approx(expected)


def test_uses_are_counted_and_weighed(store: UsageStore) -> None:
    for day in range(3):
        assert store.record("pdf", NOW + day * DAY)
    assert store.record("commit", NOW)
    assert (store.count("pdf"), store.count("unknown")) == (3, 0)
    assert store.scores(NOW + 9 * DAY) == pytest.approx({"pdf": 1.5, "commit": 0.5 ** (9 / 7)})


def test_uses_within_a_minute_count_once(store: UsageStore) -> None:
    reported = [store.record("pdf", NOW + seconds) for seconds in (0, 1, 59.9, 60, 61, 119.9, 120)]
    assert reported == [True, False, False, True, False, False, True]
    assert store.record("other", NOW + 1)
    assert (store.count("pdf"), store.count("other")) == (3, 1)


def test_counts_outlive_the_process(store: UsageStore, path: Path) -> None:
    store.record("pdf", NOW)
    store.close()
    with closing(UsageStore(path)) as again:
        assert not again.record("pdf", NOW + 30)
        assert again.count("pdf") == 1


def test_a_closed_store_opens_again_when_it_is_used(store: UsageStore) -> None:
    store.close()
    store.close()
    assert store.record("pdf", NOW)


def test_what_is_forgotten_begins_anew(store: UsageStore) -> None:
    store.record("pdf", NOW)
    store.record("commit", NOW)
    store.forget("pdf")
    store.forget("never-there")
    assert set(store.scores(NOW)) == {"commit"}
    assert store.record("pdf", NOW + 1)


@pytest.mark.parametrize(
    "name", ["", "技能", "a\0b", "\ud800", "'; DROP TABLE usage; --", "x" * 100_000], ids=range(6)
)
def test_a_name_is_any_text(store: UsageStore, name: str) -> None:
    assert store.record(name, NOW)
    assert store.scores(NOW) == {name: 1.0}
    assert store.count(name) == 1


@pytest.mark.promise("S16")
def test_a_clock_that_was_put_back_neither_blocks_nor_weighs(store: UsageStore) -> None:
    assert store.record("pdf", NOW + 365 * DAY)
    assert store.scores(NOW) == {"pdf": 1.0}
    assert store.record("pdf", NOW)
    assert not store.record("pdf", NOW + 10)
    assert store.record("pdf", NOW + 60)
    # Two processes whose clocks differ a little still count one use.
    assert not store.record("pdf", NOW + 0.5)
    assert store.count("pdf") == 3


def test_a_time_that_is_none_is_not_counted(
    store: UsageStore, caplog: pytest.LogCaptureFixture
) -> None:
    assert not store.record("pdf", float("nan"))
    assert "unavailable" in caplog.text
    assert store.record("pdf", NOW)


def test_threads_that_race_count_once_and_lose_nothing(store: UsageStore) -> None:
    counted = list[str]()
    gate = threading.Barrier(8)

    def use(me: int) -> None:
        gate.wait()
        for number in range(20):
            for name in (f"shared-{number}", f"own-{me}-{number}"):
                if store.record(name, NOW):
                    counted.append(name)

    threads = [threading.Thread(target=use, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counted) == len(set(counted)) == 20 + 8 * 20
    assert set(store.scores(NOW)) == set(counted)


HAMMER = """
import sys
from pathlib import Path
from apexbridge.catalog.usage import UsageStore

store = UsageStore(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    if store.record(f"shared-{number}", 1.8e9):
        print(f"shared-{number}", flush=True)
    if store.record("hot", 1.8e9 + 60 * number):
        print("hot", flush=True)
"""


@contextmanager
def _children(path: Path, count: int, rounds: int) -> Generator[list[subprocess.Popen[str]]]:
    """Processes that are ready to count and wait for a line; all are gone afterwards."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", HAMMER, str(path), str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        for _ in range(count)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        yield children
    finally:
        for child in children:
            child.kill()
            child.communicate()


def test_processes_that_race_from_the_first_moment_count_once(path: Path) -> None:
    with _children(path, 3, 100) as children:
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        outputs = [child.communicate(timeout=60) for child in children]
    assert [errors for _, errors in outputs] == ["", "", ""]
    said = [line for output, _ in outputs for line in output.split()]
    with closing(UsageStore(path)) as store:
        for number in range(100):
            assert said.count(f"shared-{number}") == store.count(f"shared-{number}") == 1
        assert said.count("hot") == store.count("hot") >= 100


def test_a_process_killed_while_it_counts_leaves_a_sound_file(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        with _children(path, 1, 1_000_000) as (child,):
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            said = [child.stdout.readline().strip() for _ in range(5)]
            child.send_signal(signal.SIGKILL)
            child.wait()
            said += child.stdout.read().split()
        with closing(UsageStore(path)) as store:
            assert all(store.count(name) for name in said)
            assert store.count("hot") >= said.count("hot") > 0
            for name in store.scores(NOW):
                store.forget(name)
    assert caplog.text == ""


def _garbage(path: Path) -> None:
    path.write_bytes(b"this is a letter, and no database\n" * 400)


def _foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE usage (mine TEXT)")


def _zeros_inside(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(100)
        file.write(bytes(path.stat().st_size - 100))


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _other_columns(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("ALTER TABLE usage RENAME TO other")


def _undecodable(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO usage VALUES (x'ff', 1, 1.0)")


@pytest.mark.parametrize("damage", [_garbage, _foreign, _zeros_inside, _cut, _other_columns])
def test_a_damaged_file_is_kept_aside_said_and_begun_anew(
    store: UsageStore,
    path: Path,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for number in range(300):
        store.record(f"a-long-name-that-fills-pages-{number}", NOW)
    store.close()
    damage(path)
    found = path.read_bytes()
    assert store.record("pdf", NOW)
    assert store.scores(NOW) == {"pdf": 1.0}
    assert path.with_name("usage.db.broken").read_bytes() == found
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "created anew" in caplog.text


def test_a_name_that_cannot_be_read_is_damage_too(store: UsageStore, path: Path) -> None:
    store.record("pdf", NOW)
    _undecodable(path)
    assert store.scores(NOW) == {}
    assert store.record("pdf", NOW)
    assert path.with_name("usage.db.broken").exists()


def test_damage_while_it_is_open_is_noticed(store: UsageStore, path: Path) -> None:
    store.record("pdf", NOW)
    path.unlink()
    assert store.record("pdf", NOW)
    with closing(UsageStore(path)) as other:
        assert other.count("pdf") == 1


def test_two_that_find_the_same_damage_set_it_aside_once(
    store: UsageStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.record("pdf", NOW)
    store.close()
    _garbage(path)
    with closing(UsageStore(path)) as other:
        assert other.record("a", NOW)
        assert store.record("b", NOW)
        assert set(other.scores(NOW)) == {"a", "b"}
    assert len(caplog.records) == 1


def _is_lost(store: UsageStore, caplog: pytest.LogCaptureFixture) -> bool:
    caplog.clear()
    answers = store.record("new", NOW), store.count("new")
    return answers == (False, 0) and "unavailable" in caplog.text


def test_a_place_that_cannot_be_written_loses_counts_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "file/usage.db", tmp_path / "folder", Path("/proc/usage.db")):
        with closing(UsageStore(place)) as store:
            assert _is_lost(store, caplog)
            assert store.scores(NOW) == {}
            store.forget("new")


def test_a_full_disk_loses_the_count_and_keeps_the_others(
    store: UsageStore, caplog: pytest.LogCaptureFixture
) -> None:
    store.record("old", NOW)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        assert not store.record("x" * 100_000, NOW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "unavailable" in caplog.text
    assert store.record("new", NOW)
    assert set(store.scores(NOW)) == {"old", "new"}


def test_a_file_that_another_keeps_locked_costs_the_count_and_no_more(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(UsageStore(path, busy_seconds=0.05)) as store:
        store.record("old", NOW)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert not store.record("new", NOW)
            assert store.count("old") == 1
            other.execute("ROLLBACK")
        assert "unavailable" in caplog.text
        assert store.record("new", NOW)


def test_one_halted_while_it_opens_the_file_does_not_halt_the_others(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys; f = open(sys.argv[1], 'wb'); fcntl.flock(f, fcntl.LOCK_EX);"
            "print('held', flush=True); sys.stdin.read()",
            str(path.with_name("usage.db.lock")),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with closing(UsageStore(path, busy_seconds=0.05)) as store:
        assert _is_lost(store, caplog)
        holder.communicate()
        assert store.record("new", NOW)
