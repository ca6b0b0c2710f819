"""Models behind any server that speaks OpenAI's `/chat/completions`."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
)
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, TypeVar

from apexbridge.errors import ModelOutputError, ModelRejectedError, ModelUnavailableError
from apexbridge.messages import Message
from apexbridge.models.base import ModelDelta, ModelRequest
from apexbridge.models.openai_reply import Reply
from apexbridge.models.openai_wire import Quirk, fields_of, quirks_told
from apexbridge.models.sse import EventReader, all_documents, batches
from apexbridge.models.thoughts import Thoughts
from apexbridge.models.trying import Blame, Fault, Patience
from apexbridge.models.turns import mended
from apexbridge.models.upstream import Upstream

ROOM = 32 * 1024 * 1024
"""Bytes of the longest answer."""
_PATH = "/chat/completions"
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
        patience: Patience | None = None,
    ) -> None:
        self._upstream = Upstream(
            base_url, api_key=api_key, timeout_seconds=timeout_seconds, patience=patience
        )
        self._quirks: dict[str, frozenset[Quirk]] = {}
        self._thoughts = Thoughts()

    def stream(
        self, request: ModelRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[ModelDelta]]:
        """Open a reply; leaving the block closes the connection.

        Raises:
            ModelUnavailableError: If the server does not answer, is busy, fails or breaks off.
            ModelRejectedError: If it refuses the request; its reason is passed on.
            ModelOutputError: If the answer makes no sense.
        """
        blame = blame_for(request.model)
        if request.is_whole:
            return _Whole(partial(self._asked, request, partial(self._whole, blame)))
        return self._streamed(request, blame)

    @asynccontextmanager
    async def _streamed(
        self, request: ModelRequest, blame: Blame
    ) -> AsyncGenerator[AsyncIterator[ModelDelta]]:
        async with AsyncExitStack() as stack:
            begin = partial(self._begin, blame, stack)
            yield await self._asked(request, begin)

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        await self._upstream.close()

    async def _whole(
        self,
        blame: Blame,
        messages: Sequence[Message],
        fields: Mapping[str, Any],
    ) -> Sequence[ModelDelta]:
        """Ask for an answer in one piece."""

        def read(data: bytes) -> list[ModelDelta]:
            reader, reply = EventReader(), Reply(self._upstream)
            documents = all_documents(data, reader)
            is_one = len(documents) == 1  # as it should be; some send pieces nevertheless
            deltas = map(reply.take_whole, documents) if is_one else reply.take_all(documents)
            return [*filter(None, deltas), self._last(messages, reply, reader)]

        return await self._upstream.answer(_PATH, fields, room=ROOM, blame=blame, read=read)

    async def _begin(
        self,
        blame: Blame,
        stack: AsyncExitStack,
        messages: Sequence[Message],
        fields: Mapping[str, Any],
    ) -> AsyncIterator[ModelDelta]:
        """Ask for an answer as it comes."""
        read = partial(self._deltas, messages)
        answer = self._upstream.streamed(_PATH, fields, room=ROOM, blame=blame, read=read)
        return await stack.enter_async_context(answer)

    async def _asked(
        self,
        request: ModelRequest,
        ask: Callable[[Sequence[Message], Mapping[str, Any]], Awaitable[T]],
    ) -> T:
        """Ask; what this server refuses by name is put another way from then on."""
        messages = mended(request.messages)
        thoughts = list(self._thoughts.recall(messages))
        quirks = self._quirks.get(request.model, frozenset())
        fields = fields_of(request, messages, thoughts=thoughts, quirks=quirks)
        while True:
            try:
                deltas = await ask(messages, fields)
            except ModelRejectedError as error:
                quirks |= quirks_told(error.message)
                other = fields_of(request, messages, thoughts=thoughts, quirks=quirks)
                if other == fields:
                    raise
                fields = other
            else:
                self._quirks[request.model] = quirks
                return deltas

    async def _deltas(
        self, messages: Sequence[Message], pieces: AsyncIterator[bytes]
    ) -> AsyncGenerator[ModelDelta]:
        reader, reply = EventReader(), Reply(self._upstream)
        async with aclosing(batches(pieces, reader)) as told:
            try:
                async for batch in told:
                    for delta in reply.take_all(batch):
                        yield delta
            except Fault as fault:
                if not (reply.is_complete and fault.kind == "unavailable"):
                    raise  # else only the usage can be missing
        yield self._last(messages, reply, reader)

    def _last(self, messages: Sequence[Message], reply: Reply, reader: EventReader) -> ModelDelta:
        last = reply.end(is_done=reader.is_done)
        self._thoughts.keep(messages, last.tool_calls, reply.thought)
        return last


class _Whole:
    """A reply in one piece: all is there when the block begins, and nothing to close after it."""

    __slots__ = ("_ask",)

    def __init__(self, ask: Callable[[], Awaitable[Sequence[ModelDelta]]]) -> None:
        self._ask = ask

    async def __aenter__(self) -> AsyncIterator[ModelDelta]:
        return _each(await self._ask())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass


async def _each(deltas: Sequence[ModelDelta]) -> AsyncGenerator[ModelDelta]:
    for delta in deltas:
        yield delta


@lru_cache(maxsize=64)
def blame_for(model: str) -> Blame:
    """The errors of a model."""
    return Blame(
        name=model,
        unavailable=ModelUnavailableError,
        rejected=ModelRejectedError,
        unusable=ModelOutputError,
    )
