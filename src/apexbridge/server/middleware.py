"""The way back to a client: what every reply carries, and what is known of it afterwards."""

import itertools
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from apexbridge.errors import ApexBridgeError, RequestError
from apexbridge.server.auth import ANONYMOUS, Authenticator
from apexbridge.server.error_responses import negotiated_error, sse_error
from apexbridge.server.limits import InFlightRequest, LimitedReceive, RateLimiter, shutdown_error
from apexbridge.server.logs import REQUEST_ID, log_request
from apexbridge.server.metrics import UNMATCHED_ROUTE
from apexbridge.server.request_guard import GuardHeaders, RequestGuard, select_headers
from apexbridge.server.routing import AppState, Caller

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
_EVENT_STREAM = b"text/event-stream"


class TrackedSend:
    """Sends, and remembers how far it came."""

    __slots__ = ("_request_id", "_send", "is_ended", "is_events", "on_events", "status")

    def __init__(self, send: Send, request_id: str) -> None:
        self._send, self._request_id = send, request_id.encode()
        self.status = 0
        self.is_events = self.is_ended = False
        self.on_events: Callable[[], None] | None = None
        """Is called when it turns out to be a stream of events."""

    @property
    def is_started(self) -> bool:
        """Whether a status was sent; another cannot be."""
        return self.status != 0

    async def __call__(self, message: Message) -> None:
        """Send one message, as an application does."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = self._headers(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self.is_ended = not message.get("more_body", False)
        await self._send(message)

    def _headers(self, given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        headers = list(given)
        said = dict(headers)
        if said.get(b"content-type", b"").startswith(_EVENT_STREAM):
            self.is_events = True
            if self.on_events is not None:
                self.on_events()
        headers += _SECURITY_HEADERS
        headers += [pair for pair in _DEFAULT_HEADERS if pair[0] not in said]
        headers.append((b"x-request-id", self._request_id))
        return headers


log = logging.getLogger("apexbridge.requests")

_VALID_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_EXEMPT_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
_MAX_LOGGED_PATH = 500
_PROCESS_ID, _REQUEST_COUNTER = secrets.token_hex(6), itertools.count(1)
"""Together they make an id, and asking the system for randomness each time takes its time."""


class GatewayMiddleware:
    """Lets through what may come in, and sees to it that it ends."""

    def __init__(self, app: ASGIApp, house: AppState) -> None:
        self._app, self._house = app, house
        self._settings = house.settings
        zip_mb = house.runtime.config.settings.install.zip_mb
        self._examiner = RequestGuard(house.settings, zip_mb)
        self._callers = Authenticator(house.keys, house.sessions)
        self._rates = RateLimiter(house.settings.rate_limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with its caller."""
        if scope["type"] != "http":
            await _reject_non_http(scope, receive, send)
            return
        began = time.perf_counter()
        seen, is_twice = select_headers(scope["headers"])
        request_id = _request_id(seen)
        REQUEST_ID.set(request_id)
        state = scope.setdefault("state", {})
        state["caller"], state["request_id"], state["seen"] = ANONYMOUS, request_id, seen
        reply = TrackedSend(send, request_id)
        try:
            if is_twice:
                raise RequestError("a header stands twice")
            flight = self._admit(scope, seen)
        except ApexBridgeError as error:
            await negotiated_error(error, scope)(scope, receive, reply)
        else:
            state["flight"] = flight
            seconds = self._settings.body_timeout_seconds
            body = LimitedReceive(
                receive, flight, limit=self._examiner.limit(seen), seconds=seconds
            )
            await self._work(flight, scope, body, reply)
        finally:
            self._note(scope, reply, time.perf_counter() - began)

    def _admit(self, scope: Scope, seen: GuardHeaders) -> InFlightRequest:
        """Hold a request against everything.

        Raises:
            ApexBridgeError: If it may not come in.
        """
        house, is_open = self._house, scope["path"] in _EXEMPT_PATHS
        if house.traffic.is_stopping and not is_open:
            raise shutdown_error()
        self._examiner.check(scope, seen)
        caller, has_key = self._callers.of(seen)
        scope["state"]["caller"], scope["state"]["has_key"] = caller, has_key
        if has_key and caller.id:
            self._rates.take(caller.id)
        return house.traffic.admit(None if is_open else self._settings.max_concurrency)

    async def _work(
        self, flight: InFlightRequest, scope: Scope, body: Receive, reply: TrackedSend
    ) -> None:
        traffic = self._house.traffic
        if scope["method"] == "GET":
            reply.on_events = lambda: traffic.listens(flight)
        try:
            with flight.scope:
                await self._app(scope, body, reply)
            if flight.scope.cancelled_caught:
                await self._cut_off(flight, scope, body, reply)
        finally:
            traffic.leave(flight)

    async def _cut_off(
        self, flight: InFlightRequest, scope: Scope, body: Receive, reply: TrackedSend
    ) -> None:
        """Say why it ended, as far as that can still be said."""
        if flight.is_abandoned:
            return
        error = flight.refusal or shutdown_error()
        if not reply.is_started:
            await negotiated_error(error, scope)(scope, body, reply)
        elif reply.is_events and not reply.is_ended:
            last = b"" if flight.is_listener else sse_error(error, scope)
            await reply({"type": "http.response.body", "body": last})

    def _note(self, scope: Scope, reply: TrackedSend, seconds: float) -> None:
        """One line, and one count."""
        state, status = scope["state"], reply.status or 499  # nobody was there to take a reply
        route: str = state.get("route", UNMATCHED_ROUTE)
        self._house.metrics.answered(scope["method"], route, status, seconds)
        caller: Caller = state["caller"]
        fields = {
            "method": scope["method"],
            "path": scope["path"][:_MAX_LOGGED_PATH],
            "status": status,
            "seconds": round(seconds, 6),
            "key": caller.id,
        }
        log_request(log, state["request_id"], fields)


async def _reject_non_http(scope: Scope, receive: Receive, send: Send) -> None:
    """There are no web sockets here, and nothing has to be begun or ended."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": ""})


def _request_id(seen: GuardHeaders) -> str:
    """The client's own name for its request, if it is sane."""
    given = seen.get(b"x-request-id", b"")
    return (
        given.decode()
        if _VALID_REQUEST_ID.fullmatch(given)
        else f"{_PROCESS_ID}-{next(_REQUEST_COUNTER):x}"
    )
