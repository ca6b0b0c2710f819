"""Texts that are seldom read, kept small: in pages of some kilobytes, compressed where it pays."""

import zlib
from collections.abc import Iterable

import numpy as np

from apexbridge.retrieval.rooms import Column

_LEVEL = 1
_ERRORS = "surrogatepass"


class Pages:
    """Texts by number, in the order they came; `page_bytes` 0 leaves them as they are.

    A page is unpacked to read one text of it, and remembered for the next.
    """

    def __init__(self, page_bytes: int = 0) -> None:
        self._page_bytes = page_bytes
        self._bytes = Column(np.uint8)
        self._ends = Column(np.uint32)
        """Of each text, within its page."""
        self._page_firsts = Column(np.int64)
        self._page_ends = Column(np.int64)
        self._last = (-1, b"")

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        page = int(np.searchsorted(self._page_firsts.values, number, "right")) - 1
        first = int(self._page_firsts.values[page])
        start = int(self._ends.values[number - 1]) if number > first else 0
        return self._read(page, start, int(self._ends.values[number])).decode("utf-8", _ERRORS)

    def extend(self, texts: Iterable[str]) -> None:
        """Add texts; they fill pages of their own."""
        page, size = list[bytes](), 0
        for text in texts:
            encoded = text.encode("utf-8", _ERRORS)
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
            written = zlib.compress(written, _LEVEL)
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
