"""What a server's refusal says, and what it comes to."""

import json

from pydantic import JsonValue

from apexbridge.models.trying import Kind

AGAIN = frozenset({408, 429})
"""What may be asked again, though it is the client's fault by its number."""
A_PAGE = "a web page, not an answer: is the address right?"
_NOT_FOUND = 404
_OURS = frozenset({401, 402, 403, 407})
_SAME = frozenset({404, 413, 429, 503, 504})
_SLOW = 408


def reason_in(status: int, body: bytes) -> str:
    """What the body of a refusal says; empty if it says nothing."""
    if status == _NOT_FOUND and body.lstrip().startswith(b"<"):
        return A_PAGE
    try:
        return reason_of(json.loads(body))
    except (ValueError, RecursionError):
        return ""


def reason_of(document: JsonValue) -> str:
    """What a refusal says, in any of the shapes that servers give it; empty if it says nothing.

    >>> reason_of({"error": {"message": "no such model"}})
    'no such model'
    """
    match document:
        case [{"error": _} as first, *_]:
            return reason_of(first)
        case {"error": {"message": str(said)}} | {"error": str(said)}:
            return said
        case {"message": str(said)} | {"detail": str(said)}:
            return said
        case {"detail": said}:
            return json.dumps(said)
        case _:
            return ""


def passed_on(status: int) -> int:
    """What a gateway answers where the server behind it answered this.

    A key that is refused there is not the client's, and is none of its business.

    >>> [passed_on(status) for status in (400, 401, 404, 408, 422, 429, 500, 503)]
    [400, 502, 404, 504, 400, 429, 502, 503]
    """
    if status < 400 or status in _OURS or (status >= 500 and status not in _SAME):
        return 502
    if status == _SLOW:
        return 504
    return status if status in _SAME else 400


def kind_of(status: object) -> Kind:
    """Whose fault an error is that comes inside an answer, by the status or code it tells."""
    number = int(status) if isinstance(status, int | str) and str(status).isdecimal() else 500
    return "rejected" if 400 <= number < 500 and number not in AGAIN else "unavailable"
