"""Lines of the log: one JSON object each, with no secret in it, and nothing a terminal obeys."""

import json
import logging
import re
import time
from collections.abc import Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, TextIO

import orjson

REQUEST_ID: ContextVar[str] = ContextVar("request", default="")
"""The id of the request that is worked on."""
REDACTED = "[hidden]"
_ENCODER = json.JSONEncoder(default=str)
_MAX_CHARS = 20_000
_MAX_LINES = 64
_SECRET_PATTERN = re.compile(
    r"""
      \b(?:apx_|sk-|sk_|rk_|pk-|ghp_|gho_|github_pat_|glpat-|xox[abprs]-|hf_|AIza|AKIA)
        [A-Za-z0-9_\-]{6,}
    | (?i:(?<=bearer\ )|(?<=basic\ ))[^\s"',;]{8,}
    | (?<=://)[^/\s:@"']+:[^/\s@"']+(?=@)
    | (?i:(?<=[?&\#])(?:api[_-]?key|key|token|access_token|secret|password|sig|signature)=)[^&\s"']+
    | (?i:\b(?:x-api-key|api[_-]?key|apexbridge_session|password|secret)["']?\s*[:=]\s*["']?)
        [^\s"',;&]+
    """,
    re.VERBOSE,
)


def redact(text: str) -> str:
    """A text without what looks like a key, a password or a token.

    >>> redact("Incorrect API key provided: sk-proj-0123456789.")
    'Incorrect API key provided: [hidden].'
    """
    return _SECRET_PATTERN.sub(REDACTED, text)


class JsonFormatter(logging.Formatter):
    """Writes a record as one line; what is not plain ASCII is escaped, so it can harm nothing."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
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
"""Addresses are the same again and again."""


def _timestamp(created: float) -> str:
    """In universal time, whatever the place says."""
    return f"{_second(int(created))}.{int(created % 1 * 1000):03d}Z"


@lru_cache(maxsize=2)
def _second(whole: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))


class BatchedHandler(logging.Handler):
    """Writes many lines at once: those of requests may wait a moment, a warning waits for nothing.

    Writing each by itself would cost as much as all else that is done for a small request.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream, self._lines = stream, list[str]()

    def take(self, line: str) -> None:
        """Take a line as it is."""
        self._lines.append(line)
        if len(self._lines) >= _MAX_LINES:
            self.flush()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        self._lines.append(self.format(record) + "\n")
        if record.levelno >= logging.WARNING or len(self._lines) >= _MAX_LINES:
            self.flush()

    def flush(self) -> None:
        """Write what there is."""
        with self.lock or nullcontext():
            lines, self._lines = self._lines, []
            if lines:
                try:
                    self._stream.write("".join(lines))
                    self._stream.flush()
                except (OSError, ValueError):  # nobody reads any more
                    return


def log_request(log: logging.Logger, request_id: str, fields: Mapping[str, object]) -> None:
    """One line of a request; made here, for the common way costs as much as all the checks."""
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
        lines.take(written.decode("ascii") + "\n")


def flush_logs() -> None:
    """Let lines that wait be written."""
    for lines in logging.getLogger().handlers:
        lines.flush()


def configure_logging(stream: TextIO, level: int = logging.INFO) -> None:
    """Let the whole program log to a stream, and in no other way."""
    lines = BatchedHandler(stream)
    lines.setFormatter(JsonFormatter())
    logging.basicConfig(handlers=[lines], level=level, force=True)
    # What it says of its own comings and goings is said by us, once.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    for chatty in ("mcp", "httpx", "httpx2", "watchfiles"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
