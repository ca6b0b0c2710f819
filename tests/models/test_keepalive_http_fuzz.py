"""Fuzz test of the keep-alive HTTP/1.1 client: malformed, truncated, split, pipelined responses.

The client is fed through its `asyncio.Protocol` callbacks, as the event loop does, but without a
socket, so that thousands of byte streams can be tried, each cut into chunks at random.
"""

import asyncio  # the protocol under test is asyncio's
import itertools
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apexbridge.models import keepalive_http
from apexbridge.models.keepalive_http import HttpClientError, HttpResponse

MAX_BYTES = 4_096
FUZZ = settings(max_examples=max(300, settings().max_examples))
"""More than the usual profile: an exchange takes well under a millisecond."""


class FakeTransport(asyncio.Transport):
    """Records what is written; closing it is noted and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one exchange: a response, an error, or neither while bytes are missing."""

    response: HttpResponse | None
    error: BaseException | None
    is_pooled: bool
    is_aborted: bool


def _run(coroutine: Coroutine[object, object, Outcome]) -> Outcome:
    return asyncio.run(coroutine)


async def _exchange(chunks: Sequence[bytes], *, is_closed: bool) -> Outcome:
    pool = deque[keepalive_http._Connection]()  # pyright: ignore[reportPrivateUsage]
    connection = keepalive_http._Connection(pool)  # pyright: ignore[reportPrivateUsage]
    transport = FakeTransport()
    connection.connection_made(transport)
    waiting = connection.send(b"POST / HTTP/1.1\r\n\r\n", MAX_BYTES)
    for chunk in chunks:
        if transport.is_aborted:
            break  # as the event loop does
        connection.data_received(chunk)
    if is_closed and not transport.is_aborted:
        transport.abort()
        connection.connection_lost(None)
    if not waiting.done():
        waiting.cancel()
        return Outcome(None, None, bool(pool), transport.is_aborted)
    error = waiting.exception()
    response = waiting.result() if error is None else None
    return Outcome(response, error, bool(pool), transport.is_aborted)


def _cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    chunks = [data[start:end] for start, end in itertools.pairwise(edges)]
    return [chunk for chunk in chunks if chunk]  # an event loop never gives an empty one


places = st.lists(st.integers(0, 10_000), max_size=8)
bodies = st.binary(max_size=300)
tokens = st.text("abcXYZ-", min_size=1, max_size=12)
headers = st.lists(
    st.tuples(tokens.map("X-{}".format), st.text("abc 123;=", max_size=20)), max_size=4
)


@st.composite
def responses(draw: st.DrawFn) -> tuple[bytes, bytes, bool]:
    """A valid response, its body, and whether it ends only with the connection."""
    body, status = draw(bodies), draw(st.sampled_from([200, 404, 429, 500, 503]))
    lines = [f"{name}: {value}\r\n" for name, value in draw(headers)]
    framing = draw(st.sampled_from(["length", "chunked", "close"]))
    payload = body
    if framing == "length":
        lines.append(f"Content-Length: {len(body)}\r\n")
    elif framing == "chunked":
        lines.append("Transfer-Encoding: chunked\r\n")
        pieces = _cut(body, draw(places))
        payload = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        payload += b"0\r\n\r\n"
    informational = draw(st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n"]))
    head = f"HTTP/1.1 {status} Reason\r\n{''.join(lines)}\r\n".encode()
    return informational + head + payload, body, framing == "close"


@FUZZ
@given(responses(), places)
def test_a_valid_response_is_parsed_however_it_is_split(
    response: tuple[bytes, bytes, bool], cuts: list[int]
) -> None:
    data, body, needs_close = response
    outcome = _run(_exchange(_cut(data, cuts), is_closed=needs_close))
    assert outcome.response is not None
    assert outcome.response.body == body
    assert outcome.is_pooled is not needs_close


@FUZZ
@given(responses(), places, st.integers(0, 10_000))
def test_a_truncated_response_is_never_taken_for_a_complete_one(
    response: tuple[bytes, bytes, bool], cuts: list[int], end: int
) -> None:
    data, _, needs_close = response
    kept = data[: end % len(data)]
    outcome = _run(_exchange(_cut(kept, cuts), is_closed=True))
    if not needs_close:  # without a length, a closed connection is the regular end of the body
        assert outcome.response is None
        assert isinstance(outcome.error, keepalive_http.IncompleteResponseError)
    assert not outcome.is_pooled or outcome.is_aborted


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
    ],
    ids=["length", "chunked"],
)
def test_every_prefix_of_a_response_is_incomplete(data: bytes) -> None:
    for end in range(len(data)):
        outcome = _run(_exchange([data[:end]] if end else [], is_closed=True))
        assert isinstance(outcome.error, keepalive_http.IncompleteResponseError)


@FUZZ
@given(responses(), responses(), places)
def test_a_second_response_closes_the_connection_and_is_not_returned(
    first: tuple[bytes, bytes, bool], second: tuple[bytes, bytes, bool], cuts: list[int]
) -> None:
    data, body, needs_close = first
    if needs_close:
        return  # there is no second one: the rest of the bytes is its body
    outcome = _run(_exchange(_cut(data + second[0], cuts), is_closed=False))
    assert outcome.response is not None
    assert outcome.response.body == body
    assert outcome.is_aborted


@FUZZ
@given(responses(), places, st.data())
def test_a_corrupted_response_ends_in_a_response_or_a_known_error(
    response: tuple[bytes, bytes, bool], cuts: list[int], data: st.DataObject
) -> None:
    corrupted = bytearray(response[0])
    for place in data.draw(places):
        corrupted[place % len(corrupted)] = data.draw(st.integers(0, 255))
    outcome = _run(_exchange(_cut(bytes(corrupted), cuts), is_closed=True))
    assert (outcome.response is None) != (outcome.error is None)
    assert outcome.error is None or isinstance(outcome.error, HttpClientError)
    assert outcome.response is None or len(outcome.response.body) <= MAX_BYTES


@FUZZ
@given(st.binary(max_size=2_000), places)
def test_arbitrary_bytes_never_raise_anything_else(data: bytes, cuts: list[int]) -> None:
    outcome = _run(_exchange(_cut(data, cuts), is_closed=True))
    assert outcome.response is None
    assert isinstance(outcome.error, HttpClientError)


@FUZZ
@given(st.integers(MAX_BYTES + 1, 2 * MAX_BYTES), st.sampled_from(["length", "chunked", "close"]))
def test_a_body_over_the_limit_is_refused(size: int, framing: str) -> None:
    head = {
        "length": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size,
        "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % size,
        "close": b"HTTP/1.1 200 OK\r\n\r\n",
    }[framing]
    outcome = _run(_exchange([head, b"x" * size], is_closed=True))
    assert isinstance(outcome.error, keepalive_http.ResponseTooLargeError)
    assert outcome.is_aborted


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"4\r\nbody\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4x\r\n\r\nbody",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 4\r\n\r\nbody",
    ],
    ids=["two lengths", "length and chunked", "negative", "not a number", "NUL in a header"],
)
def test_ambiguous_framing_never_reaches_the_pool(head: bytes) -> None:
    """Response splitting: where the two ends could disagree about the length, nothing is reused."""
    outcome = _run(_exchange([head], is_closed=True))
    assert outcome.error is not None
    assert not outcome.is_pooled
