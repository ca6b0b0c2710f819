"""Models behind Anthropic's Messages API, or a server that speaks it."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial

from apexbridge.errors import ModelRejectedError
from apexbridge.messages import Message
from apexbridge.models.anthropic_reply import Reply
from apexbridge.models.anthropic_wire import fields_of, is_known_format
from apexbridge.models.base import ModelDelta, ModelRequest
from apexbridge.models.openai_compat import ROOM, blame_for
from apexbridge.models.sse import EventReader, documents
from apexbridge.models.thoughts import Thoughts
from apexbridge.models.trying import Fault, Patience
from apexbridge.models.turns import mended
from apexbridge.models.upstream import Upstream

VERSION = "2023-06-01"


class AnthropicModel:
    """Streams replies from `{base_url}/messages`; the address is used as it is given.

    Faults and second tries are as with `OpenAiModel`. `max_output_tokens` is asked for where a
    request does not say: the server wants a number. A `seed` is not known here and not sent.
    """

    def __init__(
        self,
        base_url: str = "https://api.anthropic.com/v1",
        *,
        api_key: str = "",
        timeout_seconds: float = 60,
        patience: Patience | None = None,
        max_output_tokens: int = 8192,
    ) -> None:
        self._upstream = Upstream(
            base_url,
            api_key=api_key,
            timeout_seconds=timeout_seconds,
            patience=patience,
            key_header="x-api-key",
            headers={"anthropic-version": VERSION},
        )
        self._max_output_tokens = max_output_tokens
        self._thoughts = Thoughts()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelDelta]]:
        """Open a reply; leaving the block closes the connection.

        Raises:
            ModelUnavailableError: If the server does not answer, is busy, fails or breaks off.
            ModelRejectedError: If it refuses the request; its reason is passed on.
            ModelOutputError: If the answer makes no sense.
        """
        if not is_known_format(request.response_format):
            detail = "it knows no response_format but json_schema"
            raise ModelRejectedError(detail, name=request.model)
        messages = mended(request.messages)
        thoughts = self._thoughts.recall(messages)
        answer = self._upstream.streamed(
            "/messages",
            fields_of(request, messages, thoughts, self._max_output_tokens),
            room=ROOM,
            blame=blame_for(request.model),
            read=partial(self._deltas, messages),
        )
        async with answer as deltas:
            yield deltas

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        await self._upstream.close()

    async def _deltas(
        self, messages: Sequence[Message], pieces: AsyncIterator[bytes]
    ) -> AsyncGenerator[ModelDelta]:
        reply = Reply(self._upstream)
        async with aclosing(documents(pieces, EventReader())) as told:
            try:
                async for document in told:
                    if delta := reply.take(document):
                        yield delta
            except Fault as fault:
                if not (reply.is_complete and fault.kind == "unavailable"):
                    raise
        last = reply.end()
        self._thoughts.keep(messages, last.tool_calls, reply.thought)
        yield last
