"""SSRF guard: check URLs and IP addresses before anything is requested from them.

Threat (server-side request forgery, CWE-918): a URL that a skill, an index or a redirect names
makes us send a request to where only this machine can reach: localhost, the private network, a
cloud's metadata service with its credentials. So a URL is checked twice, as it is written
(`check_url`) and by the IP addresses that its host resolves to (`check_addresses`). The HTTP client
connects to exactly the addresses that were checked: resolving again would let DNS rebinding pass.
"""

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import quote, urlsplit, urlunsplit

from apexbridge.errors import SourceError

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

# Written out, because `ipaddress.is_global` differs between versions of Python.
_PRIVATE_V4 = tuple(map(ipaddress.IPv4Network, (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15",
    "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
)))  # fmt: skip
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_PRIVATE_V6 = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_CLOUD_METADATA = frozenset(map(ipaddress.ip_address, (
    "169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200",
    "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254",
)))  # fmt: skip
"""Metadata services, which hand out the machine's cloud credentials. No setting allows them."""


def is_public(address: IPAddress) -> bool:
    """Return whether an address is globally routable, also when IPv6 wraps an IPv4 address."""
    plain = _unwrap_ipv4(address)
    if plain in _CLOUD_METADATA:
        return False
    if isinstance(plain, ipaddress.IPv4Address):
        return not any(plain in network for network in _PRIVATE_V4)
    return plain in _GLOBAL_V6 and not any(plain in network for network in _PRIVATE_V6)


def is_allowlisted(address: IPAddress, networks: Iterable[IPNetwork]) -> bool:
    """Return whether an address is on a network that the operator allows."""
    plain = _unwrap_ipv4(address)
    return plain not in _CLOUD_METADATA and any(plain in network for network in networks)


def _unwrap_ipv4(address: IPAddress) -> IPAddress:
    """Extract the IPv4 address of a mapped, 6to4 or NAT64 one. Teredo is never public and stays."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


Scheme = Literal["https", "http"]
_DEFAULT_PORTS = {"https": 443, "http": 80}
_FIRST_UNPRIVILEGED_PORT = 1024
_MAX_URL = 4_096
_MAX_HOST = 253
_MAX_DISPLAYED = 200
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
_IDNA_AMBIGUOUS = frozenset("ßς\u200c\u200d")
"""Characters that IDNA 2003 and 2008 map to different hosts."""
_SAFE_IN_PATH = "/%:@!$&'()*+,;=~"
_SAFE_IN_QUERY = f"{_SAFE_IN_PATH}?"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedUrl:
    """A URL that passed the syntax checks."""

    scheme: Scheme
    host: str
    """ASCII (IDNA), lower case, without brackets."""
    port: int
    rest: str
    """Path and query."""
    address: IPAddress | None = None
    """The host itself, if it is an IP address literal."""

    @property
    def url(self) -> str:
        """The canonical spelling of the URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.rest}"


def url_refused(url: str, detail: str) -> SourceError:
    """Build the error for a URL that is not requested."""
    return SourceError(detail, code="remote_refused", url=display_url(url))


def check_url(url: str) -> CheckedUrl:
    """Parse a URL, or refuse it for its syntax.

    Raises:
        SourceError: `remote_refused`, for anything but http and https with a plain host.
    """
    if len(url) > _MAX_URL or "\\" in url or any(not c.isprintable() or c == " " for c in url):
        detail = "it is too long or contains characters that are not allowed in a URL"
        raise url_refused(url, detail)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise url_refused(url, "it is not a valid URL") from None
    scheme = next((known for known in get_args(Scheme) if known == parts.scheme), None)
    if scheme is None or not parts.hostname:
        raise url_refused(url, "it is not an https:// URL with a host")
    if "@" in parts.netloc:
        raise url_refused(url, "it contains a user name or password")
    if port is None:
        port = _DEFAULT_PORTS[scheme]
    if port not in _DEFAULT_PORTS.values() and port < _FIRST_UNPRIVILEGED_PORT:
        raise url_refused(url, f"port {port} is not allowed")
    query = f"?{quote(parts.query, safe=_SAFE_IN_QUERY)}" if parts.query else ""
    rest = quote(parts.path or "/", safe=_SAFE_IN_PATH) + query
    host = _host(url, parts.hostname, is_bracketed="[" in parts.netloc)
    address = None if isinstance(host, str) else host
    return CheckedUrl(scheme=scheme, host=str(host), port=port, rest=rest, address=address)


def _host(url: str, written: str, *, is_bracketed: bool) -> str | IPAddress:
    if is_bracketed:
        try:
            return ipaddress.IPv6Address(written if "%" not in written else "")
        except ValueError:
            raise url_refused(url, "its host is not a plain IPv6 address") from None
    if _IDNA_AMBIGUOUS.intersection(written):
        raise url_refused(url, "its host is ambiguous in IDNA; write it as xn--…")
    try:
        host = written.removesuffix(".").encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise url_refused(url, "its host is not a valid name") from None
    labels = host.split(".")
    if _NUMERIC_LABEL.fullmatch(labels[-1]):
        try:
            return ipaddress.IPv4Address(host)
        except ValueError:
            raise url_refused(url, "its host is an IPv4 address in a non-canonical form") from None
    if len(host) > _MAX_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise url_refused(url, "its host is not a valid name")
    return host


def check_addresses(
    target: CheckedUrl, addresses: Sequence[str], networks: Iterable[IPNetwork]
) -> tuple[tuple[IPAddress, ...], bool]:
    """Check the resolved IP addresses; return them and whether all are on allowed private networks.

    One private address among public ones is an attack, not an accident: all must pass.

    Raises:
        SourceError: `remote_refused`, if one may not be reached.
    """
    found = tuple(map(_parse_address, addresses))
    allowed = tuple(networks)
    allowlisted = [address is not None and is_allowlisted(address, allowed) for address in found]
    for written, address, is_allowed in zip(addresses, found, allowlisted, strict=True):
        if address is None or not (is_allowed or is_public(address)):
            raise url_refused(target.url, f"{_printable(written)} is not on the public network")
    if not found:
        raise url_refused(target.url, "its host has no IP address")
    if target.scheme == "http" and not all(allowlisted):
        raise url_refused(target.url, "only https is allowed on the public network")
    return tuple(address for address in found if address is not None), all(allowlisted)


def _parse_address(written: str) -> IPAddress | None:
    """Parse an address; one with a scope id (`fe80::1%eth0`) is refused."""
    try:
        return ipaddress.ip_address(written) if "%" not in written else None
    except ValueError:
        return None


def display_url(url: str) -> str:
    """Redact a URL for display: no user info, no query, no control characters."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        bare = urlunsplit((parts.scheme, host, parts.path, "", ""))
    except ValueError:
        bare = url.partition("?")[0].rpartition("@")[2]
    return _printable(bare)


def _printable(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else "�" for letter in text)
    return plain if len(plain) <= _MAX_DISPLAYED else f"{plain[:_MAX_DISPLAYED]}…"


def url_key(url: str) -> str:
    """Build the cache key of a URL: canonical spelling, the query (maybe a secret) hashed."""
    try:
        plain = check_url(url).url
    except SourceError:  # an object storage URL
        plain = url.partition("#")[0]
    bare, _, query = plain.partition("?")
    digest = hashlib.sha256(query.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{bare}?{digest[:16]}" if query else bare
