"""A conversation put in the order that every server takes."""

from collections.abc import Iterable, Sequence

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
            case UserMessage(text=text) if isinstance(last, UserMessage):
                kept[-1] = UserMessage(text=f"{last.text}\n\n{text}")
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
            case UserMessage(text=text) if text.strip():
                yield message
            case AssistantMessage(tool_calls=()) if message.text.strip():
                yield message
            case AssistantMessage(tool_calls=calls) if calls:
                yield message
                yield from _results(calls, messages[at + 1 :])
            case _:
                pass


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
