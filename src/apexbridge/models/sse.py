"""Server-sent events, cut out of bytes in whatever pieces they come."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing

from apexbridge.models.retry import UpstreamFault
from apexbridge.models.upstream_errors import HTML_RESPONSE

MAX_LINE_BYTES = 1024 * 1024
_LEADING_BYTES = b"\xef\xbb\xbf \t\r\n"
"""A byte order mark and blanks."""
_DATA = b"data:"


class SseParser:
    """Cuts bytes, in whatever pieces they come, into JSON documents: one for each `data:` line.

    A body that starts like JSON, or like a web page, is one document, whatever its server calls it.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_one: bool | None = None
        self.is_done = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Take a piece; the documents that are whole by now.

        Raises:
            ValueError: If a line is too long.
        """
        seen = max(0, len(self._rest) - 1)
        self._rest += piece
        if self._is_one is None:
            self._rest, seen = self._rest.lstrip(_LEADING_BYTES), 0
            if not self._rest:
                return []
            self._is_one = self._rest.startswith((b"{", b"[", b"<"))
        return [] if self._is_one else self._documents(self._lines(seen))

    def rest(self) -> list[bytes]:
        """The document at the end, where its server saved the last line end."""
        rest = bytes(self._rest)
        return [rest] if self._is_one else self._documents([rest])

    def _lines(self, seen: int) -> list[bytes]:
        """The lines that are whole by now; before `seen` there is no line end."""
        rest = self._rest
        # A carriage return that came last may be half of a line end.
        end = max(rest.rfind(b"\n", seen), rest.rfind(b"\r", seen, len(rest) - 1)) + 1
        lines = bytes(rest[:end]).splitlines()
        del rest[:end]
        if max(len(rest), *map(len, lines), 0) > MAX_LINE_BYTES:
            raise ValueError(f"a line of more than {MAX_LINE_BYTES} bytes")
        return lines

    def _documents(self, lines: Iterable[bytes]) -> list[bytes]:
        documents = list[bytes]()
        for line in lines:
            if self.is_done or not line.startswith(_DATA):
                continue
            said = line[len(_DATA) :].strip()
            self.is_done = said == b"[DONE]"
            if said and not self.is_done:
                documents.append(said)
        return documents


async def documents(pieces: AsyncIterator[bytes], reader: SseParser) -> AsyncGenerator[bytes]:
    """The documents of an answer, each as soon as it is whole.

    Raises:
        UpstreamFault: If a line is too long, or the answer is a web page.
    """
    async with aclosing(batches(pieces, reader)) as found:
        async for batch in found:
            for document in batch:
                yield document


async def batches(
    pieces: AsyncIterator[bytes], reader: SseParser
) -> AsyncGenerator[Sequence[bytes]]:
    """The same, those that came together together.

    Raises:
        UpstreamFault: If a line is too long, or the answer is a web page.
    """
    while not reader.is_done and (piece := await anext(pieces, b"")):
        whole = _feed(reader, piece)
        if whole:
            yield whole
    if last := _flush(reader):
        yield last


def all_documents(data: bytes, reader: SseParser) -> Sequence[bytes]:
    """The documents of an answer that came in one piece.

    Raises:
        UpstreamFault: If a line is too long, or the answer is a web page.
    """
    return (*_feed(reader, data), *_flush(reader))


def _feed(reader: SseParser, piece: bytes) -> list[bytes]:
    try:
        return reader.feed(piece)
    except ValueError as error:
        raise UpstreamFault("unusable", str(error)) from None


def _flush(reader: SseParser) -> list[bytes]:
    last = reader.rest()
    if any(document.startswith(b"<") for document in last):
        raise UpstreamFault("unusable", HTML_RESPONSE)
    return last
