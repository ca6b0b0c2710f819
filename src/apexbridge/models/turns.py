"""A conversation put in the order that every server takes."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from apexbridge.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)

NO_RESULT = "There is no result: the call was interrupted."


def mended(messages: Sequence[Message]) -> tuple[Message, ...]:
    """One system message first, no empty message, none beside another of its kind.

    Every call is followed by its result, in the order of the calls; a missing one is told to be
    missing, and a result without a call is left out.
    """
    system = "\n\n".join(
        message.text
        for message in messages
        if isinstance(message, SystemMessage) and message.text.strip()
    )
    kept: list[Message] = [SystemMessage(text=system)] if system else []
    for message in _with_results(messages):
        last = kept[-1] if kept else None
        match message:
            case UserMessage() if isinstance(last, UserMessage):
                kept[-1] = _both(last, message)
            case AssistantMessage() if isinstance(last, AssistantMessage):
                text = "\n\n".join(filter(None, (last.text, message.text)))
                kept[-1] = AssistantMessage(text=text, tool_calls=message.tool_calls)
            case _:
                kept.append(message)
    return tuple(kept)


def _with_results(messages: Sequence[Message]) -> Iterable[Message]:
    """The messages that say something, with each call's result right behind it."""
    for at, message in enumerate(messages):
        match message:
            case UserMessage(text=text, parts=parts) if text.strip() or parts:
                yield message
            case AssistantMessage(tool_calls=()) if message.text.strip():
                yield message
            case AssistantMessage(tool_calls=calls) if calls:
                yield message
                yield from _results(calls, messages[at + 1 :])
            case _:
                pass


def _both(one: UserMessage, other: UserMessage) -> UserMessage:
    text = "\n\n".join(filter(None, (one.text, other.text)))
    if not (one.parts or other.parts):
        return UserMessage(text=text)
    return UserMessage(text=text, parts=json.dumps([*parts_of(one), *parts_of(other)]))


def parts_of(message: UserMessage) -> list[dict[str, Any]]:
    """What a person said, in parts, as OpenAI writes them."""
    return json.loads(message.parts) if message.parts else [{"type": "text", "text": message.text}]


def _results(calls: Sequence[ToolCall], after: Sequence[Message]) -> Iterable[ToolMessage]:
    """What each call came to: ids may come again in a later reply, so that is not looked at."""
    found: dict[str, ToolMessage] = {}
    for message in after:
        if isinstance(message, AssistantMessage) and message.tool_calls:
            break
        if isinstance(message, ToolMessage):
            found.setdefault(message.call_id, message)
    for call in calls:
        missing = ToolMessage(call_id=call.id, text=NO_RESULT, is_error=True)
        yield found.get(call.id, missing)
