"""What happens, as it happens: a stream of server-sent events for whoever runs the server."""

import re
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import fields

import anyio
import orjson
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from apexbridge.events import (
    ApprovalAsked,
    ApprovalSettled,
    Event,
    ReasoningDelta,
    TextDelta,
)
from apexbridge.server.routing import AppState, RequestContext, Route

MAX_QUEUED = 1_000
"""So many events wait for a slow listener; of more the oldest are dropped, and that is told."""
KEEP_ALIVE_SECONDS = 15.0
_PRIVATE_FIELDS = frozenset({"text", "argument", "reason"})
"""Fields that hold words of people, models and tools; what is asked stands in the list of it."""
_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])")
SSE_MEDIA_TYPE = "text/event-stream"


class EventSubscriber:
    """The events that wait for one listener."""

    def __init__(self, room: int = MAX_QUEUED) -> None:
        self._waiting = deque[bytes](maxlen=room)
        self._dropped = 0
        self._news = anyio.Event()

    def hear(self, event: Event) -> None:
        """Take an event of the house; what is said in conversations is none of a listener's."""
        if not isinstance(event, TextDelta | ReasoningDelta | ApprovalAsked | ApprovalSettled):
            self.put(event)

    def put(self, event: Event) -> None:
        """Take an event."""
        self._dropped += len(self._waiting) == self._waiting.maxlen
        self._waiting.append(to_sse(event))
        self._news.set()

    async def pieces(self, keep_alive: float = KEEP_ALIVE_SECONDS) -> AsyncGenerator[bytes]:
        """What is sent, for ever: a word at the beginning, events, a comment where it is quiet."""
        yield b": listening\n\n"
        while True:
            with anyio.move_on_after(keep_alive):
                await self._news.wait()
            if not self._waiting:
                yield b": still here\n\n"
            while self._waiting:
                yield self._next()
            self._news = anyio.Event()

    def _next(self) -> bytes:
        if self._dropped:
            count, self._dropped = self._dropped, 0
            return _sse_message("dropped", {"count": count})
        return self._waiting.popleft()


def to_sse(event: Event) -> bytes:
    """An event on the wire: its name, when it was, and every field that holds nobody's words."""
    told = {
        field.name: getattr(event, field.name)
        for field in fields(event)
        if field.name not in _PRIVATE_FIELDS
    }
    return _sse_message(_CAMEL_BOUNDARY.sub("_", type(event).__name__).lower(), told)


def _sse_message(name: str, told: dict[str, object]) -> bytes:
    data = orjson.dumps({"event": name, "at": time.time(), **told}, default=str)
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


class EventStreamResponse(StreamingResponse):
    """Everything that happens from now on, until whoever listens leaves."""

    def __init__(self, house: AppState) -> None:
        self._house, self._listener = house, EventSubscriber()
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._listener.pieces(), media_type=SSE_MEDIA_TYPE, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Listen for as long as somebody is there."""
        house, listener = self._house, self._listener
        # Of questions from where they are asked: also those are heard of whose turn was left.
        with house.runtime.listen(listener.hear), house.approvals.listen(listener.put):
            await super().__call__(scope, receive, send)


async def stream_events(call: RequestContext) -> Response:
    """Listen."""
    return EventStreamResponse(call.house)


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/events",
        endpoint=stream_events,
        summary="Listen to what happens, as server-sent events",
        scope="admin",
        media=SSE_MEDIA_TYPE,
    ),
)
