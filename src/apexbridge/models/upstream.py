"""A server that is asked over HTTP: its connections, second tries, limits, and a secret key."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import (
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    closing,
    nullcontext,
    suppress,
)
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, TypeVar
from urllib.parse import SplitResult, urlsplit

import aiohttp
import anyio
import orjson

from apexbridge.models import keepalive_http
from apexbridge.models.retry import (
    ErrorMapping,
    RetryPolicy,
    Timeouts,
    UpstreamFault,
    parse_retry_after,
    with_retries,
)
from apexbridge.models.upstream_errors import (
    RETRYABLE_CLIENT_ERRORS,
    error_message_in_body,
    gateway_status,
)

_MAX_RETRY_PAUSE = 10.0
_STREAM_BACKOFF = (0.25, 1.0, 2.0, 4.0, 8.0)
_LINGER_SECONDS = 0.02
_ERROR_BODY_SECONDS = 5.0
_ERROR_BODY_BYTES = 64 * 1024
_MAX_ERROR_BODY_BYTES = 4 * _ERROR_BODY_BYTES
_MAX_QUOTED_CHARS = 200
_KEY_FRAGMENT_CHARS = 6
_MASKED_KEY = re.compile(r"\S*\*{2,}\S*")
"""How servers show a key they do not take; its ends are readable."""
_OK = 200
_KEY_STATUSES = frozenset({401, 407})
"""What the server says is about the key; others may say what to mend."""
_INVALID_URL = "its address is not http:// or https:// and a host"

KeyHeader = Literal["Authorization", "x-api-key"]
T = TypeVar("T")
Reader = Callable[[AsyncIterator[bytes]], AsyncGenerator[T]]


class Upstream:
    """Posts JSON below `base_url`, which is used as it is given.

    A server that is busy, fails or hangs up is asked again. Redirects are not followed. One
    connection pool, made by the first call; it belongs to that call's event loop. No error carries
    aiohttp's own, which has the headers and so the key in it.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "",
        timeout_seconds: float = 60,
        patience: Timeouts | None = None,
        key_header: KeyHeader = "Authorization",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._base_url = base_url.removesuffix("/")
        self._key = api_key
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        if api_key:
            is_bearer = key_header == "Authorization"
            self._headers[key_header] = f"Bearer {api_key}" if is_bearer else api_key
        self._timeout_seconds = timeout_seconds
        self._patience = patience or Timeouts(
            first_seconds=timeout_seconds, between_seconds=timeout_seconds
        )
        self._whole_limits = aiohttp.ClientTimeout(
            total=self._patience.whole_seconds, sock_connect=self._patience.connect_seconds
        )
        self._tries = RetryPolicy(pauses=_STREAM_BACKOFF, within=self._patience.retry_seconds)
        self._session: aiohttp.ClientSession | None = None
        is_plain = keepalive_http.is_supported_url(self._base_url, self._headers)
        self._direct = (
            keepalive_http.KeepAliveClient(self._base_url, self._headers) if is_plain else None
        )
        parts = _split_url(base_url)
        self.host = (parts.hostname or "") if parts else ""
        self._has_user = parts is not None and parts.username is not None

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        session, self._session = self._session, None
        if self._direct is not None:
            self._direct.close()
        if session is not None:
            await session.close()

    async def whole(
        self, path: str, fields: Mapping[str, object], *, room: int, blame: ErrorMapping
    ) -> bytes:
        """Post, and read an answer of at most `room` bytes; the time-out is for all of it."""
        limits = aiohttp.ClientTimeout(total=self._timeout_seconds)
        payload = _encode_json(fields)

        async def once() -> bytes:
            # A second try would take as long: a time-out is not passing.
            response = await self._send(path, payload, limits, is_slow_passing=False)
            with closing(response):
                return b"".join([piece async for piece in self._pieces(response, room)])

        return await with_retries(once, blame, RetryPolicy(longest=_MAX_RETRY_PAUSE))

    async def answer(
        self,
        path: str,
        fields: Mapping[str, object],
        *,
        room: int,
        blame: ErrorMapping,
        read: Callable[[bytes], T],
    ) -> T:
        """Post, and give what `read` makes of the whole answer; asked again as a stream is."""
        payload = _encode_json(fields)

        async def once() -> T:
            if (body := await self._directly(path, payload, room)) is not None:
                return read(body)
            response = await self._send(path, payload, self._whole_limits)
            with closing(response):
                return read(await self._all(response, room))

        return await with_retries(once, blame, self._tries)

    async def _directly(self, path: str, payload: bytes, room: int) -> bytes | None:
        """The answer by the short way; None where there is none."""
        self._check()
        if self._direct is None:
            return None
        whole, connect = self._patience.whole_seconds, self._patience.connect_seconds
        try:
            answer = await self._direct.post(
                path, payload, room=room, seconds=whole, connect_seconds=connect
            )
        except keepalive_http.UnsupportedResponseError:
            self._direct = None
            return None
        except keepalive_http.HttpClientError as error:
            fault = self._broken(error, room)
        else:
            if answer.status == _OK:
                return answer.body
            said = answer.body[:_MAX_ERROR_BODY_BYTES]
            fault = self._refusal(answer.status, said, answer.retry_after)
        raise fault

    def _broken(self, error: keepalive_http.HttpClientError, room: int) -> UpstreamFault:
        match error:
            case keepalive_http.ResponseTooLargeError():
                return UpstreamFault("unusable", f"an answer of more than {room} bytes")
            case keepalive_http.ResponseTimeoutError():
                whole = self._patience.whole_seconds
                what = (
                    "its answer took too long"
                    if error.is_begun
                    else f"no answer within {whole:g} s"
                )
                return UpstreamFault("unavailable", what, is_passing=True, status=504)
            case keepalive_http.IncompleteResponseError(is_begun=True):
                return UpstreamFault("unavailable", "its answer was cut off", is_passing=True)
            case keepalive_http.ConnectError() if not str(error):
                what = f"no connection to {self.host} within {self._patience.connect_seconds:g} s"
                return UpstreamFault("unavailable", what, is_passing=True, status=504)
            case _:
                reason = (
                    str(error) if isinstance(error, keepalive_http.ConnectError) else "it hung up"
                )
                what = f"{self.host} cannot be reached: {reason}"
                return UpstreamFault("unavailable", what, is_passing=True, status=503)

    async def _all(self, response: aiohttp.ClientResponse, room: int) -> bytes:
        size = response.content_length
        if size is None or size > room:
            return b"".join([piece async for piece in self._pieces(response, room)])
        try:
            return await response.read()
        except TimeoutError:
            fault = UpstreamFault(
                "unavailable", "its answer took too long", is_passing=True, status=504
            )
        except aiohttp.ClientError:
            fault = UpstreamFault("unavailable", "its answer was cut off", is_passing=True)
        raise fault

    @asynccontextmanager
    async def streamed(
        self,
        path: str,
        fields: Mapping[str, object],
        *,
        room: int,
        blame: ErrorMapping,
        read: Reader[T],
    ) -> AsyncGenerator[AsyncIterator[T]]:
        """Post, and give what `read` makes of the answer as it comes.

        Once the first item is there nothing is tried again. Leaving the block closes the
        connection.
        """
        begin = partial(self._begin, path, _encode_json(fields), room, read)
        begun = await with_retries(begin, blame, self._tries)
        async with begun.stack, aclosing(_iterate_stream(begun, blame)) as told:
            yield told

    def quoted(self, said: str) -> str:
        r"""What a server says, on one line, after a colon; nothing if it has a piece of the key.

        >>> Upstream("http://a", api_key="sk-0123456789", timeout_seconds=1).quoted("no\nmodel")
        ': no model'
        """
        last = max(1, len(self._key) - _KEY_FRAGMENT_CHARS + 1)
        pieces = (self._key[at : at + _KEY_FRAGMENT_CHARS] for at in range(last))
        if self._key and any(piece in said for piece in pieces):
            return ""
        start = said[: 2 * _MAX_QUOTED_CHARS]  # the search for stars is slow on long words
        plain = "".join(letter if letter.isprintable() else " " for letter in start)
        return f": {_MASKED_KEY.sub('…', plain)[:_MAX_QUOTED_CHARS]}" if plain.strip() else ""

    async def _begin(
        self, path: str, payload: bytes, room: int, read: Reader[T]
    ) -> "_OpenStream[T]":
        """Post, and wait for the first item."""
        patience = self._patience
        limits = aiohttp.ClientTimeout(total=None, sock_connect=patience.connect_seconds)
        async with AsyncExitStack() as stack:
            response = await self._send(path, payload, limits, seconds=patience.first_seconds)
            stack.callback(response.close)
            pieces = self._pieces(response, room, patience)
            await stack.enter_async_context(aclosing(pieces))
            items = await stack.enter_async_context(aclosing(read(pieces)))
            first = await anext(items, None)
            return _OpenStream(stack=stack.pop_all(), response=response, first=first, items=items)

    async def _send(
        self,
        path: str,
        payload: bytes,
        limits: aiohttp.ClientTimeout,
        *,
        seconds: float | None = None,
        is_slow_passing: bool = True,
    ) -> aiohttp.ClientResponse:
        session = self._open()
        address = f"{self._base_url}{path}"
        try:
            with anyio.fail_after(seconds) if seconds is not None else nullcontext():
                response = await session.post(
                    address, data=payload, timeout=limits, allow_redirects=False
                )
        except aiohttp.ConnectionTimeoutError:
            detail = f"no connection to {self.host} within {self._patience.connect_seconds:g} s"
            fault = UpstreamFault("unavailable", detail, is_passing=is_slow_passing, status=504)
        except TimeoutError:
            detail = f"no answer within {seconds or self._timeout_seconds:g} s"
            fault = UpstreamFault("unavailable", detail, is_passing=is_slow_passing, status=504)
        except aiohttp.ClientError as error:
            reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
            detail = f"{self.host} cannot be reached: {reason}"
            fault = UpstreamFault("unavailable", detail, is_passing=True, status=503)
        except ValueError:  # a host that no name server could be asked for
            fault = UpstreamFault("rejected", _INVALID_URL, status=502)
        else:
            if response.status == _OK:
                return response
            with closing(response):
                retry_after = response.headers.get("Retry-After", "")
                fault = self._refusal(
                    response.status, await _read_error_body(response), retry_after
                )
        raise fault  # out here, it does not carry aiohttp's error

    def _check(self) -> None:
        if not self.host:
            raise UpstreamFault("rejected", _INVALID_URL, status=502)
        if not (self._key.isascii() and self._key.isprintable()):
            raise UpstreamFault("rejected", "its key has characters no key has", status=502)
        if self._key and self._has_user:
            detail = "its address has a user in it, and there is a key as well"
            raise UpstreamFault("rejected", detail, status=502)

    def _open(self) -> aiohttp.ClientSession:
        self._check()
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=0),  # the caller knows how many at once
            )
        return self._session

    async def _pieces(
        self, response: aiohttp.ClientResponse, room: int, patience: Timeouts | None = None
    ) -> AsyncGenerator[bytes]:
        """The body as it comes; without a patience the response keeps its own time."""
        taken = 0
        seconds = patience.first_seconds if patience else None
        while piece := await self._next(response, seconds):
            taken += len(piece)
            if taken > room:
                raise UpstreamFault("unusable", f"an answer of more than {room} bytes")
            seconds = patience.between_seconds if patience else None
            yield piece

    async def _next(self, response: aiohttp.ClientResponse, seconds: float | None) -> bytes:
        try:
            there = _buffered(response.content)
            if there is not None:
                return there  # nothing to wait for, and no time to keep
            with anyio.fail_after(seconds):
                return await response.content.readany()
        except TimeoutError:
            detail = f"no answer within {seconds or self._timeout_seconds:g} s"
            fault = UpstreamFault("unavailable", detail, is_passing=seconds is not None, status=504)
        except aiohttp.ClientError:
            fault = UpstreamFault("unavailable", "its answer was cut off", is_passing=True)
        raise fault

    def _refusal(self, status: int, body: bytes, retry_after: str) -> UpstreamFault:
        detail = f"{self.host} answered {status}"
        if 300 <= status < 400:
            return UpstreamFault("rejected", f"{detail}: redirects are not followed", status=502)
        if status not in _KEY_STATUSES:
            detail += self.quoted(error_message_in_body(status, body))
        if status in RETRYABLE_CLIENT_ERRORS or status >= 500:
            fault = UpstreamFault(
                "unavailable", detail, is_busy=True, status=gateway_status(status)
            )
            fault.after = parse_retry_after(retry_after)
            return fault
        return UpstreamFault("rejected", detail, status=gateway_status(status))


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenStream(Generic[T]):
    """An answer whose first item is there; `stack` closes the connection."""

    stack: AsyncExitStack
    response: aiohttp.ClientResponse
    first: T | None
    items: AsyncGenerator[T]


async def _iterate_stream(begun: _OpenStream[T], blame: ErrorMapping) -> AsyncGenerator[T]:
    if begun.first is not None:
        yield begun.first
    try:
        async for item in begun.items:
            yield item
    except UpstreamFault as fault:
        raise blame.error(fault) from None
    if begun.response.content.at_eof():
        return
    # A connection that is read to its end can be used again.
    with suppress(aiohttp.ClientError), anyio.move_on_after(_LINGER_SECONDS):
        while await begun.response.content.readany():
            pass


def _buffered(content: aiohttp.StreamReader) -> bytes | None:
    """What came already, or nothing at the end; None if there is something to wait for."""
    if content.at_eof():
        return b""
    return content.read_nowait() or None


async def _read_error_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    with suppress(aiohttp.ClientError, TimeoutError), anyio.move_on_after(_ERROR_BODY_SECONDS):
        while len(body) < _ERROR_BODY_BYTES and (piece := await response.content.readany()):
            body += piece
    return bytes(body)


def _encode_json(fields: Mapping[str, object]) -> bytes:
    """JSON in UTF-8, which cannot carry half a character."""
    try:
        return orjson.dumps(fields)
    except orjson.JSONEncodeError:
        return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")


def _split_url(base_url: str) -> SplitResult | None:
    try:
        parts = urlsplit(base_url)
        is_usable = parts.scheme in {"http", "https"} and parts.port != 0
    except ValueError:
        return None
    return parts if is_usable else None
