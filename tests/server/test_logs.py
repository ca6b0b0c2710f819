"""JSON log lines: one per record, secrets redacted."""

import io
import json
import logging
from collections.abc import Generator

import pytest

from apexbridge.redaction import REDACTED, redact
from apexbridge.server.logs import (
    REQUEST_ID,
    BatchedHandler,
    JsonFormatter,
    configure_logging,
    flush_logs,
)
from tests.deadline import within

KEY = "sk-proj-0123456789abcdef"


@pytest.mark.promise("S12")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Incorrect API key provided: {KEY}.", f"Incorrect API key provided: {REDACTED}."),
        ("Authorization: Bearer abcdefghij", f"Authorization: Bearer {REDACTED}"),
        ("authorization: bearer abcdefghij, x", f"authorization: bearer {REDACTED}, x"),
        ("apx_abcdefghij and more", f"{REDACTED} and more"),
        ("http://me:secret1@host/path", f"http://{REDACTED}@host/path"),
        ("x-api-key: whatever123", REDACTED),
        ('{"password": "hunter2222"}', f'{{"{REDACTED}"}}'),
        ("Cookie: apexbridge_session=abcdef", f"Cookie: {REDACTED}"),
        ("GET /v1?a=1&token=abc&b=2", f"GET /v1?a=1&{REDACTED}&b=2"),
        ("Send it as 'Authorization: Bearer KEY'", "Send it as 'Authorization: Bearer KEY'"),
        ("task-list and risk-0 are words", "task-list and risk-0 are words"),
        ("nothing to hide 你好", "nothing to hide 你好"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize("unit", ["a", "://", "Bearer ", "key="])
def test_hiding_takes_no_longer_than_reading(unit: str) -> None:
    text = unit * (2_000_000 // len(unit))
    with within(20):  # by the square of its length it would take minutes
        assert redact(text) == text


def _record(message: str, *values: object, **more: object) -> logging.LogRecord:
    record = logging.LogRecord("a.b", logging.INFO, "", 0, message, values, None)
    vars(record).update(more)
    return record


@pytest.mark.promise("S14")
def test_a_line_is_one_line_of_plain_letters() -> None:
    hostile = 'x\n{"level": "error"}\x1b[2J\x7f\x9b\u202e\u2028你好\udcff'
    line = JsonFormatter().format(_record("%s", hostile, fields={"path": hostile, "status": 200}))
    assert line.isascii()
    assert line.isprintable()
    read = json.loads(line)
    assert (read["level"], read["path"], read["message"]) == ("info", hostile, hostile)


def test_a_traceback_is_redacted() -> None:
    record, error = _record("It failed"), ValueError(f"no such key: {KEY}")
    record.exc_info = (type(error), error, None)
    token = REQUEST_ID.set("r1")
    read = json.loads(JsonFormatter().format(record))
    REQUEST_ID.reset(token)
    assert read["request_id"] == "r1"
    assert "ValueError: no such key: [hidden]" in read["trace"]


@pytest.mark.promise("S16")
def test_times_are_universal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    record = _record("x")
    for created, expected in (
        (0.25, "1970-01-01T00:00:00.250Z"),
        (-1.5, "1969-12-31T23:59:59.500Z"),
    ):
        record.created = created
        assert json.loads(JsonFormatter().format(record))["at"] == expected


@pytest.fixture
def root() -> Generator[logging.Logger]:
    logger = logging.getLogger()
    before, level = logger.handlers[:], logger.level
    yield logger
    logger.handlers[:] = before
    logger.setLevel(level)


def test_lines_wait_a_moment_and_warnings_do_not(root: logging.Logger) -> None:
    stream, log = io.StringIO(), logging.getLogger("waiting")
    root.handlers.clear()
    configure_logging(stream)
    log.info("one")
    assert stream.getvalue() == ""
    flush_logs()
    assert len(stream.getvalue().splitlines()) == 1
    log.info("two")
    log.warning("three")
    assert len(stream.getvalue().splitlines()) == 3
    for at in range(64):
        log.info("many %d", at)
    assert len(stream.getvalue().splitlines()) == 67


def test_a_closed_log_stream_is_ignored() -> None:
    stream = io.StringIO()
    lines = BatchedHandler(stream)
    stream.close()
    lines.handle(_record("x", levelno=logging.ERROR))
    lines.flush()
