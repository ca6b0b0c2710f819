"""SSE parser: chunk boundaries, line ends, byte order mark, and the limit of a line."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.models.sse import MAX_LINE_BYTES, SseParser

documents = st.lists(
    st.dictionaries(st.text(max_size=5), st.text(max_size=20) | st.integers(), max_size=3),
    min_size=1,
    max_size=8,
)
line_ends = st.sampled_from(["\n", "\r\n", "\r"])
noise = st.sampled_from(["", ": comment{end}", "event: message{end}", "id: 7{end}retry: 10{end}"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """An event stream, and the documents in it."""
    end = draw(line_ends)
    expected = [json.dumps(document, ensure_ascii=False) for document in draw(documents)]
    parts = [draw(st.sampled_from(["", "\ufeff", "\ufeff\n"]))]
    for document in expected:
        parts.append(draw(noise).format(end=end))
        parts.append(f"data:{draw(st.sampled_from(['', ' ']))}{document}{end}")
        parts.append(draw(st.sampled_from(["", end])))  # some servers omit the blank line
    if draw(st.booleans()):
        parts.append(f"data: [DONE]{end}{end}data: after the end{end}")
    return "".join(parts).encode(), [document.encode() for document in expected]


@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_documents_do_not_depend_on_chunk_boundaries(
    stream: tuple[bytes, list[bytes]], places: list[int]
) -> None:
    data, expected = stream
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    parser = SseParser()
    found = [
        document
        for start, end in itertools.pairwise(edges)
        for document in parser.feed(data[start:end])
    ]
    assert found + parser.flush() == expected


@given(st.lists(st.binary(max_size=200), max_size=10))
def test_arbitrary_bytes_are_parsed_without_an_error(chunks: list[bytes]) -> None:
    parser = SseParser()
    for document in [*(one for chunk in chunks for one in parser.feed(chunk)), *parser.flush()]:
        assert document in b"".join(chunks)


@pytest.mark.parametrize("size", [1, 7, 4_096, MAX_LINE_BYTES])
def test_a_line_over_the_limit_is_refused_in_chunks_of_any_size(size: int) -> None:
    parser, start = SseParser(), b"data: "
    filler = max(0, MAX_LINE_BYTES - 3 * size - len(start))
    parser.feed(start + b"x" * filler)
    received = len(start) + filler
    while received + size <= MAX_LINE_BYTES:
        parser.feed(b"x" * size)
        received += size
    with pytest.raises(ValueError, match="a line of more than 1048576 bytes"):
        parser.feed(b"x" * size)


def test_a_complete_line_over_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="a line of more than"):
        SseParser().feed(b"data: " + b"x" * MAX_LINE_BYTES + b"\n\n")
