"""One reply of the model: told while it comes, kept in the conversation, its cost counted."""

import time
from collections.abc import Sequence

import anyio

from apexbridge.agent.session import Session
from apexbridge.agent.turn import TurnRecord, add_usage
from apexbridge.events import EventSink, ReasoningDelta, TextDelta
from apexbridge.messages import AssistantMessage, ToolCall, UserMessage
from apexbridge.models.base import FinishReason, ModelClient, ModelDelta, ModelRequest, Usage


class ModelCaller:
    """Asks the model for one turn."""

    def __init__(
        self, model: ModelClient, session: Session, record: TurnRecord, emit: EventSink
    ) -> None:
        self._model, self._session, self._record, self._emit = model, session, record, emit
        self.said = ""
        """The last words of the turn so far."""
        self.reason: FinishReason = "stop"
        """Why the last reply ended."""

    async def reply(self, asked: ModelRequest, *, keeps_calls: bool) -> AssistantMessage:
        """One reply. Whoever breaks it off keeps in the conversation what was told of it.

        Raises:
            ModelError: If the model cannot be reached or understood.
        """
        start, texts, calls = time.perf_counter(), list[str](), list[ToolCall]()
        try:
            with self._record.spanning("model", asked.model):
                async with self._model.stream(asked) as deltas:
                    async for delta in deltas:
                        self._tell(delta, texts)
                        calls += delta.tool_calls
        except anyio.get_cancelled_exc_class():
            self._keep(texts, ())
            raise
        finally:
            self._record.model_seconds += time.perf_counter() - start
        return self._keep(texts, calls if keeps_calls else ())

    async def summary(self, text: str, model: str) -> str:
        """A reply that is told to nobody.

        Raises:
            ModelError: If the model cannot be reached or understood.
        """
        parts, start = list[str](), time.perf_counter()
        asked = ModelRequest(model=model, messages=(UserMessage(text=text),))
        try:
            with self._record.spanning("model", model):
                async with self._model.stream(asked) as deltas:
                    async for delta in deltas:
                        parts.append(delta.text)
                        if delta.usage:
                            self.spend(delta.usage)
        finally:
            self._record.model_seconds += time.perf_counter() - start
        return "".join(parts)

    def spend(self, usage: Usage) -> None:
        """Count what was spent, for the turn and for the session."""
        self._record.spend(usage)
        self._session.spent = add_usage(self._session.spent, usage)

    def _tell(self, delta: ModelDelta, texts: list[str]) -> None:
        session_id = self._session.id
        if delta.reasoning:
            self._emit(ReasoningDelta(session_id=session_id, text=delta.reasoning))
        if delta.text:
            texts.append(delta.text)
            self._emit(TextDelta(session_id=session_id, text=delta.text))
        if delta.usage:
            self.spend(delta.usage)
        if delta.finish_reason:
            self.reason = delta.finish_reason

    def _keep(self, texts: Sequence[str], calls: Sequence[ToolCall]) -> AssistantMessage:
        """Put a reply into the conversation; one that says nothing and does nothing is none."""
        reply = AssistantMessage(text="".join(texts), tool_calls=tuple(calls))
        if reply.text or reply.tool_calls:
            self._session.messages.append(reply)
        self.said = reply.text or self.said
        return reply
