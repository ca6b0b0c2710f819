"""Message history as all servers accept it, and a cache of the reasoning that some want back."""

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
    """Normalize: one system message first, no empty messages, adjacent ones of a role merged.

    Every tool call is followed by its result, in the order of the calls. A placeholder stands for
    a missing result; a result without a call is dropped.
    """
    system = "\n\n".join(
        message.text
        for message in messages
        if isinstance(message, SystemMessage) and message.text.strip()
    )
    normalized: list[Message] = [SystemMessage(text=system)] if system else []
    for message in _complete_tool_results(messages):
        last = normalized[-1] if normalized else None
        match message:
            case UserMessage() if isinstance(last, UserMessage):
                normalized[-1] = _merge_user_messages(last, message)
            case AssistantMessage() if isinstance(last, AssistantMessage):
                text = "\n\n".join(filter(None, (last.text, message.text)))
                normalized[-1] = AssistantMessage(text=text, tool_calls=message.tool_calls)
            case _:
                normalized.append(message)
    return tuple(normalized)


def _complete_tool_results(messages: Sequence[Message]) -> Iterable[Message]:
    """Yield the messages that are not empty, each tool call followed by its result."""
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
    """Return the content parts of a user message, in OpenAI's format."""
    return json.loads(message.parts) if message.parts else [{"type": "text", "text": message.text}]


def _tool_results(calls: Sequence[ToolCall], after: Sequence[Message]) -> Iterable[ToolMessage]:
    """Find each call's result; the search stops at the next reply, which may reuse the ids."""
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
    """LRU cache of reasoning, keyed by a hash of the conversation, bounded in characters.

    The ids of calls are no key: some servers count them from 0 in every reply, and the reasoning of
    one conversation must not leak into another.
    """

    def __init__(self, *, max_chars: int = _MAX_CHARS) -> None:
        self._max_chars = max_chars
        self._entries = OrderedDict[int, str]()
        self._chars = 0

    def store(self, messages: Sequence[Message], calls: Sequence[ToolCall], reasoning: str) -> None:
        """Store the reasoning before the tool calls that answer these messages."""
        if not (calls and reasoning) or len(reasoning) > self._max_chars:
            return
        prefix = 0
        for message in messages:
            prefix = _hash_message(prefix, message)
        key = _cache_key(prefix, calls)
        self._chars += len(reasoning) - len(self._entries.pop(key, ""))
        self._entries[key] = reasoning
        while self._chars > self._max_chars:
            self._chars -= len(self._entries.popitem(last=False)[1])

    def recall(self, messages: Sequence[Message]) -> Iterator[str]:
        """Yield the reasoning before each message, empty for most."""
        if not self._entries:
            yield from repeat("", len(messages))
            return
        prefix = 0
        for message in messages:
            calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
            yield self._entries.get(_cache_key(prefix, calls), "") if calls else ""
            prefix = _hash_message(prefix, message)


def _hash_message(prefix: int, message: Message) -> int:
    """Extend the hash; the system message is left out, because it may change between turns."""
    return prefix if isinstance(message, SystemMessage) else hash((prefix, message))


def _cache_key(prefix: int, calls: Sequence[ToolCall]) -> int:
    return hash((prefix, tuple(calls)))
