"""Bodies of requests, read within limits and taken only where they make sense."""

import json
from typing import Any, NoReturn

import orjson
from starlette.requests import Request

from apexbridge.errors import RequestError


async def read_json(request: Request) -> object:
    """The body as JSON, as strictly as the format is written: no NaN, no name twice.

    Raises:
        RequestError: If it is none.
    """
    return parse_json(await request.body())


def parse_json(data: bytes) -> object:
    """Bytes as JSON.

    Raises:
        RequestError: If they are none.
    """
    try:
        text = data.decode("utf-8")
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_refuse, parse_float=_finite
        )
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
