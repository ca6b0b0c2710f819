"""From a client's request to a turn: whose words are new, whose tools there are, what may be."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from apexbridge.agent.turn import TurnLimits, TurnRequest
from apexbridge.errors import RequestError
from apexbridge.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from apexbridge.models.base import ModelRequest
from apexbridge.server.chat.schemas import ChatMessage, ChatRequest, ClientTool, ContentPart
from apexbridge.tools.base import ToolSpec

_SYSTEM_ROLES = frozenset({"system", "developer"})
_LEGACY_FIELDS = frozenset({"functions", "function_call"})
_DEFAULT_STREAMED = ModelRequest(model="", messages=())
_DEFAULT_COMPLETE = ModelRequest(model="", messages=(), is_whole=True)
_MODEL_PARAMETERS = frozenset(
    {
        "reasoning_effort", "max_completion_tokens", "max_tokens", "temperature", "seed", "stop",
        "response_format",
    }
)  # fmt: skip
"""What the model is asked for besides; most requests have none of it."""
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
    """What a caller is held to."""

    limits: TurnLimits
    withheld: frozenset[str]
    model: str
    """What the model is called upstream; empty for the one that settings name."""


def to_turn_request(asked: ChatRequest, bounds: CallerLimits, *, is_kept: bool) -> TurnRequest:
    """What a request asks of the loop; of a conversation that is kept, only what is new.

    Raises:
        RequestError: If a part of it cannot be taken.
    """
    _validate(asked)
    system = [message.text for message in asked.messages if message.role in _SYSTEM_ROLES]
    messages = asked.messages
    if system:
        messages = [message for message in messages if message.role not in _SYSTEM_ROLES]
    if is_kept:
        messages = _new_messages(messages)
    last = messages[-1] if messages and messages[-1].role == "user" else None
    before = messages[:-1] if last else messages
    return TurnRequest(
        text=last.text if last else "",
        parts=_parts(last) if last else "",
        history=tuple(map(_message, before)),
        is_continuation=last is None,
        system="\n\n".join(filter(None, system)) if system or not is_kept else None,
        model=bounds.model,
        skills=tuple(asked.ours.skills),
        client_tools=tuple(map(_spec, asked.tools or ())),
        uses_tools=asked.has_loop,
        template=_model_parameters(asked),
        extra=_extra(asked),
        limits=_limits(asked, bounds.limits),
        denied_tools=bounds.withheld,
    )


def _validate(asked: ChatRequest) -> None:
    if asked.n not in {None, 1}:
        raise RequestError("n: only one reply at a time", param="n")
    if asked.model_extra and (old := _LEGACY_FIELDS & asked.model_extra.keys()):
        name = min(old)
        raise RequestError(f"{name}: write 'tools' and 'tool_choice' instead", param=name)
    for at, message in enumerate(asked.messages):
        if message.role == "tool" and not message.tool_call_id:
            where = f"messages.{at}.tool_call_id"
            raise RequestError(f"{where}: which call does it answer?", param=where)
    if asked.tools and len({tool.function.name for tool in asked.tools}) != len(asked.tools):
        raise RequestError("tools: two have the same name", param="tools")


def _new_messages(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """What comes after the model's last words: the rest is kept here already."""
    last = max((at for at, m in enumerate(messages) if m.role == "assistant"), default=-1)
    new = list(messages[last + 1 :])
    if not new:
        raise RequestError("messages: there is nothing new in it", param="messages")
    return new


def _message(message: ChatMessage) -> Message:
    match message.role:
        case "assistant":
            calls = (
                ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
                for call in message.tool_calls or ()
            )
            return AssistantMessage(text=message.text, tool_calls=tuple(calls))
        case "tool":
            return ToolMessage(call_id=message.tool_call_id or "", text=message.text)
        case _:
            return UserMessage(text=message.text, parts=_parts(message))


def _parts(message: ChatMessage) -> str:
    """All of a message as it came, where it is more than text."""
    if isinstance(message.content, str | None) or all(map(_is_text, message.content)):
        return ""
    return orjson.dumps([part.model_dump(exclude_unset=True) for part in message.content]).decode()


def _is_text(part: ContentPart) -> bool:
    return part.type == "text"


def _spec(tool: ClientTool) -> ToolSpec:
    told = tool.function
    return ToolSpec(
        name=told.name,
        description=told.description or "",
        input_schema=told.parameters or _NO_PARAMETERS,
        strict=told.strict,
    )


def _model_parameters(asked: ChatRequest) -> ModelRequest:
    if _MODEL_PARAMETERS.isdisjoint(asked.model_fields_set):
        return _DEFAULT_STREAMED if asked.stream else _DEFAULT_COMPLETE
    return ModelRequest(
        model="",
        messages=(),
        effort=asked.reasoning_effort,
        max_output_tokens=asked.max_completion_tokens or asked.max_tokens,
        temperature=asked.temperature,
        seed=asked.seed,
        stop=(asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ()),
        response_format=asked.response_format,
        is_whole=not asked.stream,
    )


def _extra(asked: ChatRequest) -> dict[str, Any]:
    """What is not known here, for the model; and how it is to choose among tools."""
    extra = dict(asked.model_extra or {})
    if asked.tool_choice is not None and asked.tools:
        extra["tool_choice"] = asked.tool_choice
    return extra


def _limits(asked: ChatRequest, most: TurnLimits) -> TurnLimits | None:
    """What the client wants, as far as settings allow it."""
    ours = asked.apexbridge
    if ours is None or (ours.rounds is None and ours.tokens is None and ours.seconds is None):
        return None
    return replace(
        most,
        rounds=min(ours.rounds or most.rounds, most.rounds),
        tokens=min(ours.tokens or most.tokens, most.tokens),
        seconds=min(ours.seconds or most.seconds, most.seconds),
    )
