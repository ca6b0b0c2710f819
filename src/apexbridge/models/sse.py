"""Server-sent events (SSE): an incremental parser that is lenient where model servers are sloppy.

Why not a library: docs/decisions/0026-sse-and-retry.md.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing

from apexbridge.models.upstream_errors import HTML_RESPONSE, UpstreamFault

MAX_LINE_BYTES = 1024 * 1024
_LEADING_BYTES = b"\xef\xbb\xbf \t\r\n"
"""A byte order mark and white space, which some servers send first."""
_DATA = b"data:"


class SseParser:
    """Incremental SSE parser: bytes in chunks of any size to one JSON document per `data:` line.

    Unlike the specification's, an event need not end with a blank line, because some servers omit
    it. A body that starts like JSON or HTML is one document, whatever its content type is.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._is_single: bool | None = None
        self.is_done = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add a chunk; return the documents that it completes.

        Raises:
            ValueError: If a line is too long.
        """
        searched = max(0, len(self._buffer) - 1)
        self._buffer += chunk
        if self._is_single is None:
            self._buffer, searched = self._buffer.lstrip(_LEADING_BYTES), 0
            if not self._buffer:
                return []
            self._is_single = self._buffer.startswith((b"{", b"[", b"<"))
        return [] if self._is_single else self._documents(self._take_lines(searched))

    def flush(self) -> list[bytes]:
        """Return the last document of a response that does not end with a line end."""
        rest = bytes(self._buffer)
        return [rest] if self._is_single else self._documents([rest])

    def _take_lines(self, searched: int) -> list[bytes]:
        """Take the complete lines; there is no line end in the first `searched` bytes."""
        buffer = self._buffer
        # A carriage return at the very end may be the first half of CRLF.
        line_feed = buffer.rfind(b"\n", searched)
        end = max(line_feed, buffer.rfind(b"\r", searched, len(buffer) - 1)) + 1
        lines = bytes(buffer[:end]).splitlines() if end else []
        del buffer[:end]
        if len(buffer) > MAX_LINE_BYTES or any(len(line) > MAX_LINE_BYTES for line in lines):
            raise ValueError(f"a line of more than {MAX_LINE_BYTES} bytes")
        return lines

    def _documents(self, lines: Iterable[bytes]) -> list[bytes]:
        documents = list[bytes]()
        for line in lines:
            if self.is_done or not line.startswith(_DATA):
                continue
            data = line[len(_DATA) :].strip()
            self.is_done = data == b"[DONE]"
            if data and not self.is_done:
                documents.append(data)
        return documents


async def documents(chunks: AsyncIterator[bytes], parser: SseParser) -> AsyncGenerator[bytes]:
    """Yield each document of a response as soon as it is complete."""
    async with aclosing(batches(chunks, parser)) as found:
        async for batch in found:
            for document in batch:
                yield document


async def batches(
    chunks: AsyncIterator[bytes], parser: SseParser
) -> AsyncGenerator[Sequence[bytes]]:
    """Yield the documents of a response, those of one chunk together.

    An overlong line or an HTML page raises UpstreamFault.
    """
    while not parser.is_done and (chunk := await anext(chunks, b"")):
        if batch := _feed(parser, chunk):
            yield batch
    if last := _flush(parser):
        yield last


def all_documents(body: bytes, parser: SseParser) -> Sequence[bytes]:
    """Parse a response that is complete already."""
    return (*_feed(parser, body), *_flush(parser))


def _feed(parser: SseParser, chunk: bytes) -> list[bytes]:
    try:
        return parser.feed(chunk)
    except ValueError as error:
        raise UpstreamFault("unusable", str(error)) from None


def _flush(parser: SseParser) -> list[bytes]:
    last = parser.flush()
    if any(document.startswith(b"<") for document in last):
        raise UpstreamFault("unusable", HTML_RESPONSE)
    return last
