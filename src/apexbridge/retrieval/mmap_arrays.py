"""Memory for what grows large: taken from the system in one piece, given back when let go.

What loading throws away would otherwise lie between what it keeps, and stay with the process.
"""

import mmap
import zlib
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

ScalarType = TypeVar("ScalarType", bound=np.generic)

_HUGE_PAGE_BYTES = 4 * 1024 * 1024
"""From so many bytes on, large pages are asked for: walking over them is faster."""
_GROWTH_FACTOR = 2


def mmap_array(count: int, kind: type[ScalarType]) -> NDArray[ScalarType]:
    """Zeros; what is never written to takes no memory."""
    size = count * np.dtype(kind).itemsize
    if not size:
        return np.zeros(0, kind)
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapped, kind, count)


class MmapColumn(Generic[ScalarType]):
    """Numbers that are added at the end; room is taken ahead, so that few are moved again."""

    def __init__(self, kind: type[ScalarType]) -> None:
        self._kind = kind
        self._room = mmap_array(0, kind)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    @property
    def values(self) -> NDArray[ScalarType]:
        """What is there; an older answer does not see what is added later."""
        return self._room[: self._used]

    def extend(self, parts: Sequence[NDArray[ScalarType]]) -> None:
        """Add arrays, one after the other."""
        more = sum(part.size for part in parts)
        if more:
            np.concatenate([part.reshape(-1) for part in parts], out=self.more(more))

    def more(self, count: int) -> NDArray[ScalarType]:
        """Add zeros, to be written to."""
        end = self._used + count
        if end > len(self._room):
            wider = mmap_array(max(end, _GROWTH_FACTOR * self._used), self._kind)
            wider[: self._used] = self.values
            self._room = wider
        added = self._room[self._used : end]
        self._used = end
        return added


_ZLIB_LEVEL = 1
_UTF8_ERRORS = "surrogatepass"


class CompressedTexts:
    """Texts by number, in the order they came; `page_bytes` 0 leaves them as they are.

    A page is unpacked to read one text of it, and remembered for the next.
    """

    def __init__(self, page_bytes: int = 0) -> None:
        self._page_bytes = page_bytes
        self._bytes = MmapColumn(np.uint8)
        self._ends = MmapColumn(np.uint32)
        """Of each text, within its page."""
        self._page_firsts = MmapColumn(np.int64)
        self._page_ends = MmapColumn(np.int64)
        self._last = (-1, b"")

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        page = int(np.searchsorted(self._page_firsts.values, number, "right")) - 1
        first = int(self._page_firsts.values[page])
        start = int(self._ends.values[number - 1]) if number > first else 0
        return self._read(page, start, int(self._ends.values[number])).decode("utf-8", _UTF8_ERRORS)

    def extend(self, texts: Iterable[str]) -> None:
        """Add texts; they fill pages of their own."""
        page, size = list[bytes](), 0
        for text in texts:
            encoded = text.encode("utf-8", _UTF8_ERRORS)
            page.append(encoded)
            size += len(encoded)
            if self._page_bytes and size >= self._page_bytes:
                self._close(page)
                page, size = [], 0
        if page:
            self._close(page)

    def _close(self, page: list[bytes]) -> None:
        written = b"".join(page)
        if self._page_bytes:
            written = zlib.compress(written, _ZLIB_LEVEL)
        self._page_firsts.more(1)[:] = len(self._ends)
        self._ends.more(len(page))[:] = np.cumsum([len(text) for text in page])
        self._bytes.extend([np.frombuffer(written, np.uint8)])
        self._page_ends.more(1)[:] = len(self._bytes)

    def _read(self, page: int, start: int, end: int) -> bytes:
        before = int(self._page_ends.values[page - 1]) if page else 0
        if not self._page_bytes:
            return self._bytes.values[before + start : before + end].tobytes()
        number, unpacked = self._last
        if number != page:
            packed = self._bytes.values[before : int(self._page_ends.values[page])]
            unpacked = zlib.decompress(packed.tobytes())
            self._last = (page, unpacked)
        return unpacked[start:end]
