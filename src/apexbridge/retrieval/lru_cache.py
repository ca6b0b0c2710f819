"""A little memory: the latest of what was worked out, by what it was worked out from."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

CachedValue = TypeVar("CachedValue")


class LruCache(Generic[CachedValue]):
    """Keeps so many values; the one not asked for longest goes first."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._kept = OrderedDict[Hashable, CachedValue]()

    def get(self, key: Hashable) -> CachedValue | None:
        """The value, if it is still there."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Hashable, value: CachedValue) -> None:
        """Keep a value."""
        self._kept[key] = value
        if len(self._kept) > self._room:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
