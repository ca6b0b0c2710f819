"""What a model thought before its calls, for servers that want it back with the results."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import repeat

from apexbridge.messages import AssistantMessage, Message, SystemMessage, ToolCall

_ROOM = 4_000_000


class Thoughts:
    """Remembers thoughts by the conversation they came in; the oldest are forgotten first.

    Ids of calls are not enough to go by: some servers number them from 0 in every reply, and one
    conversation must not be given what was thought in another.
    """

    def __init__(self, *, room: int = _ROOM) -> None:
        self._room = room
        self._kept = OrderedDict[int, str]()
        self._taken = 0

    def keep(self, messages: Sequence[Message], calls: Sequence[ToolCall], thought: str) -> None:
        """Remember what was thought before the calls that answer these messages."""
        if not (calls and thought) or len(thought) > self._room:
            return
        place = 0
        for message in messages:
            place = _after(place, message)
        key = _key(place, calls)
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
            yield self._kept.get(_key(place, calls), "") if calls else ""
            place = _after(place, message)


def _after(place: int, message: Message) -> int:
    """The system message may change on the way."""
    return place if isinstance(message, SystemMessage) else hash((place, message))


def _key(place: int, calls: Sequence[ToolCall]) -> int:
    return hash((place, tuple(calls)))
