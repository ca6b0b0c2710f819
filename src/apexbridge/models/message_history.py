"""A conversation put in the order that every server takes."""

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

from apexbridge.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)

MISSING_RESULT = "There is no result: the call was interrupted."


def normalize_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
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
    for message in _complete_tool_results(messages):
        last = kept[-1] if kept else None
        match message:
            case UserMessage() if isinstance(last, UserMessage):
                kept[-1] = _merge_user_messages(last, message)
            case AssistantMessage() if isinstance(last, AssistantMessage):
                text = "\n\n".join(filter(None, (last.text, message.text)))
                kept[-1] = AssistantMessage(text=text, tool_calls=message.tool_calls)
            case _:
                kept.append(message)
    return tuple(kept)


def _complete_tool_results(messages: Sequence[Message]) -> Iterable[Message]:
    """The messages that say something, with each call's result right behind it."""
    for at, message in enumerate(messages):
        match message:
            case UserMessage(text=text, parts=parts) if text.strip() or parts:
                yield message
            case AssistantMessage(tool_calls=()) if message.text.strip():
                yield message
            case AssistantMessage(tool_calls=calls) if calls:
                yield message
                yield from _tool_results(calls, messages[at + 1 :])
            case _:
                pass


def _merge_user_messages(one: UserMessage, other: UserMessage) -> UserMessage:
    text = "\n\n".join(filter(None, (one.text, other.text)))
    if not (one.parts or other.parts):
        return UserMessage(text=text)
    return UserMessage(text=text, parts=json.dumps([*content_parts(one), *content_parts(other)]))


def content_parts(message: UserMessage) -> list[dict[str, Any]]:
    """What a person said, in parts, as OpenAI writes them."""
    return json.loads(message.parts) if message.parts else [{"type": "text", "text": message.text}]


def _tool_results(calls: Sequence[ToolCall], after: Sequence[Message]) -> Iterable[ToolMessage]:
    """What each call came to: ids may come again in a later reply, so that is not looked at."""
    found: dict[str, ToolMessage] = {}
    for message in after:
        if isinstance(message, AssistantMessage) and message.tool_calls:
            break
        if isinstance(message, ToolMessage):
            found.setdefault(message.call_id, message)
    for call in calls:
        missing = ToolMessage(call_id=call.id, text=MISSING_RESULT, is_error=True)
        yield found.get(call.id, missing)


_MAX_CHARS = 4_000_000


class ReasoningCache:
    """Remembers thoughts by the conversation they came in; the oldest are forgotten first.

    Ids of calls are not enough to go by: some servers number them from 0 in every reply, and one
    conversation must not be given what was thought in another.
    """

    def __init__(self, *, room: int = _MAX_CHARS) -> None:
        self._room = room
        self._kept = OrderedDict[int, str]()
        self._taken = 0

    def keep(self, messages: Sequence[Message], calls: Sequence[ToolCall], thought: str) -> None:
        """Remember what was thought before the calls that answer these messages."""
        if not (calls and thought) or len(thought) > self._room:
            return
        place = 0
        for message in messages:
            place = _hash_message(place, message)
        key = _cache_key(place, calls)
        self._taken += len(thought) - len(self._kept.pop(key, ""))
        self._kept[key] = thought
        while self._taken > self._room:
            self._taken -= len(self._kept.popitem(last=False)[1])

    def recall(self, messages: Sequence[Message]) -> Iterator[str]:
        """For each message what was thought before it; nothing for most."""
        if not self._kept:
            yield from repeat("", len(messages))
            return
        place = 0
        for message in messages:
            calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
            yield self._kept.get(_cache_key(place, calls), "") if calls else ""
            place = _hash_message(place, message)


def _hash_message(place: int, message: Message) -> int:
    """The system message may change on the way."""
    return place if isinstance(message, SystemMessage) else hash((place, message))


def _cache_key(place: int, calls: Sequence[ToolCall]) -> int:
    return hash((place, tuple(calls)))
