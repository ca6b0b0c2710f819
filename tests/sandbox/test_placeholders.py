"""Placeholders and redaction: no split of a stream and no usual encoding lets a value through."""

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.sandbox.placeholders import PLACEHOLDER, RunSecret, create_placeholder
from apexbridge.sandbox.redaction import Redactor, StreamRedactor

VALUE = 'sk-a+b/c"d e=0123456789'


def _redactor(value: str = VALUE) -> Redactor:
    placeholder = create_placeholder()
    return Redactor([RunSecret(name="A", placeholder=placeholder, value=value, hosts=())])


def test_placeholders_are_random_and_have_the_wanted_beginning() -> None:
    one, other = create_placeholder("sk-"), create_placeholder("sk-")
    assert one != other
    assert one.startswith("sk-apexbridge-secret-")
    assert PLACEHOLDER.search(one.encode())


def test_a_secret_shows_no_value() -> None:
    secret = RunSecret(name="A", placeholder="p", value=VALUE, hosts=())
    assert VALUE not in repr(secret) + str(secret)


@given(
    st.binary(max_size=40),
    st.binary(max_size=40),
    st.lists(st.integers(0, 120), max_size=8),
    st.sampled_from(["raw", "base64", "hex", "percent", "json"]),
)
def test_no_split_of_a_stream_lets_a_value_through(
    before: bytes, after: bytes, cuts: list[int], how: str
) -> None:
    coded = {
        "raw": VALUE.encode(),
        "base64": base64.b64encode(before + VALUE.encode() + after),
        "hex": VALUE.encode().hex().encode(),
        "percent": quote(VALUE, safe="").encode(),
        "json": json.dumps(VALUE)[1:-1].encode(),
    }[how]
    data = before + coded + after
    redactor = _redactor()
    stream, pieces, start = StreamRedactor(redactor), list[bytes](), 0
    for cut in [*sorted(cuts), len(data)]:
        pieces.append(stream.feed(data[start:cut]))
        start = max(start, cut)
    seen = b"".join([*pieces, stream.finish()])
    assert coded not in seen
    assert b"apexbridge-secret-" in seen


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_what_holds_no_value_is_not_changed(data: bytes, cuts: list[int]) -> None:
    stream, pieces, start = StreamRedactor(_redactor()), list[bytes](), 0
    for cut in [*sorted(cuts), len(data)]:
        pieces.append(stream.feed(data[start:cut]))
        start = max(start, cut)
    assert b"".join([*pieces, stream.finish()]) == data


@pytest.mark.parametrize(
    "form",
    [VALUE.encode("utf-16-le"), VALUE.encode("utf-16-be"), VALUE[::-1].encode(),
     quote_plus(VALUE).encode(), quote(VALUE, safe="").lower().encode(),
     VALUE.encode().hex().upper().encode(), base64.urlsafe_b64encode(VALUE.encode()),
     base64.b32encode(VALUE.encode()), VALUE.upper().encode(), VALUE.lower().encode(),
     "".join(f"%{ord(one):02x}" for one in VALUE).encode(),
     json.dumps(VALUE)[1:-1].replace("/", "\\/").encode(),
     VALUE.replace('"', "\\u0022").replace("+", "\\u002B").encode()],
)  # fmt: skip
def test_the_usual_encodings_are_recognized(form: bytes) -> None:
    assert form not in _redactor().redact(b"<" + form + b">")


@given(
    st.integers(0, len(VALUE)),
    st.integers(0, len(VALUE)),
    st.lists(st.integers(0, 60), max_size=8),
    st.sampled_from(["", "s", "9", "sk-", VALUE[3:9]]),
)
def test_long_parts_are_redacted_however_the_stream_is_split(
    start: int, length: int, cuts: list[int], after: str
) -> None:
    part = VALUE[start : start + length]
    data = f"<{part}{after}>".encode()
    stream, pieces, done = StreamRedactor(_redactor(), parts=True), list[bytes](), 0
    for cut in [*sorted(cuts), len(data)]:
        pieces.append(stream.feed(data[done:cut]))
        done = max(done, cut)
    seen = b"".join([*pieces, stream.finish()])
    is_end = part and start + len(part) == len(VALUE)
    if len(part) >= (10 if start == 0 or is_end else 19):
        assert not any(VALUE[at : at + 8].encode() in seen for at in range(len(VALUE) - 8))
    elif len(part) < 4:
        assert seen == data


@pytest.mark.parametrize("size", [15, 16, 40, 300, 4_096])
def test_the_beginning_of_a_value_of_any_length_is_redacted(size: int) -> None:
    value = "".join(f"{number:x}" for number in range(100_000, 102_000))[:size]
    block = max(10, size // 64)
    for cut in (block, block + 1, 2 * block + 3, size - 1):
        seen = _redactor(value).redact(b"<" + value[:cut].encode() + b"...", parts=True)
        assert seen.startswith(b"<apexbridge-secret-")
        assert value[:10].encode() not in seen


@given(st.text("abz019-~", max_size=8), st.lists(st.integers(0, 60), max_size=4))
def test_an_echo_of_a_guess_is_the_same_whether_it_is_right_or_wrong(
    tail: str, cuts: list[int]
) -> None:
    redactor = _redactor()

    def echo(guess: str) -> bytes:
        data, done = f"<{guess}>{'.' * 60}".encode(), 0
        stream, pieces = StreamRedactor(redactor, parts=True), list[bytes]()
        for cut in [*sorted(cuts), len(data)]:
            pieces.append(stream.feed(data[done:cut]))
            done = max(done, cut)
        return b"".join([*pieces, stream.finish()])

    known = VALUE[:12]
    right = VALUE[12 : 12 + len(tail)]
    assert echo(known + tail[: len(right)]) == echo(known + right)


def test_names_of_files_are_redacted_too() -> None:
    files = _redactor().redact_all({f"a-{VALUE}.txt": VALUE.encode(), "b\udcff": b"x"})
    assert VALUE not in "".join(files)
    assert files["b\udcff"] == b"x"


def test_a_stream_is_not_held_back_without_need() -> None:
    stream = StreamRedactor(_redactor())
    assert stream.feed(b"data: 1\n\n") == b"data: 1\n\n"
    assert stream.feed(b"data: " + VALUE[:5].encode()) == b"data: "
    assert stream.feed(b"!") == VALUE[:5].encode() + b"!"
