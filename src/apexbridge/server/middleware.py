"""ASGI middleware: request guard, authentication, rate limit, security headers, access log."""

import itertools
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apexbridge.actor import Actor, acting_as
from apexbridge.api_keys import Scope as KeyScope
from apexbridge.errors import ApexBridgeError, RequestError
from apexbridge.runtime.hidden_paths import HIDDEN_PATHS, HiddenPaths
from apexbridge.server.auth import ANONYMOUS, Authenticator, Caller
from apexbridge.server.error_responses import error_response, sse_error
from apexbridge.server.limits import InFlightRequest, LimitedReceive, RateLimiter, shutdown_error
from apexbridge.server.logs import REQUEST_ID, log_request
from apexbridge.server.metrics import UNMATCHED_ROUTE
from apexbridge.server.request_guard import GuardHeaders, RequestGuard, select_headers
from apexbridge.server.routing import AppState

log = logging.getLogger("apexbridge.requests")

_SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
_DEFAULT_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_INSTALL_AND_RUN: tuple[KeyScope, ...] = ("skills:write", "exec")
_EVENT_STREAM = b"text/event-stream"
_VALID_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_EXEMPT_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
_MAX_LOGGED_PATH = 500
_CLIENT_CLOSED_REQUEST = 499
_PROCESS_ID, _REQUEST_COUNTER = secrets.token_hex(6), itertools.count(1)
"""Together a request id: cheaper than random bytes from the OS for every request."""


class TrackedSend:
    """ASGI `send` that adds security headers and records the progress of the response."""

    __slots__ = ("_request_id", "_send", "is_complete", "is_event_stream", "on_event_stream",
                 "status")  # fmt: skip

    def __init__(self, send: Send, request_id: str) -> None:
        self._send, self._request_id = send, request_id.encode()
        self.status = 0
        self.is_event_stream = self.is_complete = False
        self.on_event_stream: Callable[[], None] | None = None
        """Called when the response turns out to be an event stream."""

    @property
    def is_started(self) -> bool:
        """True once the status line was sent, after which no other can be."""
        return self.status != 0

    async def __call__(self, message: Message) -> None:
        """Send one ASGI message."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = self._headers(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self.is_complete = not message.get("more_body", False)
        await self._send(message)

    def _headers(self, given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        headers = list(given)
        names = dict(headers)
        if names.get(b"content-type", b"").startswith(_EVENT_STREAM):
            self.is_event_stream = True
            if self.on_event_stream is not None:
                self.on_event_stream()
        headers += _SECURITY_HEADERS
        headers += [pair for pair in _DEFAULT_HEADERS if pair[0] not in names]
        headers.append((b"x-request-id", self._request_id))
        return headers


class GatewayMiddleware:
    """Outermost middleware: admits a request, bounds it, and logs and counts its response.

    One class and not a stack of them: each layer would wrap `receive` and `send` once more, and
    every chunk of a stream would pass through all of them.
    """

    def __init__(self, app: ASGIApp, state: AppState) -> None:
        self._app, self._state = app, state
        self._settings = state.settings
        self._hidden_paths = HiddenPaths.from_config(state.runtime.config)
        zip_mb = state.runtime.config.settings.install.zip_mb
        self._guard = RequestGuard(state.settings, zip_mb)
        self._authenticator = Authenticator(state.keys, state.sessions)
        self._rate_limiter = RateLimiter(state.settings.rate_limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await _reject_non_http(scope, receive, send)
            return
        start = time.perf_counter()
        headers, has_duplicate = select_headers(scope["headers"])
        request_id = _request_id(headers)
        REQUEST_ID.set(request_id)
        HIDDEN_PATHS.set(self._hidden_paths)
        shared = scope.setdefault("state", {})
        shared["caller"], shared["request_id"], shared["headers"] = ANONYMOUS, request_id, headers
        tracked = TrackedSend(send, request_id)
        try:
            if has_duplicate:  # request smuggling: two parsers could each use another one
                raise RequestError("duplicate header")
            in_flight = self._admit(scope, headers)
        except ApexBridgeError as error:
            await error_response(error, scope)(scope, receive, tracked)
        else:
            shared["in_flight"] = in_flight
            limit, seconds = (
                self._guard.max_body_bytes(headers),
                self._settings.body_timeout_seconds,
            )
            limited = LimitedReceive(receive, in_flight, limit=limit, seconds=seconds)
            await self._run(in_flight, scope, limited, tracked)
        finally:
            self._log(scope, tracked, time.perf_counter() - start)

    def _admit(self, scope: Scope, headers: GuardHeaders) -> InFlightRequest:
        """Apply guard, authentication, rate limit and concurrency limit.

        Raises:
            ApexBridgeError: If one of them refuses the request.
        """
        concurrency, is_exempt = self._state.concurrency, scope["path"] in _EXEMPT_PATHS
        if concurrency.is_stopping and not is_exempt:
            raise shutdown_error()
        self._guard.check(scope, headers)
        caller, has_key = self._authenticator.authenticate(headers)
        scope["state"]["caller"], scope["state"]["has_key"] = caller, has_key
        if has_key and caller.id:
            self._rate_limiter.acquire(caller.id)
        return concurrency.acquire(None if is_exempt else self._settings.max_concurrency)

    async def _run(
        self, in_flight: InFlightRequest, scope: Scope, receive: Receive, send: TrackedSend
    ) -> None:
        concurrency = self._state.concurrency
        if scope["method"] == "GET":
            send.on_event_stream = lambda: concurrency.mark_event_stream(in_flight)
        try:
            with in_flight.scope, acting_as(_actor(scope["state"]["caller"])):
                await self._app(scope, receive, send)
            if in_flight.scope.cancelled_caught:
                await self._send_cancelled(in_flight, scope, receive, send)
        finally:
            concurrency.release(in_flight)

    async def _send_cancelled(
        self, in_flight: InFlightRequest, scope: Scope, receive: Receive, send: TrackedSend
    ) -> None:
        """Report the reason of a cancellation, as far as the response can still carry it."""
        if in_flight.is_disconnected:
            return
        error = in_flight.error or shutdown_error()
        if not send.is_started:
            await error_response(error, scope)(scope, receive, send)
        elif send.is_event_stream and not send.is_complete:
            last = b"" if in_flight.is_event_stream else sse_error(error, scope)
            await send({"type": "http.response.body", "body": last})

    def _log(self, scope: Scope, send: TrackedSend, seconds: float) -> None:
        """Write the access log line and update the metrics."""
        shared, status = scope["state"], send.status or _CLIENT_CLOSED_REQUEST
        route: str = shared.get("route", UNMATCHED_ROUTE)
        self._state.metrics.record_request(scope["method"], route, status, seconds)
        caller: Caller = shared["caller"]
        fields = {
            "method": scope["method"],
            "path": scope["path"][:_MAX_LOGGED_PATH],
            "status": status,
            "seconds": round(seconds, 6),
            "key": caller.id,
        }
        log_request(log, shared["request_id"], fields)


async def _reject_non_http(scope: Scope, receive: Receive, send: Send) -> None:
    """Close WebSockets, which are not supported; the ASGI lifespan protocol is off."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": ""})


def _request_id(headers: GuardHeaders) -> str:
    """Return the client's `X-Request-ID` if it is well-formed, else a generated one."""
    given = headers.get(b"x-request-id", b"")
    if _VALID_REQUEST_ID.fullmatch(given):
        return given.decode()
    return f"{_PROCESS_ID}-{next(_REQUEST_COUNTER):x}"


def _actor(caller: Caller) -> Actor:
    """Return the actor of a request: only a key that may install and run consents to a skill."""
    return Actor(id=caller.id, may_consent=all(map(caller.has_scope, _INSTALL_AND_RUN)))
