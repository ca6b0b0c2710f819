"""Host names: one strict grammar, and the rules that grant hosts to a script.

A name is normalized once. The normalized text is what rules are compared with, what is resolved
and dialled, and what TLS checks, so that no two readers can see two different hosts in it.
"""

import re
import socket
from dataclasses import dataclass

DEFAULT_PORTS = (80, 443)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_MAX_LENGTH = 253
_MAX_PORT = 65_535
_PORT = re.compile(r"[0-9]{1,5}")


def normalize_host(text: str) -> str:
    """Normalize a host name: lower case, ASCII (IDNA), without the final dot.

    >>> normalize_host("Bücher.Example.")
    'xn--bcher-kva.example'

    Raises:
        ValueError: If it is no host name: an address, an invalid label, a control character.
    """
    try:
        name = text.removesuffix(".").encode("idna").decode("ascii").lower()
        # An `xn--` label that is not what IDNA makes of its text is a spelling of something else.
        readable = name.encode("ascii").decode("idna").encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise ValueError(f"{text!r} names no host") from None
    is_valid = all(map(_LABEL.fullmatch, name.split("."))) and len(name) <= _MAX_LENGTH
    if not is_valid or readable != name or is_ip_literal(name):
        raise ValueError(f"{text!r} names no host")
    return name


def parse_port(text: str) -> int:
    """Parse a port: decimal digits only, where `int` would take `+443`, `4_43` and `٤٤٣`.

    Raises:
        ValueError: If it is no port.
    """
    if not _PORT.fullmatch(text) or not 0 < int(text) <= _MAX_PORT:
        raise ValueError(f"{text!r} is no port")
    return int(text)


def is_ip_literal(text: str) -> bool:
    """Detect IP literals in every spelling of resolvers: `127.1`, `0x7f.1`, `2130706433`, `::1`."""
    try:
        socket.inet_aton(text)
    except (OSError, ValueError):
        return ":" in text or text.startswith("[")
    return True


@dataclass(frozen=True, slots=True)
class HostRule:
    """A granted host: `example.org`, `*.example.org`, `example.org:8443`."""

    name: str
    port: int | None = None

    @classmethod
    def parse(cls, text: str, *, allows_wildcard: bool = True) -> "HostRule":
        """Parse the written form.

        Raises:
            ValueError: If it names no host, or is an address: only names can be granted.
        """
        name, colon, port = text.strip().partition(":")
        bare = name.removeprefix("*.") if allows_wildcard else name
        star = name[: len(name) - len(bare)]
        return cls(star + normalize_host(bare), parse_port(port) if colon else None)

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}:{self.port}"

    def matches(self, host: str, port: int) -> bool:
        """Match a host and port."""
        if port != self.port if self.port else port not in DEFAULT_PORTS:
            return False
        try:
            wanted = normalize_host(host)
        except ValueError:
            return False
        if self.name.startswith("*."):
            return wanted.endswith(self.name[1:])
        return wanted == self.name
