"""Models behind any server that speaks OpenAI's `/chat/completions`."""

import json
import re
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import assert_never

from pydantic import BaseModel, JsonValue, ValidationError

from apexbridge.errors import (
    ModelError,
    ModelOutputError,
    ModelRejectedError,
    ModelUnavailableError,
)
from apexbridge.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from apexbridge.models.base import ModelDelta, ModelRequest, Usage
from apexbridge.models.upstream import Blame, Upstream, reason_of
from apexbridge.tools.base import ToolSpec

MAX_LINE = 1024 * 1024
_ROOM = 32 * 1024 * 1024
_MAX_CALLS = 128
_BEFORE_THE_START = b"\xef\xbb\xbf \t\r\n"
"""A byte order mark and blanks."""
_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
"""A carriage return that came last may be half of a line end."""


class OpenAiModel:
    """Streams replies from `{base_url}/chat/completions`; the address is used as it is given.

    A server that does not answer, is busy or fails is asked twice more, but never once its answer
    has begun. `timeout_seconds` is the longest silence. The first call makes the connection pool,
    which belongs to that call's event loop.
    """

    def __init__(self, base_url: str, *, api_key: str = "", timeout_seconds: float = 60) -> None:
        self._upstream = Upstream(base_url, api_key=api_key, timeout_seconds=timeout_seconds)
        self._refused = set[str]()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelDelta]]:
        """Open a reply; leaving the block closes the connection.

        Raises:
            ModelUnavailableError: If the server does not answer, is busy or fails.
            ModelRejectedError: If it refuses the request; its reason is passed on.
            ModelOutputError: If the answer is cut off or makes no sense.
        """
        blame = Blame(
            name=request.model,
            unavailable=ModelUnavailableError,
            rejected=ModelRejectedError,
            unusable=ModelOutputError,
        )
        async with AsyncExitStack() as stack:
            pieces = await self._begin(request, blame, stack)
            yield await stack.enter_async_context(aclosing(self._deltas(pieces, blame)))

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        await self._upstream.close()

    async def _begin(
        self, request: ModelRequest, blame: Blame, stack: AsyncExitStack
    ) -> AsyncIterator[bytes]:
        """Ask; a field that this server refuses by name is put another way from then on."""
        while True:
            fields = _fields(request, self._refused)
            answer = self._upstream.streamed("/chat/completions", fields, room=_ROOM, blame=blame)
            try:
                return await stack.enter_async_context(answer)
            except ModelRejectedError as error:
                named = {name for sign, name in _REFUSALS.items() if sign in error.message}
                if not named & fields.keys():
                    raise
                self._refused |= named

    async def _deltas(
        self, pieces: AsyncIterator[bytes], blame: Blame
    ) -> AsyncGenerator[ModelDelta]:
        reader, reply = EventReader(), _Reply(blame, self._upstream)
        while not reader.is_done and (piece := await _next(pieces, reply)):
            try:
                documents = reader.feed(piece)
            except ValueError as error:
                raise blame.error("unusable", str(error)) from None
            for document in documents:
                if text := reply.take(document):
                    yield ModelDelta(text=text)
        for document in reader.rest():
            if text := reply.take(document):
                yield ModelDelta(text=text)
        yield reply.end(is_done=reader.is_done)


async def _next(pieces: AsyncIterator[bytes], reply: "_Reply") -> bytes:
    try:
        return await anext(pieces, b"")
    except ModelError:
        if reply.is_complete:  # only the usage can be missing
            return b""
        raise


_REFUSALS = {"max_completion_tokens": "max_tokens", "stream_options": "stream_options"}
"""What a refusal says, and the field it is about."""


def _fields(request: ModelRequest, refused: set[str]) -> dict[str, object]:
    """The request as OpenAI writes it."""
    fields: dict[str, object] = {
        "model": request.model,
        "messages": [_wire(message) for message in request.messages],
        "stream": True,
    }
    if "stream_options" not in refused:
        fields["stream_options"] = {"include_usage": True}
    if request.tools:
        fields["tools"] = [_wire_tool(tool) for tool in request.tools]
    if request.effort:
        fields["reasoning_effort"] = request.effort
    if request.max_output_tokens:
        # Every server knows the old name, except for OpenAI's own with newer models.
        name = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
        fields[name] = request.max_output_tokens
    return fields


def _wire(message: Message) -> dict[str, object]:
    match message:
        case SystemMessage(text=text):
            return {"role": "system", "content": text}
        case UserMessage(text=text):
            return {"role": "user", "content": text}
        case AssistantMessage(text=text, tool_calls=()):
            return {"role": "assistant", "content": text}
        case AssistantMessage(text=text, tool_calls=calls):
            written = [_wire_call(call) for call in calls]
            return {"role": "assistant", "content": text or None, "tool_calls": written}
        case ToolMessage(call_id=call_id, text=text):
            return {"role": "tool", "tool_call_id": call_id, "content": text}
        case _:
            assert_never(message)


def _wire_call(call: ToolCall) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _wire_tool(tool: ToolSpec) -> dict[str, object]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.input_schema),
    }
    return {"type": "function", "function": function}


class EventReader:
    """Cuts bytes, in whatever pieces they come, into JSON documents: one for each `data:` line.

    A body that starts like JSON, or like a web page, is one document, whatever its server calls it.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_one: bool | None = None
        self.is_done = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Take a piece; the documents that are whole by now.

        Raises:
            ValueError: If a line is too long.
        """
        seen = max(0, len(self._rest) - 1)
        self._rest += piece
        if self._is_one is None:
            self._rest, seen = self._rest.lstrip(_BEFORE_THE_START), 0
            if not self._rest:
                return []
            self._is_one = self._rest.startswith((b"{", b"[", b"<"))
        return [] if self._is_one else self._documents(self._lines(seen))

    def rest(self) -> list[bytes]:
        """The document at the end, where its server saved the last line end."""
        rest = bytes(self._rest)
        return [rest] if self._is_one else self._documents([rest])

    def _lines(self, seen: int) -> list[bytes]:
        lines, start = list[bytes](), 0
        for begin, end in [found.span() for found in _LINE_END.finditer(self._rest, seen)]:
            lines.append(bytes(self._rest[start:begin]))
            start = end
        del self._rest[:start]
        if max(len(self._rest), *map(len, lines), 0) > MAX_LINE:
            raise ValueError(f"a line of more than {MAX_LINE} bytes")
        return lines

    def _documents(self, lines: Iterable[bytes]) -> list[bytes]:
        documents = list[bytes]()
        for line in lines:
            name, _, value = line.partition(b":")
            said = value.strip()
            self.is_done |= name == b"data" and said == b"[DONE]"
            if name == b"data" and said and not self.is_done:
                documents.append(said)
        return documents


class _Part(BaseModel):
    text: str | None = None


class _Function(BaseModel):
    name: str | None = None
    arguments: JsonValue = None


class _CallPiece(BaseModel):
    index: int | None = None
    id: str | None = None
    function: _Function = _Function()


class _Said(BaseModel):
    content: str | list[_Part] | None = None
    tool_calls: list[_CallPiece] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text or "" for part in self.content)
        return self.content or ""


class _Choice(BaseModel):
    delta: _Said | None = None
    message: _Said | None = None
    finish_reason: JsonValue = None


class _Tokens(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(BaseModel):
    choices: list[_Choice] | None = None
    usage: _Tokens | None = None
    error: JsonValue = None


@dataclass(slots=True, kw_only=True)
class _Call:
    """A tool call on its way."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])


class _Reply:
    """What a reply comes to: its text at once, its tool calls and its usage at the end."""

    def __init__(self, blame: Blame, upstream: Upstream) -> None:
        self._blame = blame
        self._upstream = upstream
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._usage = Usage()
        self.is_complete = False

    def take(self, document: bytes) -> str:
        """Take a document; the text in it."""
        try:
            chunk = _Chunk.model_validate_json(document)
        except ValidationError:
            raise self._blame.error("unusable", "it is not what a chat model says") from None
        if chunk.error:
            said = self._upstream.quoted(reason_of({"error": chunk.error}))
            raise self._blame.error("unusable", f"its server gave up{said}")
        if chunk.usage:
            self._usage = Usage(
                input_tokens=max(0, chunk.usage.prompt_tokens or 0),
                output_tokens=max(0, chunk.usage.completion_tokens or 0),
            )
        return "".join(self._choice(choice) for choice in chunk.choices or ())

    def end(self, *, is_done: bool) -> ModelDelta:
        """The last piece."""
        if not (self.is_complete or is_done):
            raise self._blame.error("unusable", "it ended before it was finished")
        if not all(call.name for call in self._calls):
            raise self._blame.error("unusable", "a tool call without a name")
        calls = tuple(
            ToolCall(
                id=call.id or f"call_{uuid.uuid4().hex}",  # answers are told apart by it
                name=call.name,
                arguments="".join(call.arguments) or "{}",
            )
            for call in self._calls
        )
        return ModelDelta(tool_calls=calls, usage=self._usage)

    def _choice(self, choice: _Choice) -> str:
        self.is_complete |= bool(choice.finish_reason) or choice.message is not None
        said = choice.delta or choice.message or _Said()
        for piece in said.tool_calls or ():
            self._take_call(piece)
        return said.text

    def _take_call(self, piece: _CallPiece) -> None:
        call = self._call_of(piece)
        call.id = piece.id or call.id
        call.name = piece.function.name or call.name
        arguments = piece.function.arguments
        if isinstance(arguments, str):
            call.arguments.append(arguments)
        elif arguments is not None:
            call.arguments.append(json.dumps(arguments, ensure_ascii=False))

    def _call_of(self, piece: _CallPiece) -> _Call:
        """The call that a piece goes on with, or a new one.

        Some servers number every call 0, and some number none: then the id tells.
        """
        if piece.index is not None:
            call = self._by_index.get(piece.index)
        else:
            call = self._calls[-1] if self._calls else None
        if call is None or (piece.id and call.id and piece.id != call.id):
            if len(self._calls) == _MAX_CALLS:
                raise self._blame.error("unusable", f"more than {_MAX_CALLS} tool calls")
            call = _Call()
            self._calls.append(call)
        if piece.index is not None:
            self._by_index[piece.index] = call
        return call
