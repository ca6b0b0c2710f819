"""JSON logs: one object per line, with secrets redacted and control characters escaped."""

import json
import logging
import time
from collections.abc import Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, TextIO

import orjson

from apexbridge.redaction import redact

REQUEST_ID: ContextVar[str] = ContextVar("request", default="")
"""Request id of the current context."""
_ENCODER = json.JSONEncoder(default=str)
_MAX_CHARS = 20_000
_MAX_LINES = 64


class JsonFormatter(logging.Formatter):
    """Log formatter: one line of ASCII JSON, so that input cannot inject terminal escapes."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as a line."""
        line: dict[str, Any] = {
            "at": _timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()[:_MAX_CHARS]),
        }
        if request := REQUEST_ID.get():
            line["request_id"] = request
        fields: Mapping[str, object] = getattr(record, "fields", {})
        for name, value in fields.items():
            line[name] = redact(value) if isinstance(value, str) else value
        if record.exc_info:
            line["trace"] = redact(self.formatException(record.exc_info)[-_MAX_CHARS:])
        return _ENCODER.encode(line).replace("\x7f", "\\u007f")


_redacted = lru_cache(maxsize=256)(redact)
"""Cached, because few distinct paths make up most requests."""


def _timestamp(created: float) -> str:
    """Format a timestamp in UTC."""
    return f"{_second(int(created))}.{int(created % 1 * 1000):03d}Z"


@lru_cache(maxsize=2)
def _second(whole: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))


class BatchedHandler(logging.Handler):
    """Log handler that buffers lines; a warning flushes at once.

    A write per line would cost as much as the rest of a short request.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream, self._lines = stream, list[str]()

    def append(self, line: str) -> None:
        """Buffer a formatted line."""
        self._lines.append(line)
        if len(self._lines) >= _MAX_LINES:
            self.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Format and buffer a record."""
        self._lines.append(self.format(record) + "\n")
        if record.levelno >= logging.WARNING or len(self._lines) >= _MAX_LINES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered lines."""
        with self.lock or nullcontext():
            lines, self._lines = self._lines, []
            if lines:
                try:
                    self._stream.write("".join(lines))
                    self._stream.flush()
                except (OSError, ValueError):  # the stream is closed
                    return


def log_request(log: logging.Logger, request_id: str, fields: Mapping[str, object]) -> None:
    """Write an access log line, past `logging` records, whose cost equals all request checks."""
    if not log.isEnabledFor(logging.INFO):
        return
    first = log.root.handlers[0] if log.root.handlers else None
    lines = first if isinstance(first, BatchedHandler) else None
    line: dict[str, object] = {
        "at": _timestamp(time.time()),
        "level": "info",
        "logger": log.name,
        "message": "request",
        "request_id": request_id,
        **fields,
        "path": _redacted(str(fields["path"])),
    }
    written = orjson.dumps(line)
    if lines is None or not written.isascii() or b"\x7f" in written:
        log.info("request", extra={"fields": fields})
    else:
        lines.append(written.decode("ascii") + "\n")


def flush_logs() -> None:
    """Flush all log handlers."""
    for lines in logging.getLogger().handlers:
        lines.flush()


def configure_logging(stream: TextIO, level: int = logging.INFO) -> None:
    """Make JSON lines on a stream the only log output of the process."""
    lines = BatchedHandler(stream)
    lines.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[lines], level=level, force=True)
    # uvicorn's start and stop messages would duplicate ours.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    for chatty in ("mcp", "httpx", "httpx2", "watchfiles"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
