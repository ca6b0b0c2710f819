"""Errors of an upstream server: parse error bodies, classify faults, map them to our errors."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from apexbridge.errors import ApexBridgeError

RETRYABLE_CLIENT_ERRORS = frozenset({408, 429})
"""Statuses of the 4xx class that are transient."""
HTML_RESPONSE = "a web page, not an answer: is the base URL right?"

FaultKind = Literal["unavailable", "rejected", "unusable"]

_MAX_RETRIES_OVERLOADED = 5
_MAX_RETRIES_UNREACHABLE = 2
"""Fewer: a server that is down seldom comes back within seconds, one that is busy often does."""
_MAX_QUOTED_CHARS = 200
_KEY_FRAGMENT_CHARS = 6
_MASKED_KEY = re.compile(r"\S*\*{2,}\S*")
"""A refused key as servers echo it: starred, but with its first and last characters readable."""
_NOT_FOUND = 404
_CREDENTIAL_STATUSES = frozenset({401, 402, 403, 407})
_FORWARDED_STATUSES = frozenset({404, 413, 429, 503, 504})
_REQUEST_TIMEOUT = 408
_GATEWAY_STATUS: Mapping[FaultKind, int] = {"unavailable": 502, "rejected": 400, "unusable": 502}


class UpstreamFault(Exception):  # noqa: N818  # an ErrorMapping makes an error of it
    """A failed HTTP exchange, and the number of retries that it is worth."""

    def __init__(  # flags by keyword
        self,
        kind: FaultKind,
        detail: str,
        *,
        is_transient: bool = False,
        is_overloaded: bool = False,
        status: int = 0,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind: FaultKind = kind
        self.detail = detail
        retries = _MAX_RETRIES_UNREACHABLE if is_transient else 0
        self.max_retries = _MAX_RETRIES_OVERLOADED if is_overloaded else retries
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorMapping:
    """Exception classes for each kind of fault, and the name of the model or embedder in them."""

    name: str
    unavailable: type[ApexBridgeError]
    rejected: type[ApexBridgeError]
    unusable: type[ApexBridgeError]

    def to_error(self, fault: UpstreamFault, suffix: str = "") -> ApexBridgeError:
        """Build the error for a fault; `status` in its details is for a gateway to answer."""
        error_class: type[ApexBridgeError] = getattr(self, fault.kind)
        status = fault.status or _GATEWAY_STATUS[fault.kind]
        error = error_class(fault.detail + suffix, name=self.name, status=status)
        if fault.retry_after:
            error.details["retry_after"] = math.ceil(fault.retry_after)
        return error


def error_message_in_body(status: int, body: bytes) -> str:
    """Extract the message of an error response; empty if there is none."""
    if status == _NOT_FOUND and body.lstrip().startswith(b"<"):
        return HTML_RESPONSE
    try:
        return error_message(json.loads(body))
    except (ValueError, RecursionError):
        return ""


def error_message(document: JsonValue) -> str:
    """Extract the message from any of the JSON shapes that servers use; empty if there is none.

    >>> error_message({"error": {"message": "no such model"}})
    'no such model'
    """
    match document:
        case [{"error": _} as first, *_]:
            return error_message(first)
        case {"error": {"message": str(message)}} | {"error": str(message)}:
            return message
        case {"message": str(message)} | {"detail": str(message)}:
            return message
        case {"detail": detail}:
            return json.dumps(detail)
        case _:
            return ""


def quote_without_key(message: str, key: str) -> str:
    r"""Format a server's message as `: message` on one line; empty if a part of the key is in it.

    >>> [quote_without_key(text, "sk-012345") for text in ("no\nmodel", "bad: 012345")]
    [': no model', '']
    """
    last = max(1, len(key) - _KEY_FRAGMENT_CHARS + 1)
    if key and any(key[at : at + _KEY_FRAGMENT_CHARS] in message for at in range(last)):
        return ""
    start = message[: 2 * _MAX_QUOTED_CHARS]  # the pattern is slow on long words
    line = "".join(letter if letter.isprintable() else " " for letter in start)
    return f": {_MASKED_KEY.sub('…', line)[:_MAX_QUOTED_CHARS]}" if line.strip() else ""


def gateway_status(status: int) -> int:
    """Map the status of an upstream response to the one that our gateway answers.

    A refused API key is the gateway's, not its client's, so that 401 becomes 502.

    >>> [gateway_status(status) for status in (400, 401, 404, 408, 422, 429, 500, 503)]
    [400, 502, 404, 504, 400, 429, 502, 503]
    """
    if status in _FORWARDED_STATUSES:
        return status
    if status == _REQUEST_TIMEOUT:
        return 504
    is_ours = status in _CREDENTIAL_STATUSES or not 400 <= status < 500
    return 502 if is_ours else 400


def error_kind(status: object) -> FaultKind:
    """Classify an error inside a 200 response by the status or code that it carries."""
    number = int(status) if isinstance(status, int | str) and str(status).isdecimal() else 500
    is_rejected = 400 <= number < 500 and number not in RETRYABLE_CLIENT_ERRORS
    return "rejected" if is_rejected else "unavailable"
