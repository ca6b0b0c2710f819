"""Placeholders of secrets in a run: what the script holds instead of a value.

A script never gets a value. Its environment has a random placeholder, which the egress proxy swaps
for the value on the way to the hosts of the grant; `redaction` is the other direction.
"""

import re
import secrets
from dataclasses import dataclass, field
from typing import Literal, get_args

from apexbridge.sandbox.host_rule import HostRule

Place = Literal["header", "query", "path", "body"]
"""A part of a request in which a placeholder may be swapped."""
PLACES: tuple[Place, ...] = get_args(Place)
MIN_VALUE, MAX_VALUE = 8, 4_096
"""Characters of a value: a shorter one would be redacted wherever these characters occur."""
_MARK = "apexbridge-secret-"
PLACEHOLDER = re.compile(rb"apexbridge-secret-[0-9a-f]{32}")
"""A placeholder of this or any other run, without its prefix."""


def create_placeholder(prefix: str = "") -> str:
    """Create a random placeholder; `prefix` for clients that check the shape of a key."""
    return f"{prefix}{_MARK}{secrets.token_hex(16)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSecret:
    """A secret of one run: name, placeholder, and value for the proxy alone."""

    name: str
    placeholder: str
    value: str = field(repr=False)
    hosts: tuple[HostRule, ...]
    places: frozenset[Place] = frozenset({"header"})

    def is_for(self, host: str, port: int) -> bool:
        """Return whether the value may be sent to a host."""
        return any(rule.matches(host, port) for rule in self.hosts)
