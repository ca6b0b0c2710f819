"""What every request is held to before any route sees it."""

import itertools
import logging
import re
import secrets
import time

from starlette.types import ASGIApp, Receive, Scope, Send

from apexbridge.errors import ApexBridgeError, RequestError
from apexbridge.server.base import Caller, House
from apexbridge.server.callers import NOBODY, Callers
from apexbridge.server.examining import Examiner, Seen, watched
from apexbridge.server.incoming import Body
from apexbridge.server.limits import Flight, Rates, stopping
from apexbridge.server.logs import REQUEST, log_request
from apexbridge.server.metrics import OTHER
from apexbridge.server.refusals import last_event, refusal
from apexbridge.server.replies import Reply

log = logging.getLogger("apexbridge.requests")

_SANE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_ALWAYS_OPEN = frozenset({"/healthz", "/readyz", "/metrics"})
_SHOWN = 500
_SERVER, _COUNT = secrets.token_hex(6), itertools.count(1)
"""Together they make an id, and asking the system for randomness each time takes its time."""


class Checked:
    """Lets through what may come in, and sees to it that it ends."""

    def __init__(self, app: ASGIApp, house: House) -> None:
        self._app, self._house = app, house
        self._settings = house.settings
        zip_mb = house.runtime.loaded.settings.install.zip_mb
        self._examiner = Examiner(house.settings, zip_mb)
        self._callers = Callers(house.keys, house.sessions)
        self._rates = Rates(house.settings.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with its caller."""
        if scope["type"] != "http":
            await _refuse_other(scope, receive, send)
            return
        began = time.perf_counter()
        seen, is_twice = watched(scope["headers"])
        request_id = _request_id(seen)
        REQUEST.set(request_id)
        state = scope.setdefault("state", {})
        state["caller"], state["request_id"], state["seen"] = NOBODY, request_id, seen
        reply = Reply(send, request_id)
        try:
            if is_twice:
                raise RequestError("a header stands twice")
            flight = self._admit(scope, seen)
        except ApexBridgeError as error:
            await refusal(error, scope)(scope, receive, reply)
        else:
            state["flight"] = flight
            seconds = self._settings.body_seconds
            body = Body(receive, flight, limit=self._examiner.limit(seen), seconds=seconds)
            await self._work(flight, scope, body, reply)
        finally:
            self._note(scope, reply, time.perf_counter() - began)

    def _admit(self, scope: Scope, seen: Seen) -> Flight:
        """Hold a request against everything.

        Raises:
            ApexBridgeError: If it may not come in.
        """
        house, is_open = self._house, scope["path"] in _ALWAYS_OPEN
        if house.traffic.is_stopping and not is_open:
            raise stopping()
        self._examiner.check(scope, seen)
        caller, has_key = self._callers.of(seen)
        scope["state"]["caller"], scope["state"]["has_key"] = caller, has_key
        if has_key and caller.id:
            self._rates.take(caller.id)
        return house.traffic.admit(None if is_open else self._settings.concurrency)

    async def _work(self, flight: Flight, scope: Scope, body: Receive, reply: Reply) -> None:
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

    async def _cut_off(self, flight: Flight, scope: Scope, body: Receive, reply: Reply) -> None:
        """Say why it ended, as far as that can still be said."""
        if flight.is_abandoned:
            return
        error = flight.refusal or stopping()
        if not reply.is_started:
            await refusal(error, scope)(scope, body, reply)
        elif reply.is_events and not reply.is_ended:
            last = b"" if flight.is_listener else last_event(error, scope)
            await reply({"type": "http.response.body", "body": last})

    def _note(self, scope: Scope, reply: Reply, seconds: float) -> None:
        """One line, and one count."""
        state, status = scope["state"], reply.status or 499  # nobody was there to take a reply
        route: str = state.get("route", OTHER)
        self._house.metrics.answered(scope["method"], route, status, seconds)
        caller: Caller = state["caller"]
        fields = {
            "method": scope["method"],
            "path": scope["path"][:_SHOWN],
            "status": status,
            "seconds": round(seconds, 6),
            "key": caller.id,
        }
        log_request(log, state["request_id"], fields)


async def _refuse_other(scope: Scope, receive: Receive, send: Send) -> None:
    """There are no web sockets here, and nothing has to be begun or ended."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": ""})


def _request_id(seen: Seen) -> str:
    """The client's own name for its request, if it is sane."""
    given = seen.get(b"x-request-id", b"")
    return given.decode() if _SANE_ID.fullmatch(given) else f"{_SERVER}-{next(_COUNT):x}"
