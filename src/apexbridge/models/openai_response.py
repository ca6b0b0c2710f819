"""Parser of OpenAI-compatible chat completions, streamed in chunks or whole."""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import orjson
from pydantic import BaseModel, JsonValue, ValidationError

from apexbridge.messages import ToolCall
from apexbridge.models.base import FinishReason, ModelDelta, Usage
from apexbridge.models.upstream import Upstream
from apexbridge.models.upstream_errors import UpstreamFault, error_kind, error_message

MAX_TOOL_CALLS = 128
_FINISH_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
}
_PLAIN_FIELDS = frozenset({"role", "content"})
_OTHER_FIELDS = ("refusal", "reasoning_content", "reasoning", "tool_calls")
_FAILED_REASONS = frozenset({"error", "network_error", "insufficient_system_resource"})
"""Finish reasons by which some servers report a failure, where others close the connection."""


class _TextPart(BaseModel):
    text: str | None = None


class _Function(BaseModel):
    name: str | None = None
    arguments: JsonValue = None


class _ToolCallChunk(BaseModel):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _MessagePart(BaseModel):
    content: str | list[_TextPart] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: JsonValue = None
    tool_calls: list[_ToolCallChunk] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return (self.content or "") + (self.refusal or "")

    @property
    def thinking(self) -> str:
        other = self.reasoning if isinstance(self.reasoning, str) else ""
        return self.reasoning_content or other


class _Tokens(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Choice(BaseModel):
    delta: _MessagePart | None = None
    message: _MessagePart | None = None
    finish_reason: JsonValue = None
    usage: _Tokens | None = None


class _Chunk(BaseModel):
    choices: list[_Choice] | None = None
    usage: _Tokens | None = None
    error: JsonValue = None


@dataclass(slots=True, kw_only=True)
class _PartialToolCall:
    """A tool call whose chunks are still arriving."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])


def fast_text(document: bytes) -> str | None:
    """Parse a chunk that has text and nothing else, as most have; None for any other.

    Validation by pydantic costs several times as much, and is left for the rest.
    """
    try:
        chunk = orjson.loads(document)
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        text = delta["content"]
        has_more = choice.get("finish_reason") or choice.get("usage")
        has_more = has_more or chunk.get("usage") or chunk.get("error")
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
    is_plain = isinstance(text, str) and (len(delta) == 1 or delta.keys() <= _PLAIN_FIELDS)
    return text if is_plain and not has_more else None


def fast_completion(document: bytes) -> tuple[str, str, Usage] | None:
    """Parse a completion of text only to text, finish reason and usage; None for any other."""
    try:
        body = orjson.loads(document)
        (choice,) = body["choices"]
        message, finish, usage = choice["message"], choice["finish_reason"], body["usage"]
        text, tokens_in, tokens_out = (
            message["content"], usage["prompt_tokens"], usage["completion_tokens"],
        )  # fmt: skip
        has_more = any(map(message.get, _OTHER_FIELDS)) or choice.get("delta")
        has_more = has_more or choice.get("usage") or body.get("error")
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
        return None
    is_plain = type(text) is type(finish) is str and type(tokens_in) is type(tokens_out) is int
    if has_more or not (is_plain and finish and tokens_in >= 0 and tokens_out >= 0):
        return None
    return text, finish, Usage(input_tokens=tokens_in, output_tokens=tokens_out)


class ChatCompletion:
    """Accumulator of a response: text is returned at once, tool calls and usage at the end.

    A chunk that is malformed or an error raises UpstreamFault, after the deltas before it; so does
    an incomplete response.
    """

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._calls: list[_PartialToolCall] = []
        self._by_index: dict[int, _PartialToolCall] = {}
        self._usage = Usage()
        self._finish = ""
        self._reasoning: list[str] = []
        self.is_complete = False

    @property
    def reasoning(self) -> str:
        """The `reasoning_content`, which some servers require in the next request."""
        return "".join(self._reasoning)

    def add_chunks(self, documents: Iterable[bytes]) -> Iterator[ModelDelta]:
        """Add the chunks of one read; adjacent texts are joined into one delta."""
        texts = list[str]()
        for document in documents:
            text = fast_text(document)
            if text is not None:
                texts.append(text)
                continue
            if any(texts):
                yield ModelDelta(text="".join(texts))
            texts.clear()
            if delta := self.add(document):
                yield delta
        if any(texts):
            yield ModelDelta(text="".join(texts))

    def add_completion(self, document: bytes) -> ModelDelta | None:
        """Add a completion that is not streamed; return its text."""
        plain = fast_completion(document)
        if plain is None:
            return self.add(document)
        text, self._finish, self._usage = plain
        self.is_complete = True
        return ModelDelta(text=text) if text else None

    def add(self, document: bytes) -> ModelDelta | None:
        """Add a chunk or a completion; return its text."""
        try:
            chunk = _Chunk.model_validate_json(document)
        except ValidationError:
            raise UpstreamFault("unusable", "the response is not a chat completion") from None
        if chunk.error:
            raise self._error(chunk.error)
        choices = chunk.choices or []
        for usage in filter(None, (*(choice.usage for choice in choices), chunk.usage)):
            self._usage = Usage(
                input_tokens=max(0, usage.prompt_tokens or 0),
                output_tokens=max(0, usage.completion_tokens or 0),
            )
        parts = [self._add_choice(choice) for choice in choices]
        text = "".join(part.text for part in parts)
        reasoning = "".join(part.thinking for part in parts)
        return ModelDelta(text=text, reasoning=reasoning) if text or reasoning else None

    def finish(self, *, is_done: bool) -> ModelDelta:
        """Return the last delta, with tool calls, usage and finish reason."""
        if self._finish in _FAILED_REASONS:
            detail = f"its server gave up: {self._finish}"
            raise UpstreamFault("unavailable", detail, is_overloaded=True)
        if not (self.is_complete or is_done):
            raise UpstreamFault("unusable", "it ended before it was finished")
        if not all(call.name for call in self._calls):
            raise UpstreamFault("unusable", "a tool call without a name")
        return ModelDelta(
            tool_calls=self._tool_calls(), usage=self._usage, finish_reason=self._finish_reason()
        )

    def _finish_reason(self) -> FinishReason | None:
        known = _FINISH_REASONS.get(self._finish)
        if self._calls and known in {None, "stop"}:
            return "tool_calls"
        return known if known or not self._finish else "stop"

    def _tool_calls(self) -> tuple[ToolCall, ...]:
        calls: dict[str, ToolCall] = {}
        for call in self._calls:
            # Tool results refer to the id: one that is missing or repeated is replaced.
            call_id = call.id if call.id and call.id not in calls else f"call_{uuid.uuid4().hex}"
            arguments = "".join(call.arguments) or "{}"
            calls[call_id] = ToolCall(id=call_id, name=call.name, arguments=arguments)
        return tuple(calls.values())

    def _error(self, error: JsonValue) -> UpstreamFault:
        message = self._upstream.quote(error_message({"error": error}))
        kind = error_kind(error.get("code")) if isinstance(error, dict) else "unavailable"
        detail = f"its server gave up{message}"
        status = 429 if isinstance(error, dict) and str(error.get("code")) == "429" else 0
        return UpstreamFault(kind, detail, is_overloaded=kind == "unavailable", status=status)

    def _add_choice(self, choice: _Choice) -> _MessagePart:
        if isinstance(choice.finish_reason, str) and choice.finish_reason:
            self._finish = choice.finish_reason
        self.is_complete |= bool(choice.finish_reason) or choice.message is not None
        part = choice.delta or choice.message or _MessagePart()
        self._reasoning.append(part.reasoning_content or "")
        for chunk in part.tool_calls or ():
            if choice.delta is None:  # a completion that is not streamed has complete calls
                chunk.index = len(self._calls)
            self._add_call(chunk)
        return part

    def _add_call(self, chunk: _ToolCallChunk) -> None:
        call = self._call_for(chunk)
        function = chunk.function or _Function()
        call.id = chunk.id or call.id
        call.name = function.name or call.name
        arguments = function.arguments
        if isinstance(arguments, str):
            call.arguments.append(arguments)
        elif arguments is not None:
            call.arguments.append(json.dumps(arguments, ensure_ascii=False))

    def _call_for(self, chunk: _ToolCallChunk) -> _PartialToolCall:
        """Find the call that a chunk continues, or add one.

        Some servers give every call index 0, and some give none: then the id decides.
        """
        if chunk.index is not None:
            call = self._by_index.get(chunk.index)
        else:
            call = self._calls[-1] if self._calls else None
        if call is None or (chunk.id and call.id and chunk.id != call.id):
            if len(self._calls) == MAX_TOOL_CALLS:
                raise UpstreamFault("unusable", f"more than {MAX_TOOL_CALLS} tool calls")
            call = _PartialToolCall()
            self._calls.append(call)
        if chunk.index is not None:
            self._by_index[chunk.index] = call
        return call
