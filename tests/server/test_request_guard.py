"""Host allow-list of the request guard (DNS rebinding)."""

import pytest

from apexbridge.server.request_guard import HostPolicy, format_host, is_loopback, is_unspecified
from apexbridge.settings import ServerSettings


@pytest.mark.parametrize(
    ("host", "loopback", "everywhere"),
    [
        ("127.0.0.1", True, False),
        ("127.9.9.9", True, False),
        ("localhost", True, False),
        ("LOCALHOST", True, False),
        ("::1", True, False),
        ("[::1]", True, False),
        ("0.0.0.0", False, True),
        ("::", False, True),
        ("", False, True),
        ("10.0.0.1", False, False),
        ("localhost.example.org", False, False),
    ],
)
def test_an_address_is_known_for_what_it_is(host: str, loopback: bool, everywhere: bool) -> None:
    assert is_loopback(host) is loopback
    assert is_unspecified(host) is everywhere


@pytest.mark.promise("S02")
def test_all_interfaces_do_not_allow_all_host_names() -> None:
    names = HostPolicy(ServerSettings(host="0.0.0.0", allowed_hosts=("box.example.org",)))
    assert names.allows_host(b"127.0.0.1:8484", 8484)
    assert names.allows_host(b"[::1]:8484", 8484)
    assert names.allows_host(b"box.example.org:1", 8484)
    assert not names.allows_host(b"localhost:8484", 8484)
    assert not names.allows_host(b"10.0.0.1:8484", 8484)
    assert not names.allows_host(b"0.0.0.0:8484", 8484)
    assert not names.allows_host(b"127.0.0.1:8484", None)


def test_its_own_address_is_a_name_and_a_usual_port_is_left_out() -> None:
    names = HostPolicy(ServerSettings(host="10.0.0.1"))
    assert names.allows_host(b"10.0.0.1:8484", 8484)
    assert not names.allows_host(b"10.0.0.1", 8484)
    assert names.allows_host(b"10.0.0.1", 80)
    assert HostPolicy(ServerSettings(host="::1")).allows_host(b"[::1]:80", 80)
    assert format_host("::1") == "[::1]"
    assert format_host("[::1]") == "[::1]"
