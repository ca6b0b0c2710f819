"""What a chat server of OpenAI's kind says, put together."""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import orjson
from pydantic import BaseModel, JsonValue, ValidationError

from apexbridge.messages import ToolCall
from apexbridge.models.base import FinishReason, ModelDelta, Usage
from apexbridge.models.retry import UpstreamFault
from apexbridge.models.upstream import Upstream
from apexbridge.models.upstream_errors import error_kind, error_message

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
"""Ends that some servers tell where others break off."""


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
    def thought(self) -> str:
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
    """A tool call on its way."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])


def fast_text(document: bytes) -> str | None:
    """The text of a piece that has nothing else; most have not, and need no closer look."""
    try:
        chunk = orjson.loads(document)
        (choice,) = chunk["choices"]
        delta = choice["delta"]
        text = delta["content"]
        more = choice.get("finish_reason") or choice.get("usage")
        more = more or chunk.get("usage") or chunk.get("error")
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
    is_plain = isinstance(text, str) and (len(delta) == 1 or delta.keys() <= _PLAIN_FIELDS)
    return text if is_plain and not more else None


def fast_completion(document: bytes) -> tuple[str, str, Usage] | None:
    """The text of a whole answer that has nothing else, why it ended, and what it cost.

    Most answers are like that; whatever is out of the ordinary gets a closer look.
    """
    try:
        answer = orjson.loads(document)
        (choice,) = answer["choices"]
        said, finish, usage = choice["message"], choice["finish_reason"], answer["usage"]
        text, given, got = said["content"], usage["prompt_tokens"], usage["completion_tokens"]
        more = any(map(said.get, _OTHER_FIELDS)) or choice.get("delta") or choice.get("usage")
        more = more or answer.get("error")
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, ValueError):
        return None
    is_plain = type(text) is type(finish) is str and type(given) is type(got) is int
    if more or not (is_plain and finish and given >= 0 and got >= 0):
        return None
    return text, finish, Usage(input_tokens=given, output_tokens=got)


class ChatCompletion:
    """What a reply comes to: its text at once, its tool calls and its usage at the end."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._calls: list[_PartialToolCall] = []
        self._by_index: dict[int, _PartialToolCall] = {}
        self._usage = Usage()
        self._finish = ""
        self._thoughts: list[str] = []
        self.is_complete = False

    @property
    def thought(self) -> str:
        """What was thought under the name that servers want back."""
        return "".join(self._thoughts)

    def take_all(self, documents: Iterable[bytes]) -> Iterator[ModelDelta]:
        """Take documents that came together; what is said in one go is one piece.

        Raises:
            UpstreamFault: If one of them makes no sense, or tells an error; what came before is given.
        """
        texts = list[str]()
        for document in documents:
            text = fast_text(document)
            if text is not None:
                texts.append(text)
                continue
            if any(texts):
                yield ModelDelta(text="".join(texts))
            texts.clear()
            if delta := self.take(document):
                yield delta
        if any(texts):
            yield ModelDelta(text="".join(texts))

    def take_whole(self, document: bytes) -> ModelDelta | None:
        """Take an answer in one piece; the text in it.

        Raises:
            UpstreamFault: If it makes no sense, or tells an error.
        """
        plain = fast_completion(document)
        if plain is None:
            return self.take(document)
        text, self._finish, self._usage = plain
        self.is_complete = True
        return ModelDelta(text=text) if text else None

    def take(self, document: bytes) -> ModelDelta | None:
        """Take a document; the text in it.

        Raises:
            UpstreamFault: If it makes no sense, or tells an error.
        """
        try:
            chunk = _Chunk.model_validate_json(document)
        except ValidationError:
            raise UpstreamFault("unusable", "it is not what a chat model says") from None
        if chunk.error:
            raise self._error(chunk.error)
        choices = chunk.choices or []
        for usage in filter(None, (*(choice.usage for choice in choices), chunk.usage)):
            self._usage = Usage(
                input_tokens=max(0, usage.prompt_tokens or 0),
                output_tokens=max(0, usage.completion_tokens or 0),
            )
        said = [self._choice(choice) for choice in choices]
        text = "".join(one.text for one in said)
        reasoning = "".join(one.thought for one in said)
        return ModelDelta(text=text, reasoning=reasoning) if text or reasoning else None

    def end(self, *, is_done: bool) -> ModelDelta:
        """The last piece.

        Raises:
            UpstreamFault: If the reply is not whole.
        """
        if self._finish in _FAILED_REASONS:
            raise UpstreamFault("unavailable", f"its server gave up: {self._finish}", is_busy=True)
        if not (self.is_complete or is_done):
            raise UpstreamFault("unusable", "it ended before it was finished")
        if not all(call.name for call in self._calls):
            raise UpstreamFault("unusable", "a tool call without a name")
        return ModelDelta(
            tool_calls=self._whole_calls(), usage=self._usage, finish_reason=self._reason()
        )

    def _reason(self) -> FinishReason | None:
        told = _FINISH_REASONS.get(self._finish)
        if self._calls and told in {None, "stop"}:
            return "tool_calls"
        return told if told or not self._finish else "stop"

    def _whole_calls(self) -> tuple[ToolCall, ...]:
        whole: dict[str, ToolCall] = {}
        for call in self._calls:
            # Results are told apart by the id.
            own = call.id if call.id and call.id not in whole else f"call_{uuid.uuid4().hex}"
            arguments = "".join(call.arguments) or "{}"
            whole[own] = ToolCall(id=own, name=call.name, arguments=arguments)
        return tuple(whole.values())

    def _error(self, error: JsonValue) -> UpstreamFault:
        said = self._upstream.quoted(error_message({"error": error}))
        kind = error_kind(error.get("code")) if isinstance(error, dict) else "unavailable"
        detail = f"its server gave up{said}"
        status = 429 if isinstance(error, dict) and str(error.get("code")) == "429" else 0
        return UpstreamFault(kind, detail, is_busy=kind == "unavailable", status=status)

    def _choice(self, choice: _Choice) -> _MessagePart:
        if isinstance(choice.finish_reason, str) and choice.finish_reason:
            self._finish = choice.finish_reason
        self.is_complete |= bool(choice.finish_reason) or choice.message is not None
        said = choice.delta or choice.message or _MessagePart()
        self._thoughts.append(said.reasoning_content or "")
        for piece in said.tool_calls or ():
            if choice.delta is None:  # of an answer in one piece each is a call of its own
                piece.index = len(self._calls)
            self._take_call(piece)
        return said

    def _take_call(self, piece: _ToolCallChunk) -> None:
        call = self._call_of(piece)
        function = piece.function or _Function()
        call.id = piece.id or call.id
        call.name = function.name or call.name
        arguments = function.arguments
        if isinstance(arguments, str):
            call.arguments.append(arguments)
        elif arguments is not None:
            call.arguments.append(json.dumps(arguments, ensure_ascii=False))

    def _call_of(self, piece: _ToolCallChunk) -> _PartialToolCall:
        """The call that a piece goes on with, or a new one.

        Some servers number every call 0, and some number none: then the id tells.
        """
        if piece.index is not None:
            call = self._by_index.get(piece.index)
        else:
            call = self._calls[-1] if self._calls else None
        if call is None or (piece.id and call.id and piece.id != call.id):
            if len(self._calls) == MAX_TOOL_CALLS:
                raise UpstreamFault("unusable", f"more than {MAX_TOOL_CALLS} tool calls")
            call = _PartialToolCall()
            self._calls.append(call)
        if piece.index is not None:
            self._by_index[piece.index] = call
        return call
