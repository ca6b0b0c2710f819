"""Models behind Anthropic's Messages API, or a server that speaks it."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, assert_never

from apexbridge.errors import ModelRejectedError
from apexbridge.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from apexbridge.models.anthropic_response import MessagesResponse
from apexbridge.models.base import ModelDelta, ModelRequest
from apexbridge.models.message_history import ReasoningCache, content_parts, normalize_messages
from apexbridge.models.openai import MAX_RESPONSE_BYTES, error_mapping, parse_arguments
from apexbridge.models.retry import Timeouts, UpstreamFault
from apexbridge.models.sse import SseParser, documents
from apexbridge.models.upstream import Upstream

_INVALID_ID_CHARS = re.compile(r"[^a-zA-Z0-9_-]")
_CONTINUATION = "(The conversation goes on.)"
Blocks = list[dict[str, Any]]


def messages_body(
    request: ModelRequest, messages: Sequence[Message], thoughts: Iterable[str], max_tokens: int
) -> dict[str, Any]:
    """The body of a request; `messages` are in order, `thoughts` stand beside them."""
    system = [message.text for message in messages if isinstance(message, SystemMessage)]
    tools = [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": {"type": "object", **tool.input_schema},
        }
        for tool in request.tools
    ]
    fields: dict[str, Any] = {
        "model": request.model,
        "max_tokens": request.max_output_tokens or max_tokens,
        "stream": True,
        "system": "\n\n".join(system) or None,
        "messages": _serialize_turns(messages, thoughts),
        "tools": tools or None,
        "temperature": request.temperature,
        "stop_sequences": list(request.stop) or None,
        "output_config": _output_config(request) or None,
    }
    told = {name: value for name, value in fields.items() if value is not None}
    return {**told, **request.extra}


def is_supported_format(response_format: Mapping[str, Any] | None) -> bool:
    """Whether a format can be asked for here; one that cannot must not be passed over."""
    match response_format:
        case None | {"type": "text"} | {"type": "json_schema", "json_schema": {"schema": _}}:
            return True
        case _:
            return False


def _output_config(request: ModelRequest) -> dict[str, Any]:
    config: dict[str, Any] = {"effort": request.effort} if request.effort else {}
    if request.response_format and request.response_format["type"] == "json_schema":
        schema = request.response_format["json_schema"]["schema"]
        config["format"] = {"type": "json_schema", "schema": schema}
    return config


def _serialize_turns(messages: Sequence[Message], thoughts: Iterable[str]) -> list[dict[str, Any]]:
    """User and assistant in turns; what tools say is said by the user, before anything else."""
    turns: list[dict[str, Any]] = []
    for message, thought in zip(messages, thoughts, strict=True):
        blocks = _content_blocks(message, thought)
        if not blocks:
            continue
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if not turns or turns[0]["role"] != "user":
        opening: Blocks = [{"type": "text", "text": _CONTINUATION}]
        turns.insert(0, {"role": "user", "content": opening})
    return turns


def _content_blocks(message: Message, thought: str) -> Blocks:
    match message:
        case SystemMessage():
            return []
        case UserMessage():
            return list(map(_content_part, content_parts(message)))
        case AssistantMessage(text=text, tool_calls=calls):
            said: Blocks = [{"type": "text", "text": text.rstrip()}] if text.strip() else []
            before: Blocks = json.loads(thought) if thought else []
            return [*before, *said, *map(_tool_use, calls)]
        case ToolMessage(call_id=call_id, text=text, is_error=is_error):
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": _tool_use_id(call_id)}
            if text.strip():
                result["content"] = text
            return [{**result, "is_error": True} if is_error else result]
        case _:
            assert_never(message)


def _content_part(part: dict[str, Any]) -> dict[str, Any]:
    """A picture as this API writes it; what it does not know it refuses itself."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            head, comma, data = url.partition(",")
            if not (head.startswith("data:") and head.endswith(";base64") and comma):
                return {"type": "image", "source": {"type": "url", "url": url}}
            kind = head.removeprefix("data:").removesuffix(";base64")
            source = {"type": "base64", "media_type": kind, "data": data}
            return {"type": "image", "source": source}
        case _:
            return part


def _tool_use(call: ToolCall) -> dict[str, Any]:
    arguments = parse_arguments(call.arguments)
    return {"type": "tool_use", "id": _tool_use_id(call.id), "name": call.name, "input": arguments}


def _tool_use_id(call_id: str) -> str:
    """Other servers' ids have letters in them that are refused here."""
    return _INVALID_ID_CHARS.sub("_", call_id)


API_VERSION = "2023-06-01"


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
        patience: Timeouts | None = None,
        max_output_tokens: int = 8192,
    ) -> None:
        self._upstream = Upstream(
            base_url,
            api_key=api_key,
            timeout_seconds=timeout_seconds,
            patience=patience,
            key_header="x-api-key",
            headers={"anthropic-version": API_VERSION},
        )
        self._max_output_tokens = max_output_tokens
        self._thoughts = ReasoningCache()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelDelta]]:
        """Open a reply; leaving the block closes the connection.

        Raises:
            ModelUnavailableError: If the server does not answer, is busy, fails or breaks off.
            ModelRejectedError: If it refuses the request; its reason is passed on.
            ModelOutputError: If the answer makes no sense.
        """
        if not is_supported_format(request.response_format):
            detail = "it knows no response_format but json_schema"
            raise ModelRejectedError(detail, name=request.model)
        messages = normalize_messages(request.messages)
        thoughts = self._thoughts.recall(messages)
        answer = self._upstream.streamed(
            "/messages",
            messages_body(request, messages, thoughts, self._max_output_tokens),
            room=MAX_RESPONSE_BYTES,
            blame=error_mapping(request.model),
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
        reply = MessagesResponse(self._upstream)
        async with aclosing(documents(pieces, SseParser())) as told:
            try:
                async for document in told:
                    if delta := reply.take(document):
                        yield delta
            except UpstreamFault as fault:
                if not (reply.is_complete and fault.kind == "unavailable"):
                    raise
        last = reply.end()
        self._thoughts.keep(messages, last.tool_calls, reply.thought)
        yield last
