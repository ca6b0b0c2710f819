"""Bodies of requests, read within limits and taken only where they make sense."""

import json
from typing import Any, NoReturn

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from apexbridge.errors import RequestError


async def read_json(request: Request) -> object:
    """The body as JSON, as strictly as the format is written: no NaN, no name twice.

    Raises:
        RequestError: If it is none.
    """
    return parse_json(await _whole(request.receive))


async def _whole(receive: Receive) -> bytes:
    """All of a body: most come in one piece."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        return message.get("body", b"")
    pieces = list[bytes]()
    while message["type"] == "http.request":
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)
        message = await receive()
    raise ClientDisconnect


def parse_json(data: bytes) -> object:
    """Bytes as JSON.

    Raises:
        RequestError: If they are none.
    """
    try:
        value = _STRICT.decode(data.decode("utf-8"))
        if b"\\u" in data:
            orjson.loads(data)  # half a character, written as an escape, is refused by this one
    except (ValueError, RecursionError) as error:
        raise RequestError(str(error) or "it is nested too deep") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return value


_STRICT = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse, parse_float=_finite)
