"""Event stream: what happens on the server, as server-sent events (SSE) for operators."""

import re
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import fields

import anyio
import orjson
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from apexbridge.events import ApprovalAsked, ApprovalSettled, Event, ReasoningDelta, TextDelta
from apexbridge.server.routing import AppState, RequestContext, Router

MAX_QUEUED = 1_000
"""Backpressure: beyond this the oldest events of a slow subscriber are dropped, and counted."""
KEEP_ALIVE_SECONDS = 15.0
SSE_MEDIA_TYPE = "text/event-stream"
_PRIVATE_FIELDS = frozenset({"text", "argument", "reason"})
"""Fields with content of people, models and tools, which are not streamed."""
_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])")

router = Router("/v1", scope="admin")


class EventSubscriber:
    """Bounded queue of encoded events for one subscriber."""

    def __init__(self, max_queued: int = MAX_QUEUED) -> None:
        self._queue = deque[bytes](maxlen=max_queued)
        self._dropped = 0
        self._has_events = anyio.Event()

    def on_event(self, event: Event) -> None:
        """Queue an event of the runtime, except model output and approval events.

        Approval events arrive by `put` from the approval queue, which also publishes those of
        turns whose client has disconnected.
        """
        if not isinstance(event, TextDelta | ReasoningDelta | ApprovalAsked | ApprovalSettled):
            self.put(event)

    def put(self, event: Event) -> None:
        """Queue an event."""
        self._dropped += len(self._queue) == self._queue.maxlen
        self._queue.append(to_sse(event))
        self._has_events.set()

    async def stream(self, keep_alive: float = KEEP_ALIVE_SECONDS) -> AsyncGenerator[bytes]:
        """Yield events without end, and SSE comments as keep-alive while there are none."""
        yield b": listening\n\n"
        while True:
            with anyio.move_on_after(keep_alive):
                await self._has_events.wait()
            if not self._queue:
                yield b": still here\n\n"
            while self._queue:
                yield self._next()
            self._has_events = anyio.Event()

    def _next(self) -> bytes:
        if self._dropped:
            count, self._dropped = self._dropped, 0
            return _sse_message("dropped", {"count": count})
        return self._queue.popleft()


def to_sse(event: Event) -> bytes:
    """Encode an event as a server-sent event, without its private fields."""
    data = {
        field.name: getattr(event, field.name)
        for field in fields(event)
        if field.name not in _PRIVATE_FIELDS
    }
    return _sse_message(_CAMEL_BOUNDARY.sub("_", type(event).__name__).lower(), data)


def _sse_message(name: str, data: dict[str, object]) -> bytes:
    encoded = orjson.dumps({"event": name, "at": time.time(), **data}, default=str)
    return b"event: " + name.encode() + b"\ndata: " + encoded + b"\n\n"


class EventStreamResponse(StreamingResponse):
    """Streams all events from now on, until the client disconnects."""

    def __init__(self, state: AppState) -> None:
        self._state, self._subscriber = state, EventSubscriber()
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(self._subscriber.stream(), media_type=SSE_MEDIA_TYPE, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Subscribe for the duration of the response."""
        state, subscriber = self._state, self._subscriber
        with state.runtime.listen(subscriber.on_event), state.approvals.subscribe(subscriber.put):
            await super().__call__(scope, receive, send)


@router.get("/events", media_type=SSE_MEDIA_TYPE)
async def stream_events(ctx: RequestContext) -> Response:
    """Stream events."""
    return EventStreamResponse(ctx.state)
