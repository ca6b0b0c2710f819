"""Which addresses on the network may be asked for a skill. Pure.

An address is judged twice: as it is written (`judge_url`), and by the numbers its name stands for
(`judge_numbers`). Whoever connects uses the numbers that were judged, and no others.
"""

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import quote, urlsplit, urlunsplit

from apexbridge.errors import SourceError
from apexbridge.networks import Network, Number, is_permitted, is_public

Scheme = Literal["https", "http"]
_USUAL_PORTS = {"https": 443, "http": 80}
_FIRST_FREE_PORT = 1024
_MAX_URL = 4_096
_MAX_HOST = 253
_MAX_SHOWN = 200
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_LIKE_A_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_AMBIGUOUS = frozenset("ßς\u200c\u200d")
"""What two standards for names turn into two different hosts."""
_KEPT_IN_PATH = "/%:@!$&'()*+,;=~"
_KEPT_IN_QUERY = f"{_KEPT_IN_PATH}?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An address whose written form is in order."""

    scheme: Scheme
    host: str
    """In ASCII, in lower case, without brackets."""
    port: int
    rest: str
    """Path and query."""
    number: Number | None = None
    """The host itself, where it is no name."""

    @property
    def url(self) -> str:
        """The one spelling of the address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _USUAL_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.rest}"


def refused(url: str, detail: str) -> SourceError:
    """The error for an address that is not asked."""
    return SourceError(detail, code="remote_refused", url=shown(url))


def judge_url(url: str) -> Place:
    """Take an address apart, or refuse it for how it is written.

    Raises:
        SourceError: `remote_refused`, for anything but http and https with a plain host.
    """
    if len(url) > _MAX_URL or "\\" in url or any(not c.isprintable() or c == " " for c in url):
        raise refused(url, "it is too long, or holds characters that no address has")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise refused(url, "it cannot be taken apart") from None
    scheme = next((known for known in get_args(Scheme) if known == parts.scheme), None)
    if scheme is None or not parts.hostname:
        raise refused(url, "it is not https:// and a host")
    if "@" in parts.netloc:
        raise refused(url, "it holds a user name or a password")
    if port is None:
        port = _USUAL_PORTS[scheme]
    if port not in _USUAL_PORTS.values() and port < _FIRST_FREE_PORT:
        raise refused(url, f"port {port} is not one of a web server")
    query = f"?{quote(parts.query, safe=_KEPT_IN_QUERY)}" if parts.query else ""
    rest = quote(parts.path or "/", safe=_KEPT_IN_PATH) + query
    host = _host(url, parts.hostname, is_bracketed="[" in parts.netloc)
    number = None if isinstance(host, str) else host
    return Place(scheme=scheme, host=str(host), port=port, rest=rest, number=number)


def _host(url: str, written: str, *, is_bracketed: bool) -> str | Number:
    if is_bracketed:
        try:
            return ipaddress.IPv6Address(written if "%" not in written else "")
        except ValueError:
            raise refused(url, "its host is no plain IPv6 address") from None
    if _AMBIGUOUS.intersection(written):
        raise refused(url, "its host can be read in two ways; write it as xn--…")
    try:
        host = written.removesuffix(".").encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise refused(url, "its host is no name") from None
    labels = host.split(".")
    if _LIKE_A_NUMBER.fullmatch(labels[-1]):
        try:
            return ipaddress.IPv4Address(host)
        except ValueError:
            raise refused(url, "its host is an IPv4 address in an odd form") from None
    if len(host) > _MAX_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise refused(url, "its host is no name")
    return host


def judge_numbers(
    place: Place, numbers: Sequence[str], networks: Iterable[Network]
) -> tuple[tuple[Number, ...], bool]:
    """Judge what a name stands for: the numbers, and whether all are on networks that were opened.

    One private address among public ones is an attempt, not an accident: all must pass.

    Raises:
        SourceError: `remote_refused`, if one may not be reached.
    """
    found = tuple(map(_read, numbers))
    allowed = tuple(networks)
    permitted = [number is not None and is_permitted(number, allowed) for number in found]
    for written, number, is_in in zip(numbers, found, permitted, strict=True):
        if number is None or not (is_in or is_public(number)):
            raise refused(place.url, f"{_quoted(written)} is not on the public network")
    if not found:
        raise refused(place.url, "its host has no address")
    if place.scheme == "http" and not all(permitted):
        raise refused(place.url, "only https is used on the public network")
    return tuple(number for number in found if number is not None), all(permitted)


def _read(written: str) -> Number | None:
    """A number in its plain form; one that belongs to one network card only is none."""
    try:
        return ipaddress.ip_address(written) if "%" not in written else None
    except ValueError:
        return None


def shown(url: str) -> str:
    """An address as people may see it: without its user, its query, and what steers a terminal."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        bare = urlunsplit((parts.scheme, host, parts.path, "", ""))
    except ValueError:
        bare = url.partition("?")[0].rpartition("@")[2]
    return _quoted(bare)


def _quoted(text: str) -> str:
    plain = "".join(letter if letter.isprintable() else "�" for letter in text)
    return plain if len(plain) <= _MAX_SHOWN else f"{plain[:_MAX_SHOWN]}…"


def key_of(url: str) -> str:
    """What an address is remembered by: one spelling, and of its query, which may be a secret,
    only a hash.
    """  # noqa: D205
    try:
        plain = judge_url(url).url
    except SourceError:  # a bucket's
        plain = url.partition("#")[0]
    bare, _, query = plain.partition("?")
    return f"{bare}?{_short_hash(query)}" if query else bare


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
