"""Memory for what grows large: taken from the system in one piece, given back when let go.

What loading throws away would otherwise lie between what it keeps, and stay with the process.
"""

import mmap
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)

_LARGE_PAGES = 4 * 1024 * 1024
"""From so many bytes on, large pages are asked for: walking over them is faster."""
_AHEAD = 2


def room(count: int, kind: type[Number]) -> NDArray[Number]:
    """Zeros; what is never written to takes no memory."""
    size = count * np.dtype(kind).itemsize
    if not size:
        return np.zeros(0, kind)
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _LARGE_PAGES and hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapped, kind, count)


class Column(Generic[Number]):
    """Numbers that are added at the end; room is taken ahead, so that few are moved again."""

    def __init__(self, kind: type[Number]) -> None:
        self._kind = kind
        self._room = room(0, kind)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    @property
    def values(self) -> NDArray[Number]:
        """What is there; an older answer does not see what is added later."""
        return self._room[: self._used]

    def extend(self, parts: Sequence[NDArray[Number]]) -> None:
        """Add arrays, one after the other."""
        more = sum(part.size for part in parts)
        if more:
            np.concatenate([part.reshape(-1) for part in parts], out=self.more(more))

    def more(self, count: int) -> NDArray[Number]:
        """Add zeros, to be written to."""
        end = self._used + count
        if end > len(self._room):
            wider = room(max(end, _AHEAD * self._used), self._kind)
            wider[: self._used] = self.values
            self._room = wider
        added = self._room[self._used : end]
        self._used = end
        return added
