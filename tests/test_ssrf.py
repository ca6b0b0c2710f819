"""SSRF guard: URL syntax, IP address classes, and networks that the operator allows."""

import contextlib
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.errors import SourceError
from apexbridge.ssrf import (
    CheckedUrl,
    IPNetwork,
    check_addresses,
    check_url,
    display_url,
    is_allowlisted,
    is_public,
    url_key,
)

OPEN: tuple[IPNetwork, ...] = (ipaddress.ip_network("10.0.0.0/8"),)
EVERYTHING: tuple[IPNetwork, ...] = (
    ipaddress.ip_network("0.0.0.0/0"),
    ipaddress.ip_network("::/0"),
)


@pytest.mark.promise("R01")
@pytest.mark.parametrize(
    "number",
    ["127.0.0.1", "127.1.2.3", "0.0.0.0", "0.1.2.3", "10.1.2.3", "172.16.0.1", "172.31.255.255",
     "192.168.1.1", "169.254.169.254", "169.254.0.1", "100.64.0.1", "100.127.255.255",
     "100.100.100.200", "168.63.129.16", "192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1",
     "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1",
     "255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
     "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::",
     "2002:a00:1::1", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1", "3fff::1",
     "100::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "fec0::1", "ff02::1",
     "5f00::1", "4000::1"],
)  # fmt: skip
def test_a_number_of_this_machine_or_its_neighbours_is_not_public(number: str) -> None:
    assert not is_public(ipaddress.ip_address(number))


@pytest.mark.parametrize(
    "number",
    ["93.184.216.34", "8.8.8.8", "100.63.255.255", "172.32.0.1", "223.255.255.255",
     "2606:2800:220:1:248:1893:25c8:1946", "2001:4860:4860::8888", "::ffff:8.8.8.8",
     "64:ff9b::808:808", "2002:808:808::1"],
)  # fmt: skip
def test_a_public_number_is(number: str) -> None:
    assert is_public(ipaddress.ip_address(number))


@pytest.mark.promise("R01")
@pytest.mark.parametrize(
    "number",
    ["169.254.169.254", "fd00:ec2::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe",
     "2002:a9fe:a9fe::", "168.63.129.16", "100.100.100.200", "192.0.0.192", "169.254.170.2"],
)  # fmt: skip
def test_no_network_opens_the_addresses_where_clouds_keep_credentials(number: str) -> None:
    found = ipaddress.ip_address(number)
    assert not is_allowlisted(found, EVERYTHING)
    with pytest.raises(SourceError):
        check_addresses(check_url("https://a.example"), [number], EVERYTHING)


@pytest.mark.promise("R01")
@pytest.mark.parametrize(
    "url",
    ["https://0", "https://0x7f.1", "https://2130706433", "https://127.1", "https://0177.0.0.1",
     "https://0x7f000001", "https://127.0.0.01", "https://1.2.3.4.5", "https://256.1.1.1",
     "https://１２７.1", "https://127。1", "https://0x", "https://127.1.", "https://a.0x7f",
     "https://[fe80::1%25eth0]", "https://[fe80::1%eth0]", "https://[::1", "https://[v1.x]",
     "https://[]", "https://[127.0.0.1]"],
)  # fmt: skip
def test_ssrf_a_non_canonical_ipv4_address_is_refused(url: str) -> None:
    with pytest.raises(SourceError) as caught:
        check_url(url)
    assert caught.value.code == "remote_refused"


@pytest.mark.promise("R01")
@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1", "https://[::1]", "https://[::ffff:169.254.169.254]",
     "https://１２７.０.０.１", "https://127。0。0。1"],
)  # fmt: skip
def test_ssrf_an_address_literal_is_checked(url: str) -> None:
    place = check_url(url)
    assert place.address is not None
    with pytest.raises(SourceError, match="public network"):
        check_addresses(place, [place.host], OPEN)


@pytest.mark.promise("R04")
@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://a.example/x", "gopher://a.example/x", "data:text/plain,x",
     "ext::sh -c whoami", "ext::sh", "git+ssh://-oProxyCommand=x/y", "-oProxyCommand=x",
     "ssh://-oProxyCommand=x@a.example/", "git://a.example/x", "javascript:alert(1)", "",
     "a.example/SKILL.md", "//a.example/x", "https:", "https:///x", "https:a", "s3://bucket/key",
     "https://-a.example", "https://a-.example", "https://a..example", "https://.example",
     "https://a%2eexample", "https://a example/", "https://a\\@b.example", "https://a.example\\b",
     "https://a.example/\n", "\thttps://a.example", "https://a.example/\x00",
     "https://a.example/\u2028", "https://a.example/\ud800", "https://u@a.example",
     "https://u:p@a.example", "https://:@a.example", "https://faß.example", "https://a:b",
     "https://a.example:0", "https://a.example:22", "https://a.example:99999",
     "https://a.example:-1", "https://a.example:８０", f"https://{'a' * 64}.example",
     f"https://{'a.' * 127}example", f"https://a.example/{'x' * 5000}", "https://a／b.example",
     "https://*.example", "https://a,b.example", "https://a.example;b"],
    ids=lambda url: ascii(url)[1:50],
)  # fmt: skip
def test_anything_but_a_plain_web_address_is_refused(url: str) -> None:
    with pytest.raises(SourceError) as caught:
        check_url(url)
    assert caught.value.code == "remote_refused"


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("https://Example.ORG", "https://example.org/"),
        ("HTTPS://example.org.:443/a?b#c", "https://example.org/a?b"),
        ("https://example.org:8443?q=1 ".strip(), "https://example.org:8443/?q=1"),
        ("http://example.org:80/", "http://example.org/"),
        ("https://技能.example/文件", "https://xn--2quq29d.example/%E6%96%87%E4%BB%B6"),
        ("https://a.example//b.example/%2e", "https://a.example//b.example/%2e"),
        ("https://[2001:4860:4860:0::8888]/", "https://[2001:4860:4860::8888]/"),
        ("https://my_host.example/", "https://my_host.example/"),
    ],
)
def test_an_address_has_one_spelling(url: str, plain: str) -> None:
    place = check_url(url)
    assert place.url == plain
    assert check_url(place.url) == place


@given(st.text(max_size=60))
def test_any_text_is_taken_apart_or_refused(text: str) -> None:
    for url in (text, f"https://{text}", f"https://a.example/{text}"):
        with contextlib.suppress(SourceError):
            place = check_url(url)
            assert place.url.isascii()
            assert _again(place) == place


def _again(place: CheckedUrl) -> CheckedUrl | None:
    try:
        return check_url(place.url)
    except SourceError:
        return None


def test_all_numbers_of_a_name_must_pass() -> None:
    place = check_url("https://a.example")
    both, is_private = check_addresses(place, ["8.8.8.8", "2001:4860:4860::8888"], ())
    assert [str(number) for number in both] == ["8.8.8.8", "2001:4860:4860::8888"]
    assert not is_private
    for numbers in (["8.8.8.8", "10.0.0.1"], ["10.0.0.1", "8.8.8.8"], [], ["x"], ["fe80::1%lo"]):
        with pytest.raises(SourceError):
            check_addresses(place, numbers, ())


def test_an_opened_network_is_reached_and_nothing_beside_it() -> None:
    place = check_url("https://intranet")
    assert check_addresses(place, ["10.0.0.1"], OPEN)[1]
    assert check_addresses(place, ["::ffff:10.0.0.1"], OPEN)[1]
    assert not check_addresses(place, ["10.0.0.1", "8.8.8.8"], OPEN)[1]
    for number in ("192.168.0.1", "11.0.0.1.2", "::1"):
        with pytest.raises(SourceError):
            check_addresses(place, [number], OPEN)


def test_plain_http_is_allowed_on_private_networks_only() -> None:
    place = check_url("http://a.example")
    assert check_addresses(place, ["10.0.0.1"], OPEN)[1]
    for numbers in (["8.8.8.8"], ["10.0.0.1", "8.8.8.8"]):
        with pytest.raises(SourceError, match="only https"):
            check_addresses(place, numbers, OPEN)


def test_an_address_is_shown_without_secrets_and_without_what_steers_a_terminal() -> None:
    assert display_url("https://u:secret@a.example/x?token=secret#y") == "https://a.example/x"
    assert display_url("https://[u:secret@a.example/x?token=secret") == "a.example/x"
    assert display_url("https://a.example/\x1b[31m") == "https://a.example/�[31m"
    assert len(display_url(f"https://a.example/{'x' * 5000}")) == 201


def test_an_address_is_remembered_without_its_secrets() -> None:
    key = url_key("https://A.example/x?token=secret")
    assert key.startswith("https://a.example/x?")
    assert "secret" not in key
    assert key != url_key("https://a.example/x?token=other")
    assert url_key("https://A.example:443/x#y") == "https://a.example/x"
    assert url_key("s3://bucket/key") == "s3://bucket/key"
    assert url_key("https://a.example/?\ud800").startswith("https://a.example/?")
