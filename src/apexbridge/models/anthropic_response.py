"""Parser of Anthropic Messages API events, streamed or whole."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, JsonValue, ValidationError

from apexbridge.messages import ToolCall
from apexbridge.models.base import FinishReason, ModelDelta, Usage
from apexbridge.models.openai_response import MAX_TOOL_CALLS
from apexbridge.models.upstream import Upstream
from apexbridge.models.upstream_errors import UpstreamFault, error_message

_FINISH_REASONS: Mapping[str, FinishReason] = {
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
_REQUEST_ERRORS = frozenset({
    "invalid_request_error", "authentication_error", "billing_error", "permission_error",
    "not_found_error", "request_too_large",
})  # fmt: skip
"""Types of errors that the request caused; all others are transient."""


class _Tokens(BaseModel):
    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None


def _null_to_empty(value: JsonValue) -> JsonValue:
    return "" if value is None else value


_Text = Annotated[str, BeforeValidator(_null_to_empty)]
"""Some compatible servers write null for an empty text."""


class _BlockDelta(BaseModel):
    type: _Text = ""
    text: _Text = ""
    thinking: _Text = ""
    signature: _Text = ""
    partial_json: _Text = ""
    stop_reason: str | None = None


class _ContentBlock(BaseModel):
    type: _Text = ""
    id: _Text = ""
    name: _Text = ""
    text: _Text = ""
    thinking: _Text = ""
    signature: _Text = ""
    data: _Text = ""
    input: JsonValue = None


class _Message(BaseModel):
    content: list[_ContentBlock] = []
    stop_reason: str | None = None
    usage: _Tokens | None = None


class _Event(_Message):
    type: str = ""
    index: int = 0
    message: _Message | None = None
    content_block: _ContentBlock | None = None
    delta: _BlockDelta | None = None
    error: JsonValue = None


@dataclass(slots=True, kw_only=True)
class _PartialBlock:
    """A content block whose deltas are still arriving: text, thinking or tool arguments."""

    start: _ContentBlock
    parts: list[str] = field(default_factory=list[str])
    signature: str = ""

    @property
    def content(self) -> str:
        return "".join(self.parts)


class MessagesResponse:
    """Accumulator of a response: text is returned at once, tool calls and usage at the end.

    An event that is malformed or an error, and an incomplete response, raise UpstreamFault.
    """

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._blocks: dict[int, _PartialBlock] = {}
        self._input_tokens = 0
        self._output_tokens = 0
        self._stop = ""
        self.is_complete = False

    @property
    def reasoning(self) -> str:
        """The thinking blocks as JSON, with the signatures that the API requires back."""
        blocks = [_thinking_block(block) for block in self._blocks.values()]
        kept = [block for block in blocks if block]
        return json.dumps(kept, ensure_ascii=False) if kept else ""

    def add(self, document: bytes) -> ModelDelta | None:
        """Add an event; return its text."""
        try:
            event = _Event.model_validate_json(document)
        except ValidationError:
            raise UpstreamFault("unusable", "the response is not of the Messages API") from None
        if event.error or event.type == "error":
            raise self._error(event.error)
        match event:
            case _Event(type="message_start", message=_Message() as message):
                self._count(message.usage)
            case _Event(type="content_block_start", content_block=_ContentBlock() as content):
                return self._open_block(event.index, content)
            case _Event(type="content_block_delta", delta=_BlockDelta() as delta):
                return self._add_delta(event.index, delta)
            case _Event(type="message_delta"):
                self._count(event.usage)
                self._stop = (event.delta and event.delta.stop_reason) or self._stop
            case _Event(type="message_stop"):
                self.is_complete = True
            case _Event(type="message"):
                return self._add_message(event)
            case _:
                pass  # the API may add event types at any time
        return None

    def finish(self) -> ModelDelta:
        """Return the last delta, with tool calls, usage and finish reason."""
        if not (self.is_complete or self._stop):
            raise UpstreamFault("unusable", "it ended before it was finished")
        usage = Usage(input_tokens=self._input_tokens, output_tokens=self._output_tokens)
        calls = self._tool_calls()
        finish = _FINISH_REASONS.get(self._stop, "tool_calls" if calls else "stop")
        return ModelDelta(tool_calls=calls, usage=usage, finish_reason=finish)

    def _tool_calls(self) -> tuple[ToolCall, ...]:
        calls: list[ToolCall] = []
        for block in self._blocks.values():
            if block.start.type != "tool_use":
                continue
            if not block.start.name:
                raise UpstreamFault("unusable", "a tool call without a name")
            call_id = block.start.id or f"toolu_{uuid.uuid4().hex}"
            arguments = block.content or json.dumps(block.start.input or {}, ensure_ascii=False)
            calls.append(ToolCall(id=call_id, name=block.start.name, arguments=arguments))
        return tuple(calls)

    def _open_block(self, index: int, content: _ContentBlock) -> ModelDelta | None:
        if len(self._blocks) == MAX_TOOL_CALLS:
            raise UpstreamFault("unusable", f"more than {MAX_TOOL_CALLS} blocks")
        block = _PartialBlock(start=content, signature=content.signature)
        block.parts = [part for part in (content.text, content.thinking) if part]
        self._blocks[index] = block
        return _delta(content.text, content.thinking)

    def _add_delta(self, index: int, delta: _BlockDelta) -> ModelDelta | None:
        block = self._blocks.get(index)
        if block is None:
            raise UpstreamFault("unusable", "a delta of a content block that was not started")
        block.signature += delta.signature
        block.parts += filter(None, (delta.text, delta.thinking, delta.partial_json))
        return _delta(delta.text, delta.thinking)

    def _add_message(self, event: _Event) -> ModelDelta | None:
        for index, content in enumerate(event.content):
            self._open_block(index, content)
        self._count(event.usage)
        self._stop = event.stop_reason or ""
        self.is_complete = True
        text = "".join(content.text for content in event.content)
        return _delta(text, "".join(content.thinking for content in event.content))

    def _count(self, usage: _Tokens | None) -> None:
        if usage is None:
            return
        # The input count leaves out cached tokens, which OpenAI's includes.
        parts = (usage.input_tokens, usage.cache_creation_input_tokens)
        total = sum(tokens or 0 for tokens in (*parts, usage.cache_read_input_tokens))
        self._input_tokens = max(self._input_tokens, total)
        self._output_tokens = max(self._output_tokens, usage.output_tokens or 0)

    def _error(self, error: JsonValue) -> UpstreamFault:
        detail = f"its server gave up{self._upstream.quote(error_message({'error': error}))}"
        kind = error.get("type") if isinstance(error, dict) else ""
        if kind in _REQUEST_ERRORS:
            return UpstreamFault("rejected", detail)
        return UpstreamFault("unavailable", detail, is_overloaded=True)


def _delta(text: str, reasoning: str) -> ModelDelta | None:
    return ModelDelta(text=text, reasoning=reasoning) if text or reasoning else None


def _thinking_block(block: _PartialBlock) -> dict[str, Any]:
    match block.start.type:
        case "thinking":
            return {"type": "thinking", "thinking": block.content, "signature": block.signature}
        case "redacted_thinking":
            return {"type": "redacted_thinking", "data": block.start.data}
        case _:
            return {}
