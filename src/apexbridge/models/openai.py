"""A request as OpenAI writes it, and as the servers want it that take after OpenAI."""

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
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
)
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
from apexbridge.models.retry import ErrorMapping, Timeouts, UpstreamFault
from apexbridge.models.sse import SseParser, all_documents, batches
from apexbridge.models.upstream import Upstream
from apexbridge.tools.base import ToolSpec

Quirk = str
_QUIRKS: dict[Quirk, re.Pattern[str]] = {
    name: re.compile(sign, re.IGNORECASE)
    for name, sign in {
        "max_completion_tokens": "max_completion_tokens",
        "no stream_options": "stream_options",
        "no reasoning_effort": "reasoning_effort",
        "no temperature": "temperature",
        "no seed": r"\bseed\b",
        "thoughts": r"reasoning_content.*(must|missing|passed back)",
        "no thoughts": r"reasoning_content(?!.*(must|missing|passed back))",
        "one call": r"single tool.?call|parallel tool|(multiple|one|more than one) tool.?calls?\b",
    }.items()
}
_MAX_CACHED_TOOLS = 500
_MISSING_REASONING = "(not kept)"


def detect_quirks(refusal: str) -> frozenset[Quirk]:
    """What a refusal says that its server wants to have otherwise.

    >>> sorted(detect_quirks("This model only supports single tool-calls at once!"))
    ['one call']
    """
    return frozenset(name for name, sign in _QUIRKS.items() if sign.search(refusal))


def chat_completion_body(
    request: ModelRequest,
    messages: Sequence[Message],
    *,
    thoughts: Iterable[str] = (),
    quirks: frozenset[Quirk] = frozenset(),
) -> dict[str, Any]:
    """The body of a request; `messages` are in order, `thoughts` stand beside them."""
    fields: dict[str, Any] = {
        "model": request.model,
        "messages": _serialize_messages(messages, thoughts, quirks),
        "stream": None if request.is_whole else True,
        "stream_options": None if request.is_whole else {"include_usage": True},
        "tools": [_serialize_tool(tool) for tool in request.tools] or None,
        "reasoning_effort": request.effort or None,
        "temperature": request.temperature,
        "seed": request.seed,
        "stop": list(request.stop) or None,
        "response_format": request.response_format and dict(request.response_format),
    }
    # Every server knows the old name, except for OpenAI's own with newer models.
    new_name = "max_completion_tokens"
    fields[new_name if new_name in quirks else "max_tokens"] = request.max_output_tokens or None
    left_out = {quirk.removeprefix("no ") for quirk in quirks if quirk.startswith("no ")}
    told = {
        name: value for name, value in fields.items() if value is not None and name not in left_out
    }
    return {**told, **request.extra}


def _serialize_messages(
    messages: Sequence[Message], thoughts: Iterable[str], quirks: frozenset[Quirk]
) -> list[dict[str, Any]]:
    wired: list[dict[str, Any]] = []
    beside = dict(enumerate(thoughts))
    for at, message in enumerate(messages):
        written = _serialize_message(message)
        if isinstance(message, AssistantMessage) and message.tool_calls:
            thought = beside.get(at) or (_MISSING_REASONING if "thoughts" in quirks else "")
            if thought and "no thoughts" not in quirks:
                written["reasoning_content"] = thought
        wired.append(written)
    return _one_call_a_message(wired) if "one call" in quirks else wired


def _one_call_a_message(wired: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Several calls in one message as several messages, each with its result behind it."""
    results = [written for written in wired if written["role"] == "tool"]
    alone: list[dict[str, Any]] = []
    for written in wired:
        calls: list[Any] = written.get("tool_calls", [])
        if written["role"] != "tool" and not calls:
            alone.append(written)
        for number, call in enumerate(calls):
            spoken = written if number == 0 else {**written, "content": None}
            alone += [{**spoken, "tool_calls": [call]}, results.pop(0)]
    return alone


def _serialize_message(message: Message) -> dict[str, Any]:
    match message:
        case SystemMessage(text=text):
            return {"role": "system", "content": text}
        case UserMessage(text=text, parts=parts):
            return {"role": "user", "content": json.loads(parts) if parts else text}
        case AssistantMessage(text=text, tool_calls=()):
            return {"role": "assistant", "content": text}
        case AssistantMessage(text=text, tool_calls=calls):
            written = [_serialize_call(call) for call in calls]
            return {"role": "assistant", "content": text or None, "tool_calls": written}
        case ToolMessage(call_id=call_id, text=text):
            return {"role": "tool", "tool_call_id": call_id, "content": text}
        case _:
            assert_never(message)


def _serialize_call(call: ToolCall) -> dict[str, Any]:
    readable = json.dumps(parse_arguments(call.arguments), ensure_ascii=False)
    is_sound = is_json_object(call.arguments)
    function = {"name": call.name, "arguments": call.arguments if is_sound else readable}
    return {"id": call.id, "type": "function", "function": function}


_serialized_tools: dict[int, tuple[ToolSpec, dict[str, Any]]] = {}
"""Tools are the same in every request: the wire form of the latest, by where they are."""


def _serialize_tool(tool: ToolSpec) -> dict[str, Any]:
    known = _serialized_tools.get(id(tool))
    if known is not None and known[0] is tool:
        return known[1]
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.input_schema),
    }
    if tool.strict is not None:
        function["strict"] = tool.strict
    wired: dict[str, Any] = {"type": "function", "function": function}
    if len(_serialized_tools) >= _MAX_CACHED_TOOLS:
        _serialized_tools.clear()
    _serialized_tools[id(tool)] = (tool, wired)
    return wired


def is_json_object(arguments: str) -> bool:
    """Whether arguments are what they should be: a JSON object."""
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def parse_arguments(arguments: str) -> dict[str, Any]:
    """Arguments as an object; what cannot be read is in it as text, for servers that read it too.

    >>> parse_arguments('{"a": 1}'), parse_arguments("{a")
    ({'a': 1}, {'unreadable': '{a'})
    """
    return json.loads(arguments) if is_json_object(arguments) else {"unreadable": arguments}


MAX_RESPONSE_BYTES = 32 * 1024 * 1024
"""Bytes of the longest answer."""
_CHAT_COMPLETIONS_PATH = "/chat/completions"
T = TypeVar("T")


class OpenAiModel:
    """Streams replies from `{base_url}/chat/completions`; the address is used as it is given.

    A server that does not answer, is busy or fails is asked again, but never once its reply has
    begun. `timeout_seconds` is the longest silence; a `patience` says more. The first call makes
    the connection pool, which belongs to that call's event loop.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str = "",
        timeout_seconds: float = 60,
        patience: Timeouts | None = None,
    ) -> None:
        self._upstream = Upstream(
            base_url, api_key=api_key, timeout_seconds=timeout_seconds, patience=patience
        )
        self._quirks: dict[str, frozenset[Quirk]] = {}
        self._thoughts = ReasoningCache()

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelDelta]]:
        """Open a reply; leaving the block closes the connection.

        Raises:
            ModelUnavailableError: If the server does not answer, is busy, fails or breaks off.
            ModelRejectedError: If it refuses the request; its reason is passed on.
            ModelOutputError: If the answer makes no sense.
        """
        blame = error_mapping(request.model)
        if request.is_whole:
            return _BufferedStream(partial(self._asked, request, partial(self._whole, blame)))
        return self._streamed(request, blame)

    @asynccontextmanager
    async def _streamed(
        self, request: ModelRequest, blame: ErrorMapping
    ) -> AsyncGenerator[AsyncIterator[ModelDelta]]:
        async with AsyncExitStack() as stack:
            begin = partial(self._begin, blame, stack)
            yield await self._asked(request, begin)

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        await self._upstream.close()

    async def _whole(
        self,
        blame: ErrorMapping,
        messages: Sequence[Message],
        fields: Mapping[str, Any],
    ) -> Sequence[ModelDelta]:
        """Ask for an answer in one piece."""

        def read(data: bytes) -> list[ModelDelta]:
            reader, reply = SseParser(), ChatCompletion(self._upstream)
            documents = all_documents(data, reader)
            is_one = len(documents) == 1  # as it should be; some send pieces nevertheless
            deltas = map(reply.take_whole, documents) if is_one else reply.take_all(documents)
            return [*filter(None, deltas), self._last(messages, reply, reader)]

        return await self._upstream.answer(
            _CHAT_COMPLETIONS_PATH, fields, room=MAX_RESPONSE_BYTES, blame=blame, read=read
        )

    async def _begin(
        self,
        blame: ErrorMapping,
        stack: AsyncExitStack,
        messages: Sequence[Message],
        fields: Mapping[str, Any],
    ) -> AsyncIterator[ModelDelta]:
        """Ask for an answer as it comes."""
        read = partial(self._deltas, messages)
        answer = self._upstream.streamed(
            _CHAT_COMPLETIONS_PATH, fields, room=MAX_RESPONSE_BYTES, blame=blame, read=read
        )
        return await stack.enter_async_context(answer)

    async def _asked(
        self,
        request: ModelRequest,
        ask: Callable[[Sequence[Message], Mapping[str, Any]], Awaitable[T]],
    ) -> T:
        """Ask; what this server refuses by name is put another way from then on."""
        messages = normalize_messages(request.messages)
        thoughts = list(self._thoughts.recall(messages))
        quirks = self._quirks.get(request.model, frozenset())
        fields = chat_completion_body(request, messages, thoughts=thoughts, quirks=quirks)
        while True:
            try:
                deltas = await ask(messages, fields)
            except ModelRejectedError as error:
                quirks |= detect_quirks(error.message)
                other = chat_completion_body(request, messages, thoughts=thoughts, quirks=quirks)
                if other == fields:
                    raise
                fields = other
            else:
                self._quirks[request.model] = quirks
                return deltas

    async def _deltas(
        self, messages: Sequence[Message], pieces: AsyncIterator[bytes]
    ) -> AsyncGenerator[ModelDelta]:
        reader, reply = SseParser(), ChatCompletion(self._upstream)
        async with aclosing(batches(pieces, reader)) as told:
            try:
                async for batch in told:
                    for delta in reply.take_all(batch):
                        yield delta
            except UpstreamFault as fault:
                if not (reply.is_complete and fault.kind == "unavailable"):
                    raise  # else only the usage can be missing
        yield self._last(messages, reply, reader)

    def _last(
        self, messages: Sequence[Message], reply: ChatCompletion, reader: SseParser
    ) -> ModelDelta:
        last = reply.end(is_done=reader.is_done)
        self._thoughts.keep(messages, last.tool_calls, reply.thought)
        return last


class _BufferedStream:
    """A reply in one piece: all is there when the block begins, and nothing to close after it."""

    __slots__ = ("_ask",)

    def __init__(self, ask: Callable[[], Awaitable[Sequence[ModelDelta]]]) -> None:
        self._ask = ask

    async def __aenter__(self) -> AsyncIterator[ModelDelta]:
        return _iterate(await self._ask())

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
    """The errors of a model."""
    return ErrorMapping(
        name=model,
        unavailable=ModelUnavailableError,
        rejected=ModelRejectedError,
        unusable=ModelOutputError,
    )
