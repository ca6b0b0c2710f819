"""Host names: one strict grammar for rules, requests and what is dialled."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.sandbox.host_rule import HostRule, normalize_host, parse_port


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Example.ORG.", "example.org"),
        ("localhost", "localhost"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("a_b.example", "a_b.example"),
        ("１２.example", "12.example"),
    ],
)
def test_a_host_is_normalized(text: str, expected: str) -> None:
    assert normalize_host(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "a..b", ".a", "a.b..", "evil\0.example.org", "a b.example", "a\n.example",
     "-a.example", "a-.example", "a/b", "a@b", "a:1", "[::1]", "::1", "127.0.0.1", "127.1",
     "0x7f.1", "2130706433", "a%41.example", "x" * 64 + ".example", "a." * 127 + "toolong",
     "xn--a.example", "*.example", "evil。\0example", "\ud800.example"],
)  # fmt: skip
def test_what_is_no_host_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="names no host"):
        normalize_host(text)


@pytest.mark.parametrize("text", ["", "0", "65536", "+443", "4_43", " 443", "٤٤٣", "443\0", "1e2"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no port"):
        parse_port(text)


@given(st.text(max_size=60))
def test_a_normalized_name_stays_as_it_is(text: str) -> None:
    try:
        name = normalize_host(text)
    except ValueError:
        return
    assert normalize_host(name) == name
    assert name.isascii()
    assert HostRule.parse(name).matches(text, 443)
