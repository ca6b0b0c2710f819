"""Placeholders of secrets in a run: what the script holds instead of a value, and redaction.

A script never gets a value. Its environment has a random placeholder, which the egress proxy swaps
for the value on the way to the hosts of the grant. `Redactor` is the other direction: whatever
comes back from such a host, or out of the run, has the placeholder again in place of the value.
"""

import base64
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Literal, get_args
from urllib.parse import quote, quote_plus

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


class Redactor:
    """Replace values, also in the usual encodings, by their placeholders."""

    def __init__(self, run_secrets: Iterable[RunSecret]) -> None:
        self._replacements: dict[bytes, bytes] = {}
        for secret in run_secrets:
            for needle in _encoded_forms(secret.value):
                if len(needle) >= MIN_VALUE:
                    self._replacements.setdefault(needle, secret.placeholder.encode())
        # Longest first: a form that contains another one is replaced as a whole.
        needles = sorted(self._replacements, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, needles)) or b"(?!)")
        self._folded = re.compile(self._pattern.pattern, re.IGNORECASE)

    def redact(self, data: bytes) -> bytes:
        """Replace every occurrence."""
        return self._pattern.sub(lambda match: self._replacements[match[0]], data)

    def redact_all(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Replace every occurrence in names and contents of files."""
        return {
            self.redact(name.encode("utf-8", "surrogateescape")).decode(
                "utf-8", "surrogateescape"
            ): self.redact(data)
            for name, data in files.items()
        }

    def is_in(self, data: bytes) -> bool:
        """Return whether a value occurs, in any letter case."""
        return self._folded.search(data) is not None

    def held_back(self, data: bytes) -> int:
        """Return the length of the longest end of `data` that may be the beginning of a form."""
        return max((_overlap(data, needle) for needle in self._replacements), default=0)


def _overlap(data: bytes, needle: bytes) -> int:
    """Return the length of the longest end of `data` that is a proper beginning of the needle."""
    at = data.find(needle[:1], max(len(data) - len(needle) + 1, 0))
    while at >= 0 and not needle.startswith(data[at:]):
        at = data.find(needle[:1], at + 1)
    return len(data) - at if at >= 0 else 0


class StreamRedactor:
    """Redact a stream, also a form that is split between pieces; holds back what may be one."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor, self._rest = redactor, b""

    def feed(self, piece: bytes) -> bytes:
        """Take a piece; return what can be passed on."""
        data = self._redactor.redact(self._rest + piece)
        length = self._redactor.held_back(data)
        self._rest = data[len(data) - length :]
        return data[: len(data) - length]

    def finish(self) -> bytes:
        """Return the rest at the end of the stream."""
        rest, self._rest = self._rest, b""
        return rest


def _encoded_forms(value: str) -> Iterator[bytes]:
    raw = value.encode()
    yield raw
    yield from (value.encode("utf-16-le"), value.encode("utf-16-be"), raw[::-1])
    texts = {
        json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], escape(value),
        raw.hex(), raw.hex().upper(), *_percent_forms(value),
    }  # fmt: skip
    yield from (text.encode() for text in texts)
    for offset in range(3):
        yield from _base64_core(raw, offset)
    yield from (form.encode() for form in _base32(raw))


def _percent_forms(value: str) -> Iterator[str]:
    for form in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield form
        yield re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), form)


def _base64_core(raw: bytes, offset: int) -> Iterator[bytes]:
    """Yield the characters that depend on the value alone, at one of the three alignments."""
    end = (offset + len(raw)) // 3 * 4
    start = (0, 2, 3)[offset]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(b"\0" * offset + raw)[start:end]


def _base32(raw: bytes) -> tuple[str, str]:
    text = base64.b32encode(raw[: len(raw) // 5 * 5]).decode()
    return text, text.lower()
