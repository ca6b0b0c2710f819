"""Append-only numpy columns backed by anonymous mmap, so that freed memory returns to the OS.

malloc would keep what loading frees, because small live objects lie between the freed ones.
"""

import mmap
import zlib
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

ScalarType = TypeVar("ScalarType", bound=np.generic)

_HUGE_PAGE_BYTES = 4 * 1024 * 1024
"""From this size on huge pages are requested, which makes scans faster (fewer TLB misses)."""
_GROWTH_FACTOR = 2


def mmap_array(count: int, kind: type[ScalarType]) -> NDArray[ScalarType]:
    """Allocate zeros; pages that are never written take no memory."""
    size = count * np.dtype(kind).itemsize
    if not size:
        return np.zeros(0, kind)
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE_PAGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapped, kind, count)


class MmapColumn(Generic[ScalarType]):
    """Append-only column; capacity doubles, so that appending is amortized O(1)."""

    def __init__(self, kind: type[ScalarType]) -> None:
        self._kind = kind
        self._buffer = mmap_array(0, kind)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    @property
    def values(self) -> NDArray[ScalarType]:
        """View of the current values; an older view does not see later appends."""
        return self._buffer[: self._used]

    def extend(self, parts: Sequence[NDArray[ScalarType]]) -> None:
        """Append arrays."""
        added = sum(part.size for part in parts)
        if added:
            np.concatenate([part.reshape(-1) for part in parts], out=self.grow(added))

    def grow(self, count: int) -> NDArray[ScalarType]:
        """Append zeros and return a writable view of them."""
        end = self._used + count
        if end > len(self._buffer):
            wider = mmap_array(max(end, _GROWTH_FACTOR * self._used), self._kind)
            wider[: self._used] = self.values
            self._buffer = wider
        added = self._buffer[self._used : end]
        self._used = end
        return added


_ZLIB_LEVEL = 1
_UTF8_ERRORS = "surrogatepass"


class CompressedTexts:
    """Texts by number in zlib-compressed pages; `page_bytes` 0 stores them uncompressed.

    A read decompresses one page, which is cached for the next read.
    """

    def __init__(self, page_bytes: int = 0) -> None:
        self._page_bytes = page_bytes
        self._bytes = MmapColumn(np.uint8)
        self._ends = MmapColumn(np.uint32)
        """End offset of each text within its page."""
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
        """Append texts, in new pages."""
        page, size = list[bytes](), 0
        for text in texts:
            encoded = text.encode("utf-8", _UTF8_ERRORS)
            page.append(encoded)
            size += len(encoded)
            if self._page_bytes and size >= self._page_bytes:
                self._finish_page(page)
                page, size = [], 0
        if page:
            self._finish_page(page)

    def _finish_page(self, page: list[bytes]) -> None:
        data = b"".join(page)
        if self._page_bytes:
            data = zlib.compress(data, _ZLIB_LEVEL)
        self._page_firsts.grow(1)[:] = len(self._ends)
        self._ends.grow(len(page))[:] = np.cumsum([len(text) for text in page])
        self._bytes.extend([np.frombuffer(data, np.uint8)])
        self._page_ends.grow(1)[:] = len(self._bytes)

    def _read(self, page: int, start: int, end: int) -> bytes:
        before = int(self._page_ends.values[page - 1]) if page else 0
        if not self._page_bytes:
            return self._bytes.values[before + start : before + end].tobytes()
        number, decompressed = self._last
        if number != page:
            compressed = self._bytes.values[before : int(self._page_ends.values[page])]
            decompressed = zlib.decompress(compressed.tobytes())
            self._last = (page, decompressed)
        return decompressed[start:end]
