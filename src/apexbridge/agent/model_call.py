"""Model calls of a turn: stream the reply as events, append it to the session, count tokens."""

import time
from collections.abc import Sequence

import anyio

from apexbridge.agent.session import Session
from apexbridge.agent.turn import TurnRecord
from apexbridge.events import EventSink, ReasoningDelta, TextDelta
from apexbridge.messages import AssistantMessage, ToolCall, UserMessage
from apexbridge.models.base import FinishReason, ModelClient, ModelDelta, ModelRequest, Usage


class ModelCaller:
    """Call the language model for one turn."""

    def __init__(
        self, model: ModelClient, session: Session, record: TurnRecord, emit: EventSink
    ) -> None:
        self._model, self._session, self._record, self._emit = model, session, record, emit
        self.last_text = ""
        """Text of the latest reply that had any."""
        self.finish_reason: FinishReason = "stop"

    async def reply(self, request: ModelRequest, *, keeps_calls: bool) -> AssistantMessage:
        """Stream one reply; when cancelled, the text received so far is kept in the session."""
        start, texts, calls = time.perf_counter(), list[str](), list[ToolCall]()
        try:
            with self._record.span("model", request.model):
                async with self._model.stream(request) as deltas:
                    async for delta in deltas:
                        self._handle_delta(delta, texts)
                        calls += delta.tool_calls
        except anyio.get_cancelled_exc_class():
            self._append_reply(texts, ())
            raise
        finally:
            self._record.model_seconds += time.perf_counter() - start
        return self._append_reply(texts, calls if keeps_calls else ())

    async def summarize(self, text: str, model: str) -> str:
        """Request a reply that is neither streamed nor stored."""
        parts, start = list[str](), time.perf_counter()
        request = ModelRequest(model=model, messages=(UserMessage(text=text),))
        try:
            with self._record.span("model", model):
                async with self._model.stream(request) as deltas:
                    async for delta in deltas:
                        parts.append(delta.text)
                        if delta.usage:
                            self.spend(delta.usage)
        finally:
            self._record.model_seconds += time.perf_counter() - start
        return "".join(parts)

    def spend(self, usage: Usage) -> None:
        """Add token usage to the turn and to the session."""
        self._record.usage += usage
        self._session.usage += usage

    def _handle_delta(self, delta: ModelDelta, texts: list[str]) -> None:
        session_id = self._session.id
        if delta.reasoning:
            self._emit(ReasoningDelta(session_id=session_id, text=delta.reasoning))
        if delta.text:
            texts.append(delta.text)
            self._emit(TextDelta(session_id=session_id, text=delta.text))
        if delta.usage:
            self.spend(delta.usage)
        if delta.finish_reason:
            self.finish_reason = delta.finish_reason

    def _append_reply(self, texts: Sequence[str], calls: Sequence[ToolCall]) -> AssistantMessage:
        reply = AssistantMessage(text="".join(texts), tool_calls=tuple(calls))
        # Providers reject an empty assistant message in the history of the next request.
        if reply.text or reply.tool_calls:
            self._session.messages.append(reply)
        self.last_text = reply.text or self.last_text
        return reply
