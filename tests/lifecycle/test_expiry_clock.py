"""Expiry of uninstalled skills: a clock that jumps ahead deletes none."""

import os
import time
from pathlib import Path

import pytest

from apexbridge.lifecycle.store import SkillStore
from apexbridge.testing import make_skill

DAY = 86_400
WEEK = 7 * DAY


class _Clock:
    """The system clock, which stamps files too."""

    def __init__(self, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data, self.at = data, time.time()
        monkeypatch.setattr("time.time", lambda: self.at)

    def use(self) -> None:
        """Write a file, as every use of a data folder does."""
        (self.data / "audit.jsonl").write_bytes(b"")
        os.utime(self.data / "audit.jsonl", (self.at, self.at))


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Clock:
    made = _Clock(tmp_path / "data", monkeypatch)
    store = _store(made)
    make_skill(store.root, "pdf")
    with store.staging():
        store.uninstall("pdf")
    made.use()
    return made


def _store(clock: _Clock) -> SkillStore:
    return SkillStore(clock.data / "skills")


def _recover(clock: _Clock) -> bool:
    """Start again; whether the skill can still be restored."""
    _store(clock).recover(keep_seconds=WEEK)
    clock.use()
    return bool(_store(clock).trash.list())


def test_a_skill_expires_after_its_days_of_use(clock: _Clock) -> None:
    for _ in range(7):
        clock.at += DAY
        assert _recover(clock)
    clock.at += DAY
    assert not _recover(clock)


def test_a_clock_far_ahead_deletes_nothing_at_any_start(clock: _Clock) -> None:
    clock.at += 400 * DAY
    assert [_recover(clock) for _ in range(5)] == [True] * 5
    clock.at += 100 * DAY  # and further
    assert [_recover(clock) for _ in range(5)] == [True] * 5


def test_days_count_on_after_a_jump_and_after_it_is_put_right(clock: _Clock) -> None:
    clock.at += 400 * DAY
    assert _recover(clock)
    clock.at -= 400 * DAY
    os.utime(clock.data / "audit.jsonl", (clock.at, clock.at))
    for _ in range(7):
        clock.at += DAY
        assert _recover(clock)
    clock.at += DAY
    assert not _recover(clock)


def test_a_damaged_record_of_jumps_deletes_nothing(clock: _Clock) -> None:
    (clock.data / "clock.json").write_bytes(b"{")
    for _ in range(30):
        clock.at += DAY
        assert _recover(clock)
    assert (clock.data / "clock.json").read_bytes() == b"{"
