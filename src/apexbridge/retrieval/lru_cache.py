"""LRU cache with a fixed capacity."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

CachedValue = TypeVar("CachedValue")


class LruCache(Generic[CachedValue]):
    """Mapping that evicts the least recently used entry."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept = OrderedDict[Hashable, CachedValue]()

    def get(self, key: Hashable) -> CachedValue | None:
        """Look up a value and mark it as used; None if it was evicted."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: Hashable, value: CachedValue) -> None:
        """Insert a value, and evict the oldest beyond the capacity."""
        self._kept[key] = value
        if len(self._kept) > self._capacity:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Remove all entries."""
        self._kept.clear()
