"""A server that is asked over HTTP: its connections, second tries, limits, and a secret key."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar
from urllib.parse import SplitResult, urlsplit

import aiohttp
import anyio
from pydantic import JsonValue

from apexbridge.errors import ApexBridgeError

_PAUSES = (0.25, 1.0)
"""Seconds before the second and the third try."""
_LONGEST_PAUSE = 10.0
_REASON_SECONDS = 5.0
_REASON_ROOM = 64 * 1024
_MAX_REASON = 200
_PIECE_OF_KEY = 6
_STARRED = re.compile(r"\S*\*{2,}\S*")
"""How servers show a key they do not take; its ends are readable."""
_OK = 200
_AGAIN = frozenset({408, 429})
_ABOUT_THE_KEY = frozenset({401, 407})
"""What the server says is about the key; others may say what to mend."""
_BAD_ADDRESS = "its address is not http:// or https:// and a host"

Kind = Literal["unavailable", "rejected", "unusable"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The errors that a caller wants for each kind of fault, and the name they tell."""

    name: str
    unavailable: type[ApexBridgeError]
    rejected: type[ApexBridgeError]
    unusable: type[ApexBridgeError]

    def error(self, kind: Kind, detail: str) -> ApexBridgeError:
        """The error for a fault."""
        kinds = {
            "unavailable": self.unavailable,
            "rejected": self.rejected,
            "unusable": self.unusable,
        }
        return kinds[kind](detail, name=self.name)


class _Fault(Exception):  # noqa: N818  # it never leaves this module
    """What went wrong; `is_passing`: worth another try, after so many seconds."""

    def __init__(
        self, kind: Kind, detail: str, *, is_passing: bool = False, after: float = 0.0
    ) -> None:
        super().__init__(detail)
        self.kind: Kind = kind
        self.detail = detail
        self.is_passing = is_passing
        self.after = after


class Upstream:
    """Posts JSON below `base_url`, which is used as it is given.

    A server that is busy, fails or hangs up is asked again, twice. Redirects are not followed. One
    connection pool, made by the first call; it belongs to that call's event loop. No error carries
    aiohttp's own, which has the headers and so the key in it.
    """

    def __init__(self, base_url: str, *, api_key: str = "", timeout_seconds: float) -> None:
        self._base_url = base_url.removesuffix("/")
        self._key = api_key
        self._timeout_seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None
        parts = _split(base_url)
        self.host = (parts.hostname or "") if parts else ""
        self._has_user = parts is not None and parts.username is not None

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def whole(
        self, path: str, fields: Mapping[str, object], *, room: int, blame: Blame
    ) -> bytes:
        """Post, and read an answer of at most `room` bytes; the time-out is for all of it."""
        limits = aiohttp.ClientTimeout(total=self._timeout_seconds)
        payload = _written(fields)

        async def once() -> bytes:
            response = await self._send(path, payload, limits)
            with closing(response):
                pieces = self._pieces(response, room, cut="unavailable")
                return b"".join([piece async for piece in pieces])

        return await _patiently(once, blame)

    @asynccontextmanager
    async def streamed(
        self, path: str, fields: Mapping[str, object], *, room: int, blame: Blame
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """Post, and give the answer as it comes; the time-out is for each piece.

        Once the answer has begun nothing is tried again. Leaving the block closes the connection.
        """
        seconds = self._timeout_seconds
        limits = aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds)
        send = partial(self._send, path, _written(fields), limits)
        with closing(await _patiently(send, blame)) as response:
            async with aclosing(self._told(response, room, blame)) as pieces:
                yield pieces

    def quoted(self, said: str) -> str:
        r"""What a server says, on one line, after a colon; nothing if it has a piece of the key.

        >>> Upstream("http://a", api_key="sk-0123456789", timeout_seconds=1).quoted("no\nmodel")
        ': no model'
        """
        last = max(1, len(self._key) - _PIECE_OF_KEY + 1)
        pieces = (self._key[at : at + _PIECE_OF_KEY] for at in range(last))
        if self._key and any(piece in said for piece in pieces):
            return ""
        start = said[: 2 * _MAX_REASON]  # the search for stars is slow on long words
        plain = "".join(letter if letter.isprintable() else " " for letter in start)
        return f": {_STARRED.sub('…', plain)[:_MAX_REASON]}" if plain.strip() else ""

    async def _send(
        self, path: str, payload: bytes, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        session = self._open()
        address = f"{self._base_url}{path}"
        try:
            response = await session.post(
                address, data=payload, timeout=limits, allow_redirects=False
            )
        except TimeoutError:
            # Where the time-out is for a whole answer, a second try would take as long.
            detail = f"no answer within {self._timeout_seconds:g} s"
            fault = _Fault("unavailable", detail, is_passing=limits.total is None)
        except aiohttp.ClientError as error:
            reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
            detail = f"{self.host} cannot be reached: {reason}"
            fault = _Fault("unavailable", detail, is_passing=True)
        except ValueError:  # a host that no name server could be asked for
            fault = _Fault("rejected", _BAD_ADDRESS)
        else:
            if response.status == _OK:
                return response
            with closing(response):
                fault = await self._refusal(response)
        raise fault  # out here, it does not carry aiohttp's error

    def _open(self) -> aiohttp.ClientSession:
        if not self.host:
            raise _Fault("rejected", _BAD_ADDRESS)
        if not (self._key.isascii() and self._key.isprintable()):
            raise _Fault("rejected", "its key has characters no key has")
        if self._key and self._has_user:
            raise _Fault("rejected", "its address has a user in it, and there is a key as well")
        if self._session is None:
            headers = {"Content-Type": "application/json"}
            if self._key:
                headers["Authorization"] = f"Bearer {self._key}"
            self._session = aiohttp.ClientSession(
                headers=headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=0),  # the caller knows how many at once
            )
        return self._session

    async def _told(
        self, response: aiohttp.ClientResponse, room: int, blame: Blame
    ) -> AsyncGenerator[bytes]:
        async with aclosing(self._pieces(response, room, cut="unusable")) as pieces:
            try:
                async for piece in pieces:
                    yield piece
            except _Fault as fault:
                raise blame.error(fault.kind, fault.detail) from None

    async def _pieces(
        self, response: aiohttp.ClientResponse, room: int, *, cut: Kind
    ) -> AsyncGenerator[bytes]:
        taken = 0
        while piece := await self._next(response, cut):
            taken += len(piece)
            if taken > room:
                raise _Fault("unusable", f"an answer of more than {room} bytes")
            yield piece

    async def _next(self, response: aiohttp.ClientResponse, cut: Kind) -> bytes:
        try:
            return await response.content.readany()
        except TimeoutError:
            fault = _Fault("unavailable", f"no answer within {self._timeout_seconds:g} s")
        except aiohttp.ClientError:
            fault = _Fault(cut, "its answer was cut off", is_passing=True)
        raise fault

    async def _refusal(self, response: aiohttp.ClientResponse) -> _Fault:
        status = response.status
        detail = f"{self.host} answered {status}"
        if 300 <= status < 400:
            return _Fault("rejected", f"{detail}: redirects are not followed")
        if status not in _ABOUT_THE_KEY:
            detail += self.quoted(await _reason(response))
        if status in _AGAIN or status >= 500:
            after = response.headers.get("Retry-After", "")
            seconds = float(after) if after.isdecimal() else 0.0
            return _Fault("unavailable", detail, is_passing=True, after=seconds)
        return _Fault("rejected", detail)


async def _patiently(once: Callable[[], Awaitable[T]], blame: Blame) -> T:
    for pause in (*_PAUSES, None):
        try:
            return await once()
        except _Fault as fault:
            if pause is None or not fault.is_passing:
                raise blame.error(fault.kind, fault.detail) from None
            wait = min(fault.after or pause, _LONGEST_PAUSE)
        await anyio.sleep(wait)
    raise AssertionError  # the last try returns or raises


async def _reason(response: aiohttp.ClientResponse) -> str:
    body = bytearray()
    with suppress(aiohttp.ClientError, TimeoutError), anyio.move_on_after(_REASON_SECONDS):
        while len(body) < _REASON_ROOM and (piece := await response.content.readany()):
            body += piece
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


def _written(fields: Mapping[str, object]) -> bytes:
    """JSON in UTF-8, which cannot carry half a character."""
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")


def _split(base_url: str) -> SplitResult | None:
    try:
        parts = urlsplit(base_url)
        is_usable = parts.scheme in {"http", "https"} and parts.port != 0
    except ValueError:
        return None
    return parts if is_usable else None
