"""Load generator and stub model server of the gateway benchmark.

python -m benchmarks.gateway_load serve PORT
"""

import asyncio
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvloop

CHUNKS = 50
_WHOLE = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Fine."},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }
).encode()
_REPLY = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(_WHOLE)
    + _WHOLE
)
_MODELS = b'{"object":"list","data":[{"id":"bench","object":"model","created":1,"owned_by":"me"}]}'
_LIST = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    % len(_MODELS)
    + _MODELS
)


def _stream() -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    deltas = [{"role": "assistant", "content": ""}, *({"content": "word "} for _ in range(CHUNKS))]
    events: list[dict[str, object]] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        for delta in deltas
    ]
    events.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage = {"prompt_tokens": 10, "completion_tokens": CHUNKS, "total_tokens": 10 + CHUNKS}
    events.append({**head, "choices": [], "usage": usage})
    lines = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    lines.append(b"data: [DONE]\n\n")
    body = b"".join(b"%x\r\n%s\r\n" % (len(line), line) for line in lines) + b"0\r\n\r\n"
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        + body
    )


_STREAMED = _stream()


def _nobody(_: bytes) -> None:
    """Discard writes before a connection is made."""


class Upstream(asyncio.Protocol):
    """Stub model server with a fixed response."""

    def __init__(self) -> None:
        self._read = b""
        self._write: Callable[[bytes], None] = _nobody

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept a connection."""
        self._write = transport.write  # pyright: ignore  # each loop has a kind of its own

    def data_received(self, data: bytes) -> None:
        """Respond to each complete request."""
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = self._read[:end].lower()
            size = (
                int(head.split(b"content-length:")[1].split(b"\r\n")[0])
                if (b"content-length:" in head)
                else 0
            )
            if len(self._read) < end + 4 + size:
                return
            body, self._read = self._read[end + 4 : end + 4 + size], self._read[end + 4 + size :]
            self._write(_answer(head, body))


def _answer(head: bytes, body: bytes) -> bytes:
    if head.startswith(b"get "):
        return _LIST
    is_stream = b'"stream":true' in body or b'"stream": true' in body
    return _STREAMED if is_stream else _REPLY


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """Result of a load run."""

    rate: float
    """Requests per second."""
    median_ms: float
    min_ms: float
    failures: int
    answers: int = 0
    cpu_ms: float = 0.0
    """CPU time per request: more robust than rates on a shared machine."""


class Client(asyncio.Protocol):
    """Closed-loop client: sends the next request when a response is complete."""

    def __init__(self, requests: Sequence[bytes], until: float) -> None:
        self._requests, self._until = itertools.cycle(requests), until
        self.seconds, self.failures = list[float](), 0
        self.done = asyncio.get_running_loop().create_future()
        self._read, self._at = bytearray(), 0.0
        self._write: Callable[[bytes], None] = _nobody

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._write = transport.write  # pyright: ignore  # each loop has a kind of its own
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count a closed connection as a failure."""
        if not self.done.done():
            self.failures += 1
            self.done.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Send the next request when the response is complete."""
        self._read += data
        if not _is_whole(self._read):
            return
        self.seconds.append(time.perf_counter() - self._at)
        self.failures += not self._read.startswith(b"HTTP/1.1 200")
        self._read.clear()
        if time.perf_counter() < self._until:
            self._ask()
        elif not self.done.done():
            self.done.set_result(None)

    def _ask(self) -> None:
        self._at = time.perf_counter()
        self._write(next(self._requests))


def _is_whole(read: bytearray) -> bool:
    end = read.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = bytes(read[:end]).lower()
    if b"transfer-encoding: chunked" in head:
        return read.endswith(b"\r\n0\r\n\r\n")
    size = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
    return len(read) >= end + 4 + size


async def load(port: int, requests: Sequence[bytes], clients: int, seconds: float) -> LoadResult:
    """Run concurrent clients for a duration; each starts at another offset of the requests.

    Side by side they would ask for the same thing one after the other, and all but the first would
    get what is remembered.
    """
    loop, start = asyncio.get_running_loop(), time.perf_counter()
    at_work = list[Client]()
    for number in range(clients):
        first = number * len(requests) // clients
        turned = [*requests[first:], *requests[:first]]

        def made(own: Sequence[bytes] = turned) -> Client:
            return Client(own, start + seconds)

        _, client = await loop.create_connection(made, "127.0.0.1", port)
        at_work.append(client)
    async with asyncio.timeout(seconds + 60):
        await asyncio.gather(*(client.done for client in at_work))
    taken = time.perf_counter() - start
    times = [time for client in at_work for time in client.seconds]
    failures = sum(client.failures for client in at_work)
    if not times:
        return LoadResult(rate=0.0, median_ms=0.0, min_ms=0.0, failures=failures)
    return LoadResult(
        rate=(len(times) - failures) / taken,
        median_ms=statistics.median(times) * 1_000,
        min_ms=min(times) * 1_000,
        failures=failures,
        answers=len(times),
    )


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[2])))
