"""Audit log: append-only, and the hash chain detects tampering."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from apexbridge.audit import AuditLog
from apexbridge.errors import AuditBrokenError, StorageError


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    made = AuditLog(tmp_path / "data/audit.jsonl")
    for number in range(4):
        made.record("install", skill=f"技能-{number}", size=number, by=None)
    return made


def _path(tmp_path: Path) -> Path:
    return tmp_path / "data/audit.jsonl"


def test_records_are_lines_that_only_the_owner_reads(log: AuditLog, tmp_path: Path) -> None:
    assert log.verify() == 4
    first = json.loads(_path(tmp_path).read_text(encoding="utf-8").splitlines()[0])
    assert (first["action"], first["facts"]) == (
        "install",
        {"skill": "技能-0", "size": 0, "by": None},
    )
    assert _path(tmp_path).stat().st_mode & 0o777 == 0o600


def test_an_empty_log_is_whole(tmp_path: Path) -> None:
    assert AuditLog(tmp_path / "none").verify() == 0


@pytest.mark.parametrize("deed", ["change", "remove", "swap", "insert", "garbage", "cut"])
def test_every_other_change_is_seen(log: AuditLog, tmp_path: Path, deed: str) -> None:
    lines = _path(tmp_path).read_text(encoding="utf-8").splitlines()
    match deed:
        case "change":
            lines[1] = lines[1].replace('"size": 1', '"size": 9')
        case "remove":
            del lines[1]
        case "swap":
            lines[1], lines[2] = lines[2], lines[1]
        case "insert":
            lines.insert(1, lines[1])
        case "garbage":
            lines[1] = "[]"
        case _:
            lines[1] = lines[1][:-20]
    _path(tmp_path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(AuditBrokenError, match=r"line [23] does not match"):
        log.verify()


def test_a_record_that_a_crash_cut_off_does_not_swallow_the_next(
    log: AuditLog, tmp_path: Path
) -> None:
    with _path(tmp_path).open("ab") as file:
        file.write(b'{"at": "2026')
    log.record("after")
    lines = _path(tmp_path).read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[-1])["before"] == json.loads(lines[3])["hash"]
    with pytest.raises(AuditBrokenError, match="line 5"):
        log.verify()


def test_several_processes_write_one_chain(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom apexbridge.audit import AuditLog\n"
        "for n in range(20): AuditLog(Path(sys.argv[1])).record('x', n=n, long='y' * 9000)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "log")]
    running = [subprocess.Popen(words) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert AuditLog(tmp_path / "log").verify() == 60


def test_what_cannot_be_recorded_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError):
        AuditLog(tmp_path / "file/log").record("x")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        AuditLog(tmp_path / "link").record("x")
