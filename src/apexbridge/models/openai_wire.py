"""A request as OpenAI writes it, and as the servers want it that take after OpenAI."""

import json
import re
from collections.abc import Iterable, Sequence
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
_MOST_WIRED = 500
_FORGOTTEN = "(not kept)"


def quirks_told(refusal: str) -> frozenset[Quirk]:
    """What a refusal says that its server wants to have otherwise.

    >>> sorted(quirks_told("This model only supports single tool-calls at once!"))
    ['one call']
    """
    return frozenset(name for name, sign in _QUIRKS.items() if sign.search(refusal))


def fields_of(
    request: ModelRequest,
    messages: Sequence[Message],
    *,
    thoughts: Iterable[str] = (),
    quirks: frozenset[Quirk] = frozenset(),
) -> dict[str, Any]:
    """The body of a request; `messages` are in order, `thoughts` stand beside them."""
    fields: dict[str, Any] = {
        "model": request.model,
        "messages": _wire_all(messages, thoughts, quirks),
        "stream": None if request.is_whole else True,
        "stream_options": None if request.is_whole else {"include_usage": True},
        "tools": [_wire_tool(tool) for tool in request.tools] or None,
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


def _wire_all(
    messages: Sequence[Message], thoughts: Iterable[str], quirks: frozenset[Quirk]
) -> list[dict[str, Any]]:
    wired: list[dict[str, Any]] = []
    beside = dict(enumerate(thoughts))
    for at, message in enumerate(messages):
        written = _wire(message)
        if isinstance(message, AssistantMessage) and message.tool_calls:
            thought = beside.get(at) or (_FORGOTTEN if "thoughts" in quirks else "")
            if thought and "no thoughts" not in quirks:
                written["reasoning_content"] = thought
        wired.append(written)
    return _one_by_one(wired) if "one call" in quirks else wired


def _one_by_one(wired: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
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


def _wire(message: Message) -> dict[str, Any]:
    match message:
        case SystemMessage(text=text):
            return {"role": "system", "content": text}
        case UserMessage(text=text, parts=parts):
            return {"role": "user", "content": json.loads(parts) if parts else text}
        case AssistantMessage(text=text, tool_calls=()):
            return {"role": "assistant", "content": text}
        case AssistantMessage(text=text, tool_calls=calls):
            written = [_wire_call(call) for call in calls]
            return {"role": "assistant", "content": text or None, "tool_calls": written}
        case ToolMessage(call_id=call_id, text=text):
            return {"role": "tool", "tool_call_id": call_id, "content": text}
        case _:
            assert_never(message)


def _wire_call(call: ToolCall) -> dict[str, Any]:
    readable = json.dumps(object_of(call.arguments), ensure_ascii=False)
    is_sound = is_object(call.arguments)
    function = {"name": call.name, "arguments": call.arguments if is_sound else readable}
    return {"id": call.id, "type": "function", "function": function}


_wired: dict[int, tuple[ToolSpec, dict[str, Any]]] = {}
"""Tools are the same in every request: the wire form of the latest, by where they are."""


def _wire_tool(tool: ToolSpec) -> dict[str, Any]:
    known = _wired.get(id(tool))
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
    if len(_wired) >= _MOST_WIRED:
        _wired.clear()
    _wired[id(tool)] = (tool, wired)
    return wired


def is_object(arguments: str) -> bool:
    """Whether arguments are what they should be: a JSON object."""
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def object_of(arguments: str) -> dict[str, Any]:
    """Arguments as an object; what cannot be read is in it as text, for servers that read it too.

    >>> object_of('{"a": 1}'), object_of("{a")
    ({'a': 1}, {'unreadable': '{a'})
    """
    return json.loads(arguments) if is_object(arguments) else {"unreadable": arguments}
