"""What a server's refusal says, and what it comes to."""

import json

from pydantic import JsonValue

from apexbridge.models.retry import FaultKind

RETRYABLE_CLIENT_ERRORS = frozenset({408, 429})
"""What may be asked again, though it is the client's fault by its number."""
HTML_RESPONSE = "a web page, not an answer: is the address right?"
_NOT_FOUND = 404
_CREDENTIAL_STATUSES = frozenset({401, 402, 403, 407})
_FORWARDED_STATUSES = frozenset({404, 413, 429, 503, 504})
_REQUEST_TIMEOUT = 408


def error_message_in_body(status: int, body: bytes) -> str:
    """What the body of a refusal says; empty if it says nothing."""
    if status == _NOT_FOUND and body.lstrip().startswith(b"<"):
        return HTML_RESPONSE
    try:
        return error_message(json.loads(body))
    except (ValueError, RecursionError):
        return ""


def error_message(document: JsonValue) -> str:
    """What a refusal says, in any of the shapes that servers give it; empty if it says nothing.

    >>> error_message({"error": {"message": "no such model"}})
    'no such model'
    """
    match document:
        case [{"error": _} as first, *_]:
            return error_message(first)
        case {"error": {"message": str(said)}} | {"error": str(said)}:
            return said
        case {"message": str(said)} | {"detail": str(said)}:
            return said
        case {"detail": said}:
            return json.dumps(said)
        case _:
            return ""


def gateway_status(status: int) -> int:
    """What a gateway answers where the server behind it answered this.

    A key that is refused there is not the client's, and is none of its business.

    >>> [gateway_status(status) for status in (400, 401, 404, 408, 422, 429, 500, 503)]
    [400, 502, 404, 504, 400, 429, 502, 503]
    """
    if (
        status < 400
        or status in _CREDENTIAL_STATUSES
        or (status >= 500 and status not in _FORWARDED_STATUSES)
    ):
        return 502
    if status == _REQUEST_TIMEOUT:
        return 504
    return status if status in _FORWARDED_STATUSES else 400


def error_kind(status: object) -> FaultKind:
    """Whose fault an error is that comes inside an answer, by the status or code it tells."""
    number = int(status) if isinstance(status, int | str) and str(status).isdecimal() else 500
    return (
        "rejected"
        if 400 <= number < 500 and number not in RETRYABLE_CLIENT_ERRORS
        else "unavailable"
    )
