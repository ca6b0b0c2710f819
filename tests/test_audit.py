"""Audit log: append-only, and the hash chain detects tampering."""

import hashlib
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


def _lines(tmp_path: Path) -> list[str]:
    return _path(tmp_path).read_text(encoding="utf-8").splitlines(keepends=True)


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_cut_tail_is_found_also_after_later_records(
    log: AuditLog, tmp_path: Path, kept: int
) -> None:
    _path(tmp_path).write_text("".join(_lines(tmp_path)[:kept]), encoding="utf-8")
    with pytest.raises(AuditBrokenError, match=f"at least {4 - kept}") as cut:
        log.verify()
    assert (cut.value.code, cut.value.details["line"]) == ("audit_cut", kept + 1)
    for _ in range(3):
        AuditLog(_path(tmp_path)).record("later")
    with pytest.raises(AuditBrokenError, match=f"line {kept + 1} does not match"):
        log.verify()


def test_a_removed_log_is_found(log: AuditLog, tmp_path: Path) -> None:
    _path(tmp_path).unlink()
    with pytest.raises(AuditBrokenError, match="was cut"):
        log.verify()


@pytest.mark.parametrize("content", [None, b"", b"4 garbage"])
def test_a_removed_or_damaged_head_is_found_also_after_later_records(
    log: AuditLog, tmp_path: Path, content: bytes | None
) -> None:
    head = tmp_path / "data/audit.head"
    head.unlink() if content is None else head.write_bytes(content)
    _path(tmp_path).write_text("".join(_lines(tmp_path)[:3]), encoding="utf-8")
    for _ in range(2):
        with pytest.raises(AuditBrokenError) as missing:
            log.verify()
        assert missing.value.code == "audit_head_missing"
        log.record("later")


def test_a_crash_between_line_and_head_is_no_tampering(log: AuditLog, tmp_path: Path) -> None:
    before = (tmp_path / "data/audit.head").read_bytes()
    for number in range(2):
        log.record("crashed", number=number)
    (tmp_path / "data/audit.head").write_bytes(before)
    assert log.verify() == 6
    log.record("after")
    assert log.verify() == 7
    assert json.loads(_lines(tmp_path)[-1])["sequence"] == 7


def test_a_torn_write_of_the_head_leaves_the_one_before(log: AuditLog, tmp_path: Path) -> None:
    head = tmp_path / "data/audit.head"
    log.record("torn")
    data = bytearray(head.read_bytes())
    slot = data.index(b"5 ")
    data[slot + 20 : slot + 40] = b"x" * 20
    head.write_bytes(data)
    assert log.verify() == 5
    log.record("after")
    assert log.verify() == 6


def test_a_log_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    log, before = AuditLog(_path(tmp_path)), "0" * 64
    _path(tmp_path).parent.mkdir()
    with _path(tmp_path).open("w", encoding="ascii") as file:
        for number in range(3):
            fields: dict[str, object] = {"at": "", "action": "x", "facts": {"n": number}}
            fields["before"] = before
            text = json.dumps(fields, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
            before = hashlib.sha256(text.encode("ascii")).hexdigest()
            file.write(json.dumps({**fields, "hash": before}) + "\n")
    assert log.verify() == 3
    log.record("new")
    assert log.verify() == 4
    _path(tmp_path).write_text("".join(_lines(tmp_path)[:2]), encoding="utf-8")
    with pytest.raises(AuditBrokenError, match="was cut"):
        log.verify()


def test_a_head_that_cannot_be_written_leaves_no_line(
    log: AuditLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    before = _path(tmp_path).read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr("os.pwrite", full)
        with pytest.raises(StorageError, match="No space"):
            log.record("x")
    assert _path(tmp_path).read_bytes() == before
    assert log.verify() == 4
    log.record("y")
    assert log.verify() == 5
