"""Which numbers are public, and which lead to this machine or its neighbours. Pure."""

import ipaddress
from collections.abc import Iterable

Number = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Written out, because what Python calls global differs between its versions.
_PRIVATE_V4 = tuple(
    map(
        ipaddress.IPv4Network,
        ("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
         "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
         "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
    )
)  # fmt: skip
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_PRIVATE_V6 = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        ("169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200",
         "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
    )
)  # fmt: skip
"""Where clouds give a machine its credentials. No setting opens them."""


def is_public(number: Number) -> bool:
    """Say whether a number is one of the public network's, whatever it is wrapped in."""
    plain = _unwrapped(number)
    if plain in _METADATA:
        return False
    if isinstance(plain, ipaddress.IPv4Address):
        return not any(plain in network for network in _PRIVATE_V4)
    return plain in _GLOBAL_V6 and not any(plain in network for network in _PRIVATE_V6)


def is_permitted(number: Number, networks: Iterable[Network]) -> bool:
    """Say whether the operator opened a network that this number lies in."""
    plain = _unwrapped(number)
    return plain not in _METADATA and any(plain in network for network in networks)


def _unwrapped(number: Number) -> Number:
    """The IPv4 number in a mapped, 6to4 or NAT64 one. Teredo is never public: it stays itself."""
    if isinstance(number, ipaddress.IPv4Address):
        return number
    if number in _NAT64:
        return ipaddress.IPv4Address(int(number) & 0xFFFFFFFF)
    return number.ipv4_mapped or number.sixtofour or number
