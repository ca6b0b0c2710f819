"""A turn sent while it runs: nothing before there is something to say, and ended by who leaves."""

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
"""After so long without a word something is sent, so that nobody between takes it for dead."""
_KEEP_ALIVE = b": keep-alive\n\n"
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

RunTurn = Callable[[], Awaitable[TurnResult]]
DisconnectGuard = Callable[[], AbstractContextManager[object]]
"""Ends what is done inside where the client goes away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFormat:
    """How a stream is told."""

    with_usage: bool = False
    with_progress: bool = False
    with_summary: bool = False
    is_open: bool = False
    """Whether arguments and results of tools are told too."""
    language: locales.Language = "en"


class TurnStreamResponse(Response):
    """The events of a turn as a stream of chunks."""

    def __init__(self, telling: CompletionBuilder, manner: StreamFormat) -> None:
        super().__init__()
        self._telling, self._manner = telling, manner
        self._chunks = ChunkEncoder(telling, is_open=manner.is_open)
        self._run: RunTurn | None = None
        self._watched: DisconnectGuard = nullcontext
        self._pieces: list[bytes] = []
        self._has_more = anyio.Event()
        self._is_begun = self._is_over = False
        self._error: Exception | None = None

    def carry_out(self, run: RunTurn, watched: DisconnectGuard) -> Response:
        """Say what is told; it begins when somebody listens."""
        self._run, self._watched = run, watched
        return self

    def hear(self, event: Event) -> None:
        """Tell what happened, if it is for the client."""
        self._telling.hear(event)
        if isinstance(event, TextDelta):
            if event.session_id == self._telling.record.session_id:
                self._put(self._chunks.say(event.text))
        elif isinstance(event, ReasoningDelta):
            if event.session_id == self._telling.record.session_id:
                self._put(self._chunks.think(event.text))
        elif self._manner.with_progress:
            self._put(self._chunks.progress(event))

    def tool_started(self, call: ToolCall) -> None:
        """Remember the arguments of a call, for its progress chunk."""
        self._put(self._chunks.watch(call, None))

    def tool_finished(self, call: ToolCall, text: str) -> None:
        """Send the result of a call as a progress chunk."""
        self._put(self._chunks.watch(call, text))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it.

        Raises:
            ApexBridgeError: If the turn failed before it said anything.
        """
        with self._watched():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._work)
                with suppress(OSError):  # the client went away
                    await self._send(send)
                if not self._is_over:
                    tasks.cancel_scope.cancel()
        if self._error is not None:
            raise self._error

    async def _work(self) -> None:
        manner = self._manner
        try:
            if self._run is not None:
                end = await self._run()
                usage, summary = manner.with_usage, manner.with_summary
                for piece in self._chunks.end(end, with_usage=usage, with_summary=summary):
                    self._put(piece)
        except Exception as error:  # noqa: BLE001  # any: it is told to the client
            self._fail(error)
        finally:
            self._is_over = True
            self._has_more.set()

    def _fail(self, error: Exception) -> None:
        """Before the first word the status tells of it; from then on the stream does."""
        if not (self._is_begun or self._pieces):
            self._error = error
            return
        if not isinstance(error, ApexBridgeError):
            log.error("A request failed", exc_info=error)
            error = ApexBridgeError(code="server_failed")
        self._put(error_chunk(error, self._manner.language))

    def _put(self, piece: bytes) -> None:
        if piece:
            if not self._pieces:
                self._has_more.set()
            self._pieces.append(piece)

    async def _send(self, send: Send) -> None:
        while True:
            while not self._pieces and not self._is_over:
                self._has_more = anyio.Event()
                with anyio.move_on_after(KEEP_ALIVE_SECONDS) as silence:
                    await self._has_more.wait()
                if silence.cancelled_caught:
                    self._pieces.append(_KEEP_ALIVE)
            is_last, pieces, self._pieces = self._is_over, self._pieces, []
            if is_last and not pieces and not self._is_begun:
                return  # it failed, and the status says so
            if not self._is_begun:
                self._is_begun = True
                await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                pieces = [self._chunks.begin(), *pieces]
            await send(
                {"type": "http.response.body", "body": b"".join(pieces), "more_body": not is_last}
            )
            if is_last:
                return
