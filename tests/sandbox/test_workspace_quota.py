"""The workspace quota counts everything, whatever a run does to hide it."""

import os
from pathlib import Path

import pytest

from apexbridge.sandbox import workspace_quota
from apexbridge.sandbox.base import SandboxLimits
from apexbridge.sandbox.workspace_quota import WorkspaceQuota

LIMITS = SandboxLimits(workspace_bytes=100_000, workspace_files=50)


def test_what_fits_fits(tmp_path: Path) -> None:
    assert not WorkspaceQuota(tmp_path, LIMITS).is_exceeded()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a").write_bytes(bytes(50_000))
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 10_000_000)  # allocates nothing
    (tmp_path / "away").symlink_to("/")
    assert not WorkspaceQuota(tmp_path, LIMITS).is_exceeded()


@pytest.mark.parametrize("mode", [0o700, 0o300, 0])
def test_what_does_not_is_seen_also_in_a_folder_that_cannot_be_read(
    tmp_path: Path, mode: int
) -> None:
    inner = tmp_path / "a/b"
    inner.mkdir(parents=True)
    (inner / "big").write_bytes(bytes(200_000))
    inner.chmod(mode)
    inner.parent.chmod(mode)
    assert WorkspaceQuota(tmp_path, LIMITS).is_exceeded()


def test_names_count(tmp_path: Path) -> None:
    for number in range(51):
        (tmp_path / str(number)).touch()
    assert WorkspaceQuota(tmp_path, LIMITS).is_exceeded()


def test_a_workspace_that_is_gone_is_too_much(tmp_path: Path) -> None:
    measure = WorkspaceQuota(tmp_path, LIMITS)
    tmp_path.rmdir()
    assert measure.is_exceeded()


def test_a_disk_that_runs_full_meanwhile_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [10_000_000, 1_000_000]

    def shrinking(_: Path) -> tuple[int, int]:
        return free.pop(0), 100_000_000

    monkeypatch.setattr(workspace_quota, "_disk_space", shrinking)
    assert WorkspaceQuota(tmp_path, LIMITS).is_exceeded()


def test_a_disk_that_was_full_before_is_not_the_runs_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> tuple[int, int]:
        return 1_000, 100_000_000

    monkeypatch.setattr(workspace_quota, "_disk_space", full)
    assert not WorkspaceQuota(tmp_path, LIMITS).is_exceeded()
