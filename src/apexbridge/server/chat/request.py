"""Convert a chat completion request to a turn of the agent loop."""

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
"""Model parameters; most requests set none, and share a prepared `ModelRequest` then."""
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
    """Limits of the caller: turn limits, withheld tools, and the model."""

    limits: TurnLimits
    withheld: frozenset[str]
    model: str
    """Model name for the upstream API; empty for the configured model."""


def to_turn_request(body: ChatRequest, caller: CallerLimits, *, has_session: bool) -> TurnRequest:
    """Build the turn of a request; of a stored session only the new messages are used.

    Raises:
        RequestError: If a field is not supported.
    """
    _validate(body)
    system = [message.text for message in body.messages if message.role in _SYSTEM_ROLES]
    messages = body.messages
    if system:
        messages = [message for message in messages if message.role not in _SYSTEM_ROLES]
    if has_session:
        messages = _new_messages(messages)
    last = messages[-1] if messages and messages[-1].role == "user" else None
    before = messages[:-1] if last else messages
    return TurnRequest(
        text=last.text if last else "",
        parts=_parts(last) if last else "",
        history=tuple(map(_message, before)),
        is_continuation=last is None,
        system="\n\n".join(filter(None, system)) if system or not has_session else None,
        model=caller.model,
        skills=tuple(body.options.skills),
        client_tools=tuple(map(_spec, body.tools or ())),
        uses_tools=body.has_loop,
        template=_model_parameters(body),
        extra=_extra(body),
        limits=_limits(body, caller.limits),
        denied_tools=caller.withheld,
    )


def _validate(body: ChatRequest) -> None:
    if body.n not in {None, 1}:
        raise RequestError("n: only 1 is supported", param="n")
    if body.model_extra and (legacy := _LEGACY_FIELDS & body.model_extra.keys()):
        name = min(legacy)
        raise RequestError(f"{name}: not supported, use 'tools' and 'tool_choice'", param=name)
    for at, message in enumerate(body.messages):
        if message.role == "tool" and not message.tool_call_id:
            where = f"messages.{at}.tool_call_id"
            raise RequestError(f"{where}: required for the role 'tool'", param=where)
    if body.tools and len({tool.function.name for tool in body.tools}) != len(body.tools):
        raise RequestError("tools: duplicate name", param="tools")


def _new_messages(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages after the last assistant message: the session has the others."""
    last = max((at for at, m in enumerate(messages) if m.role == "assistant"), default=-1)
    new = list(messages[last + 1 :])
    if not new:
        raise RequestError(
            "messages: no new message after the last assistant message", param="messages"
        )
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
    """Return multimodal content as JSON; empty for plain text."""
    if isinstance(message.content, str | None) or all(map(_is_text, message.content)):
        return ""
    return orjson.dumps([part.model_dump(exclude_unset=True) for part in message.content]).decode()


def _is_text(part: ContentPart) -> bool:
    return part.type == "text"


def _spec(tool: ClientTool) -> ToolSpec:
    function = tool.function
    return ToolSpec(
        name=function.name,
        description=function.description or "",
        input_schema=function.parameters or _NO_PARAMETERS,
        strict=function.strict,
    )


def _model_parameters(body: ChatRequest) -> ModelRequest:
    if _MODEL_PARAMETERS.isdisjoint(body.model_fields_set):
        return _DEFAULT_STREAMED if body.stream else _DEFAULT_COMPLETE
    return ModelRequest(
        model="",
        messages=(),
        effort=body.reasoning_effort,
        max_output_tokens=body.max_completion_tokens or body.max_tokens,
        temperature=body.temperature,
        seed=body.seed,
        stop=(body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ()),
        response_format=body.response_format,
        is_whole=not body.stream,
    )


def _extra(body: ChatRequest) -> dict[str, Any]:
    """Collect unknown fields, which are passed through to the model, and `tool_choice`."""
    extra = dict(body.model_extra or {})
    if body.tool_choice is not None and body.tools:
        extra["tool_choice"] = body.tool_choice
    return extra


def _limits(body: ChatRequest, maximum: TurnLimits) -> TurnLimits | None:
    """Lower the turn limits to what the client asks for; settings are the maximum."""
    options = body.apexbridge
    if options is None or (options.rounds, options.tokens, options.seconds) == (None, None, None):
        return None
    return replace(
        maximum,
        rounds=min(options.rounds or maximum.rounds, maximum.rounds),
        tokens=min(options.tokens or maximum.tokens, maximum.tokens),
        seconds=min(options.seconds or maximum.seconds, maximum.seconds),
    )
