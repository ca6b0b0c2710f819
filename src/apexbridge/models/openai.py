"""OpenAI-compatible chat completions: request serialization, server quirks, streaming client."""

import json
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, TypeVar, assert_never

from apexbridge.errors import ModelOutputError, ModelRejectedError, ModelUnavailableError
from apexbridge.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from apexbridge.models.base import ModelDelta, ModelRequest
from apexbridge.models.message_history import ReasoningCache, normalize_messages
from apexbridge.models.openai_response import ChatCompletion
from apexbridge.models.retry import Timeouts
from apexbridge.models.sse import SseParser, all_documents, batches
from apexbridge.models.upstream import Upstream
from apexbridge.models.upstream_errors import ErrorMapping, UpstreamFault
from apexbridge.tools.base import ToolSpec

Quirk = str
"""A deviation from OpenAI's API, by a key of `_QUIRKS`; `no x` means that field x is left out."""
_QUIRKS: dict[Quirk, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "max_completion_tokens": "max_completion_tokens",
        "no stream_options": "stream_options",
        "no reasoning_effort": "reasoning_effort",
        "no temperature": "temperature",
        "no seed": r"\bseed\b",
        "reasoning": r"reasoning_content.*(must|missing|passed back)",
        "no reasoning": r"reasoning_content(?!.*(must|missing|passed back))",
        "one call": r"single tool.?call|parallel tool|(multiple|one|more than one) tool.?calls?\b",
    }.items()
}
_MAX_CACHED_TOOLS = 500
_MISSING_REASONING = "(not kept)"


def detect_quirks(message: str) -> frozenset[Quirk]:
    """Detect by a server's error message which fields it wants to have otherwise.

    >>> sorted(detect_quirks("This model only supports single tool-calls at once!"))
    ['one call']
    """
    return frozenset(name for name, pattern in _QUIRKS.items() if pattern.search(message))


def chat_completion_body(
    request: ModelRequest,
    messages: Sequence[Message],
    *,
    reasoning: Iterable[str] = (),
    quirks: frozenset[Quirk] = frozenset(),
) -> dict[str, Any]:
    """Serialize a request; `messages` are normalized, `reasoning` has one entry per message."""
    fields: dict[str, Any] = {
        "model": request.model,
        "messages": _serialize_messages(messages, reasoning, quirks),
        "stream": None if request.is_whole else True,
        "stream_options": None if request.is_whole else {"include_usage": True},
        "tools": [_serialize_tool(tool) for tool in request.tools] or None,
        "reasoning_effort": request.effort or None,
        "temperature": request.temperature,
        "seed": request.seed,
        "stop": list(request.stop) or None,
        "response_format": request.response_format and dict(request.response_format),
    }
    # All servers know the old name, except for OpenAI's with newer models.
    new_name = "max_completion_tokens"
    fields[new_name if new_name in quirks else "max_tokens"] = request.max_output_tokens or None
    left_out = {quirk.removeprefix("no ") for quirk in quirks if quirk.startswith("no ")}
    body = {
        name: value for name, value in fields.items() if value is not None and name not in left_out
    }
    return {**body, **request.extra}


def _serialize_messages(
    messages: Sequence[Message], reasoning: Iterable[str], quirks: frozenset[Quirk]
) -> list[dict[str, Any]]:
    serialized: list[dict[str, Any]] = []
    by_message = dict(enumerate(reasoning))
    for at, message in enumerate(messages):
        fields = _serialize_message(message)
        if isinstance(message, AssistantMessage) and message.tool_calls:
            text = by_message.get(at) or (_MISSING_REASONING if "reasoning" in quirks else "")
            if text and "no reasoning" not in quirks:
                fields["reasoning_content"] = text
        serialized.append(fields)
    return _one_call_per_message(serialized) if "one call" in quirks else serialized


def _one_call_per_message(serialized: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Split parallel tool calls into messages with one call each, followed by its result."""
    results = [fields for fields in serialized if fields["role"] == "tool"]
    split: list[dict[str, Any]] = []
    for fields in serialized:
        calls: list[Any] = fields.get("tool_calls", [])
        if fields["role"] != "tool" and not calls:
            split.append(fields)
        for number, call in enumerate(calls):
            message = fields if number == 0 else {**fields, "content": None}
            split += [{**message, "tool_calls": [call]}, results.pop(0)]
    return split


def _serialize_message(message: Message) -> dict[str, Any]:
    match message:
        case SystemMessage(text=text):
            return {"role": "system", "content": text}
        case UserMessage(text=text, parts=parts):
            return {"role": "user", "content": json.loads(parts) if parts else text}
        case AssistantMessage(text=text, tool_calls=()):
            return {"role": "assistant", "content": text}
        case AssistantMessage(text=text, tool_calls=calls):
            serialized = [_serialize_call(call) for call in calls]
            return {"role": "assistant", "content": text or None, "tool_calls": serialized}
        case ToolMessage(call_id=call_id, text=text):
            return {"role": "tool", "tool_call_id": call_id, "content": text}
        case _:
            assert_never(message)


def _serialize_call(call: ToolCall) -> dict[str, Any]:
    # Some servers parse the arguments of past calls and fail on broken JSON.
    is_valid = is_json_object(call.arguments)
    repaired = json.dumps(parse_arguments(call.arguments), ensure_ascii=False)
    function = {"name": call.name, "arguments": call.arguments if is_valid else repaired}
    return {"id": call.id, "type": "function", "function": function}


_serialized_tools: dict[int, tuple[ToolSpec, dict[str, Any]]] = {}
"""Cache by object identity: a tool is the same object in every request."""


def _serialize_tool(tool: ToolSpec) -> dict[str, Any]:
    cached = _serialized_tools.get(id(tool))
    if cached is not None and cached[0] is tool:  # an id is reused after garbage collection
        return cached[1]
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.input_schema),
    }
    if tool.strict is not None:
        function["strict"] = tool.strict
    serialized: dict[str, Any] = {"type": "function", "function": function}
    if len(_serialized_tools) >= _MAX_CACHED_TOOLS:
        _serialized_tools.clear()
    _serialized_tools[id(tool)] = (tool, serialized)
    return serialized


def is_json_object(arguments: str) -> bool:
    """Say whether the arguments of a tool call are a JSON object, as they should be."""
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def parse_arguments(arguments: str) -> dict[str, Any]:
    """Parse the arguments of a tool call; broken JSON is kept as text under one key.

    >>> parse_arguments('{"a": 1}'), parse_arguments("{a")
    ({'a': 1}, {'unreadable': '{a'})
    """
    return json.loads(arguments) if is_json_object(arguments) else {"unreadable": arguments}


MAX_RESPONSE_BYTES = 32 * 1024 * 1024
"""Size limit of a response body."""
_CHAT_COMPLETIONS_PATH = "/chat/completions"
T = TypeVar("T")


class OpenAiModel:
    """Client for `{base_url}/chat/completions`; the URL is used as it is given.

    Transient faults are retried with backoff, but not after the first delta. `timeout_seconds` is
    the longest silence; `timeouts` are more precise. The first call creates the connection pool,
    which belongs to its event loop.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "",
        timeout_seconds: float = 60,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._upstream = Upstream(
            base_url, api_key=api_key, timeout_seconds=timeout_seconds, timeouts=timeouts
        )
        self._quirks: dict[str, frozenset[Quirk]] = {}
        self._reasoning = ReasoningCache()

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelDelta]]:
        """Open a stream of deltas; leaving the block closes the connection.

        Raises:
            ModelUnavailableError: If the server cannot be reached, is overloaded or breaks off.
            ModelRejectedError: If it refuses the request; its message is quoted.
            ModelOutputError: If the response is malformed.
        """
        errors = error_mapping(request.model)
        if request.is_whole:
            send = partial(self._complete, errors)
            return _BufferedStream(partial(self._send_with_quirks, request, send))
        return self._stream(request, errors)

    @asynccontextmanager
    async def _stream(
        self, request: ModelRequest, errors: ErrorMapping
    ) -> AsyncGenerator[AsyncIterator[ModelDelta]]:
        async with AsyncExitStack() as stack:
            send = partial(self._open_stream, errors, stack)
            yield await self._send_with_quirks(request, send)

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        await self._upstream.close()

    async def _complete(
        self, errors: ErrorMapping, messages: Sequence[Message], body: Mapping[str, Any]
    ) -> Sequence[ModelDelta]:
        """Request a completion that is not streamed."""

        def parse(data: bytes) -> list[ModelDelta]:
            parser, response = SseParser(), ChatCompletion(self._upstream)
            documents = all_documents(data, parser)
            if len(documents) == 1:
                deltas = map(response.add_completion, documents)
            else:  # some servers stream in spite of `stream: false`
                deltas = response.add_chunks(documents)
            return [*filter(None, deltas), self._finish(messages, response, parser)]

        return await self._upstream.post(
            _CHAT_COMPLETIONS_PATH, body, max_bytes=MAX_RESPONSE_BYTES, errors=errors, parse=parse
        )

    async def _open_stream(
        self,
        errors: ErrorMapping,
        stack: AsyncExitStack,
        messages: Sequence[Message],
        body: Mapping[str, Any],
    ) -> AsyncIterator[ModelDelta]:
        """Request a streamed completion; `stack` closes it."""
        parse = partial(self._deltas, messages)
        opened = self._upstream.stream(
            _CHAT_COMPLETIONS_PATH, body, max_bytes=MAX_RESPONSE_BYTES, errors=errors, parse=parse
        )
        return await stack.enter_async_context(opened)

    async def _send_with_quirks(
        self,
        request: ModelRequest,
        send: Callable[[Sequence[Message], Mapping[str, Any]], Awaitable[T]],
    ) -> T:
        """Send a request; learn from a rejection what this model wants otherwise, and resend."""
        messages = normalize_messages(request.messages)
        reasoning = list(self._reasoning.recall(messages))
        quirks = self._quirks.get(request.model, frozenset())
        body = chat_completion_body(request, messages, reasoning=reasoning, quirks=quirks)
        while True:
            try:
                result = await send(messages, body)
            except ModelRejectedError as error:
                quirks |= detect_quirks(error.message)
                other = chat_completion_body(request, messages, reasoning=reasoning, quirks=quirks)
                if other == body:
                    raise
                body = other
            else:
                self._quirks[request.model] = quirks
                return result

    async def _deltas(
        self, messages: Sequence[Message], chunks: AsyncIterator[bytes]
    ) -> AsyncGenerator[ModelDelta]:
        parser, response = SseParser(), ChatCompletion(self._upstream)
        async with aclosing(batches(chunks, parser)) as found:
            try:
                async for batch in found:
                    for delta in response.add_chunks(batch):
                        yield delta
            except UpstreamFault as fault:
                if not (response.is_complete and fault.kind == "unavailable"):
                    raise  # after a finish reason, only the usage can be missing
        yield self._finish(messages, response, parser)

    def _finish(
        self, messages: Sequence[Message], response: ChatCompletion, parser: SseParser
    ) -> ModelDelta:
        last = response.finish(is_done=parser.is_done)
        self._reasoning.store(messages, last.tool_calls, response.reasoning)
        return last


class _BufferedStream:
    """Async context manager over a complete response: there is nothing to close after it."""

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[], Awaitable[Sequence[ModelDelta]]]) -> None:
        self._send = send

    async def __aenter__(self) -> AsyncIterator[ModelDelta]:
        return _iterate(await self._send())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


async def _iterate(deltas: Sequence[ModelDelta]) -> AsyncGenerator[ModelDelta]:
    for delta in deltas:
        yield delta


@lru_cache(maxsize=64)
def error_mapping(model: str) -> ErrorMapping:
    """Map faults to the errors of a model."""
    return ErrorMapping(
        name=model,
        unavailable=ModelUnavailableError,
        rejected=ModelRejectedError,
        unusable=ModelOutputError,
    )
