"""Streaming response: chat completion chunks as server-sent events (SSE) while a turn runs."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from apexbridge import locales
from apexbridge.agent.turn import TurnResult
from apexbridge.errors import ApexBridgeError
from apexbridge.events import Event, ReasoningDelta, TextDelta
from apexbridge.messages import ToolCall
from apexbridge.server.chat.response import ChunkEncoder, CompletionBuilder, error_chunk

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 10.0
"""Interval of SSE comments while the model is silent, so that no proxy times out."""
_KEEP_ALIVE = b": keep-alive\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

RunTurn = Callable[[], Awaitable[TurnResult]]
DisconnectGuard = Callable[[], AbstractContextManager[object]]
"""Context manager that cancels its block when the client disconnects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFormat:
    """Options of a stream."""

    with_usage: bool = False
    with_progress: bool = False
    with_summary: bool = False
    with_tool_data: bool = False
    """Whether progress events include arguments and results of tools."""
    language: locales.Language = "en"


class TurnStreamResponse(Response):
    """Response that runs a turn and streams its events as chunks."""

    def __init__(self, completion: CompletionBuilder, stream_format: StreamFormat) -> None:
        super().__init__()
        self._completion, self._format = completion, stream_format
        self._chunks = ChunkEncoder(completion, with_tool_data=stream_format.with_tool_data)
        self._run: RunTurn | None = None
        self._watch: DisconnectGuard = nullcontext
        self._pending: list[bytes] = []
        self._has_chunks = anyio.Event()
        self._is_started = self._is_finished = False
        self._error: Exception | None = None

    def start(self, run: RunTurn, watch: DisconnectGuard) -> Response:
        """Set the turn to run; it starts when the response is sent."""
        self._run, self._watch = run, watch
        return self

    def on_event(self, event: Event) -> None:
        """Encode an event for the client; deltas of subagents are left out."""
        self._completion.on_event(event)
        if isinstance(event, TextDelta):
            if event.session_id == self._completion.record.session_id:
                self._put(self._chunks.text(event.text))
        elif isinstance(event, ReasoningDelta):
            if event.session_id == self._completion.record.session_id:
                self._put(self._chunks.reasoning(event.text))
        elif self._format.with_progress:
            self._put(self._chunks.progress(event))

    def tool_started(self, call: ToolCall) -> None:
        """Encode the arguments of a tool call."""
        self._put(self._chunks.tool_call(call, None))

    def tool_finished(self, call: ToolCall, text: str) -> None:
        """Encode the result of a tool call."""
        self._put(self._chunks.tool_call(call, text))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the turn and stream it.

        Raises:
            ApexBridgeError: If the turn failed before its first chunk.
        """
        with self._watch():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._run_turn)
                with suppress(OSError):  # the client disconnected
                    await self._send(send)
                if not self._is_finished:
                    tasks.cancel_scope.cancel()
        if self._error is not None:
            raise self._error

    async def _run_turn(self) -> None:
        try:
            if self._run is not None:
                result = await self._run()
                usage, summary = self._format.with_usage, self._format.with_summary
                for chunk in self._chunks.end(result, with_usage=usage, with_summary=summary):
                    self._put(chunk)
        except Exception as error:  # noqa: BLE001  # sent to the client
            self._fail(error)
        finally:
            self._is_finished = True
            self._has_chunks.set()

    def _fail(self, error: Exception) -> None:
        """Report an error: by HTTP status before the first chunk, as a chunk after it."""
        if not (self._is_started or self._pending):
            self._error = error
            return
        if not isinstance(error, ApexBridgeError):
            log.error("Unhandled exception in a stream", exc_info=error)
            error = ApexBridgeError(code="server_failed")
        self._put(error_chunk(error, self._format.language))

    def _put(self, chunk: bytes) -> None:
        if chunk:
            if not self._pending:
                self._has_chunks.set()
            self._pending.append(chunk)

    async def _send(self, send: Send) -> None:
        while True:
            while not self._pending and not self._is_finished:
                self._has_chunks = anyio.Event()
                with anyio.move_on_after(KEEP_ALIVE_SECONDS) as timeout:
                    await self._has_chunks.wait()
                if timeout.cancelled_caught:
                    self._pending.append(_KEEP_ALIVE)
            is_last, chunks, self._pending = self._is_finished, self._pending, []
            if is_last and not chunks and not self._is_started:
                return  # it failed, and is reported by the HTTP status
            if not self._is_started:
                self._is_started = True
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                chunks = [self._chunks.start(), *chunks]
            await send(
                {"type": "http.response.body", "body": b"".join(chunks), "more_body": not is_last}
            )
            if is_last:
                return
