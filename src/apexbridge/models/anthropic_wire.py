"""A request as Anthropic's Messages API wants it."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

from apexbridge.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from apexbridge.models.base import ModelRequest
from apexbridge.models.openai_wire import object_of
from apexbridge.models.turns import parts_of

_NOT_IN_AN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_GO_ON = "(The conversation goes on.)"
Blocks = list[dict[str, Any]]


def fields_of(
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
        "messages": _turns(messages, thoughts),
        "tools": tools or None,
        "temperature": request.temperature,
        "stop_sequences": list(request.stop) or None,
        "output_config": _output_config(request) or None,
    }
    told = {name: value for name, value in fields.items() if value is not None}
    return {**told, **request.extra}


def is_known_format(response_format: Mapping[str, Any] | None) -> bool:
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


def _turns(messages: Sequence[Message], thoughts: Iterable[str]) -> list[dict[str, Any]]:
    """User and assistant in turns; what tools say is said by the user, before anything else."""
    turns: list[dict[str, Any]] = []
    for message, thought in zip(messages, thoughts, strict=True):
        blocks = _blocks(message, thought)
        if not blocks:
            continue
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if not turns or turns[0]["role"] != "user":
        opening: Blocks = [{"type": "text", "text": _GO_ON}]
        turns.insert(0, {"role": "user", "content": opening})
    return turns


def _blocks(message: Message, thought: str) -> Blocks:
    match message:
        case SystemMessage():
            return []
        case UserMessage():
            return list(map(_part, parts_of(message)))
        case AssistantMessage(text=text, tool_calls=calls):
            said: Blocks = [{"type": "text", "text": text.rstrip()}] if text.strip() else []
            before: Blocks = json.loads(thought) if thought else []
            return [*before, *said, *map(_call, calls)]
        case ToolMessage(call_id=call_id, text=text, is_error=is_error):
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(call_id)}
            if text.strip():
                result["content"] = text
            return [{**result, "is_error": True} if is_error else result]
        case _:
            assert_never(message)


def _part(part: dict[str, Any]) -> dict[str, Any]:
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


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = object_of(call.arguments)
    return {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": arguments}


def _id(call_id: str) -> str:
    """Other servers' ids have letters in them that are refused here."""
    return _NOT_IN_AN_ID.sub("_", call_id)
