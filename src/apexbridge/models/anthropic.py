"""Anthropic Messages API: request serialization and streaming client."""

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
from apexbridge.models.retry import Timeouts
from apexbridge.models.sse import SseParser, documents
from apexbridge.models.upstream import Upstream
from apexbridge.models.upstream_errors import UpstreamFault

_INVALID_ID_CHARS = re.compile(r"[^a-zA-Z0-9_-]")
_CONTINUATION = "(The conversation goes on.)"
Blocks = list[dict[str, Any]]


def messages_body(
    request: ModelRequest, messages: Sequence[Message], reasoning: Iterable[str], max_tokens: int
) -> dict[str, Any]:
    """Serialize a request; `messages` are normalized, `reasoning` has one entry per message."""
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
        "messages": _serialize_turns(messages, reasoning),
        "tools": tools or None,
        "temperature": request.temperature,
        "stop_sequences": list(request.stop) or None,
        "output_config": _output_config(request) or None,
    }
    body = {name: value for name, value in fields.items() if value is not None}
    return {**body, **request.extra}


def is_supported_format(response_format: Mapping[str, Any] | None) -> bool:
    """Say whether the API has a response format; an unknown one must not be ignored silently."""
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


def _serialize_turns(messages: Sequence[Message], reasoning: Iterable[str]) -> list[dict[str, Any]]:
    """Alternate user and assistant turns; tool results come first in a user turn."""
    turns: list[dict[str, Any]] = []
    for message, thinking in zip(messages, reasoning, strict=True):
        blocks = _content_blocks(message, thinking)
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


def _content_blocks(message: Message, thinking: str) -> Blocks:
    match message:
        case SystemMessage():
            return []
        case UserMessage():
            return list(map(_content_part, content_parts(message)))
        case AssistantMessage(text=text, tool_calls=calls):
            # The API refuses text that ends with white space.
            texts: Blocks = [{"type": "text", "text": text.rstrip()}] if text.strip() else []
            before: Blocks = json.loads(thinking) if thinking else []
            return [*before, *texts, *map(_tool_use, calls)]
        case ToolMessage(call_id=call_id, text=text, is_error=is_error):
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": _tool_use_id(call_id)}
            if text.strip():
                result["content"] = text
            return [{**result, "is_error": True} if is_error else result]
        case _:
            assert_never(message)


def _content_part(part: dict[str, Any]) -> dict[str, Any]:
    """Convert an image from OpenAI's format; other parts are passed on for the API to check."""
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
    """Replace characters that other servers use in ids and this API refuses."""
    return _INVALID_ID_CHARS.sub("_", call_id)


API_VERSION = "2023-06-01"


class AnthropicModel:
    """Client for `{base_url}/messages`; the URL is used as it is given.

    Errors and retries are those of `OpenAiModel`. `max_output_tokens` is the default for requests
    that have none, because the API requires it. The API has no `seed`, so that none is sent.
    """

    def __init__(
        self,
        base_url: str = "https://api.anthropic.com/v1",
        *,
        api_key: str = "",
        timeout_seconds: float = 60,
        timeouts: Timeouts | None = None,
        max_output_tokens: int = 8192,
    ) -> None:
        self._upstream = Upstream(
            base_url,
            api_key=api_key,
            timeout_seconds=timeout_seconds,
            timeouts=timeouts,
            key_header="x-api-key",
            headers={"anthropic-version": API_VERSION},
        )
        self._max_output_tokens = max_output_tokens
        self._reasoning = ReasoningCache()

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelDelta]]:
        """Open a stream of deltas; leaving the block closes the connection."""
        if not is_supported_format(request.response_format):
            detail = "its API has no response_format but json_schema"
            raise ModelRejectedError(detail, name=request.model)
        messages = normalize_messages(request.messages)
        reasoning = self._reasoning.recall(messages)
        opened = self._upstream.stream(
            "/messages",
            messages_body(request, messages, reasoning, self._max_output_tokens),
            max_bytes=MAX_RESPONSE_BYTES,
            errors=error_mapping(request.model),
            parse=partial(self._deltas, messages),
        )
        async with opened as deltas:
            yield deltas

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        await self._upstream.close()

    async def _deltas(
        self, messages: Sequence[Message], chunks: AsyncIterator[bytes]
    ) -> AsyncGenerator[ModelDelta]:
        response = MessagesResponse(self._upstream)
        async with aclosing(documents(chunks, SseParser())) as events:
            try:
                async for event in events:
                    if delta := response.add(event):
                        yield delta
            except UpstreamFault as fault:
                if not (response.is_complete and fault.kind == "unavailable"):
                    raise
        last = response.finish()
        self._reasoning.store(messages, last.tool_calls, response.reasoning)
        yield last
