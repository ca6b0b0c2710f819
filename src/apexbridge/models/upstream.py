"""HTTP client for JSON APIs: connection pool, timeouts, retries, size limits, key redaction."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, TypeVar
from urllib.parse import SplitResult, urlsplit

import aiohttp
import anyio
import orjson

from apexbridge.models import keepalive_http
from apexbridge.models.retry import RetryPolicy, Timeouts, parse_retry_after, with_retries
from apexbridge.models.upstream_errors import (
    RETRYABLE_CLIENT_ERRORS,
    ErrorMapping,
    UpstreamFault,
    error_message_in_body,
    gateway_status,
    quote_without_key,
)

_EMBEDDING_RETRIES = 2
_DRAIN_SECONDS = 0.02
_ERROR_BODY_SECONDS = 5.0
_ERROR_BODY_BYTES = 64 * 1024
_MAX_ERROR_BODY_BYTES = 4 * _ERROR_BODY_BYTES
_OK = 200
_KEY_STATUSES = frozenset({401, 407})
"""Their messages are about the key and are not quoted; others help to correct the request."""
_INVALID_URL = "the base URL is not http:// or https:// with a host"
_CUT_OFF = "its answer was cut off"

KeyHeader = Literal["Authorization", "x-api-key"]
T = TypeVar("T")
StreamParser = Callable[[AsyncIterator[bytes]], AsyncGenerator[T]]


class Upstream:
    """HTTP client of one JSON API, with a connection pool.

    `base_url` is used as it is given. Transient faults are retried; redirects are not followed,
    because a redirect could carry the API key to another host. The pool belongs to the event loop
    of the first call. No error chains aiohttp's: those hold the headers, and so the key.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "",
        timeout_seconds: float = 60,
        timeouts: Timeouts | None = None,
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
        self._timeouts = timeouts or Timeouts(
            first_byte_seconds=timeout_seconds, idle_seconds=timeout_seconds
        )
        self._total_timeout = aiohttp.ClientTimeout(
            total=self._timeouts.total_seconds, sock_connect=self._timeouts.connect_seconds
        )
        self._retries = RetryPolicy(deadline_seconds=self._timeouts.retry_seconds)
        self._session: aiohttp.ClientSession | None = None
        is_plain = keepalive_http.is_supported_url(self._base_url, self._headers)
        self._keepalive = (
            keepalive_http.KeepAliveClient(self._base_url, self._headers) if is_plain else None
        )
        parts = _split_url(base_url)
        self.host = (parts.hostname or "") if parts else ""
        self._has_user = parts is not None and parts.username is not None

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        session, self._session = self._session, None
        if self._keepalive is not None:
            self._keepalive.close()
        if session is not None:
            await session.close()

    async def post_bytes(
        self, path: str, fields: Mapping[str, object], *, max_bytes: int, errors: ErrorMapping
    ) -> bytes:
        """Post JSON and read the body; the timeout is for the whole exchange."""
        timeout = aiohttp.ClientTimeout(total=self._timeout_seconds)
        payload = _encode_json(fields)

        async def attempt() -> bytes:
            # A retry would take as long again, so that a timeout is not transient here.
            response = await self._send(path, payload, timeout, is_timeout_transient=False)
            with closing(response):
                return b"".join([chunk async for chunk in self._chunks(response, max_bytes)])

        retries = RetryPolicy(
            max_retries=_EMBEDDING_RETRIES, deadline_seconds=self._timeouts.retry_seconds
        )
        return await with_retries(attempt, errors, retries)

    async def post(
        self,
        path: str,
        fields: Mapping[str, object],
        *,
        max_bytes: int,
        errors: ErrorMapping,
        parse: Callable[[bytes], T],
    ) -> T:
        """Post JSON and parse the whole body; a fault that `parse` raises is retried too."""
        payload = _encode_json(fields)

        async def attempt() -> T:
            if (body := await self._post_keepalive(path, payload, max_bytes)) is not None:
                return parse(body)
            response = await self._send(path, payload, self._total_timeout)
            with closing(response):
                return parse(await self._read_body(response, max_bytes))

        return await with_retries(attempt, errors, self._retries)

    async def _post_keepalive(self, path: str, payload: bytes, max_bytes: int) -> bytes | None:
        """Post with the keep-alive client; None if aiohttp has to be used."""
        self._validate()
        if self._keepalive is None:
            return None
        timeouts = self._timeouts
        try:
            response = await self._keepalive.post(
                path,
                payload,
                max_bytes=max_bytes,
                seconds=timeouts.total_seconds,
                connect_seconds=timeouts.connect_seconds,
            )
        except keepalive_http.UnsupportedResponseError:
            self._keepalive = None  # for good: a server that compresses once compresses always
            return None
        except keepalive_http.HttpClientError as error:
            fault = self._keepalive_fault(error, max_bytes)
        else:
            if response.status == _OK:
                return response.body
            body = response.body[:_MAX_ERROR_BODY_BYTES]
            fault = self._status_fault(response.status, body, response.retry_after)
        raise fault

    def _keepalive_fault(
        self, error: keepalive_http.HttpClientError, max_bytes: int
    ) -> UpstreamFault:
        match error:
            case keepalive_http.ResponseTooLargeError():
                return _too_large(max_bytes)
            case keepalive_http.ResponseTimeoutError(is_begun=True):
                return _transient("its answer took too long", 504)
            case keepalive_http.ResponseTimeoutError():
                return _transient(f"no answer within {self._timeouts.total_seconds:g} s", 504)
            case keepalive_http.IncompleteResponseError(is_begun=True):
                return _transient(_CUT_OFF)
            case keepalive_http.ConnectError() if not str(error):
                return _transient(self._no_connection(), 504)
            case _:
                is_refused = isinstance(error, keepalive_http.ConnectError)
                reason = str(error) if is_refused else "connection closed"
                return _transient(f"{self.host} cannot be reached: {reason}", 503)

    async def _read_body(self, response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
        size = response.content_length
        if size is None or size > max_bytes:
            return b"".join([chunk async for chunk in self._chunks(response, max_bytes)])
        try:
            return await response.read()
        except TimeoutError:
            fault = _transient("its answer took too long", 504)
        except aiohttp.ClientError:
            fault = _transient(_CUT_OFF)
        raise fault

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        fields: Mapping[str, object],
        *,
        max_bytes: int,
        errors: ErrorMapping,
        parse: StreamParser[T],
    ) -> AsyncGenerator[AsyncIterator[T]]:
        """Post JSON and yield what `parse` makes of the body while it arrives.

        There is no retry after the first item. Leaving the block closes the connection.
        """
        attempt = partial(self._open_stream, path, _encode_json(fields), max_bytes, parse)
        opened = await with_retries(attempt, errors, self._retries)
        async with opened.stack, aclosing(_iterate_stream(opened, errors)) as items:
            yield items

    def quote(self, message: str) -> str:
        """Format a server's message for an error, without the API key."""
        return quote_without_key(message, self._key)

    async def _open_stream(
        self, path: str, payload: bytes, max_bytes: int, parse: StreamParser[T]
    ) -> "_OpenStream[T]":
        """Post and wait for the first item, so that a fault before it can still be retried."""
        timeouts = self._timeouts
        limits = aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect_seconds)
        async with AsyncExitStack() as stack:
            seconds = timeouts.first_byte_seconds
            response = await self._send(path, payload, limits, seconds=seconds)
            stack.callback(response.close)
            chunks = self._chunks(response, max_bytes, timeouts)
            await stack.enter_async_context(aclosing(chunks))
            items = await stack.enter_async_context(aclosing(parse(chunks)))
            first = await anext(items, None)
            return _OpenStream(stack=stack.pop_all(), response=response, first=first, items=items)

    async def _send(
        self,
        path: str,
        payload: bytes,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # aiohttp keeps it
        *,
        seconds: float | None = None,
        is_timeout_transient: bool = True,
    ) -> aiohttp.ClientResponse:
        session = self._open_session()
        try:
            with anyio.fail_after(seconds) if seconds is not None else nullcontext():
                response = await session.post(
                    f"{self._base_url}{path}", data=payload, timeout=timeout, allow_redirects=False
                )
        except aiohttp.ConnectionTimeoutError:
            fault = _transient(self._no_connection(), 504, is_transient=is_timeout_transient)
        except TimeoutError:
            detail = f"no answer within {seconds or self._timeout_seconds:g} s"
            fault = _transient(detail, 504, is_transient=is_timeout_transient)
        except aiohttp.ClientError as error:
            reason = (isinstance(error, OSError) and error.strerror) or type(error).__name__
            fault = _transient(f"{self.host} cannot be reached: {reason}", 503)
        except ValueError:  # a host name that cannot be encoded for DNS
            fault = UpstreamFault("rejected", _INVALID_URL, status=502)
        else:
            if response.status == _OK:
                return response
            with closing(response):
                retry_after = response.headers.get("Retry-After", "")
                body = await _read_error_body(response)
                fault = self._status_fault(response.status, body, retry_after)
        raise fault  # outside of the except clause, so that aiohttp's error is not chained

    def _no_connection(self) -> str:
        return f"no connection to {self.host} within {self._timeouts.connect_seconds:g} s"

    def _validate(self) -> None:
        if not self.host:
            raise UpstreamFault("rejected", _INVALID_URL, status=502)
        if not (self._key.isascii() and self._key.isprintable()):
            detail = "its key has characters that are not printable ASCII"
            raise UpstreamFault("rejected", detail, status=502)
        if self._key and self._has_user:
            detail = "its address has a user in it, and there is a key as well"
            raise UpstreamFault("rejected", detail, status=502)

    def _open_session(self) -> aiohttp.ClientSession:
        self._validate()
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=0),  # the caller limits concurrency
            )
        return self._session

    async def _chunks(
        self, response: aiohttp.ClientResponse, max_bytes: int, timeouts: Timeouts | None = None
    ) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives; without `timeouts` aiohttp's own apply."""
        received = 0
        seconds = timeouts.first_byte_seconds if timeouts else None
        while chunk := await self._next_chunk(response, seconds):
            received += len(chunk)
            if received > max_bytes:
                raise _too_large(max_bytes)
            seconds = timeouts.idle_seconds if timeouts else None
            yield chunk

    async def _next_chunk(self, response: aiohttp.ClientResponse, seconds: float | None) -> bytes:
        try:
            buffered = _buffered(response.content)
            if buffered is not None:
                return buffered  # without the cost of a cancel scope
            with anyio.fail_after(seconds):
                return await response.content.readany()
        except TimeoutError:
            detail = f"no answer within {seconds or self._timeout_seconds:g} s"
            fault = _transient(detail, 504, is_transient=seconds is not None)
        except aiohttp.ClientError:
            fault = _transient(_CUT_OFF)
        raise fault

    def _status_fault(self, status: int, body: bytes, retry_after: str) -> UpstreamFault:
        detail = f"{self.host} answered {status}"
        if 300 <= status < 400:
            return UpstreamFault("rejected", f"{detail}: redirects are not followed", status=502)
        if status not in _KEY_STATUSES:
            detail += self.quote(error_message_in_body(status, body))
        if status not in RETRYABLE_CLIENT_ERRORS and status < 500:
            return UpstreamFault("rejected", detail, status=gateway_status(status))
        return UpstreamFault(
            "unavailable",
            detail,
            is_overloaded=True,
            status=gateway_status(status),
            retry_after=parse_retry_after(retry_after),
        )


def _transient(detail: str, status: int = 0, *, is_transient: bool = True) -> UpstreamFault:
    return UpstreamFault("unavailable", detail, is_transient=is_transient, status=status)


def _too_large(max_bytes: int) -> UpstreamFault:
    return UpstreamFault("unusable", f"an answer of more than {max_bytes} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenStream(Generic[T]):
    """A streamed response whose first item has arrived; `stack` closes the connection."""

    stack: AsyncExitStack
    response: aiohttp.ClientResponse
    first: T | None
    items: AsyncGenerator[T]


async def _iterate_stream(opened: _OpenStream[T], errors: ErrorMapping) -> AsyncGenerator[T]:
    if opened.first is not None:
        yield opened.first
    try:
        async for item in opened.items:
            yield item
    except UpstreamFault as fault:
        raise errors.to_error(fault) from None
    if opened.response.content.at_eof():
        return
    # Only a connection that is read to the end of the body goes back to the pool.
    with suppress(aiohttp.ClientError), anyio.move_on_after(_DRAIN_SECONDS):
        while await opened.response.content.readany():
            pass


def _buffered(content: aiohttp.StreamReader) -> bytes | None:
    """Return what has arrived, or b"" at the end; None if there is something to wait for."""
    if content.at_eof():
        return b""
    return content.read_nowait() or None


async def _read_error_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    with suppress(aiohttp.ClientError, TimeoutError), anyio.move_on_after(_ERROR_BODY_SECONDS):
        while len(body) < _ERROR_BODY_BYTES and (chunk := await response.content.readany()):
            body += chunk
    return bytes(body)


def _encode_json(fields: Mapping[str, object]) -> bytes:
    """Encode JSON; orjson refuses lone surrogates, which the slower encoder replaces."""
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
